"""Score the answers to one document, or to all documents of a task at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lm_eval.api.instance import Instance
from lm_eval.errors import DataError
from lm_eval.metrics import documents
from lm_eval.metrics.chosen import ChosenMetrics

Values = dict[str, Any]
_TRUTH = (bool, np.bool_)


class NotTogetherError(Exception):
    """Documents that cannot be scored all at once; the message says why."""


# -- one document -----------------------------------------------------------------------------


def score_loglikelihood(metrics: ChosenMetrics, answer: Any) -> Values:
    """Returns the values of a target text, given its log-likelihood and whether it is greedy."""
    values = documents.score_loglikelihood(answer, metrics.metrics)
    return values | _own_functions(metrics, answer)


def score_rolling(
    metrics: ChosenMetrics, loglikelihood: float, words: int, byte_count: int
) -> Values:
    """Returns the values of a whole text, given its log-likelihood and size."""
    values = documents.score_rolling(loglikelihood, words, byte_count, metrics.metrics)
    return values | _own_functions(metrics, (loglikelihood, words, byte_count))


def score_choice(
    metrics: ChosenMetrics,
    answers: Sequence[Any],
    choices: Sequence[str],
    gold: Any,
    tokens: Sequence[int] | None,
) -> Values:
    """Returns the values of one multiple-choice document; `tokens` are its choices' lengths."""
    values = documents.score_multiple_choice(answers, choices, gold, metrics.metrics, tokens)
    return values | _own_functions(metrics, (gold, documents.predictions_of(answers, len(choices))))


def score_generation(
    metrics: ChosenMetrics, gold: Any, answer: Any, several_targets: bool
) -> Values:
    """Returns the values of a generated text, each metric by its own function."""
    values: Values = {}
    for metric in metrics.metrics.values():
        measured = metric.measure(gold, answer, several_targets)
        metrics.adopt(metric.name, measured)
        values |= measured
    return values


def first_repeats(answers: Any) -> list[Any]:
    """Likelihoods do not vary, so of repeats that the filters left the first is as good as any."""
    return [answer[0] if _keeps_repeats(answer) else answer for answer in answers]


def _keeps_repeats(answer: Any) -> bool:
    """Whether filters left a list of answers; a pair with its `is_greedy` may be a list too."""
    return (
        isinstance(answer, list)
        and len(answer) > 0
        and not isinstance(answer[-1], (bool, np.bool_))
    )


def _own_functions(metrics: ChosenMetrics, items: Sequence[Any]) -> Values:
    """The values of functions that a task folder brings for answers that are no text.

    They are called with what the documents describe: gold and predicted label for multiple
    choice, and otherwise what the model gave.
    """
    values: Values = {}
    for metric in metrics.metrics.values():
        if metric.fn is not None:
            scored = metric.measure(items[0], items[1]) if len(items) == 2 else metric.fn(items)
            named = scored if isinstance(scored, dict) else {metric.name: scored}
            metrics.adopt(metric.name, named)
            values |= named
    return values


# -- all documents ----------------------------------------------------------------------------


def score_targets(
    metrics: ChosenMetrics, asked: Sequence[Sequence[Instance]], pipeline: str
) -> documents.Columns:
    """Returns one column of values per metric for documents with one target each.

    Raises `NotTogetherError` where some document cannot be scored: scoring them one by one tells
    which.
    """
    answers = first_repeats([requests[0].filtered_resps[pipeline] for requests in asked])
    try:
        return documents.score_targets(answers, metrics.metrics)
    except DataError as error:
        raise NotTogetherError(str(error)) from error


def score_texts(
    metrics: ChosenMetrics,
    asked: Sequence[Sequence[Instance]],
    pipeline: str,
    words: Sequence[int],
    byte_counts: Sequence[int],
) -> documents.Columns:
    """Returns one column of values per metric for documents that are whole texts."""
    answers = first_repeats([requests[0].filtered_resps[pipeline] for requests in asked])
    return documents.score_texts(documents.Texts(answers, words, byte_counts), metrics.metrics)


def score_choices(
    metrics: ChosenMetrics,
    asked: Sequence[Sequence[Instance]],
    pipeline: str,
    choices: Sequence[Sequence[str]],
    golds: Sequence[Any],
) -> documents.Columns:
    """Returns one column of values per metric for the documents of a multiple-choice task.

    Raises `NotTogetherError` where some document cannot be scored: scoring them one by one tells
    which.
    """
    tokens = None
    if "tokens" in documents.needs_of(metrics.metrics):
        counts = [[request.tokens for request in requests] for requests in asked]
        if all(count is not None for row in counts for count in row):
            tokens = counts
    answers = [[request.filtered_resps[pipeline] for request in requests] for requests in asked]
    if _keeps_repeats(answers[0][0]):
        answers = list(map(first_repeats, answers))
    try:
        return documents.score_choices(
            answers,
            choices,
            golds,
            metrics.metrics,
            tokens,  # type: ignore[arg-type]
        )
    except DataError as error:
        raise NotTogetherError(str(error)) from error
