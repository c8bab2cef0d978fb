"""Answers become scores: filter them, then measure every document."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.task import Task
from lm_eval.engine.gc_pause import gc_paused
from lm_eval.errors import EvalError, ModelError, also_known_as, whence
from lm_eval.filters.thinking import Thinking

logger = logging.getLogger(__name__)


class _Absent:
    """Stands for the value of a metric that a document was not given."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


@dataclass(frozen=True)
class Measurement:
    """One document under one filter pipeline: what was asked of it, and its metric values."""

    doc_id: int
    pipeline: str
    requests: Sequence[Instance]
    values: dict[str, Any]


@dataclass(frozen=True)
class Column:
    """The values of one metric under one pipeline, and the places of the documents they are of."""

    values: list[Any]
    places: Sequence[int]


@dataclass
class TaskScores:
    """One task's documents, in order, and a column of values a pipeline and metric."""

    task: Task
    doc_ids: list[int] = field(default_factory=list)
    requests: list[Sequence[Instance]] = field(default_factory=list)
    pipelines: dict[str, dict[str, list[Any]]] = field(default_factory=dict)

    @property
    def documents(self) -> int:
        """How many documents were measured."""
        return len(self.doc_ids)

    def columns(self) -> dict[tuple[str, str], Column]:
        """All documents' values by `(metric, pipeline)`; documents without one are left out."""
        every = range(self.documents)
        columns: dict[tuple[str, str], Column] = {}
        for pipeline, metrics in self.pipelines.items():
            for metric, values in metrics.items():
                places = [i for i in every if values[i] is not ABSENT]
                whole = len(places) == len(values)
                columns[metric, pipeline] = Column(
                    values if whole else [values[i] for i in places], every if whole else places
                )
        return columns

    @property
    def measurements(self) -> Iterator[Measurement]:
        """Pipeline by pipeline, each in document order."""
        for pipeline, metrics in self.pipelines.items():
            for i, (doc_id, requests) in enumerate(zip(self.doc_ids, self.requests, strict=True)):
                values = {m: column[i] for m, column in metrics.items() if column[i] is not ABSENT}
                yield Measurement(doc_id, pipeline, requests, values)

    def extraction_failed(self) -> dict[str, int]:
        """How many documents each extracting pipeline found no answer in."""
        return {
            name: sum(any(name in r.extraction_failed for r in asked) for asked in self.requests)
            for name in self.task.extracting_pipelines()
        }

    def clusters(self, column: str) -> list[Hashable]:
        """What each document shares with others that err together."""
        try:
            shared = [self.task.cluster_of(asked[0].doc, column) for asked in self.requests]
            return [one if isinstance(one, Hashable) else repr(one) for one in shared]
        except Exception as error:
            what = f"task {self.task.task_name!r}: reading its clusters ({column!r})"
            raise failed(what, error) from error


def score(
    task: Task, doc_ids: Sequence[int] | None = None, think_end_token: Any = None
) -> TaskScores:
    """Score every document of a task under each of its filter pipelines.

    `doc_ids` are the true numbers of the documents where only some were chosen; the token that
    ends the model's thinking is used where the task does not name one.
    """
    with gc_paused():
        _filter(task, think_end_token)
        asked = _by_document(task.instances)
    numbers = [doc_ids[i] if doc_ids else i for i in asked]
    scores = TaskScores(task, numbers, list(asked.values()))
    for pipeline in task.instances[0].filtered_resps:
        scores.pipelines[pipeline] = _measure(task, pipeline, numbers, scores.requests)
    if task.gold_missing:
        logger.warning(
            "%s: the gold answer of %d documents is none of their choices; they count as wrong.",
            task.task_name,
            task.gold_missing,
        )
    return scores


def answered(tasks: Mapping[str, Task]) -> dict[str, Task]:
    """Returns the tasks without the documents that have a request which got no answer.

    A task with no other documents is left out; raises if that holds for all of them.
    """
    found = {}
    for name, task in tasks.items():
        failed = {request.doc_id for request in task.instances if request.failed}
        left = [r for r in task.instances if r.doc_id not in failed] if failed else task.instances
        if failed:
            what = f"{len(failed)} of its documents" if left else "all of its documents"
            logger.warning("%s: %s got no answer and are left out of the scores.", name, what)
        if left:
            found[name] = task.with_requests(left) if failed else task
    if not found:
        raise ModelError(f"the model answered no document of {', '.join(tasks)}.")
    return found


def _filter(task: Task, think_end_token: Any) -> None:
    own = task.get_config("think_end_token"), task.get_config("think_tags")
    thinking = Thinking.parse(own[0] or think_end_token, own[1])
    try:
        if thinking is not None:
            thinking.cut(task.instances)
        task.apply_filters()
    except EvalError as error:
        raise type(error)(f"task {task.task_name!r}: {error}") from error
    except Exception as error:
        raise failed(f"task {task.task_name!r}: filtering its answers", error) from error


def _measure(
    task: Task, pipeline: str, numbers: Sequence[int], asked: Sequence[Sequence[Instance]]
) -> dict[str, list[Any]]:
    """One pipeline's columns: all documents at once where the task can, else one by one."""
    task.begin_scoring()
    try:
        with gc_paused():
            at_once = task.score_documents(pipeline, asked)
    except EvalError as error:
        raise type(error)(f"task {task.task_name!r}: {error}") from error
    except Exception as error:
        raise failed(f"task {task.task_name!r}: scoring its documents", error) from error
    if at_once is not None:
        return at_once
    columns: dict[str, list[Any]] = {}
    for place, (number, requests) in enumerate(zip(numbers, asked, strict=True)):
        answers = [request.filtered_resps[pipeline] for request in requests]
        try:
            values = task.score_document(pipeline, requests[0].doc, answers, _tokens(requests))
        except EvalError as error:
            raise type(error)(f"task {task.task_name!r}, document {number}: {error}") from error
        except Exception as error:
            what = f"task {task.task_name!r}, document {number}: scoring it"
            raise failed(what, error) from error
        _add_row(columns, values, place)
    return columns


def _tokens(requests: Sequence[Instance]) -> list[int] | None:
    """The lengths of what was asked for, in tokens, where they were counted."""
    counts = [request.tokens for request in requests if request.tokens is not None]
    return counts if len(counts) == len(requests) else None


def _add_row(columns: dict[str, list[Any]], values: Mapping[str, Any], place: int) -> None:
    for metric, value in values.items():
        columns.setdefault(metric, [ABSENT] * place).append(value)
    if len(values) < len(columns):
        for column in columns.values():
            if len(column) == place:
                column.append(ABSENT)


def failed(what: str, error: Exception) -> EvalError:
    """An error in somebody's own function, told with the place it was called for."""
    return also_known_as(EvalError(f"{what} failed: {whence(error)}"), error)


def _by_document(instances: Sequence[Instance]) -> dict[int, list[Instance]]:
    """Requests by document, in the order of their choices."""
    documents: dict[int, list[Instance]] = defaultdict(list)
    for instance in instances:
        documents[instance.doc_id or 0].append(instance)
    for requests in documents.values():
        requests.sort(key=_place)
    return documents


_place = attrgetter("idx")
