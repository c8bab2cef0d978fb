"""The file `sweep.json`: the runs of a sweep, what became of them, and where their results are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import Any

from lm_eval.errors import OutputError
from lm_eval.redaction import known_redactor
from lm_eval.results.files import write_atomically
from lm_eval.results.reader import read_results
from lm_eval.results.schema import EvalResults

SWEEP_FILE = "sweep.json"
LOGS = "logs"
"""The folder for what workers print if several run at a time."""
FORMAT = 1

FINISHED, PARTIAL, FAILED, WAITING = "finished", "partial", "failed", "waiting"


@dataclass(frozen=True)
class RecordedRun:
    """One run of a sweep, or one evaluation during training.

    Attributes:
        name: its name.
        model: the name of the model, without its checkpoint.
        labels: for each axis of the matrix the label of its value.
        step: the training step of its checkpoint; None if there is none.
        state: `finished`, `partial` (some requests failed), `failed` or `waiting`.
        results: the results file, relative to the folder of the sweep; None if there is none.
        message: why it failed; empty if it did not.
    """

    name: str
    model: str
    labels: Mapping[str, str] = field(default_factory=dict)
    step: int | None = None
    state: str = WAITING
    results: str | None = None
    message: str = ""


@dataclass(frozen=True)
class SweepRecord:
    """The runs of a sweep and the folder that contains them."""

    folder: Path
    runs: list[RecordedRun]

    @property
    def failed(self) -> list[RecordedRun]:
        """The runs that failed."""
        return [run for run in self.runs if run.state == FAILED]

    def results(self) -> Iterator[tuple[RecordedRun, EvalResults]]:
        """Yields the runs that have results, with their results.

        Raises `OutputError` if a results file cannot be read.
        """
        for run in self.runs:
            if run.results is not None:
                yield run, read_results(self.folder / run.results)

    def write(self) -> None:
        """Writes the record into the folder; raises `OutputError` if that fails."""
        content = {"format": FORMAT, "runs": [asdict(run) for run in self.runs]}
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder / SWEEP_FILE, [known_redactor().text(text)])
        except OSError as error:
            raise OutputError(
                f"{self.folder / SWEEP_FILE}: cannot be written ({error.strerror or error}). Check "
                "the folder, or give another --output_path."
            ) from error


def read_sweep(folder: str | Path) -> SweepRecord:
    """Returns the record of the sweep in a folder.

    Raises `OutputError` if there is none, or if its file cannot be used.
    """
    file = Path(folder) / SWEEP_FILE
    known = {one.name for one in fields(RecordedRun)}
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise OutputError(f"{file}: was written by a newer version of lm_eval. Update it.")
        runs = [
            RecordedRun(**{key: value for key, value in run.items() if key in known})
            for run in content["runs"]
        ]
        if not all(map(_is_valid, runs)):
            raise ValueError("a run in it is not valid")
    except FileNotFoundError as error:
        raise OutputError(
            f"{folder}: contains no sweep (no {SWEEP_FILE}). Give the output path of a sweep."
        ) from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise OutputError(
            f"{file}: cannot be read as the record of a sweep ({error}). Move it away and run the "
            "sweep again; finished runs are skipped."
        ) from error
    return SweepRecord(Path(folder), runs)


def _is_valid(run: RecordedRun) -> bool:
    """Returns whether the fields of a run that was read have their types.

    Its results file must be inside the folder of the sweep.
    """
    texts = (run.name, run.model, run.state, run.message)
    path = PurePosixPath(run.results or ".")
    return (
        all(isinstance(text, str) for text in texts)
        and isinstance(run.labels, dict)
        and all(isinstance(label, str) for label in run.labels.values())
        and (run.step is None or type(run.step) is int)
        and not path.is_absolute()
        and ".." not in path.parts
    )


def is_sweep(folder: str | Path) -> bool:
    """Returns whether a folder contains a sweep."""
    return (Path(folder) / SWEEP_FILE).is_file()
