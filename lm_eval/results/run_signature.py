"""Marks the runs of this user, so that those of other people are not trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lm_eval.results.serialize import to_json_data
from lm_eval.signing import is_signed, sign


def run_signature(settings: Mapping[str, Any], directory: str) -> str | None:
    """Returns the signature of a run's settings and working directory with the user's key.

    None if the key cannot be written; the run then counts as made by someone else.
    """
    return sign(_content(settings, directory))


def made_here(settings: Mapping[str, Any], directory: object, signature: object) -> bool:
    """Returns whether a run was made by this user on this machine, and was not changed since.

    `signature` is what `run_signature` returned for the run. The folder may have been moved.
    """
    return isinstance(directory, str) and is_signed(_content(settings, directory), signature)


def _content(settings: Mapping[str, Any], directory: str) -> bytes:
    """Returns what is signed, as bytes that are the same before and after the run was stored."""
    plain = to_json_data({"settings": settings, "directory": directory})
    return b"run " + json.dumps(plain, sort_keys=True).encode()
