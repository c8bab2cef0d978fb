"""Make anything a task, model or metric hands over fit for JSON."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np


def handle_non_serializable(o: Any) -> Any:
    """What `json.dumps(default=)` falls back on: plain numbers and lists, else text."""
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
    """Every leaf of nested lists as text, so that all lines of a log have the same types."""
    if isinstance(sub, list):
        return [sanitize_list(item) for item in sub]
    if isinstance(sub, tuple):
        return tuple(sanitize_list(item) for item in sub)
    return str(sub)


def hash_json(value: Any) -> str:
    """A short hash of plain data, the same whatever order its keys stand in."""
    text = json.dumps(value, sort_keys=True, default=handle_non_serializable)
    return hash_string(text)[:16]


def hash_string(string: str) -> str:
    return hashlib.sha256(string.encode("utf-8", "backslashreplace")).hexdigest()
