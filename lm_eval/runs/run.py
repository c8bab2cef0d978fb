"""Where one evaluation keeps itself: its folder and lock, its store of answers, its results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lm_eval.api.context import RunContext
from lm_eval.api.task import Task
from lm_eval.config.run import RunConfig
from lm_eval.engine.executor import Executor
from lm_eval.engine.places import places_of
from lm_eval.engine.store import AnswerStore
from lm_eval.errors import EvalError, OutputError
from lm_eval.launch import launched_rank
from lm_eval.results.files import check_writable, keep_answers, save
from lm_eval.results.provenance import model_name
from lm_eval.results.schema import EvalResults
from lm_eval.runs.folder import ANSWERS, NAME, RunFolder
from lm_eval.runs.record import RunRecord


class Run:
    """One evaluation's place on disk; without a folder it keeps nothing."""

    def __init__(self, settings: RunConfig, folder: RunFolder | None = None) -> None:
        self.settings, self.folder = settings, folder
        self._record: RunRecord | None = None

    @property
    def keeps_answers(self) -> bool:
        """Whether answers are stored, in the folder or in the file that `use_cache` names."""
        return self.folder is not None or self.settings.use_cache is not None

    @contextmanager
    def open_store(self, identity: str, executor: Executor) -> Iterator[AnswerStore | None]:
        """The store of answers: the file that `use_cache` names, or the folder's own, or none.

        All processes of the run read the same answers: none writes before all have read.
        """
        if not self.keeps_answers:
            yield None
            return
        shared = self.settings.use_cache
        path = self.folder.answers if shared is None and self.folder else Path(str(shared))
        path = path / ANSWERS if path.is_dir() else path
        if self.settings.fresh and executor.collects:
            with AnswerStore(path, identity) as store:
                store.forget()
        executor.barrier()
        with AnswerStore(path, identity) as store:
            executor.barrier()
            yield store

    def begin(
        self,
        identity: str,
        context: RunContext,
        tasks: Mapping[str, Task],
        hashes: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Records the run before its first request, so that it can be resumed."""
        if self.folder is None:
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
            again = f"Every answer is kept; `lm-eval resume {folder.path}` writes them then."
            raise OutputError(f"{error} {again}") from error
        if self._record is not None:
            folder.finish(self._record, written)
        return written


@contextmanager
def open_run(settings: RunConfig) -> Iterator[Run]:
    """Holds the folder of a run while it lasts; refuses one that cannot be written or is in use.

    An error in scoring gets a sentence on where the answers are, and so does an interruption.
    """
    if settings.output_path is None:
        with _telling_where_answers_are(None):
            yield Run(settings)
        return
    folder = RunFolder.of(settings.output_path, model_name(settings))
    if launched_rank() > 0:  # one of several processes; the first holds the folder
        yield Run(settings, folder)
        return
    check_writable(settings.output_path)
    with folder.held(), _telling_where_answers_are(folder.path):
        folder.records()  # raises now for a record that could not be added to later
        yield Run(settings, folder)


@contextmanager
def _telling_where_answers_are(folder: Path | None) -> Iterator[None]:
    """Says, with an error in scoring, where the answers are; writes them if there is no folder."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if folder is None or not (folder / NAME).is_file():
            raise
        told = f"The answers so far are kept; `lm-eval resume {folder}` goes on from them."
        raise KeyboardInterrupt(told) from stop
    except EvalError as error:
        if error.answers is None:
            raise
        if folder is None:
            kept = f"in {keep_answers(error.answers)}"
        else:
            kept = f"in {folder}; `lm-eval resume {folder}` scores them once that is put right"
        told_error = type(error)(f"{error} Every answer is kept, {kept}.")
        raise told_error.with_answers(error.answers) from error
