"""Keeps Python objects in files between runs, under the names of the published harness.

The evaluation itself does not use it: building requests takes less time than reading them.
Third-party loops do, to keep the requests that they built.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import re
from pathlib import Path
from typing import Any

from lm_eval.folders import cache_folder

eval_logger = logging.getLogger(__name__)

#: The folder of the files: `$LM_HARNESS_CACHE_PATH`, or a folder in that of this package.
PATH = os.environ.get("LM_HARNESS_CACHE_PATH") or str(cache_folder() / "objects")
FILE_SUFFIX = ".lm_eval.pickle"

#: The longest file name in bytes; file systems allow 255.
_MAX_BYTES = 240


def load_from_cache(file_name: str, cache: bool = False) -> Any:
    """Returns the object that was saved as `file_name`.

    Returns None if `cache` is False, if there is no such object, or if it cannot be read. The file
    is a pickle: keep the folder writable only for people whom you trust.
    """
    if not cache:
        return None
    try:
        return pickle.loads(_file(file_name).read_bytes())
    except Exception as error:  # unpickling can raise anything
        eval_logger.debug("%s is not in the cache (%s).", file_name, error)
        return None


def save_to_cache(file_name: str, obj: Any) -> None:
    """Saves an object under a name; `load_from_cache` returns it, also in another process."""
    file = _file(file_name)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}")
    partial.write_bytes(pickle.dumps(obj))
    partial.replace(file)


def delete_cache(key: str = "") -> None:
    """Deletes all saved objects whose names begin with `key`."""
    for file in Path(PATH).glob(f"*{FILE_SUFFIX}"):
        if file.name.startswith(key):
            file.unlink(missing_ok=True)


def _file(name: str) -> Path:
    """Returns the file of an object; a long name is shortened and gets a hash of the whole."""
    safe = re.sub(r"[/\\]+", "_", name)
    if len(f"{safe}{FILE_SUFFIX}".encode()) > _MAX_BYTES:
        digits = hashlib.sha256(name.encode()).hexdigest()[:16]
        kept = _MAX_BYTES - len(digits) - 1 - len(FILE_SUFFIX)
        safe = f"{safe.encode()[:kept].decode(errors='ignore')}-{digits}"
    return Path(PATH, f"{safe}{FILE_SUFFIX}")
