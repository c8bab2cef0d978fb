"""The metric that a duel decides by, and the scores of both models in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lm_eval.api.task import Task
from lm_eval.errors import ConfigError, DataError, suggestion
from lm_eval.metrics.aggregations import mean
from lm_eval.metrics.uncertainty import document_scores
from lm_eval.scoring import TaskScores

Key = tuple[str, str]
"""A metric and the filter pipeline it is computed under."""


def check_metric(name: str, task: Task, wanted: str | None) -> None:
    """Raises if a duel cannot be about this task, before a model is loaded.

    `ConfigError` if the task has no metric `wanted` (a metric, or `metric,filter`), and `DataError`
    if none of its metrics is a mean over documents.
    """
    metrics = task.aggregation()
    if wanted is not None:
        metric = wanted.partition(",")[0]
        if metric not in metrics:
            raise ConfigError(
                f"task {name!r} has no metric {metric!r}.{suggestion(metric, metrics)} Its metrics "
                f"are: {', '.join(metrics) or 'none'}."
            )
        metrics = {metric: metrics[metric]}
    if not any(document_scores(aggregation, []) is not None for aggregation in metrics.values()):
        raise DataError(
            f"task {name!r}: a duel needs a metric whose score is the mean of scores between 0 and "
            f"1 of single documents, such as acc or exact_match. {', '.join(metrics)} "
            f"{'is' if len(metrics) == 1 else 'are'} not. Leave the task out of the duel."
        )


@dataclass
class PairedScores:
    """The scores of two models on the documents of one task, in one metric.

    Args:
        name: the name of the task.
        documents: how many documents the task has.
        wanted: the metric to decide by: its name, or `metric,filter`. None for the first one with
            scores between 0 and 1.
    """

    name: str
    documents: int
    wanted: str | None = None
    key: Key | None = None
    """The chosen metric and filter pipeline; None before the first portion."""
    higher_is_better: bool | None = None
    first: dict[int, float] = field(default_factory=dict)
    """The score of the first model by document."""
    second: dict[int, float] = field(default_factory=dict)

    def add(self, documents: Sequence[int], first: TaskScores, second: TaskScores) -> None:
        """Adds the scores of a portion; the first one decides which metric is used.

        Raises `DataError` if no metric has scores between 0 and 1 on all documents, or the chosen
        one has not.
        """
        key = self.key or self._choose(first, second)
        for scores, known in ((first, self.first), (second, self.second)):
            values = _scores(scores, key)
            for number in documents:
                value = values.get(number)
                if value is None or not 0 <= value <= 1:
                    what = "has none" if value is None else f"is {value:g}"
                    raise DataError(
                        f"task {self.name!r}, document {number}: a duel needs a score between 0 "
                        f"and 1 of every document, but {key[0]} {what}. Choose another --metric."
                    )
                known[number] = value
        if self.key is None:
            self.key, self.higher_is_better = key, first.task.higher_is_better().get(key[0])

    def advantages(self, documents: Sequence[int]) -> list[float]:
        """Returns how much better the first model is on each document, between -1 and 1."""
        sign = -1 if self.higher_is_better is False else 1
        return [sign * (self.first[number] - self.second[number]) for number in documents]

    def means(self) -> tuple[float, float]:
        """Returns the mean scores on the documents asked so far; nan before the first."""
        count = len(self.first)
        if not count:
            return math.nan, math.nan
        return math.fsum(self.first.values()) / count, math.fsum(self.second.values()) / count

    def _choose(self, first: TaskScores, second: TaskScores) -> Key:
        """Returns the first metric, of those wanted, with scores between 0 and 1 in both models."""
        keys = [key for key in first.columns() if key in second.columns()]
        if self.wanted is not None:
            metric, _, pipeline = self.wanted.partition(",")
            keys = [(m, f) for m, f in keys if m == metric and pipeline in ("", f)]
            if not keys:
                filters = ", ".join(f for m, f in first.columns() if m == metric)
                raise ConfigError(
                    f"task {self.name!r} has no {metric} with the filter {pipeline!r}; its filters "
                    f"are: {filters or 'none'}."
                )
        for key in keys:
            values = [_scores(scores, key) for scores in (first, second)]
            if all(v and all(0 <= x <= 1 for x in v.values()) for v in values):
                return key
        raise DataError(
            f"task {self.name!r}: a duel needs a metric with scores between 0 and 1 of single "
            f"documents, but {', '.join(dict.fromkeys(m for m, _ in keys)) or 'no metric'} "
            "has none. Leave the task out of the duel, or choose another --metric."
        )


def _scores(scores: TaskScores, key: Key) -> Mapping[int, float]:
    """Returns the score of each document in one metric; empty if it is not a mean of scores."""
    column = scores.columns().get(key)
    if column is None:
        return {}
    numbers = document_scores(scores.task.aggregation().get(key[0], mean), column.values)
    if numbers is None:
        return {}
    places = [scores.doc_ids[position] for position in column.positions]
    return {place: float(number) for place, number in zip(places, numbers, strict=True)}
