"""Converts values that tasks, models and metrics return to plain JSON data, and hashes them."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import numpy as np

#: Constants that Python's `json` reads in addition to the standard. NaN is always the same object:
#: lists and dictionaries compare items by identity first, so that results with NaN are equal to
#: themselves.
_CONSTANTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def loads(text: str) -> Any:
    """Returns the value of a JSON string, like `json.loads`; every NaN is the object `math.nan`."""
    return json.loads(text, parse_constant=_CONSTANTS.__getitem__)


def to_json_data(value: Any) -> Any:
    """Returns `value` as it would be read back from a JSON file.

    The result consists of dictionaries with string keys, lists, strings, numbers (also NaN and
    infinities), booleans and None. `handle_non_serializable` converts other objects.
    """
    try:
        text = json.dumps(value, default=handle_non_serializable)
    except TypeError:  # a key that JSON does not accept: a tuple, a numpy number
        text = json.dumps(_with_json_keys(value), default=handle_non_serializable)
    return loads(text)


def _with_json_keys(value: Any) -> Any:
    """Returns a copy in which every dictionary key that JSON does not accept is a string.

    Nested dictionaries, lists and tuples are copied too; tuples become lists.
    """
    if isinstance(value, dict):
        return {
            key if key is None or isinstance(key, (str, int, float)) else str(key): (
                _with_json_keys(item)
            )
            for key, item in value.items()
        }
    return [_with_json_keys(item) for item in value] if isinstance(value, (list, tuple)) else value


def handle_non_serializable(o: Any) -> Any:
    """Converts an object for `json.dumps(default=handle_non_serializable)`.

    Returns numpy scalars as Python numbers, sets as lists, and everything else as a string.
    """
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
    """Returns nested lists and tuples with every leaf converted to a string.

    All lines of a sample log then have the same column types.
    """
    if isinstance(sub, list):
        return [sanitize_list(item) for item in sub]
    if isinstance(sub, tuple):
        return tuple(sanitize_list(item) for item in sub)
    return str(sub)


def hash_json(value: Any) -> str:
    """Returns a hash of 16 hexadecimal digits of JSON data. The order of keys does not matter.

    Other objects are hashed as `handle_non_serializable` returns them.
    """
    try:
        text = json.dumps(value, sort_keys=True, default=handle_non_serializable)
    except TypeError:  # keys that JSON does not accept, or that cannot be sorted: 3 and "three"
        text = json.dumps(to_json_data(value), sort_keys=True)
    return hash_string(text)[:16]


def hash_string(string: str) -> str:
    """Returns the SHA-256 hash of a string, as 64 hexadecimal digits."""
    return hashlib.sha256(string.encode("utf-8", "backslashreplace")).hexdigest()
