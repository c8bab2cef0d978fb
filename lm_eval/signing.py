"""Signs what this user has written, so that files of other people can be told from it.

The key is a random secret in the user's state folder, which only the user may read. It never leaves
this machine. A signature tells nothing about the key, so it may be published.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from lm_eval.folders import state_folder

logger = logging.getLogger(__name__)

_KEY_FILE = "signing_key"
_KEY_BYTES = 32


def sign(content: bytes) -> str | None:
    """Returns the signature of `content`; None if there is no key and none can be created."""
    key = _key(create=True)
    return None if key is None else _signature(key, content)


def is_signed(content: bytes, signature: object) -> bool:
    """Returns whether `signature` is that of `content` with this user's key."""
    if not isinstance(signature, str) or not signature.isascii():
        return False
    key = _key(create=False)
    return key is not None and hmac.compare_digest(_signature(key, content), signature)


def _signature(key: bytes, content: bytes) -> str:
    return hmac.new(key, content, hashlib.sha256).hexdigest()


def _key(create: bool) -> bytes | None:
    """Returns the key, or None if there is none; with `create`, it is created if it is missing.

    A key that others could have read is not used.
    """
    file = state_folder() / _KEY_FILE
    try:
        if create and not file.exists():
            _create(file)
        state = file.lstat()
        content = file.read_bytes()
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        if create:
            logger.info("Runs are not marked as made here: %s: %s.", file, error)
        return None
    private = os.name == "nt" or (
        stat.S_ISREG(state.st_mode) and not state.st_mode & 0o077 and state.st_uid == os.geteuid()
    )
    if not private or len(content) != _KEY_BYTES:
        logger.warning(
            "%s is not used: it must be a file of %d bytes that only you may read. Remove it, and "
            "a new one is written; runs that were marked with it no longer count as made here.",
            file,
            _KEY_BYTES,
        )
        return None
    return content


def _create(file: Path) -> None:
    """Writes a new key. Another process that does so at the same time may win; its key is kept."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{_KEY_FILE}.")  # mode 0600
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(secrets.token_bytes(_KEY_BYTES))
        with suppress(FileExistsError):
            _link(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def _link(temporary: Path, file: Path) -> None:
    """Moves a file to a path that must not exist; raises `FileExistsError` if it does."""
    try:
        os.link(temporary, file)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        temporary.rename(file)
