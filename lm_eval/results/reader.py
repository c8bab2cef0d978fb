"""Read results files and the sample logs beside them: the inverse of `files.save`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

from lm_eval import __version__
from lm_eval.errors import OutputError
from lm_eval.results.files import sample_files
from lm_eval.results.sample_log import read_samples_file
from lm_eval.results.schema import FORMAT, EvalResults
from lm_eval.results.serialise import loads

#: The name of a results file ends in the time when it was written.
_STAMPED = re.compile(r".+_(?P<time>\d{4}-\d\d-\d\dT[\d.-]+)\.json")


def latest_results(path: Path) -> Path:
    """Returns the newest results file below a folder; a path that is no folder, as it is."""
    if not path.is_dir():
        return path
    found_files = list(path.rglob("*.json"))
    if path.suffix == ".run":  # the folder of a run whose results are beside it, `x_<time>.json`
        found_files += path.parent.glob(f"{path.stem}_*.json")
    stamped = {file: _STAMPED.fullmatch(file.name) for file in found_files}
    files = {file: found["time"] for file, found in stamped.items() if found is not None}
    if not files:
        raise OutputError(f"{path}: holds no results (results_<time>.json).")
    return max(files, key=lambda file: files[file])


def read_results(path: str | Path) -> EvalResults:
    """Returns the content of a results file, ours or the published harness's.

    For a file of ours, it is equal to the results that were saved, `samples` aside; `read_samples`
    reads those. Raises `OutputError` for a file that is missing, is no results file, or was
    written in a newer format.
    """
    path = Path(path)
    if not path.is_file():
        raise OutputError(f"{path}: there is no such file.")
    try:
        content: Any = loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OutputError(f"{path}: cannot be read as results ({error}).") from error
    if isinstance(content, dict):
        _check_format(content, path)
    rows = content.get("results") if isinstance(content, dict) else None
    if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
        raise OutputError(f"{path}: is no results file: it has no rows under `results`.")
    return cast("EvalResults", content)


def _check_format(content: dict[str, Any], path: Path) -> None:
    written = content.get("format", FORMAT)  # the published harness has no such field
    if type(written) is not int or written < 1:
        raise OutputError(f"{path}: is no results file: its `format` is {written!r}, not a number.")
    if written > FORMAT:
        version = content.get("lm_eval_version")
        writer = f"lm_eval {version}" if isinstance(version, str) else "a newer version of lm_eval"
        remedy = f"lm_eval {version} or newer" if isinstance(version, str) else "a newer lm_eval"
        raise OutputError(
            f"{path}: was written by {writer} in format {written}; this version ({__version__}) "
            f"reads formats up to {FORMAT}. Install {remedy} to read it."
        )


def read_samples(path: str | Path) -> dict[str, list[dict[str, Any]]]:
    """Returns the samples that were saved with a results file, by task, as plain JSON data.

    Logs in the formats `zst` and `parquet` give back what was saved. In a `jsonl` log, the
    published format, targets and answers are text. A run that kept no samples gives an empty
    dictionary; logs that are missing raise `OutputError`.
    """
    path = Path(path)
    found: dict[str, list[dict[str, Any]]] = {}
    for name, file in sample_files(path, read_results(path).get("task_hashes") or {}).items():
        if file is None:
            raise OutputError(
                f"{path}: the sample log of task {name!r}, samples_…, is not beside it. Copy the "
                "logs along with the results."
            )
        found[name] = read_samples_file(file)
    return found
