"""`CodeSession`: runs the programs of one evaluation, all programs of a task at once.

Task code calls `CodeEval.compute` for one document after the other. To run many programs at once,
scoring calls it twice: inside `CodeSession.gather`, which only collects the programs, and, after
`CodeSession.run` has judged them all, a second time for the scores.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from lm_eval import sandbox
from lm_eval.code_eval.task_programs import DEFAULT_SECONDS, TaskPrograms
from lm_eval.code_eval.verdict_store import StoredVerdict, VerdictStore
from lm_eval.errors import ConfigError
from lm_eval.sandbox import Limits, Verdict

#: The time limit of canonical solutions, by which the limits of other programs are calibrated.
CALIBRATION_SECONDS = 30.0
#: Programs that run between two writes to the store.
_BATCH = 100
#: The isolation of programs that a task runs with functions of its own.
UNCONTAINED = "none"
#: What gathered programs get in place of a verdict.
_NO_VERDICT = Verdict(False, "not run", "", 0.0)


@dataclass(frozen=True)
class Job:
    """A program, its tests, and the seconds that task code allows for both."""

    program: str
    test: str
    seconds: float = DEFAULT_SECONDS


class Progress(Protocol):
    """An object whose `update` counts finished programs."""

    def update(self, n: int = 1) -> object:
        """Adds `n` to the number of finished programs."""


class CodeSession:
    """Runs programs, and finds stored verdicts.

    Args:
        store: holds the verdicts; by default a new one in memory.
        require: the isolation that programs need at least (`sandbox.run`); None for any.
        progress: opens a progress bar, given the number of programs and a title, as a context
            manager.
    """

    def __init__(
        self,
        store: VerdictStore | None = None,
        require: str | None = None,
        progress: Callable[[int, str], AbstractContextManager[Progress]] | None = None,
    ) -> None:
        self._store = store or VerdictStore()
        self._require = require
        self._progress = progress
        self._gathered: list[Job] | None = None
        self._task = TaskPrograms()
        self._tasks: dict[str, TaskPrograms] = {}
        self._isolations: set[str] = set()
        self._uncontained: list[str] = []

    @contextmanager
    def active(self) -> Iterator[CodeSession]:
        """Makes this the session that task code uses inside the `with` block."""
        token = _SESSION.set(self)
        try:
            yield self
        finally:
            _SESSION.reset(token)

    # -- one task -----------------------------------------------------------------------------

    def begin_task(self, name: str) -> None:
        """Starts a task: its programs get the default time limits until `calibrate` is called."""
        self._task = self._tasks[name] = TaskPrograms()

    def add_uncontained(self, name: str) -> None:
        """Records that a task runs programs with functions of its own, without isolation."""
        self._uncontained.append(name)

    def calibrate(self, seconds: Mapping[str, float], failed: Sequence[int] = ()) -> None:
        """Sets the time limits of the task from the seconds that canonical solutions took.

        `seconds` are those of each text of tests, `failed` the numbers of the documents whose
        canonical solution fails.
        """
        self._task.calibrate(seconds, failed)

    @contextmanager
    def gather(self, prompt: str = "") -> Iterator[list[Job]]:
        """Collects the jobs that task code submits inside the `with` block; none of them is run.

        Task code gets verdicts of failed programs. `prompt` is the code in the document whose
        programs are submitted (`canonical.prompt_of`): it is the given text of those that begin
        with it.
        """
        before, self._gathered = self._gathered, []
        try:
            yield self._gathered
        finally:
            if prompt:
                self._task.add_prompt(prompt, [job.test for job in self._gathered])
            self._gathered = before

    def verdicts(self, jobs: Sequence[Job]) -> list[Verdict]:
        """Returns a verdict per job; runs those that are neither stored nor judged by `run`."""
        if self._gathered is not None:
            self._gathered.extend(jobs)
            return [_NO_VERDICT] * len(jobs)
        return self.run(jobs)

    def run(self, jobs: Sequence[Job]) -> list[Verdict]:
        """Runs programs, all at once; returns a verdict per job, stored ones where there are."""
        seconds = [self._task.limit(job.test, job.seconds) for job in jobs]
        made = {one: Limits().with_wall_seconds(one) for one in set(seconds)}
        keyed = [
            (self._key(job, made[one]), job, made[one])
            for job, one in zip(jobs, seconds, strict=True)
        ]
        self._task.count_run(self._run_missing(keyed, "Running programs"))
        found = self._found(keyed)
        for (key, _, limits), one in zip(keyed, found, strict=True):
            self._task.count(key, one.verdict, limits.wall_seconds)
            self._isolations.add(one.isolation)
        return [one.verdict for one in found]

    def run_canonical(self, jobs: Sequence[Job]) -> list[Verdict]:
        """Runs canonical solutions, all at once and with a generous time limit.

        Their times hold for this machine alone, and so do their stored verdicts.
        """
        limits = Limits().with_wall_seconds(CALIBRATION_SECONDS)
        here = f"{platform.node()} {os.cpu_count()}"
        keyed = [(self._key(job, limits, here), job, limits) for job in jobs]
        self._run_missing(keyed, "Running canonical solutions")
        return [one.verdict for one in self._found(keyed)]

    def _key(self, job: Job, limits: Limits, *more: str) -> bytes:
        return _key(job, self._task.given(job.program, job.test), limits, *more)

    def _found(self, keyed: Sequence[tuple[bytes, Job, Limits]]) -> list[StoredVerdict]:
        """Returns the stored verdicts of jobs, all of which have one."""
        found = [self._store.get(key) for key, _, _ in keyed]
        return [one for one in found if one is not None]

    def _run_missing(self, keyed: Sequence[tuple[bytes, Job, Limits]], title: str) -> int:
        """Runs the programs without a stored verdict and stores theirs; returns their number.

        `title` is that of the progress bar.
        """
        missing: dict[Limits, dict[bytes, Job]] = {}
        for key, job, limits in keyed:
            if self._store.get(key) is None:
                missing.setdefault(limits, {})[key] = job
        total = sum(map(len, missing.values()))
        if not total:
            return 0
        with self._progress(total, title) if self._progress else nullcontext() as bar:
            for limits, jobs in missing.items():
                self._run_batch(jobs, limits, bar)
        return total

    def _run_batch(self, jobs: Mapping[bytes, Job], limits: Limits, bar: Progress | None) -> None:
        """Runs programs with the same limits; stores verdicts while they run, so none is lost."""
        isolation, keys = sandbox.isolation().name, list(jobs)
        judged: list[tuple[bytes, StoredVerdict]] = []

        def report(index: int, verdict: Verdict) -> None:
            judged.append((keys[index], StoredVerdict(verdict, isolation)))
            if len(judged) >= _BATCH:
                self._store.add(judged)
                judged.clear()
            if bar is not None:
                bar.update()

        programs, tests = [jobs[key].program for key in keys], [jobs[key].test for key in keys]
        given = [self._task.given(*pair) for pair in zip(programs, tests, strict=True)]
        try:
            sandbox.run(programs, tests, limits, require=self._require, report=report, given=given)
        finally:
            self._store.add(judged)

    # -- all tasks ----------------------------------------------------------------------------

    @property
    def isolation(self) -> str:
        """How programs were isolated; "none" if a task ran some with its own functions.

        Programs whose verdicts were stored count with the isolation under which they ran. Empty if
        there were no programs.
        """
        return UNCONTAINED if self._uncontained else " or ".join(sorted(self._isolations))

    def describe(self) -> dict[str, dict[str, Any]]:
        """Returns what became of the programs of each task, for the results."""
        return {name: task.describe() for name, task in self._tasks.items() if task.programs}


class _NotRun:
    """A session in which no program is run: all of them fail."""

    def verdicts(self, jobs: Sequence[Job]) -> list[Verdict]:
        return [_NO_VERDICT] * len(jobs)


_SESSION: ContextVar[CodeSession | _NotRun | None] = ContextVar("code session", default=None)


def current_session() -> CodeSession | None:
    """Returns the session of the evaluation that is scored now; None if there is none."""
    session = _SESSION.get()
    return session if isinstance(session, CodeSession) else None


@contextmanager
def programs_not_run() -> Iterator[None]:
    """Lets every program fail unrun inside the `with` block, while task files are imported.

    Published task folders run a small program when they are imported.
    """
    token = _SESSION.set(_NotRun())
    try:
        yield
    finally:
        _SESSION.reset(token)


def session_for_task_code() -> CodeSession | _NotRun:
    """Returns the session that judges the programs of task code.

    Outside an evaluation, that is a new one if the environment variable `HF_ALLOW_CODE_EVAL` is 1,
    as the `evaluate` library requires. Otherwise raises `ConfigError`.
    """
    session = _SESSION.get()
    if session is not None:
        return session
    if os.environ.get("HF_ALLOW_CODE_EVAL") == "1":
        return CodeSession()
    raise ConfigError(
        "programs that a model wrote are not run without your consent. Pass "
        "--confirm_run_unsafe_code (in Python: confirm_run_unsafe_code=True) to an evaluation; to "
        "call this function yourself, set the environment variable HF_ALLOW_CODE_EVAL=1."
    )


def _key(job: Job, given: str, limits: Limits, *more: str) -> bytes:
    """Returns the hash by which the verdict of a program is stored."""
    version = ".".join(map(str, sys.version_info[:3]))
    settings = repr(sorted(limits.as_dict().items()))
    digest = hashlib.sha256()
    for part in (job.program, job.test, given, settings, sandbox.RUNNER_VERSION, version, *more):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.digest()
