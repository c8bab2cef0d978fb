"""New tasks, groups, metrics, filters and models, copied from `templates/` (`lm-eval new`).

In the templates, `name_here` and `NameHere` stand for the new name.
"""

from __future__ import annotations

import builtins
import keyword
import re
import sys
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from lm_eval.api.registry import filter_registry, metric_registry
from lm_eval.errors import ConfigError, OutputError
from lm_eval.tasks import TaskManager

TEMPLATES = Path(__file__).parent / "templates"
KINDS = ("task", "group", "metric", "filter", "model")
OUTPUT_TYPES = ("multiple_choice", "generate_until", "loglikelihood", "loglikelihood_rolling")


@dataclass(frozen=True)
class Created:
    """What `create` wrote."""

    files: list[Path]
    """The files, in `folder`."""
    folder: Path
    task: str | None
    """The task or group to run: for a metric or filter, the example that uses it."""
    model: str | None
    """The location of a model class, as `--model` takes it."""


def create(
    kind: str, name: str, parent: Path = Path(), output_type: str = OUTPUT_TYPES[0]
) -> Created:
    """Writes the files of a template, with `name` filled in; returns what was written.

    A model becomes the file `parent/name.py`; everything else a folder `parent/name/`. The names of
    metrics, filters and models are converted to snake case.

    Args:
        kind: one of `KINDS`.
        name: the name of the task, group, metric, filter or model.
        parent: the folder to write to; created if it does not exist.
        output_type: for a task, one of `OUTPUT_TYPES`; otherwise ignored.

    Raises:
        ConfigError: the name is not valid, or is already used.
        OutputError: a file to be written exists, or the folder cannot be written.
    """
    snake, camel = _spellings(kind, name)
    task = None if kind == "model" else f"{snake}_example" if kind in REGISTERED else snake
    _check_unused(kind, snake, task)
    source = TEMPLATES / kind / output_type if kind == "task" else TEMPLATES / kind
    folder = parent if kind == "model" else parent / snake
    texts = {
        folder / file.name.replace("name_here", snake): file.read_text(encoding="utf-8")
        for file in sorted(source.iterdir())
        if file.is_file()
    }
    filled = {
        path: text.replace("name_here", snake).replace("NameHere", camel)
        for path, text in texts.items()
    }
    _write_all(folder, filled)
    model = f"{folder / snake}.py:{camel}" if kind == "model" else None
    return Created(list(texts), folder, task, model)


def _write_all(folder: Path, texts: Mapping[Path, str]) -> None:
    """Writes new files, all of them or none; creates `folder` if it does not exist.

    `texts` maps the paths, in `folder`, to their content. Raises `OutputError` if a file exists or
    cannot be written.
    """
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        if isinstance(error, FileExistsError) and error.filename != str(folder):
            message = f"{error.filename} exists already"
        else:
            message = f"{folder}: cannot be written ({error.strerror})"
        raise OutputError(f"{message}; choose another name or folder.") from error


#: Kinds whose names share a registry with the built-in ones, where a second one would be ambiguous.
REGISTERED: dict[str, Container[str]] = {"metric": metric_registry, "filter": filter_registry}


def _spellings(kind: str, name: str) -> tuple[str, str]:
    """Returns `name` in snake case, for files, functions and tasks, and in camel case for classes.

    Names of tasks and groups are kept as they are, and so is a class name with capitals
    (`HTTPModel`). Raises `ConfigError` if the name is not valid: for a task or group, in file names
    and YAML; otherwise, as a new name in Python.
    """
    if kind in ("task", "group"):
        if not re.fullmatch(r"\w[\w.\-]*", name) or len(name) > 100:
            raise ConfigError(
                f"{name!r} cannot be the name of a {kind}: use up to 100 letters, digits, '_', "
                "'-' and '.', and begin with a letter or digit."
            )
        if yaml.safe_load(name) != name:
            raise ConfigError(
                f"{name!r} cannot be the name of a {kind}: YAML reads it as "
                f"{yaml.safe_load(name)!r}. Choose another name."
            )
        return name, name
    plain = name.replace("-", "_")
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", plain).lower()
    camel = "".join(part[:1].upper() + part[1:] for part in plain.split("_"))
    valid = re.fullmatch(r"[a-z][a-z0-9_]{0,99}", snake)
    if not valid or keyword.iskeyword(snake) or keyword.iskeyword(camel):
        raise ConfigError(
            f"{name!r} cannot be the name of a {kind}: it becomes a Python name, so use letters, "
            "digits and '_', begin with a letter, and avoid Python's keywords."
        )
    if snake in sys.stdlib_module_names or snake in dir(builtins) or camel == "NotFound":
        raise ConfigError(
            f"{name!r} cannot be the name of a {kind}: it would hide a name of Python or of the "
            "template. Choose another name."
        )
    return snake, camel


def _check_unused(kind: str, name: str, task: str | None) -> None:
    """Raises `ConfigError` if lm_eval, a plug-in or a pack already uses a name.

    For a metric or filter, `name` must not be registered. `task` must not be the name of a task,
    group or tag; None is not checked.
    """
    if name in REGISTERED.get(kind, ()):
        raise ConfigError(f"there is already a {kind} {name!r}; choose another name.")
    if task is not None and task in TaskManager().task_index:
        raise ConfigError(f"there is already a task, group or tag {task!r}; choose another name.")
