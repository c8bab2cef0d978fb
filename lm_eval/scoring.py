"""Answers become scores: filter them, then measure every document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.task import Task


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
    task.apply_filters()
    documents = _by_document(task.instances)
    scores = TaskScores(task)
    for pipeline in task.instances[0].filtered_resps:
        for doc_id, requests in documents.items():
            answers = [request.filtered_resps[pipeline] for request in requests]
            values = task.process_results(requests[0].doc, answers)
            number = doc_ids[doc_id] if doc_ids else doc_id
            scores.measurements.append(Measurement(number, pipeline, requests, values))
    return scores


def _by_document(instances: Sequence[Instance]) -> dict[int, list[Instance]]:
    documents: dict[int, list[Instance]] = defaultdict(list)
    for instance in instances:
        documents[instance.doc_id or 0].append(instance)
    for requests in documents.values():
        requests.sort(key=lambda request: request.idx)
    return documents
