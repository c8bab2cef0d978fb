"""The files of one evaluation while it runs: its folder and lock, answer store, results."""

from __future__ import annotations

import logging
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lm_eval.api.context import RunContext
from lm_eval.api.instance import Failure
from lm_eval.api.task import Task
from lm_eval.config.run import RunConfig
from lm_eval.engine.answer_index import build_answer_index
from lm_eval.engine.store import AnswerStore
from lm_eval.engine.unstored import UnstoredAnswers
from lm_eval.errors import EvalError, OutputError
from lm_eval.launch import launched_rank
from lm_eval.results.files import check_writable, save, save_unscored_answers
from lm_eval.results.provenance import model_name
from lm_eval.results.samples import without_samples
from lm_eval.results.schema import EvalResults
from lm_eval.runs.folder import RunFolder, shared_store
from lm_eval.runs.record import RunRecord

logger = logging.getLogger(__name__)


class Run:
    """The files of one evaluation.

    Args:
        settings: the settings of the run.
        folder: the run folder. None for a run without `output_path`: nothing is recorded or
            saved, and answers are stored only if `use_cache` is set.
        writes: False in a process that stores answers, but leaves the records and results to the
            process of rank 0.
        can_continue: whether the user could run it again with an `output_path`, so that answers are
            worth keeping if a run without one fails.
    """

    def __init__(
        self,
        settings: RunConfig,
        folder: RunFolder | None = None,
        writes: bool = True,
        can_continue: bool = False,
    ) -> None:
        self.settings, self.folder, self.writes = settings, folder, writes
        self._can_continue = can_continue
        self._record: RunRecord | None = None

    @property
    def store(self) -> Path | None:
        """Path of the answer store: that of `use_cache`, or the folder's own, or None."""
        shared = self.settings.use_cache
        if self.folder is not None:
            return self.folder.store(shared)
        return None if shared is None else shared_store(shared)

    @property
    def verdicts(self) -> Path | None:
        """Path of the file with the verdicts of programs; None for a run without a folder."""
        return None if self.folder is None else self.folder.verdicts

    @contextmanager
    def open_store(self, identity: str) -> Iterator[AnswerStore | None]:
        """Opens the store for a model's answers and closes it after the `with` block.

        `identity` is the text that identifies the model. Yields None for a run without a store.
        Raises `StoreError` if the store cannot be opened.
        """
        if self.store is None:
            yield None
            return
        with AnswerStore(self.store, identity) as opened:
            yield opened

    def begin(
        self,
        identity: str,
        context: RunContext,
        tasks: Mapping[str, Task],
        hashes: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Writes the run's record and answer index, so that it can be resumed.

        Called before the first request is sent. Does nothing without a folder, or in a process
        that does not write.

        Args:
            identity: the text that identifies the model.
            context: the context passed to the model; its `think_end_token` is recorded.
            tasks: the tasks with their requests, by name.
            hashes: the hashes of every task (`runs.hashes.task_hashes`), by name.
        """
        if self.folder is None or not self.writes:
            return
        run = self.settings
        seed = run.seed.model_seeds
        self._record = self.folder.begin(
            run.settings(),
            {"model": identity, "think_end_token": context.think_end_token, "tasks": hashes},
            {name: build_answer_index(task.instances, seed) for name, task in tasks.items()},
            model_object=not isinstance(run.model, str),
        )

    @contextmanager
    def keeping(
        self, unstored: UnstoredAnswers | None, identity: Callable[[], str]
    ) -> Iterator[None]:
        """Stores answers in a temporary folder if the `with` block fails or is interrupted.

        The message of the error then says how to continue with them. Does nothing if the run has a
        store (`unstored` is None), if the model has not given any answer, or if the run could not
        be continued.

        Args:
            unstored: the answers that the model gives in the block.
            identity: returns the text that identifies the model; called only after a failure.
        """
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            if not unstored or not self._can_continue or launched_rank() > 0:
                raise
            hint = self._keep(unstored, identity())
            if isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(hint) from error
            if isinstance(error, EvalError):
                raise type(error)(f"{error} {hint}") from error
            logger.warning("%s", hint)
            raise

    def _keep(self, unstored: UnstoredAnswers, identity: str) -> str:
        """Stores answers in a new temporary folder; returns how to continue with them."""
        output_path = Path(tempfile.mkdtemp(prefix="lm_eval_answers_"))
        folder = RunFolder.of(output_path, model_name(self.settings))
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            with AnswerStore(folder.answers, identity) as store:
                count = unstored.store(store, self.settings.seed.model_seeds)
        except (OSError, EvalError) as problem:  # the error that ended the run is more important
            return f"The answers so far could not be stored in {output_path}: {problem}"
        kept = f"The answers so far ({count}) are stored in {output_path}. To continue,"
        if isinstance(self.settings.model, str):
            option = f"--output_path {shlex.quote(str(output_path))}"
            return f"{kept} run the same command again with {option}."
        return f"{kept} call simple_evaluate again with output_path={str(output_path)!r}."

    def write_partial(self, results: Mapping[str, Any]) -> None:
        """Writes the results of the tasks that are finished so far, if the run has a folder."""
        if self.folder is not None:
            self.folder.write_partial(results)

    def save(self, results: EvalResults) -> Path | None:
        """Writes the results and the sample logs, and marks the run as finished.

        Returns the path of the results file; None for a run without `output_path`. Raises
        `OutputError` if writing fails; its message says how to continue.
        """
        run, folder = self.settings, self.folder
        if folder is None or run.output_path is None:
            return None
        samples, rest = results.get("samples"), without_samples(results)
        try:
            written = save(rest, run.output_path, model_name(run), samples, run.samples_format)
        except OutputError as error:
            remedy = f"All answers are stored. To write the results, {self.how_to_resume()}."
            raise OutputError(f"{error} {remedy}") from error
        if self._record is not None:
            folder.finish(self._record, written)
        return written

    @property
    def is_recorded(self) -> bool:
        """Whether `begin` has written a record, so that the run can be resumed."""
        return self._record is not None

    def how_to_resume(self) -> str:
        """Returns how to continue this run, as part of a sentence: "run `lm-eval resume out`".

        For a run without a record, and for a model that is a Python object, it is "call
        simple_evaluate again with the same arguments"; for a command that contains a key, which is
        not stored, "run the same command again".
        """
        if self.folder is None or self._record is None or self._record.model_object:
            return "call simple_evaluate again with the same arguments"
        if self._record.left_out:
            return "run the same command again"
        several = len(self.folder.records()) > 1
        which = f" --run {self._record.id}" if several else ""
        return f"run `lm-eval resume {shlex.quote(str(self.folder.path))}{which}`"


@contextmanager
def open_run(settings: RunConfig) -> Iterator[Run]:
    """Yields the `Run` and holds the lock of its folder inside the `with` block.

    Raises `OutputError` if the folder cannot be written, another run uses it, or its `run.json` is
    damaged. Adds to a scoring error or an interruption where the answers are and how to continue.
    In processes other than rank 0 the folder is not locked, and errors are raised unchanged. A run
    without `output_path` has no folder.
    """
    if settings.output_path is None:
        run = Run(settings, can_continue=True)
        with _errors_with_answer_location(run):
            yield run
        return
    folder = RunFolder.of(settings.output_path, model_name(settings))
    if launched_rank() > 0:  # the process of rank 0 holds the lock
        yield Run(settings, folder, writes=False)
        return
    check_writable(settings.output_path)
    run = Run(settings, folder)
    with folder.locked(), _errors_with_answer_location(run):
        folder.records()  # raises now if run.json is damaged, before the model is loaded
        yield run


@contextmanager
def _errors_with_answer_location(run: Run) -> Iterator[None]:
    """Adds to a scoring error or an interruption where the answers are and how to continue.

    Other errors, and an interruption before the run is recorded, are raised unchanged. Answers that
    could not be scored are written to a temporary folder if the run has no folder; if the model
    gave none, only how to continue is added.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        if not run.is_recorded:
            raise
        hint = f"The answers so far are stored. To continue, {run.how_to_resume()}."
        raise KeyboardInterrupt(hint) from stop
    except EvalError as error:
        if error.answers is None:
            raise
        if not _has_answers(error.answers):
            if not run.is_recorded:
                raise
            hint = f"To send the requests again, {run.how_to_resume()}."
        elif run.folder is None:
            folder = shlex.quote(str(save_unscored_answers(error.answers)))
            include = run.settings.include_path or []
            folders = [include] if isinstance(include, str) else include
            options = "".join(f" --include_path {shlex.quote(str(one))}" for one in folders)
            hint = (
                f"All answers are stored in {folder}. Fix the error, then run `lm-eval score "
                f"{folder}{options}` to score them."
            )
        else:
            remedy = f"Fix the error, then {run.how_to_resume()} to score them."
            hint = f"All answers are stored in {run.folder.path}. {remedy}"
        with_hint = type(error)(f"{error} {hint}")
        raise with_hint.with_answers(error.answers) from error


def _has_answers(answers: Mapping[str, list[dict[str, Any]]]) -> bool:
    """Returns whether any request in `EvalError.answers` was answered."""
    every = (resp for requests in answers.values() for one in requests for resp in one["resps"])
    return any(not isinstance(resp, Failure) for resp in every)
