"""Finds sample logs, also those of older versions of the published harness, and their results.

There are three forms of names:

- `samples_<task>_<time>.jsonl` (or `.jsonl.zst`, `.parquet`), beside `results_<time>.json`;
- `samples_<task>_<time>.json`, of development versions before 0.4.3;
- `<model arguments>_<task>.jsonl`, of 0.4.0 to 0.4.2, beside `results.json` or another `.json` file
  that the user named. It contains one JSON list.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from lm_eval.errors import OutputError
from lm_eval.results.checksums import is_changed
from lm_eval.results.damaged_fields import damaged_fields
from lm_eval.results.names import MAX_NAME_BYTES, file_name
from lm_eval.results.sample_log import EXTENSIONS

logger = logging.getLogger(__name__)

_NAME = re.compile(r"samples_(?P<task>.+)_(?P<stamp>\d{4}-\d\d-\d\dT[\d.-]+?)(?P<end>\.[a-z].*)")
_ENDINGS = {*EXTENSIONS.values(), ".json"}
#: How the content of a log of 0.4.0 to 0.4.2 begins.
_OLD_BEGINNING = re.compile(rb"\s*\[\s*\{\s*\"doc_id\"\s*:")

IsTask = Callable[[str], bool]


def find_logs(path: Path, is_task: IsTask | None = None) -> dict[str, Path]:
    """Returns a dictionary of task name to the path of its sample log.

    If `path` is a file, that is the only log. If it is a folder, returns the newest log of every
    task in it or in one of its direct subfolders; empty if there are none or `path` does not exist.
    The name of a log of 0.4.0 to 0.4.2 does not show where the task's name begins. The results file
    beside it decides; without one, the longest name for which `is_task` is true.

    Raises `OutputError` if the file is not named like a sample log, or if there are the logs of
    several models.
    """
    if path.is_file():
        found = _NAME.fullmatch(path.name)
        if found is not None:
            return {_task_name(path, found["task"]): path}
        if _is_old(path):
            return {_old_task(path, is_task): path}
        raise OutputError(
            f"{path}: is not a sample log: its name must be like samples_<task>_<time>.jsonl, or "
            "its content a list of samples, as versions before 0.4.3 wrote it."
        )
    folders = [path, *sorted(p for p in path.iterdir() if p.is_dir())] if path.is_dir() else []
    with_logs = [f for f in folders if any(_NAME.fullmatch(p.name) for p in f.glob("samples_*"))]
    if len(with_logs) > 1:
        raise OutputError(
            f"{path}: contains the sample logs of several models; pass one of these folders: "
            f"{', '.join(str(folder) for folder in with_logs)}."
        )
    if not with_logs:
        return _find_old_logs(folders, path, is_task)
    logs: dict[str, tuple[str, Path]] = {}
    for file in with_logs[0].glob("samples_*"):
        found = _NAME.fullmatch(file.name)
        if found is not None and found["end"] in _ENDINGS and file.is_file():
            name = _task_name(file, found["task"])
            logs[name] = max(logs.get(name, ("", file)), (found["stamp"], file))
    return {name: file for name, (_, file) in sorted(logs.items())}


def results_beside(logs: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """Returns for each task the content of the results file that was written with its sample log.

    `logs` maps task names to sample logs. The value is an empty dictionary if there is no readable
    results file beside the log.
    """
    return {name: _results_of(log, name) for name, log in logs.items()}


def _results_of(log: Path, task: str) -> dict[str, Any]:
    named = _NAME.fullmatch(log.name)
    if named is None:
        return _old_results(log, task) or {}
    files = (f for f in log.parent.glob(f"*_{named['stamp']}.json") if not _NAME.fullmatch(f.name))
    return next(_contents(files), {})


def _contents(files: Iterator[Path]) -> Iterator[dict[str, Any]]:
    """Yields the content of each of the `files` that is a results file."""
    for file in files:
        if not file.is_file():  # reading a pipe would block
            continue
        try:
            content = _read_json(file, file.stat().st_mtime_ns)
        except (OSError, ValueError, RecursionError):
            continue
        if not isinstance(content, dict) or damaged_fields(content):
            continue
        if isinstance(content.get("configs", {}), dict):
            yield content


@lru_cache(maxsize=8)
def _read_json(file: Path, modified: int) -> Any:
    """Returns the content of a JSON file; all logs of a run share one results file.

    `modified` is its modification time, so that an edited file is read again.
    """
    content = json.loads(file.read_text(encoding="utf-8"))
    if isinstance(content, dict) and is_changed(content):
        logger.warning(
            "%s: was changed after it was written: its checksum is wrong. The settings of the run "
            "are read from it as they are.",
            file,
        )
    return content


def _task_name(log: Path, written: str) -> str:
    """Returns the name of the task that a sample log belongs to.

    `written` is the name as it is in the file name. `file_name` may have replaced characters or
    cut it; then the original name is looked up in the results file beside the log.
    """
    if "__" in written or len(written.encode(errors="replace")) >= MAX_NAME_BYTES - 3:
        for name in _results_of(log, written).get("configs", {}):
            if file_name(name) == written:
                return str(name)
    return written


# -- logs of 0.4.0 to 0.4.2 -------------------------------------------------------------------


def _find_old_logs(folders: list[Path], path: Path, is_task: IsTask | None) -> dict[str, Path]:
    """Returns the logs of 0.4.0 to 0.4.2 in the first of `folders` that has any; see `find_logs`.

    In such a folder, each run replaced the results file but added its logs. If there are logs of
    several models, those that the results file describes are returned.
    """
    found = next(
        (logs for f in folders if (logs := [p for p in sorted(f.glob("*_*.jsonl")) if _is_old(p)])),
        [],
    )
    tasks = {log: _old_task(log, is_task) for log in found}
    models = {log.stem.removesuffix(f"_{task}") for log, task in tasks.items()}
    if len(models) > 1:
        tasks = {log: task for log, task in tasks.items() if _old_results(log, task) is not None}
        if not tasks:
            raise OutputError(
                f"{path}: contains the sample logs of several models ({', '.join(sorted(models))}) "
                "and no results file that belongs to one of them; pass one log."
            )
    return {task: log for log, task in sorted(tasks.items(), key=lambda item: item[1])}


def _is_old(path: Path) -> bool:
    """Returns whether a file is a log of 0.4.0 to 0.4.2, judging by the first bytes."""
    try:
        if not path.is_file():  # opening a pipe would block
            return False
        with path.open("rb") as file:
            return _OLD_BEGINNING.match(file.read(200)) is not None
    except OSError:
        return False


def _old_task(log: Path, is_task: IsTask | None) -> str:
    """Returns the name of the task of a log called `<model arguments>_<task>.jsonl`.

    It is the longest name that ends the file name and is in a results file beside the log, or else
    for which `is_task` is true. Without either, it begins after the first `_` of the last argument.
    """
    marks = [mark.end() for mark in re.finditer("_", log.stem)]
    endings = [log.stem[mark:] for mark in marks]
    known = {
        name
        for content in _contents(log.parent.glob("*.json"))
        for name in content.get("configs", {})
    }
    found = next((ending for ending in endings if ending in known), None)
    if found is None and is_task is not None:
        found = next(filter(is_task, endings), None)
    if found is not None:
        return found
    last = log.stem.rpartition("__")[2]
    return last.partition("_")[2] or last


def _old_results(log: Path, task: str) -> dict[str, Any] | None:
    """Returns the content of the results file that describes a log of 0.4.0 to 0.4.2, or None."""
    for content in _contents(log.parent.glob("*.json")):
        arguments = str((content.get("config") or {}).get("model_args") or "")
        model = re.sub("[/=]", "__", arguments)
        if task in content.get("configs", {}) and log.stem == f"{model}_{task}":
            return content
    return None
