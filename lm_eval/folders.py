"""The folders of the user in which data is kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Returns `$LMEVAL_CACHE_DIR`, or `lm_eval` in the user's cache folder if it is not set."""
    custom = os.environ.get("LMEVAL_CACHE_DIR")
    if custom:
        return Path(custom).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "lm_eval"


def state_folder() -> Path:
    """Returns `$LMEVAL_STATE_DIR`, or `lm_eval` in the user's state folder if it is not set."""
    custom = os.environ.get("LMEVAL_STATE_DIR")
    if custom:
        return Path(custom).expanduser()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "lm_eval"
