"""Turns answers into scores: applies the filter pipelines, then the metrics of each document."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from lm_eval.api.filter import LeftOut
from lm_eval.api.instance import Completion, Failure, Instance
from lm_eval.api.task import Task
from lm_eval.code_scoring import run_programs
from lm_eval.engine.gc_pause import gc_paused
from lm_eval.errors import EvalError, ModelError, as_original_type, describe_cause, raise_interrupt
from lm_eval.filters.thinking import Thinking
from lm_eval.repeat_scoring import score_repeats

logger = logging.getLogger(__name__)


class _Absent:
    """The type of `ABSENT`, which marks that a document has no value for a metric."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


@dataclass(frozen=True)
class Measurement:
    """The requests and metric values of one document under one filter pipeline.

    `doc_id` is the index of the document in the evaluated split; a metric without a value for the
    document is not in `values`. `programs` is what became of each of its programs, in a code task.
    """

    doc_id: int
    pipeline: str
    requests: Sequence[Instance]
    values: dict[str, Any]
    programs: Sequence[str] | None = None
    repeat_values: dict[str, list[Any]] = field(default_factory=dict)
    """For each metric that scores single answers for a metric of repeats: one value per repeat."""


@dataclass(frozen=True)
class Column:
    """The values of one metric under one filter pipeline.

    `positions` are the indices, in `TaskScores.doc_ids`, of the documents that have the values.
    """

    values: list[Any]
    positions: Sequence[int]


