"""Names of models, and conversion of model and task names to file names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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


def sanitize_task_name(task_name: str) -> str:
    """Returns the task name with every character that is not a letter, digit or `_` as `_`."""
    return re.sub(r"\W", "_", task_name)


def get_file_task_name(filename: str) -> str:
    """Returns the task in the name of a sample log: `t` of `samples_t_2026-11-17.jsonl`."""
    return filename[filename.find("_") + 1 : filename.rfind("_")]


def get_file_datetime(filename: str) -> str:
    """Returns the time in the name of a results file or sample log, as text.

    The ending `.jsonl` is removed, the ending `.json` is not, as in the published harness.
    """
    return filename[filename.rfind("_") + 1 :].replace(".jsonl", "")


def get_latest_filename(filenames: Iterable[str]) -> str:
    """Returns the file whose name has the latest time; `ValueError` if there are none."""
    return max(filenames, key=get_file_datetime)


def get_results_filenames(filenames: Iterable[str]) -> list[str]:
    """Returns the paths that belong to results files (`…/results_<time>.json`)."""
    return [name for name in filenames if "/results_" in name and ".json" in name]


def get_sample_results_filenames(filenames: Iterable[str]) -> list[str]:
    """Returns the paths that belong to sample logs (`…/samples_<task>_<time>.jsonl`)."""
    return [name for name in filenames if "/samples_" in name and ".json" in name]


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
