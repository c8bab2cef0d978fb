"""Convert what tasks, models and metrics return to plain JSON data, and hash it."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import numpy as np

#: Constants that Python's `json` adds to the standard. NaN is always this one object: containers
#: compare their items by identity first, so results that hold it are still equal to themselves.
_CONSTANTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def loads(text: str) -> Any:
    """Returns the data of a JSON text, in which every NaN is the object `math.nan`."""
    return json.loads(text, parse_constant=_CONSTANTS.__getitem__)


def plain(value: Any) -> Any:
    """Returns `value` as a JSON file gives it back: dictionaries with text keys, lists, text,
    numbers, booleans, None.
    """
    try:
        text = json.dumps(value, default=handle_non_serializable)
    except TypeError:  # a key that JSON does not accept: a tuple, a numpy number
        text = json.dumps(_with_json_keys(value), default=handle_non_serializable)
    return loads(text)


def _with_json_keys(value: Any) -> Any:
    """Returns a copy in which every key that JSON does not accept is replaced by its text."""
    if isinstance(value, dict):
        return {
            key if key is None or isinstance(key, (str, int, float)) else str(key): (
                _with_json_keys(item)
            )
            for key, item in value.items()
        }
    return [_with_json_keys(item) for item in value] if isinstance(value, (list, tuple)) else value


def handle_non_serializable(o: Any) -> Any:
    """Fallback for `json.dumps(default=)`: numpy numbers as numbers, sets as lists, else text."""
    if isinstance(o, np.bool_):
        return bool(o)
    if isinstance(o, np.integer):
        return int(o)
    if isinstance(o, np.floating):
        return float(o)
    if isinstance(o, set):
        return list(o)
    return str(o)


def sanitize_list(sub: Any) -> Any:
    """Returns nested lists with every leaf as text: all lines of a log get the same types."""
    if isinstance(sub, list):
        return [sanitize_list(item) for item in sub]
    if isinstance(sub, tuple):
        return tuple(sanitize_list(item) for item in sub)
    return str(sub)


def hash_json(value: Any) -> str:
    """Returns a short hash of plain data that does not depend on the order of keys."""
    try:
        text = json.dumps(value, sort_keys=True, default=handle_non_serializable)
    except TypeError:  # keys that JSON does not accept, or that cannot be sorted: 3 and "three"
        text = json.dumps(plain(value), sort_keys=True)
    return hash_string(text)[:16]


def hash_string(string: str) -> str:
    """Returns the SHA-256 hash of a text, in hexadecimal digits."""
    return hashlib.sha256(string.encode("utf-8", "backslashreplace")).hexdigest()