@dataclass
class TaskScores:
    """The scores of a task, document by document.

    Attributes:
        task: the task.
        doc_ids: the indices of the documents in the evaluated split.
        requests: for each document, its requests.
        pipelines: for each filter pipeline and metric, one value per document; `ABSENT` where the
            document has none.
        programs: for each filter pipeline and document of a code task, what became of its programs.
        repeat_values: for each filter pipeline with metrics of repeated answers, and each document
            by its index in `doc_ids`: the values of each repeat, by metric.
    """

    task: Task
    doc_ids: list[int] = field(default_factory=list)
    requests: list[Sequence[Instance]] = field(default_factory=list)
    pipelines: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    programs: dict[str, list[list[str]]] = field(default_factory=dict)
    repeat_values: dict[str, dict[int, dict[str, list[Any]]]] = field(default_factory=dict)

    @property
    def documents(self) -> int:
        """Number of scored documents."""
        return len(self.doc_ids)

    def columns(self) -> dict[tuple[str, str], Column]:
        """Returns the values by `(metric, pipeline)`, without documents that have none."""
        every = range(self.documents)
        columns: dict[tuple[str, str], Column] = {}
        for pipeline, metrics in self.pipelines.items():
            for metric, values in metrics.items():
                positions = [i for i in every if values[i] is not ABSENT]
                whole = len(positions) == len(values)
                columns[metric, pipeline] = Column(
                    values if whole else [values[i] for i in positions],
                    every if whole else positions,
                )
        return columns

    def drop_other_metrics(self) -> None:
        """Removes values of metrics that the task does not aggregate.

        The `process_results` of a task may return more than the metrics that the user chose.
        """
        known = self.task.aggregation()
        for pipeline, columns in self.pipelines.items():
            self.pipelines[pipeline] = {m: column for m, column in columns.items() if m in known}

    @property
    def measurements(self) -> Iterator[Measurement]:
        """Yields the measurements of all documents, one filter pipeline after the other."""
        for pipeline, metrics in self.pipelines.items():
            for i, (doc_id, requests) in enumerate(zip(self.doc_ids, self.requests, strict=True)):
                values = {m: column[i] for m, column in metrics.items() if column[i] is not ABSENT}
                programs = self.programs[pipeline][i] if self.programs else None
                repeated = self.repeat_values.get(pipeline, {}).get(i, {})
                yield Measurement(doc_id, pipeline, requests, values, programs, repeated)

    def left_out(self, pipeline: str) -> int:
        """Returns the number of documents that the filters of a pipeline left out."""
        return sum(map(bool, _left_out(pipeline, self.requests)))

    def extraction_failed(self) -> dict[str, int]:
        """Returns for each filter pipeline the number of documents in which it found no answer.

        A document counts if this is so for any of its requests. Contains every pipeline with an
        extracting filter, and those that returned `NotFound`.
        """
        counts = dict.fromkeys(self.task.extracting_pipelines(), 0)
        for requests in self.requests:
            for name in {name for request in requests for name in request.extraction_failed}:
                counts[name] = counts.get(name, 0) + 1
        return counts

    def repeats_without_answer(self) -> dict[str, int]:
        """Returns for each pipeline with metrics of repeats the repeats in which it found none."""
        counts: dict[str, int] = {}
        for pipeline in self.repeat_values if self.task.extracting_pipelines() else ():
            counts[pipeline] = sum(
                sum(request.repeats_not_found.get(pipeline, ()))
                for requests in self.requests
                for request in requests
            )
        return counts

    def length_stopped(self) -> int | None:
        """Returns the number of answers that were cut off at the maximum length.

        None if the model did not report why its answers ended (`Completion.finish_reason`).
        """
        reasons = [
            answer.finish_reason
            for requests in self.requests
            for request in requests
            for answer in request.answers
            if isinstance(answer, Completion)
        ]
        known = [reason for reason in reasons if reason is not None]
        return known.count("length") if known else None

    def answer_tokens(self) -> dict[str, int] | None:
        """Returns how many tokens the model generated for its answers, as far as it reported that.

        These are the number of `answers` whose tokens are known, the sum of their `tokens`, the
        `longest`, and the sum of their `thinking_tokens` if any answer has thoughts. None if the
        tokens of no answer are known.
        """
        known = [
            answer
            for requests in self.requests
            for request in requests
            for answer in request.resps
            if isinstance(answer, Completion) and answer.tokens is not None
        ]
        if not known:
            return None
        sizes = [answer.tokens or 0 for answer in known]
        thoughts = [a.reasoning_tokens for a in known if a.reasoning_tokens is not None]
        counts = {"answers": len(known), "tokens": sum(sizes), "longest": max(sizes)}
        return {**counts, "thinking_tokens": sum(thoughts)} if thoughts else counts

    def empty_answers(self) -> int:
        """Returns the number of generated answers that are empty."""
        return sum(
            1
            for requests in self.requests
            for request in requests
            for answer in request.answers
            if isinstance(answer, str) and not answer
        )

    def clusters(self, column: str) -> list[Hashable]:
        """Returns the cluster of each document, for clustered standard errors.

        Documents with the same value in `column` belong to one cluster. A value that is not
        hashable, such as a list, is replaced by its `repr`. Raises `EvalError` if a cluster cannot
        be read.
        """
        try:
            shared = [self.task.cluster_of(requests[0].doc, column) for requests in self.requests]
            return [one if isinstance(one, Hashable) else repr(one) for one in shared]
        except BaseException as error:
            what = f"task {self.task.task_name!r}: reading its clusters ({column!r}) failed"
            raise third_party_error(what, error) from error


def score(
    task: Task,
    doc_ids: Sequence[int] | None = None,
    think_end_token: Any = None,
    only_chosen: bool = False,
) -> TaskScores:
    """Filters the answers of a task and returns its scores under each filter pipeline.

    Logs a warning if gold answers are none of the choices. Raises an `EvalError` if a filter or a
    metric fails; it names the task and, where known, the document.

    Args:
        task: the task, whose requests have answers; it must have at least one.
        doc_ids: the indices of the evaluated documents in the split; None if they are the first.
        think_end_token: the token that ends the model's thinking text, which is removed; used if
            the task does not set one.
        only_chosen: whether values of metrics that the task does not aggregate are dropped, as for
            metrics that the user chose.
    """
    with gc_paused():
        _filter(task, think_end_token)
        requests_by_doc = _by_document(task.instances)
    numbers = [doc_ids[i] if doc_ids else i for i in requests_by_doc]
    scores = TaskScores(task, numbers, list(requests_by_doc.values()))
    scores.programs = run_programs(task, scores.requests, numbers)
    for pipeline in task.instances[0].filtered_resps:
        scores.pipelines[pipeline] = _measure(task, pipeline, numbers, scores.requests)
        if task.repeat_metrics(pipeline):
            _measure_repeats(scores, pipeline)
    if only_chosen:
        scores.drop_other_metrics()
    if task.gold_missing:
        logger.warning(
            "%s: the gold answer of %d documents is none of their choices; they count as wrong. "
            "Check doc_to_target and doc_to_choice of the task.",
            task.task_name,
            task.gold_missing,
        )
    return scores


