"""Names of models, and conversion of model and task names to file names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

#: Maximum length in bytes of a name within a file name. File systems allow 255 bytes in total, and
#: prefix, timestamp and file extension need some of them.
MAX_NAME_BYTES = 180


def name_of_weights(model_args: Mapping[str, Any]) -> str | None:
    """Returns the path or hub name of the weights among the model arguments, or None.

    It is the first of the arguments `peft`, `delta`, `pretrained`, `model`, `path` and `engine`
    that is given: an adapter takes precedence over the model that it is applied to.
    """
    keys = ("peft", "delta", "pretrained", "model", "path", "engine")
    return next((str(model_args[key]) for key in keys if key in model_args), None)


def without_folder(model: str) -> str:
    """Returns `file.py:Class` for `path/to/file.py:Class`; any other name is returned unchanged."""
    return re.sub(r"^.*[/\\](?=[^/\\]+\.py:\w+$)", "", model)


def sanitize_model_name(model_name: str) -> str:
    """Returns the model name with characters that paths cannot contain replaced by `__`.

    Several of them in a row, such as `://`, become one `__`. The result is the same as in the
    published harness.
    """
    return re.sub(r"[\"<>:/|\\?*\[\]]+", "__", model_name)


def file_name(name: str) -> str:
    """Returns a model or task name in a form that is safe as part of a file name.

    Same as `sanitize_model_name`, with two exceptions. An empty name and a name of dots (`.`, `..`)
    are replaced by the name of the folder that they refer to, or `model` for the root. A name
    longer than `MAX_NAME_BYTES` is cut, and a hash of the whole name is appended to keep it unique.
    """
    sanitized = sanitize_model_name(name)
    if not sanitized.strip("."):
        sanitized = Path(name).resolve().name or "model"
    if len(sanitized.encode(errors="replace")) <= MAX_NAME_BYTES:
        return sanitized
    digits = sha256(name.encode(errors="backslashreplace")).hexdigest()[:12]
    kept = MAX_NAME_BYTES - len(digits) - 1
    beginning = sanitized.encode(errors="replace")[:kept].decode(errors="ignore")
    return f"{beginning}_{digits}"
