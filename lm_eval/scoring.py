"""Answers become scores: filter them, then measure every document."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.task import Task
from lm_eval.errors import EvalError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measurement:
    """One document under one filter pipeline: what was asked of it, and its metric values."""

    doc_id: int
    pipeline: str
    requests: Sequence[Instance]
    values: dict[str, Any]


@dataclass
class TaskScores:
    """One task's measurements: pipeline by pipeline, each in document order."""

    task: Task
    measurements: list[Measurement] = field(default_factory=list)

    @property
    def documents(self) -> int:
        """How many documents were measured."""
        return len({measurement.doc_id for measurement in self.measurements})

    def columns(self) -> dict[tuple[str, str], list[Any]]:
        """All documents' values by `(metric, pipeline)`."""
        columns: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for measurement in self.measurements:
            for metric, value in measurement.values.items():
                columns[metric, measurement.pipeline].append(value)
        return columns


def score(task: Task, doc_ids: Sequence[int] | None = None) -> TaskScores:
    """Score every document of a task under each of its filter pipelines.

    `doc_ids` are the true numbers of the documents where only some were chosen.
    """
    try:
        task.apply_filters()
    except EvalError as error:
        raise type(error)(f"task {task.task_name!r}: {error}") from error
    except Exception as error:
        raise failed(f"task {task.task_name!r}: filtering its answers", error) from error
    documents = _by_document(task.instances)
    scores = TaskScores(task)
    for pipeline in task.instances[0].filtered_resps:
        task.gold_missing = 0
        for doc_id, requests in documents.items():
            number = doc_ids[doc_id] if doc_ids else doc_id
            answers = [request.filtered_resps[pipeline] for request in requests]
            try:
                values = dict(task.process_results(requests[0].doc, answers))
            except EvalError as error:
                raise type(error)(f"task {task.task_name!r}, document {number}: {error}") from error
            except Exception as error:
                what = f"task {task.task_name!r}, document {number}: scoring it"
                raise failed(what, error) from error
            scores.measurements.append(Measurement(number, pipeline, requests, values))
    if task.gold_missing:
        logger.warning(
            "%s: the gold answer of %d documents is none of their choices; they count as wrong.",
            task.task_name,
            task.gold_missing,
        )
    return scores


def failed(what: str, error: Exception) -> EvalError:
    """An error in somebody's own function, told with the place it was called for."""
    return EvalError(f"{what} failed: {type(error).__name__}: {error}")


def _by_document(instances: Sequence[Instance]) -> dict[int, list[Instance]]:
    documents: dict[int, list[Instance]] = defaultdict(list)
    for instance in instances:
        documents[instance.doc_id or 0].append(instance)
    for requests in documents.values():
        requests.sort(key=lambda request: request.idx)
    return documents
