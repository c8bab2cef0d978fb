"""Computes metrics from the answers to one document, or to all documents of a task at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lm_eval.api.instance import Instance
from lm_eval.errors import DataError
from lm_eval.metrics import documents
from lm_eval.metrics.chosen import ChosenMetrics

Values = dict[str, Any]


class BatchScoringError(Exception):
    """Raised if the documents of a task cannot be scored all at once; the message has the reason.

    The caller then scores them one by one, which finds the document that is the cause.
    """


# -- one document -----------------------------------------------------------------------------


def score_loglikelihood(metrics: ChosenMetrics, answer: Any) -> Values:
    """Returns the value of each metric for a document with one target text, by metric name.

    `answer` is the log-likelihood of the target, and whether greedy decoding would generate it.
    Raises `DataError` if it is not such a pair.
    """
    values = documents.score_loglikelihood(answer, metrics.metrics)
    return values | _custom_metrics(metrics, answer)


def score_rolling(
    metrics: ChosenMetrics, loglikelihood: float, words: int, byte_count: int
) -> Values:
    """Returns the value of each metric, by name, for a document that is scored as a whole text.

    `words` and `byte_count` are the text's length, by which perplexities are normalized.
    """
    values = documents.score_rolling(loglikelihood, words, byte_count, metrics.metrics)
    return values | _custom_metrics(metrics, (loglikelihood, words, byte_count))


def score_choice(
    metrics: ChosenMetrics,
    answers: Sequence[Any],
    choices: Sequence[str],
    gold: Any,
    tokens: Sequence[int] | None,
) -> Values:
    """Returns the value of each metric for one multiple-choice document, by metric name.

    `answers` are the answers to its requests, `gold` is the index (or indices) of the right choice,
    or `NOT_A_CHOICE`, and `tokens` are the lengths of the choices in tokens, if known. Raises
    `DataError` if an answer is not a pair of log-likelihood and is_greedy, and `ModelError` if a
    metric needs token counts and `tokens` is None.
    """
    values = documents.score_multiple_choice(answers, choices, gold, metrics.metrics, tokens)
    return values | _custom_metrics(
        metrics, (gold, documents.predicted_index(answers, len(choices)))
    )


def score_generation(
    metrics: ChosenMetrics, gold: Any, answer: Any, several_targets: bool
) -> Values:
    """Returns the value of each metric for a generated text, `answer`, by metric name.

    `answer` may be a list of repeated answers, if the filters keep them. `gold` is the expected
    text; with `several_targets`, it is a list of alternatives. A metric may return several values
    under names of its own; these are registered in `metrics`.
    """
    values: Values = {}
    for metric in metrics.metrics.values():
        measured = metric.measure(gold, answer, several_targets)
        metrics.register_values(metric.name, measured)
        values |= measured
    return values


def first_repeats(answers: Any) -> list[Any]:
    """Returns a list of answers in which each list of repeats is replaced by its first answer.

    Only for log-likelihoods, which are the same in every repeat. Single answers are kept.
    """
    return [answer[0] if _keeps_repeats(answer) else answer for answer in answers]


def _keeps_repeats(answer: Any) -> bool:
    """Returns whether an answer is a list of repeats.

    A list that ends with a boolean is a single answer: a pair of log-likelihood and `is_greedy`.
    """
    return (
        isinstance(answer, list)
        and len(answer) > 0
        and not isinstance(answer[-1], (bool, np.bool_))
    )


def _custom_metrics(metrics: ChosenMetrics, items: Sequence[Any]) -> Values:
    """Returns the values of metrics that are custom functions, for answers that are not text.

    `items` are the function's arguments: the gold and the predicted index for multiple choice, the
    log-likelihood and `is_greedy` for a target, the log-likelihood and the length in words and
    bytes for a whole text. Metrics without a function are skipped.
    """
    values: Values = {}
    for metric in metrics.metrics.values():
        if metric.fn is not None:
            scored = metric.measure(items[0], items[1]) if len(items) == 2 else metric.fn(items)
            named = scored if isinstance(scored, dict) else {metric.name: scored}
            metrics.register_values(metric.name, named)
            values |= named
    return values


# -- all documents ----------------------------------------------------------------------------


def score_targets(
    metrics: ChosenMetrics, requests_by_doc: Sequence[Sequence[Instance]], pipeline: str
) -> documents.Columns:
    """Returns the values of each metric, one per document, for documents with one target each.

    `requests_by_doc` holds the requests of each document, of which the first counts; `pipeline` is
    the filter pipeline whose answers are scored. Raises `BatchScoringError` if an answer is not a
    pair of log-likelihood and is_greedy.
    """
    answers = first_repeats([requests[0].filtered(pipeline) for requests in requests_by_doc])
    try:
        return documents.score_targets(answers, metrics.metrics)
    except DataError as error:
        raise BatchScoringError(str(error)) from error


def score_texts(
    metrics: ChosenMetrics,
    requests_by_doc: Sequence[Sequence[Instance]],
    pipeline: str,
    words: Sequence[int],
    byte_counts: Sequence[int],
) -> documents.Columns:
    """Returns the values of each metric, one per document, for documents that are whole texts.

    `words` and `byte_counts` are the lengths of the texts; see `score_targets` for the rest.
    """
    answers = first_repeats([requests[0].filtered(pipeline) for requests in requests_by_doc])
    return documents.score_texts(documents.Texts(answers, words, byte_counts), metrics.metrics)


def score_choices(
    metrics: ChosenMetrics,
    requests_by_doc: Sequence[Sequence[Instance]],
    pipeline: str,
    choices: Sequence[Sequence[str]],
    golds: Sequence[Any],
) -> documents.Columns:
    """Returns the values of each metric, one per document, for multiple-choice documents.

    `choices` and `golds` hold the choices of each document and the index (or indices) of its gold
    choice, or `NOT_A_CHOICE`, which counts as wrong; see `score_targets` for the rest. A metric is
    left out if it needs the choices without the question (`acc_mutual_info`) and these were not
    asked for, or if it is not computed from log-likelihoods. Raises `BatchScoringError` if an
    answer is not a pair of log-likelihood and is_greedy, and `ModelError` if a metric needs token
    counts that the model does not report.
    """
    tokens = None
    if "tokens" in documents.needs_of(metrics.metrics):
        counts = [[request.tokens for request in requests] for requests in requests_by_doc]
        if all(count is not None for row in counts for count in row):
            tokens = counts
    answers = [[request.filtered(pipeline) for request in requests] for requests in requests_by_doc]
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
        raise BatchScoringError(str(error)) from error
