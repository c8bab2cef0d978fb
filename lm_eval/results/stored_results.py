"""Stored results as an object; contains `lm_eval.results.load`."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, cast

from lm_eval.errors import ConfigError, OutputError, suggestion
from lm_eval.results.files import sample_files
from lm_eval.results.reader import latest_results, read_results
from lm_eval.results.sample_log import read_samples_file
from lm_eval.results.schema import EvalResults
from lm_eval.results.score_rows import ScoreRow, score_rows

Library = Literal["pandas", "polars", "columns"]
Columns = dict[str, list[Any]]

_LATEST = 253402300800
"""The year 10000 in seconds since 1970. A later `date` in a file is a mistake."""


@dataclass(frozen=True)
class StoredResults:
    """The results of a run, read from its results file and sample logs.

    Attributes:
        file: the results file.
        results: its content; docs/results.md describes the fields.
    """

    file: Path
    results: EvalResults

    @property
    def model(self) -> str:
        """The name of the model; empty if the file does not have it."""
        return str(self.results.get("model_name") or "")

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks, without groups."""
        groups = {n for n, members in (self.results.get("group_subtasks") or {}).items() if members}
        return list(
            self.results.get("configs") or [n for n in self.results["results"] if n not in groups]
        )

    @property
    def date(self) -> float | None:
        """When the run began, in seconds since 1970, or else when the file was written.

        None if neither is known.
        """
        began = self.results.get("date")
        if isinstance(began, (int, float)) and 0 <= began < _LATEST:
            return float(began)
        stamp = self.file.stem.rpartition("_")[2].partition(".")[0]
        try:
            return datetime.strptime(stamp, "%Y-%m-%dT%H-%M-%S").astimezone().timestamp()
        except ValueError:
            return None

    def scores(self) -> list[ScoreRow]:
        """Returns all scores of tasks and groups."""
        return list(score_rows(self.results))

    def frame(self, library: Library | None = None) -> Any:
        """Returns the scores as a table with one row per score and the columns of `ScoreRow`.

        Args:
            library: the type of the table: a `pandas` or `polars` data frame, or `columns`, a
                dictionary of lists. By default pandas, polars or columns: the first that is
                installed.

        Raises:
            ConfigError: the library is unknown or not installed.
        """
        rows = self.scores()
        names = [field.name for field in fields(ScoreRow)]
        return _table({name: [getattr(row, name) for row in rows] for name in names}, library)

    def samples(self, task: str, library: Library | None = None) -> Any:
        """Returns the documents of a task as a table with one row per document and pipeline.

        Its columns are the keys of samples (docs/results.md): `doc_id`, `doc`, `target`,
        `arguments`, `resps`, `filtered_resps`, `filter`, one per metric, and others.

        Args:
            task: the name of the task.
            library: the type of the table, as for `frame`.

        Raises:
            ConfigError: there is no such task, or the library is not installed.
            OutputError: the run has no sample log of the task.
            DataError: the log cannot be read.
        """
        samples = self.read_samples(task)
        names = dict.fromkeys(name for sample in samples for name in sample)
        return _table({name: [sample.get(name) for sample in samples] for name in names}, library)

    def read_samples(self, task: str) -> list[dict[str, Any]]:
        """Returns the samples of a task as dictionaries; raises as `samples` does."""
        if task not in self.tasks:
            raise ConfigError(
                f"{self.file}: there is no task {task!r}.{suggestion(task, self.tasks)} The tasks "
                f"are: {', '.join(self.tasks)}."
            )
        # In the order in which the logs were written; older results do not have it.
        names = dict.fromkeys([*(self.results.get("task_hashes") or {}), *self.tasks])
        file = sample_files(self.file, names).get(task)
        if file is None:
            raise OutputError(
                f"{self.file}: the run has no sample log of task {task!r}. Write it from the "
                f"stored answers: lm-eval score {self.file.parent} --log_samples -o FOLDER."
            )
        return read_samples_file(file)


def load(path: str | Path) -> StoredResults:
    """Returns stored results.

    Args:
        path: a results file, also of the published harness, or a folder: of a run, or its
            `output_path`. In a folder with several results files, the newest is read.

    Raises:
        OutputError: there is no results file, or it cannot be read.
    """
    given = Path(path)
    if not given.exists():
        raise OutputError(f"{given}: this file or folder does not exist. Check the path.")
    file = latest_results(given)
    return StoredResults(file, read_results(file))


def _table(columns: Columns, library: Library | None) -> Any:
    """Returns columns as a table of a library; raises `ConfigError` if it cannot be used."""
    known: Sequence[str] = ("pandas", "polars", "columns")
    if library is None:
        library = cast(
            "Library", next((n for n in known[:2] if importlib.util.find_spec(n)), "columns")
        )
    if library not in known:
        raise ConfigError(f"library must be one of {', '.join(known)}, not {library!r}.")
    if library == "columns":
        return columns
    try:
        module = importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{library} is not installed: pip install {library}.") from error
    if library == "pandas":
        return module.DataFrame(columns)
    return module.DataFrame(_of_one_type(columns), strict=False)


def _of_one_type(columns: Mapping[str, list[Any]]) -> Columns:
    """Returns columns of which each has values that polars can store in one type.

    Values that differ in type, and dictionaries, become strings.
    """
    made: Columns = {}
    for name, values in columns.items():
        types = {type(value) for value in values if value is not None}
        simple = len(types) <= 1 or types <= {int, float}
        plain = not types & {dict, list, tuple}
        made[name] = values if simple and plain else [v if v is None else str(v) for v in values]
    return made
