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
from lm_eval.signing import is_signed, sign

eval_logger = logging.getLogger(__name__)

#: The folder of the files: `$LM_HARNESS_CACHE_PATH`, or a folder in that of this package.
PATH = os.environ.get("LM_HARNESS_CACHE_PATH") or str(cache_folder() / "objects")
FILE_SUFFIX = ".lm_eval.pickle"

#: A signature follows the pickle. What is signed begins with its purpose, so that the signature of
#: something else is not accepted.
_PURPOSE, _SIGNATURE_BYTES = b"object ", 64

#: The longest file name in bytes; file systems allow 255.
_MAX_BYTES = 240


def load_from_cache(file_name: str, cache: bool = False) -> Any:
    """Returns the object that was saved as `file_name`.

    Returns None if `cache` is False, if there is no such object, or if it cannot be read. The file
    is a pickle, which can contain code; it is read only if this user has written it (`signing`).
    """
    if not cache:
        return None
    try:
        content = _file(file_name).read_bytes()
        pickled, signature = content[:-_SIGNATURE_BYTES], content[-_SIGNATURE_BYTES:]
        if not is_signed(_PURPOSE + pickled, signature.decode("ascii", "replace")):
            eval_logger.warning(
                "%s was not written by you with this version, and is not read.", _file(file_name)
            )
            return None
        return pickle.loads(pickled)
    except Exception as error:  # unpickling can raise anything
        eval_logger.debug("%s is not in the cache (%s).", file_name, error)
        return None


def save_to_cache(file_name: str, obj: Any) -> None:
    """Saves an object under a name; `load_from_cache` returns it, also in another process."""
    file = _file(file_name)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}")
    pickled = pickle.dumps(obj)
    signature = sign(_PURPOSE + pickled) or ""
    partial.write_bytes(pickled + signature.encode())  # pickle ignores what follows
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
