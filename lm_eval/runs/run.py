"""Where one evaluation keeps itself: its folder and lock, its store of answers, its results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lm_eval.api.context import RunContext
from lm_eval.api.task import Task
from lm_eval.config.run import RunConfig
from lm_eval.engine.places import places_of
from lm_eval.engine.store import AnswerStore
from lm_eval.errors import EvalError, OutputError
from lm_eval.launch import launched_rank
from lm_eval.results.files import check_writable, keep_answers, save
from lm_eval.results.provenance import model_name
from lm_eval.results.schema import EvalResults
from lm_eval.runs.folder import ANSWERS, RunFolder
from lm_eval.runs.record import RunRecord


class Run:
    """One evaluation's place on disk; without a folder it keeps nothing.

    `writes` is False in a process that leaves the folder's records and results to another one.
    """

    def __init__(
        self, settings: RunConfig, folder: RunFolder | None = None, writes: bool = True
    ) -> None:
        self.settings, self.folder, self.writes = settings, folder, writes
        self._record: RunRecord | None = None

    @property
    def keeps_answers(self) -> bool:
        """Whether answers are stored, in the folder or in the file that `use_cache` names."""
        return self.folder is not None or self.settings.use_cache is not None

    @contextmanager
    def open_store(self, identity: str) -> Iterator[AnswerStore | None]:
        """The store of answers: the file that `use_cache` names, or the folder's own, or none."""
        if not self.keeps_answers:
            yield None
            return
        shared = self.settings.use_cache
        own = self.folder.answers if shared is None and self.folder else None
        path = own or Path(str(shared)).expanduser()
        with AnswerStore(path / ANSWERS if path.is_dir() else path, identity) as store:
            yield store

    def begin(
        self,
        identity: str,
        context: RunContext,
        tasks: Mapping[str, Task],
        hashes: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Records the run before its first request, so that it can be resumed."""
        if self.folder is None or not self.writes:
            return
        run = self.settings
        seed = run.seed.of_model
        self._record = self.folder.begin(
            run.settings(),
            {"model": identity, "think_end_token": context.think_end_token, "tasks": hashes},
            {name: places_of(task.instances, seed) for name, task in tasks.items()},
            model_object=not isinstance(run.model, str),
        )

    def write_partial(self, results: Mapping[str, Any]) -> None:
        """Writes the rows of the tasks that are finished, until all are."""
        if self.folder is not None:
            self.folder.write_partial(results)

    def save(self, results: EvalResults) -> Path | None:
        """Writes the results and the sample logs; returns the results file."""
        run, folder = self.settings, self.folder
        if folder is None or run.output_path is None:
            return None
        samples = results.get("samples")
        rest = {key: value for key, value in results.items() if key != "samples"}
        try:
            written = save(rest, run.output_path, model_name(run), samples, run.samples_format)
        except OutputError as error:
            again = f"Every answer is kept; {self.how_to_go_on()} writes them then."
            raise OutputError(f"{error} {again}") from error
        if self._record is not None:
            folder.finish(self._record, written)
        return written

    @property
    def is_recorded(self) -> bool:
        """Whether the run has begun to ask, so that it can be resumed."""
        return self._record is not None

    def how_to_go_on(self) -> str:
        """Returns the command or call that goes on with this run, as part of a sentence."""
        if self.folder is None or self._record is None or self._record.model_object:
            return "the same call of simple_evaluate"
        several = len(self.folder.records()) > 1
        which = f" --run {self._record.id}" if several else ""
        return f"`lm-eval resume {self.folder.path}{which}`"


@contextmanager
def open_run(settings: RunConfig) -> Iterator[Run]:
    """Holds the folder of a run while it lasts; refuses one that cannot be written or is in use.

    An error in scoring gets a sentence on where the answers are, and so does an interruption.
    """
    if settings.output_path is None:
        run = Run(settings)
        with _telling_where_answers_are(run):
            yield run
        return
    folder = RunFolder.of(settings.output_path, model_name(settings))
    if launched_rank() > 0:  # one of several processes; the first holds the folder
        yield Run(settings, folder, writes=False)
        return
    check_writable(settings.output_path)
    run = Run(settings, folder)
    with folder.held(), _telling_where_answers_are(run):
        folder.records()  # raises now for a record that could not be added to later
        yield run


@contextmanager
def _telling_where_answers_are(run: Run) -> Iterator[None]:
    """Says, with an error in scoring, where the answers are; writes them if there is no folder."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if not run.is_recorded:
            raise
        told = f"The answers so far are kept; {run.how_to_go_on()} goes on from them."
        raise KeyboardInterrupt(told) from stop
    except EvalError as error:
        if error.answers is None:
            raise
        if run.folder is None:
            kept = f"in {keep_answers(error.answers)}"
        else:
            again = f"{run.how_to_go_on()} scores them once that is put right"
            kept = f"in {run.folder.path}; {again}"
        told_error = type(error)(f"{error} Every answer is kept, {kept}.")
        raise told_error.with_answers(error.answers) from error
