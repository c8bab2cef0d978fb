"""From per-document values to one number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lm_eval.api.registry import Passthrough, register_aggregation, register_metric


@register_aggregation("bypass")
def bypass_agg(arr: Sequence[Any]) -> int:
    """The placeholder of runs that only predict."""
    return 999


@register_aggregation("mean")
def mean(arr: Sequence[float]) -> float:
    return sum(arr) / len(arr)


@register_aggregation("nanmean")
def nanmean(arr: Sequence[float]) -> float:
    """The mean of the values that are numbers; nan where there are none."""
    values = np.asarray(arr, dtype=float)
    return float(np.nanmean(values)) if np.any(~np.isnan(values)) else math.nan


@register_aggregation("median")
def median(arr: Sequence[float]) -> float:
    """The middle value; of an even number, the upper of the two, as published."""
    return sorted(arr)[len(arr) // 2]


def weighted_mean(items: Sequence[tuple[float, float]]) -> float:
    """Sum of values over sum of weights."""
    values, weights = zip(*items, strict=True)
    return float(sum(values) / sum(weights))


@register_aggregation("perplexity")
def perplexity(items: Sequence[float]) -> float:
    return _exp(-mean(items))


@register_aggregation("weighted_perplexity")
def weighted_perplexity(items: Sequence[tuple[float, float]]) -> float:
    return _exp(-weighted_mean(items))


@register_aggregation("bits_per_byte")
def bits_per_byte(items: Sequence[tuple[float, float]]) -> float:
    return -weighted_mean(items) / math.log(2)


def brier_scores(items: Sequence[tuple[Any, Sequence[float]]]) -> list[float]:
    """Each document's squared distance between the probabilities given and the truth.

    A document whose gold answer is none of its choices has nothing to be near to: all of its
    probabilities count as wrong.
    """
    scores = []
    for gold, probabilities in items:
        wrong = np.array(probabilities, dtype=float)
        for one in gold if isinstance(gold, list) else [gold]:
            if 0 <= one < len(wrong):
                wrong[one] -= 1.0
        scores.append(float(wrong @ wrong))
    return scores


@register_aggregation("brier_score")
def brier_score(items: Sequence[tuple[Any, Sequence[float]]]) -> float:
    """The mean squared distance between probabilities and truth; lower is better."""
    return mean(brier_scores(items))


def gold_probabilities(items: Sequence[tuple[Any, Sequence[float]]]) -> list[float]:
    """Each document's probability of its gold answer (of all its gold answers together)."""
    return [
        sum(
            _exp(loglikelihoods[one])
            for one in (gold if isinstance(gold, list) else [gold])
            if 0 <= one < len(loglikelihoods)
        )
        for gold, loglikelihoods in items
    ]


@register_aggregation("likelihood")
def likelihood(items: Sequence[tuple[Any, Sequence[float]]]) -> float:
    """The mean probability of the gold answer."""
    return mean(gold_probabilities(items))


def all_right(items: Sequence[tuple[Any, Any]]) -> list[int]:
    """Question by question, whether every answer offered for it was judged rightly."""
    questions: dict[Any, bool] = {}
    for prediction, doc in items:
        key = (doc["idx"]["paragraph"], doc["idx"]["question"])
        questions[key] = questions.get(key, True) and (doc["label"] == 1) == prediction
    return [int(right) for right in questions.values()]


@register_aggregation("acc_all")
def acc_all(items: Sequence[tuple[Any, Any]]) -> float:
    """The share of questions (MultiRC) of which every answer was judged rightly."""
    return mean(all_right(items))


register_metric(
    metric="acc_all", higher_is_better=True, output_type="loglikelihood", aggregation="acc_all"
)(Passthrough("acc_all"))


def _exp(value: float) -> float:
    """Infinity where the number is too large to hold: a bad model is no reason to crash."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
