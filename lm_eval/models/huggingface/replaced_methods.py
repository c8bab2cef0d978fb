"""Which of our methods a subclass has overridden, or a patch has replaced on class or object."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any


def methods_of(kind: type, names: Iterable[str]) -> dict[str, Any]:
    """Returns the methods of a class as they are stored there, by name."""
    return {name: inspect.getattr_static(kind, name) for name in names}


def method_of(lm: Any, name: str) -> Any:
    """Returns what `lm.name` calls: the attribute of the object if it has one, else its class's.

    It is the same object on each call, which a bound method is not.
    """
    own = vars(lm)
    return own[name] if name in own else inspect.getattr_static(type(lm), name)


def replaced_methods(lm: Any, ours: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the methods of `lm` that are not those in `ours`, by name."""
    found = {name: method_of(lm, name) for name in ours}
    return {name: method for name, method in found.items() if method is not ours[name]}


def patched_methods(lm: Any, ours: Mapping[str, Any]) -> dict[str, str]:
    """Returns a digest of the source of each method that a patch has replaced, by name.

    A patch is an assignment to the object, or to one of our own classes. What a subclass overrides
    is no patch: it is part of the class, and is identified with it.
    """
    found = {}
    for name, method in replaced_methods(lm, ours).items():
        holders = (kind for kind in type(lm).__mro__ if name in vars(kind))
        if name in vars(lm) or next(holders).__module__.startswith("lm_eval."):
            found[name] = _source_digest(method)
    return found


def _source_digest(function: Any) -> str:
    """Returns a hash of the source of a function; of its name if there is no source."""
    try:
        text = inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        text = f"{type(function).__module__}.{getattr(function, '__qualname__', type(function))}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
