"""Reads results files and the sample logs beside them: the inverse of `files.save`."""

from __future__ import annotations

import logging
import re
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from lm_eval._version import __version__
from lm_eval.errors import OutputError
from lm_eval.results.checksums import CHECKSUM, is_changed
from lm_eval.results.damaged_fields import damaged_fields
from lm_eval.results.files import sample_files
from lm_eval.results.sample_log import read_samples_file
from lm_eval.results.schema import FORMAT, EvalResults
from lm_eval.results.serialize import loads

logger = logging.getLogger(__name__)

#: The name of a results file ends in the time at which it was written.
_STAMPED = re.compile(r".+_(?P<time>\d{4}-\d\d-\d\dT[\d.-]+)\.json")


def latest_results(path: Path) -> Path:
    """Returns the newest results file in the folder `path` or its subfolders, at any depth.

    The `date` in a file decides, its start in seconds; the time in the name of a file that has
    none, and where dates are equal. For a run folder `x.run`, the files `x_<time>.json` beside it
    count too. A `path` that is not a folder is returned unchanged. Raises `OutputError` if there is
    no results file.
    """
    if not path.is_dir():
        return path
    found_files = list(path.rglob("*.json"))
    if path.suffix == ".run":  # the results of a run folder `x.run` are beside it: `x_<time>.json`
        found_files += path.parent.glob(f"{path.stem}_*.json")
    stamped = {file: _STAMPED.fullmatch(file.name) for file in found_files}
    # Reading a pipe would block, and a device may never end.
    files = {file: found["time"] for file, found in stamped.items() if found and file.is_file()}
    if not files:
        raise OutputError(
            f"{path}: this folder contains no results file (results_<time>.json). Pass a results "
            "file, or the --output_path of the run."
        )
    return max(files, key=lambda file: (_date(file, files[file]), files[file]))


def _date(file: Path, stamp: str) -> float:
    """Returns the start of the run that wrote a results file, in seconds since 1970.

    `stamp` is the time in the name of the file, which counts if the file cannot be read or has no
    date. Returns 0 if the name has no valid time either.
    """
    try:
        date = loads(file.read_text(encoding="utf-8")).get("date")
        if isinstance(date, (int, float)) and date >= 0:
            return float(date)
    except (OSError, ValueError, RecursionError, AttributeError):
        pass
    day, _, clock = stamp.partition("T")
    try:
        return datetime.fromisoformat(f"{day}T{clock.replace('-', ':')}").timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


def read_results(path: str | Path) -> EvalResults:
    """Returns the content of a results file, written by this package or the published harness.

    For a file that `save` wrote, the return value equals the saved results without `samples`; use
    `read_samples` for these. Raises `OutputError` if the file is missing, is not a results file, or
    was written in a newer format. Logs a warning if it was changed after it was written.
    """
    content, damaged = read_valid_fields(path)
    if damaged:
        raise OutputError(
            f"{path}: is damaged: its `{damaged[0]}` is not an object. Pass the file as lm_eval "
            "wrote it."
        )
    return content


def read_valid_fields(path: str | Path) -> tuple[EvalResults, list[str]]:
    """Returns the content of a results file without its damaged fields, and the names of these.

    Raises `OutputError` and warns as `read_results` does, but not for damaged fields.
    """
    path = Path(path)
    if not path.is_file():
        raise OutputError(f"{path}: there is no such file. Check the path.")
    try:
        content: Any = loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise OutputError(
            f"{path}: cannot be read as a results file ({error}). Pass a file that lm_eval wrote "
            "(results_<time>.json)."
        ) from error
    if isinstance(content, dict):
        _check_format(content, path)
    rows = content.get("results") if isinstance(content, dict) else None
    if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
        raise OutputError(
            f"{path}: is not a results file: it has no rows under `results`. Pass a file that "
            "lm_eval wrote (results_<time>.json)."
        )
    if is_changed(content):
        logger.warning(
            "%s: was changed after it was written: its checksum is wrong. Its numbers and settings "
            "are read as they are.",
            path,
        )
    damaged = damaged_fields(content)
    for name in (CHECKSUM, *damaged):
        content.pop(name, None)
    return cast("EvalResults", content), damaged


def _check_format(content: dict[str, Any], path: Path) -> None:
    """Raises `OutputError` if the `format` of `content` is newer than this version can read.

    Also raises if it is not a positive integer. A missing `format` is accepted. `path` is named in
    the message.
    """
    written = content.get("format", FORMAT)  # the published harness does not write this field
    if type(written) is not int or written < 1:
        raise OutputError(
            f"{path}: is not a results file: its `format` is {written!r}, not a positive integer."
        )
    if written > FORMAT:
        version = content.get("lm_eval_version")
        writer = f"lm_eval {version}" if isinstance(version, str) else "a newer version of lm_eval"
        remedy = f"lm_eval {version} or newer" if isinstance(version, str) else "a newer lm_eval"
        raise OutputError(
            f"{path}: was written by {writer} in format {written}; this version ({__version__}) "
            f"reads formats up to {FORMAT}. Install {remedy} to read it."
        )


def read_samples(path: str | Path) -> dict[str, list[dict[str, Any]]]:
    """Returns the samples of a results file as a dictionary of task name to list of samples.

    Reads the sample logs beside `path`. Logs in the formats `zst` and `parquet` return the samples
    as saved. In the published format, `jsonl`, targets and answers were converted to strings. If
    the run saved no samples, the dictionary is empty. Raises `OutputError` if a log is missing or
    `path` is not a results file, and `DataError` if a log cannot be read.
    """
    path = Path(path)
    found: dict[str, list[dict[str, Any]]] = {}
    for name, file in sample_files(path, read_results(path).get("task_hashes") or {}).items():
        if file is None:
            raise OutputError(
                f"{path}: the sample log of task {name!r} (samples_…) is not beside it. Copy the "
                "sample logs into the same folder as the results file."
            )
        found[name] = read_samples_file(file)
    return found
