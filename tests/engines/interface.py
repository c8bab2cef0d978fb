"""The interfaces of engines at the versions that the adapters were written for.

The fakes of this folder are called with exactly these signatures, so that a wrong argument fails.
`make test-servers` compares them with the installed packages.
"""

from __future__ import annotations

import importlib.machinery
import inspect
import json
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

FILE = Path(__file__).with_name("interfaces.json")
INTERFACES: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))

T = TypeVar("T", bound=type)


def signature(location: str) -> inspect.Signature:
    """Returns the signature of what `module:name` locates; all defaults are `...`."""
    package = location.partition(".")[0].partition(":")[0]
    names: dict[str, Any] = {}
    exec(f"def function{INTERFACES[package]['signatures'][location]}: pass", names)
    return inspect.signature(names["function"])


def listed(location: str) -> list[str]:
    """Returns the list that `module:name` locates."""
    package = location.partition(".")[0]
    return list(INTERFACES[package]["lists"][location])


def pinned(location: str) -> Callable[[Any], Any]:
    """Returns a decorator of functions: calls with other arguments than the original's fail.

    The function has the original's signature, and gets the arguments that were given by name.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        original = signature(location)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = original.bind(*args, **kwargs).arguments
            more = bound.pop("kwargs", {})
            return function(**bound, **more)

        call.__signature__ = original  # type: ignore[attr-defined]
        return call

    return decorate


def pinned_class(location: str) -> Callable[[T], T]:
    """Returns a decorator of classes: their constructor accepts what the original's accepts."""

    def decorate(kind: T) -> T:
        original = signature(location)
        construct = kind.__init__  # type: ignore[misc]

        def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
            bound = original.bind(*args, **kwargs).arguments
            more = bound.pop("kwargs", {})
            construct(self, **bound, **more)

        kind.__init__ = initialize  # type: ignore[misc]
        kind.__signature__ = original  # type: ignore[attr-defined]
        return kind

    return decorate


def modules(contents: Mapping[str, Mapping[str, Any]]) -> dict[str, ModuleType]:
    """Returns modules by name, with those that contain them; each with its attributes."""
    names = {
        ".".join(name.split(".")[:end])
        for name in contents
        for end in range(1, name.count(".") + 2)
    }
    found = {}
    for name in sorted(names):
        module = ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__path__ = []
        vars(module).update(contents.get(name, {}))
        found[name] = module
    return found
