"""Aggregations: functions that combine the per-document values of a metric into one number.

An aggregation takes a sequence with one item per document. The items are numbers, or the tuples
that the metric returns (a gold label and a prediction, for example). Task files name aggregations
as `aggregation: mean`; `lm_eval.api.registry.register_aggregation` adds one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lm_eval.api.registry import Passthrough, register_aggregation, register_metric


@register_aggregation("bypass")
def bypass_agg(arr: Sequence[Any]) -> int:
    """Returns 999, the placeholder score of runs that only generate answers (`--predict_only`)."""
    return 999


@register_aggregation("mean")
def mean(arr: Sequence[float]) -> float:
    """Returns the arithmetic mean; raises `ZeroDivisionError` if there are no values."""
    return sum(arr) / len(arr)


@register_aggregation("nanmean")
def nanmean(arr: Sequence[float]) -> float:
    """Returns the mean of the values that are not nan; nan if all of them are."""
    values = np.asarray(arr, dtype=float)
    return float(np.nanmean(values)) if np.any(~np.isnan(values)) else math.nan


@register_aggregation("median")
def median(arr: Sequence[float]) -> float:
    """Returns the median; for an even number of values the upper of the two middle ones.

    The published harness defines it this way, too.
    """
    return sorted(arr)[len(arr) // 2]


def weighted_mean(items: Sequence[tuple[float, float]]) -> float:
    """Returns the sum of values divided by the sum of weights, given `(value, weight)` pairs.

    The values are not multiplied by their weights: a value is already a total, such as the
    log-likelihood of a text, and its weight is its size.
    """
    values, weights = zip(*items, strict=True)
    return float(sum(values) / sum(weights))


@register_aggregation("perplexity")
def perplexity(items: Sequence[float]) -> float:
    """Returns exp(-mean) of log-likelihoods; infinity if that is too large for a float."""
    return _exp_or_inf(-mean(items))


@register_aggregation("weighted_perplexity")
def weighted_perplexity(items: Sequence[tuple[float, float]]) -> float:
    """Returns the perplexity per word (or byte), given `(log-likelihood, words)` pairs.

    Returns infinity if it is too large for a float.
    """
    return _exp_or_inf(-weighted_mean(items))


@register_aggregation("bits_per_byte")
def bits_per_byte(items: Sequence[tuple[float, float]]) -> float:
    """Returns the bits per byte of texts, given `(log-likelihood, number of bytes)` pairs.

    This is the negative log-likelihood in base 2, divided by the number of bytes.
    """
    return -weighted_mean(items) / math.log(2)


def brier_scores(items: Sequence[tuple[Any, Sequence[float]]]) -> list[float]:
    """Returns the Brier score of each document: the squared error of its choices' probabilities.

    An item is `(gold, probabilities)`, where `gold` is the index of the correct choice, or a list
    of indices. The target probability of correct choices is 1, that of the others is 0. If `gold`
    is not the index of a choice, all targets are 0.
    """
    scores = []
    for gold, probabilities in items:
        wrong = np.array(probabilities, dtype=float)
        for index in gold if isinstance(gold, list) else [gold]:
            if 0 <= index < len(wrong):
                wrong[index] -= 1.0
        scores.append(float(wrong @ wrong))
    return scores


@register_aggregation("brier_score")
def brier_score(items: Sequence[tuple[Any, Sequence[float]]]) -> float:
    """Returns the mean Brier score of `(gold, probabilities)` pairs; lower is better."""
    return mean(brier_scores(items))


def gold_probabilities(items: Sequence[tuple[Any, Sequence[float]]]) -> list[float]:
    """Returns exp(log-likelihood) of the gold answer of each document.

    It is not normalized over the choices.

    An item is `(gold, log-likelihoods of the choices)`. If `gold` is a list of indices, their
    probabilities are added. An index that is not that of a choice has the probability 0.
    """
    return [
        sum(
            _exp_or_inf(loglikelihoods[index])
            for index in (gold if isinstance(gold, list) else [gold])
            if 0 <= index < len(loglikelihoods)
        )
        for gold, loglikelihoods in items
    ]


@register_aggregation("likelihood")
def likelihood(items: Sequence[tuple[Any, Sequence[float]]]) -> float:
    """Returns the mean probability of the gold answer, given `(gold, log-likelihoods)` pairs."""
    return mean(gold_probabilities(items))


def questions_all_correct(items: Sequence[tuple[Any, Any]]) -> list[int]:
    """Returns one value per MultiRC question: 1 if all its candidate answers were judged correctly.

    Other questions get 0. An item is `(prediction, document)` for one candidate answer, where
    `prediction` is true if the model judged the candidate to be correct.
    """
    questions: dict[Any, bool] = {}
    for prediction, doc in items:
        key = (doc["idx"]["paragraph"], doc["idx"]["question"])
        questions[key] = questions.get(key, True) and (doc["label"] == 1) == prediction
    return [int(correct) for correct in questions.values()]


@register_aggregation("acc_all")
def acc_all(items: Sequence[tuple[Any, Any]]) -> float:
    """Returns the fraction of MultiRC questions whose candidate answers were all judged correctly.

    An item is `(prediction, document)` for one candidate answer, where `prediction` is true if the
    model judged the candidate to be correct.
    """
    return mean(questions_all_correct(items))


register_metric(
    metric="acc_all", higher_is_better=True, output_type="loglikelihood", aggregation="acc_all"
)(Passthrough("acc_all", acc_all))


def _exp_or_inf(value: float) -> float:
    """Returns exp(`value`), or infinity on overflow, so that a poor model does not stop the run."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def aggregate_subtask_metrics(
    metrics: Sequence[float], sizes: Sequence[int], weight_by_size: bool = True
) -> float:
    """Returns the mean of the scores of several tasks.

    With `weight_by_size`, each task is weighted by its number of documents (`sizes`); otherwise all
    tasks have the same weight. Raises `ZeroDivisionError` if there are no tasks or no documents.
    """
    weights = sizes if weight_by_size else [1] * len(sizes)
    return sum(m * w for m, w in zip(metrics, weights, strict=True)) / sum(weights)