def answered(tasks: Mapping[str, Task]) -> dict[str, Task]:
    """Returns the tasks without the documents that have an unanswered (failed) request.

    Logs a warning for each task that loses documents. A task that loses all is left out; raises
    `ModelError` if no task is left.
    """
    found = {}
    for name, task in tasks.items():
        failed = {request.doc_id for request in task.instances if request.failed}
        left = [r for r in task.instances if r.doc_id not in failed] if failed else task.instances
        if failed:
            what = f"{len(failed)} of its documents" if left else "all of its documents"
            logger.warning(
                "%s: %s got no answer and are left out of the scores, because requests failed. If "
                "the run has an output_path, running it again sends these requests again.",
                name,
                what,
            )
        if left:
            found[name] = task.with_requests(left) if failed else task
    if not found:
        raise ModelError(
            f"the model answered no document of {', '.join(tasks)}, because requests of every "
            "document failed, so there is nothing to score."
        )
    return found


def unanswered_documents(
    tasks: Mapping[str, Task], chosen: Mapping[str, Sequence[int]]
) -> dict[str, dict[str, str]]:
    """Returns for each task the documents with a failed request, and why it failed.

    Documents are named by their number in the dataset, as text. `chosen` are the numbers of the
    evaluated documents, for tasks of which only some are. Tasks without such documents are left
    out.
    """
    found: dict[str, dict[str, str]] = {}
    for name, task in tasks.items():
        numbers = chosen.get(name)
        for request in task.instances:
            if request.failed:
                place = request.doc_id or 0
                number = str(numbers[place] if numbers else place)
                reasons = [one.reason for one in request.resps if isinstance(one, Failure)]
                found.setdefault(name, {}).setdefault(number, reasons[0])
    return found


def _filter(task: Task, think_end_token: Any) -> None:
    """Removes thinking text from the answers, and applies the filter pipelines of the task.

    `think_end_token` ends the thinking text, unless the task sets another. Raises an `EvalError`
    that names the task if that fails.
    """
    own = task.get_config("think_end_token"), task.get_config("think_tags")
    thinking = Thinking.parse(own[0] or think_end_token, own[1])
    try:
        if thinking is not None:
            thinking.split_instances(task.instances)
        task.apply_filters()
    except EvalError as error:
        message = f"task {task.task_name!r}: filtering its answers failed: {error}"
        raise type(error)(message) from error
    except BaseException as error:
        what = f"task {task.task_name!r}: filtering its answers failed"
        raise third_party_error(what, error) from error


def _measure(
    task: Task,
    pipeline: str,
    numbers: Sequence[int],
    requests_by_doc: Sequence[Sequence[Instance]],
) -> dict[str, list[Any]]:
    """Returns for each metric its values under one filter pipeline, one per document.

    Scores all documents at once if the task supports it, otherwise one by one; a value that a
    document does not have is then `ABSENT`. `numbers` are those of the documents, for messages.
    Documents that a filter left out have no value either. Raises an `EvalError` that names the
    task, and the document if they are scored one by one.
    """
    left_out = _left_out(pipeline, requests_by_doc)
    if any(left_out):
        kept = [i for i, dropped in enumerate(left_out) if not dropped]
        if not kept:
            return {}
        scored = _measure(
            task, pipeline, [numbers[i] for i in kept], [requests_by_doc[i] for i in kept]
        )
        return {metric: _spread(values, kept, len(numbers)) for metric, values in scored.items()}
    task.begin_scoring()
    try:
        with gc_paused():
            columns = task.score_documents(pipeline, requests_by_doc)
    except EvalError as error:
        message = f"task {task.task_name!r}: scoring its documents failed: {error}"
        raise type(error)(message) from error
    except BaseException as error:
        what = f"task {task.task_name!r}: scoring its documents failed"
        raise third_party_error(what, error) from error
    if columns is not None:
        return columns
    columns = {}
    for position, (number, requests) in enumerate(zip(numbers, requests_by_doc, strict=True)):
        answers = [request.filtered(pipeline) for request in requests]
        try:
            values = task.score_document(pipeline, requests[0].doc, answers, _tokens(requests))
        except EvalError as error:
            message = f"task {task.task_name!r}, document {number}: scoring it failed: {error}"
            raise type(error)(message) from error
        except BaseException as error:
            what = f"task {task.task_name!r}, document {number}: scoring it failed"
            raise third_party_error(what, error) from error
        _add_row(columns, values, position)
    return columns


