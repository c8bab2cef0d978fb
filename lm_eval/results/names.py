"""What a model is called, and names as files can spell them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

#: Bytes of a name within a file's, which may have 255 with all that is put around it.
LONGEST = 180


def name_of_weights(model_args: Mapping[str, Any]) -> str | None:
    """What a model is called by its arguments: the weights it was given."""
    keys = ("peft", "delta", "pretrained", "model", "path", "engine")
    return next((str(model_args[key]) for key in keys if key in model_args), None)


def sanitize_model_name(model_name: str) -> str:
    """A model's name as a folder name, as published."""
    return re.sub(r"[\"<>:/|\\?*\[\]]+", "__", model_name)


def file_name(name: str) -> str:
    """A name as part of a file's: as published, but never too long, nor a way to another folder.

    `.` and `..` are called what the folder they lead to is called; a name that is too long keeps
    its beginning, and a few digits that tell it from others with the same.
    """
    spelt = sanitize_model_name(name)
    if not spelt.strip("."):
        spelt = Path(name).resolve().name or "model"
    if len(spelt.encode(errors="replace")) <= LONGEST:
        return spelt
    digits = sha256(name.encode(errors="backslashreplace")).hexdigest()[:12]
    beginning = spelt.encode(errors="replace")[: LONGEST - len(digits) - 1].decode(errors="ignore")
    return f"{beginning}_{digits}"
