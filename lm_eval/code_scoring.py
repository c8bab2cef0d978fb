"""Runs the programs of code tasks before they are scored: all programs of a task at once.

The metrics of a code task submit programs one document at a time (`lm_eval.code_eval`). Here, every
document is scored twice: first, its programs are only collected; then all of them run at once, and
`scoring.py` scores the documents with the verdicts. The canonical solutions of the documents, where
there are some, run first: they show how much time programs need on this machine.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval.api.filter import LeftOut
from lm_eval.api.instance import Instance
from lm_eval.api.task import Task
from lm_eval.config.run import RunConfig
from lm_eval.engine.progress import progress
from lm_eval.repeat_scoring import repeats_of

if TYPE_CHECKING:  # imported where it is used: most runs have no code tasks
    from lm_eval.code_eval import CodeSession, Job

logger = logging.getLogger(__name__)

#: How many documents a message lists.
_MAX_LISTED = 10


@dataclass(frozen=True)
class CanonicalResult:
    """Whether the canonical solution of a document passes its tests.

    `doc_id` is the index of the document in the evaluated split; `seconds` are what the solution
    needs for each text of tests that it passes; `detail` says why it fails.
    """

    doc_id: int
    passed: bool
    seconds: dict[str, float]
    detail: str


@contextmanager
def code_session(run: RunConfig, verdicts: Path | None = None) -> Iterator[CodeSession | None]:
    """Lets tasks run programs inside the `with` block, if the user has confirmed that.

    Yields the session, which describes the programs for the results; None without confirmation.
    `verdicts` is the file that stores verdicts; by default, they are kept in memory.
    """
    if not run.confirm_run_unsafe_code:
        yield None
        return
    from lm_eval.code_eval import CodeSession
    from lm_eval.code_eval.verdict_store import VerdictStore

    bar = partial(progress, unit="program")
    with VerdictStore(verdicts, run.fresh) as store:
        session = CodeSession(store, run.require_isolation, bar)
        with session.active():
            yield session


def is_code_task(task: Task) -> bool:
    """Returns whether a task runs code that the model writes."""
    return bool(getattr(task, "UNSAFE_CODE", False))


def uses_sandbox(task: Task) -> bool:
    """Returns whether the scoring functions of a code task run programs in our sandbox."""
    from lm_eval.code_eval.evaluate_module import runs_in_sandbox

    return runs_in_sandbox(task.scoring_functions())


def is_uncontained(task: Task) -> bool:
    """Returns whether a code task runs programs with functions of its own, outside our sandbox.

    That is assumed of functions that neither are metrics of this package nor use the sandbox.
    """
    from lm_eval.code_eval.evaluate_module import runs_in_sandbox

    own = [f for f in task.scoring_functions() if not _is_metric_of_ours(f)]
    return bool(own) and not runs_in_sandbox(own)


def _is_metric_of_ours(function: Callable[..., Any]) -> bool:
    return str(getattr(function, "__module__", "")).startswith("lm_eval.metrics.")


def run_programs(
    task: Task, requests_by_doc: Sequence[Sequence[Instance]], doc_ids: Sequence[int]
) -> dict[str, list[list[str]]]:
    """Runs the programs in the answers to a code task; the metrics then find their verdicts.

    Returns for each filter pipeline and document what became of its programs, such as `passed` or
    `failed: AssertionError in: assert f(1) == 2`; nothing for tasks that run none. Logs a warning
    if canonical solutions fail, because no program can then solve these documents.

    Args:
        task: the task.
        requests_by_doc: for each document, its requests with filtered answers.
        doc_ids: the indices of the documents in the evaluated split.
    """
    if not is_code_task(task):
        return {}
    from lm_eval.code_eval import current_session
    from lm_eval.code_eval.canonical import prompt_of

    session = current_session()
    if session is None:
        return {}
    if is_uncontained(task):
        session.add_uncontained(str(task.task_name))
    if not uses_sandbox(task):
        return {}
    session.begin_task(str(task.task_name))
    canonical = check_canonical(session, task, requests_by_doc, doc_ids)
    failed = [one.doc_id for one in canonical if not one.passed]
    session.calibrate({test: s for one in canonical for test, s in one.seconds.items()}, failed)
    if failed:
        logger.warning(
            "%s: %d of %d canonical solutions fail their own tests (document %s), so these tests "
            "may be wrong. `lm-eval validate %s --confirm_run_unsafe_code` shows why.",
            task.task_name,
            len(failed),
            len(canonical),
            _listed(failed),
            task.task_name,
        )
    pipelines = list(requests_by_doc[0][0].filtered_resps) if requests_by_doc else []
    submitted: dict[str, list[list[Job]]] = {pipeline: [] for pipeline in pipelines}
    for requests in requests_by_doc:
        for pipeline in pipelines:
            with session.gather(prompt_of(requests[0].doc)) as own:
                _submit(task, pipeline, requests)
            submitted[pipeline].append(own)
    jobs = [job for by_doc in submitted.values() for own in by_doc for job in own]
    results = {job: verdict.reason for job, verdict in zip(jobs, session.run(jobs), strict=True)}
    return {
        pipeline: [
            _results(results, own, [request.filtered_resps[pipeline] for request in requests])
            for own, requests in zip(by_doc, requests_by_doc, strict=True)
        ]
        for pipeline, by_doc in submitted.items()
    }


def _results(results: Mapping[Job, str], jobs: Sequence[Job], answers: Sequence[Any]) -> list[str]:
    """Returns what became of the programs of a document.

    In the order of its filtered answers, if these are the programs; otherwise, of each different
    program that the metrics submitted.
    """
    by_program = {job.program: results[job] for job in jobs}
    lists = [answer if isinstance(answer, (list, tuple)) else [answer] for answer in answers]
    texts = [text for answer in lists for text in answer]
    if texts and all(isinstance(text, str) and text in by_program for text in texts):
        return [by_program[text] for text in texts]
    return list({job: results[job] for job in jobs}.values())


def check_canonical(
    session: CodeSession,
    task: Task,
    requests_by_doc: Sequence[Sequence[Instance]],
    doc_ids: Sequence[int],
) -> list[CanonicalResult]:
    """Returns whether each canonical solution passes its tests; documents without one are left out.

    Solutions are judged like answers of a model: they pass the task's filters and metrics. Of
    several forms that an answer may have (`canonical_answers`), one must pass.
    """
    forms = [_canonical_jobs(session, task, requests) for requests in requests_by_doc]
    results: dict[int, CanonicalResult] = {}
    for form in range(max(map(len, forms), default=0)):
        left = [i for i, own in enumerate(forms) if form < len(own)]
        left = [i for i in left if i not in results or not results[i].passed]
        verdicts = iter(session.run_canonical([job for i in left for job in forms[i][form]]))
        for i in left:
            judged = [(job.test, next(verdicts)) for job in forms[i][form]]
            failed = [v.reason for _, v in judged if not v.passed]
            if failed and i in results:
                continue  # the first form tells why
            seconds = {test: v.seconds for test, v in judged if v.passed}
            results[i] = CanonicalResult(doc_ids[i], not failed, seconds, "".join(failed[:1]))
    return [results[i] for i in sorted(results)]


def _canonical_jobs(
    session: CodeSession, task: Task, requests: Sequence[Instance]
) -> list[list[Job]]:
    """Returns the programs that the metrics run for each form of a document's canonical solution.

    Leaves out forms of which the filters keep no program that contains the solution.
    """
    from lm_eval.code_eval.canonical import canonical_answers

    found = []
    for solution, answer in canonical_answers(requests[0].doc):
        jobs = _jobs(session, task, requests, answer)
        if any(solution.strip() in job.program for job in jobs):
            found.append(jobs)
    return found


def _jobs(session: CodeSession, task: Task, requests: Sequence[Instance], answer: str) -> list[Job]:
    """Returns the programs that the metrics of a task would run for an answer to a document."""
    from lm_eval.code_eval.canonical import prompt_of

    answered = [
        dataclasses.replace(one, resps=[answer] * (one.repeats or 1), filtered_resps={})
        for one in requests
    ]
    with session.gather(prompt_of(requests[0].doc)) as jobs:
        try:
            task.with_requests(answered).apply_filters()
        except Exception as error:  # filters of task folders may raise anything
            logger.debug("%s: filtering a canonical solution failed: %r", task.task_name, error)
            return []
        for pipeline in answered[0].filtered_resps:
            _submit(task, pipeline, answered)
    return jobs


def _submit(task: Task, pipeline: str, requests: Sequence[Instance]) -> None:
    """Scores a document for the programs that this submits; the scores are discarded.

    An exception is ignored: it is raised again, with the document, when the document is scored.
    """
    answers = [request.filtered(pipeline) for request in requests]
    if any(isinstance(answer, LeftOut) for answer in answers):
        return
    try:
        task.score_document(pipeline, copy.deepcopy(requests[0].doc), answers)
        if task.repeat_metrics(pipeline):
            for repeat in repeats_of(pipeline, requests):
                task.score_repeat(pipeline, copy.deepcopy(requests[0].doc), repeat)
    except Exception as error:  # metrics of task folders may raise anything
        logger.debug("%s: collecting programs failed: %r", task.task_name, error)


def _listed(numbers: Sequence[int]) -> str:
    """Returns the first numbers as text, with the number of those that are left out."""
    more = f" and {len(numbers) - _MAX_LISTED} more" if len(numbers) > _MAX_LISTED else ""
    return ", ".join(map(str, numbers[:_MAX_LISTED])) + more
