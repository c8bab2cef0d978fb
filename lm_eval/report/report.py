"""Assembles reports; contains `write_report`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_eval._version import __version__
from lm_eval.errors import ConfigError, OutputError
from lm_eval.redaction import SHORTEST_IN_DATA, known_redactor
from lm_eval.report.chunks import compressed, json_text
from lm_eval.report.differences import paired_differences
from lm_eval.report.inputs import Inputs, ReportRun, find_inputs
from lm_eval.report.page import page
from lm_eval.report.provenance import provenance
from lm_eval.report.samples import Selection, TaskSamples, task_samples
from lm_eval.report.score_table import score_table
from lm_eval.report.sweeps import sweep_summary
from lm_eval.results.files import atomic_file


@dataclass
class Report:
    """The data of a report.

    Attributes:
        summary: what the page shows at once.
        tasks: the samples of each task.
    """

    summary: dict[str, Any]
    tasks: list[TaskSamples] = field(default_factory=list)

    def html(self, connect: str = "'none'") -> Iterator[str]:
        """Yields the parts of the page; `connect` is where it may send requests."""
        hidden = known_redactor()
        summary = hidden.text(json_text(self.summary))
        yield from page(str(self.summary["title"]), summary, self._blocks(), connect)

    def _blocks(self) -> Iterator[tuple[str, str]]:
        """Yields the index of all documents, and then the documents in chunks."""
        yield "index", compressed(json_text([task.index for task in self.tasks]))
        number = 0
        for task in self.tasks:
            for chunk in task.chunks:
                yield f"chunk{number}", chunk
                number += 1


def write_report(
    paths: Sequence[str | Path],
    output: str | Path,
    samples: str = "all",
    include_path: Sequence[str] = (),
) -> Report:
    """Writes the report of runs and studies to the file `output` and returns it.

    Args:
        paths: runs and studies (`inputs.find_inputs`).
        output: the HTML file.
        samples: which documents it contains: `all`, `wrong`, `flips`, or a number per task.
        include_path: additional folders with tasks, to compare runs.

    Raises:
        OutputError: a path has nothing to show, or the file cannot be written.
        ConfigError: a setting is invalid.
    """
    selection = Selection.parse(samples)
    target = Path(output)
    if target.is_dir():
        raise OutputError(f"{target}: is a folder. Give a file with -o, such as report.html.")
    report = make_report(find_inputs(paths), selection, include_path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(target) as file:
            file.writelines(part.encode("utf-8", "backslashreplace") for part in report.html())
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error.strerror or error}).") from error
    return report


def make_report(
    inputs: Inputs,
    selection: Selection,
    include_path: Sequence[str] = (),
    score_answers: bool = True,
) -> Report:
    """Returns the report of runs and studies.

    Args:
        inputs: the runs and studies.
        selection: which documents it contains.
        include_path: additional folders with tasks, to compare runs.
        score_answers: whether stored answers may be scored: for samples of runs without logs, and
            to compare runs. Without it, the report has only what the files of the runs contain.

    Raises `ConfigError` if only flips are wanted but there is a single run.
    """
    runs = inputs.runs
    if selection.rule == "flips" and len(runs) < 2:
        raise ConfigError("--samples flips needs two runs or more: documents flip between runs.")
    differences: dict[str, Any] | None = None
    notes: list[str] = []
    if score_answers:
        for run in runs:
            run.score_stored_answers()
        differences, notes = paired_differences(runs, include_path)
    found: list[TaskSamples] = []
    for task in dict.fromkeys(name for run in runs for name in run.tasks):
        made, more = task_samples(task, runs, selection)
        notes += more
        if made is not None:
            found.append(made)
    hidden = known_redactor(SHORTEST_IN_DATA)
    summary = {
        "title": " · ".join(run.label for run in runs) or _title(inputs),
        "version": __version__,
        "created": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "runs": [_run(run) for run in runs],
        "notes": [
            *({"run": i, "text": text} for i, run in enumerate(runs) for text in run.notes),
            *({"run": None, "text": text} for text in notes),
        ],
        "table": score_table(runs),
        "differences": differences,
        "studies": [_study(one) for one in inputs.studies],
        "sweeps": [sweep_summary(one) for one in inputs.sweeps],
        "tasks": [task.summary for task in found],
        "selection": selection.describe(),
        "provenance": [provenance(run) for run in runs],
    }
    return Report(hidden.data(summary), found)


def _title(inputs: Inputs) -> str:
    """Returns the title of a report without runs: its sweeps and studies."""
    names = [one.folder.absolute().name for one in inputs.sweeps]
    names += [
        f"Study of {' and '.join(map(str, models))}" if isinstance(models, list) else "Study"
        for one in inputs.studies
        for models in [one.get("models")]
    ]
    return " · ".join(names)


def _run(run: ReportRun) -> dict[str, Any]:
    """Returns what the page shows of a run besides its scores."""
    results = run.results
    counts = ("extraction_failed", "length_stopped", "truncated_requests", "unanswered_documents")
    return {
        "label": run.label,
        "model": run.model,
        "finished": run.stored is None or run.stored.record.finished,
        "counts": {name: found for name in counts if (found := _counts(results.get(name)))},
        "partial": bool(results.get("partial")),
    }


def _counts(content: Any) -> dict[str, int]:
    """Returns one count per task; what is not a count is left out.

    Of counts per filter pipeline the largest is taken; documents with reasons are counted.
    """
    found = {}
    for task, given in content.items() if isinstance(content, Mapping) else ():
        if isinstance(given, Mapping) and any(isinstance(one, str) for one in given.values()):
            number: Any = len(given)
        elif isinstance(given, Mapping):
            number = max((one for one in given.values() if _is_count(one)), default=0)
        else:
            number = given if _is_count(given) else 0
        if number:
            found[str(task)] = int(number)
    return found


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < 2**53


def _study(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the scores of a study for the plot of prompt spread."""
    return {
        "models": [str(one) for one in _list(content.get("models"))],
        "scores": [
            {
                "model": str(score.get("model")),
                "task": str(score.get("task")),
                "metric": str(score.get("metric")),
                "value": _plottable(score.get("value")),
                "setting": str(_mapping(score.get("setting")).get("name")),
            }
            for score in _list(content.get("scores"))
            if isinstance(score, Mapping)
        ],
    }


def _list(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def _mapping(content: Any) -> Mapping[str, Any]:
    return content if isinstance(content, Mapping) else {}


def _plottable(value: Any) -> float | None:
    """Returns a score that an axis can show; None if it is none, or as large as to overflow."""
    return value if isinstance(value, (int, float)) and abs(value) < 1e100 else None