def _measure_repeats(scores: TaskScores, pipeline: str) -> None:
    """Adds the metrics of repeated answers to the scores of one filter pipeline.

    Documents that a filter left out have no value. Raises an `EvalError` that names the task and
    the document if scoring fails.
    """
    task, columns = scores.task, scores.pipelines[pipeline]
    known = scores.repeat_values.setdefault(pipeline, {})
    names = [metric.name for metric, _ in task.repeat_metrics(pipeline)]
    for name in names:
        columns[name] = [ABSENT] * scores.documents
    left_out = _left_out(pipeline, scores.requests)
    for i, (number, requests) in enumerate(zip(scores.doc_ids, scores.requests, strict=True)):
        if left_out[i]:
            continue
        try:
            found = score_repeats(task, pipeline, requests)
        except EvalError as error:
            message = f"task {task.task_name!r}, document {number}: scoring its repeats: {error}"
            raise type(error)(message) from error
        except BaseException as error:
            what = f"task {task.task_name!r}, document {number}: scoring its repeats failed"
            raise third_party_error(what, error) from error
        known[i] = found.values
        for name, value in found.reduced.items():
            columns[name][i] = value


def _left_out(pipeline: str, requests_by_doc: Sequence[Sequence[Instance]]) -> list[bool]:
    """Returns for each document whether the filters of a pipeline left it out.

    They did if they left out any of its requests.
    """
    return [
        any(isinstance(request.filtered(pipeline), LeftOut) for request in requests)
        for requests in requests_by_doc
    ]


def _spread(values: Sequence[Any], positions: Sequence[int], count: int) -> list[Any]:
    """Returns a list of `count` items with `values` at `positions`, and `ABSENT` elsewhere."""
    spread: list[Any] = [ABSENT] * count
    for position, value in zip(positions, values, strict=True):
        spread[position] = value
    return spread


def _tokens(requests: Sequence[Instance]) -> list[int] | None:
    """Returns the lengths of the continuations in tokens; None if any of them was not counted."""
    counts = [request.tokens for request in requests if request.tokens is not None]
    return counts if len(counts) == len(requests) else None


def _add_row(columns: dict[str, list[Any]], values: Mapping[str, Any], position: int) -> None:
    """Appends the values of the document at index `position`; adds `ABSENT` where it has none.

    A metric that occurs for the first time gets `ABSENT` for all documents before.
    """
    for metric, value in values.items():
        columns.setdefault(metric, [ABSENT] * position).append(value)
    if len(values) < len(columns):
        for column in columns.values():
            if len(column) == position:
                column.append(ABSENT)


def third_party_error(what: str, error: BaseException) -> EvalError:
    """Returns the error to raise when third-party code raised `error`.

    It is an `EvalError` that also has the type of `error`. Its message is `what`, which says what
    failed, and the cause. Raises `error` itself if the user has interrupted the program.
    """
    raise_interrupt(error)
    return as_original_type(EvalError(f"{what}: {describe_cause(error)}"), error)


def _by_document(instances: Sequence[Instance]) -> dict[int, list[Instance]]:
    """Returns the requests of each document, by its number, in the order of their `idx`.

    The number is `doc_id`, where None counts as 0.
    """
    documents: dict[int, list[Instance]] = defaultdict(list)
    for instance in instances:
        documents[instance.doc_id or 0].append(instance)
    for requests in documents.values():
        requests.sort(key=_place)
    return documents


_place = attrgetter("idx")
