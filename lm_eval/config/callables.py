"""Describes callables by text that is the same in every process, for hashes and results files.

The `repr` of a `functools.partial`, of most objects, and of a function without source code contains
memory addresses, by which a configuration would seem to change with every run.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from types import BuiltinMethodType, CodeType, FunctionType, MethodType
from typing import Any

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def describe_callable(function: Callable[..., Any]) -> str:
    """Returns the source code of a function or class, and a description of any other callable.

    A `functools.partial` is described by its function and its bound arguments, an object by its
    class and its attributes, and a function without source code by its name and a hash of its
    code.
    """
    return _describe(function, ())


def name_of(value: Any) -> str:
    """Returns the qualified name of a function or class; for other objects, that of their class.

    For a `functools.partial`, it is the name of its function.
    """
    if isinstance(value, functools.partial):
        return name_of(value.func)
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__ or 'builtins'}.{named.__qualname__}"


def _describe(value: Any, outer: tuple[int, ...]) -> str:
    """Describes a callable; `outer` are the ids of the objects that contain it."""
    if isinstance(value, functools.partial):
        outer = (*outer, id(value))
        bound = [_argument(one, outer) for one in value.args]
        bound += [f"{key}={_argument(one, outer)}" for key, one in sorted(value.keywords.items())]
        name = name_of(value.func)
        return f"functools.partial({', '.join([name, *bound])})\n{_describe(value.func, outer)}"
    try:
        return _source(value)
    except (TypeError, OSError):
        text = str(value)
    if not _ADDRESS.search(text):
        return text  # such as `<built-in function len>`
    if isinstance(value, (MethodType, BuiltinMethodType)):
        return f"{name_of(value)} of {_argument(value.__self__, (*outer, id(value)))}"
    if isinstance(value, FunctionType):
        return f"{name_of(value)} {_code_hash(value.__code__)}"
    return _object(value, outer)


def _source(value: Any) -> str:
    """Returns the source code of a function or class; raises `OSError` or `TypeError` without it.

    Code that was compiled from a text has none, although since Python 3.13 `inspect` returns lines
    of the program of `python -c` for it.
    """
    code = getattr(inspect.unwrap(value), "__code__", None)
    if code is not None and code.co_filename == "<string>":
        raise OSError("the code was compiled from a text")
    return inspect.getsource(value)


def _argument(value: Any, outer: tuple[int, ...]) -> str:
    """Describes a value that is bound to a callable, or an attribute of one."""
    if id(value) in outer:
        return "…"  # an object that refers to itself
    inside = (*outer, id(value))
    if isinstance(value, Mapping):
        items = (f"{_argument(k, inside)}: {_argument(v, inside)}" for k, v in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_argument(one, inside) for one in value)}]"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(_argument(one, inside) for one in value))}}}"
    if callable(value):
        return _describe(value, outer)
    text = repr(value)
    return _object(value, outer) if _ADDRESS.search(text) else text


def _object(value: Any, outer: tuple[int, ...]) -> str:
    """Describes an object by the source code of its class and its attributes."""
    kind = type(value)
    try:
        source = inspect.getsource(kind)
    except (TypeError, OSError):
        source = ""
    attributes = getattr(value, "__dict__", {})
    state = _argument(dict(sorted(attributes.items())), (*outer, id(value)))
    return f"{name_of(kind)} {state}\n{source}".rstrip("\n")


def _code_hash(code: CodeType) -> str:
    """Returns a hash of compiled code. Versions of Python may compile the same text differently."""
    digest = hashlib.sha256(code.co_code)
    for one in (*code.co_names, *code.co_consts):
        text = _code_hash(one) if isinstance(one, CodeType) else _argument(one, ())
        digest.update(text.encode("utf-8", "backslashreplace"))
    return digest.hexdigest()[:16]
