"""Computes the metrics of log-likelihoods: those of every output type except `generate_until`.

The metrics are registered in `functions.py` with `register_likelihood_metric`. Each is a function
of a `Choices`, `Targets` or `Texts` object, which holds the model's answers to many documents. Only
the metrics that a task reports are computed. If a score needs all documents together, as perplexity
and F1 do, the value of a document is the item that the metric's aggregation takes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from lm_eval.api.registry import Need, likelihood_registries, metric_registry
from lm_eval.errors import DataError, ModelError

#: The values of one document, by metric.
Values = dict[str, Any]
#: The values of many documents, by metric: lists with one value per document.
Columns = dict[str, list[Any]]
Array = np.ndarray[Any, np.dtype[np.float64]]
Golds = Sequence[Any]
#: One answer: a log-likelihood, and whether greedy decoding would generate the text.
Answer = tuple[float, bool]

#: Marks a gold answer that is not one of the choices.
NOT_A_CHOICE = -100


# -- what a metric is computed from -----------------------------------------------------------


@dataclass
class Targets:
    """Answers to `loglikelihood` requests: one target text per document."""

    loglikelihoods: Sequence[float]
    #: Whether greedy decoding would generate the target.
    greedy: Sequence[bool]


@dataclass
class Texts:
    """Answers to `loglikelihood_rolling` requests: one whole text per document."""

    loglikelihoods: Sequence[float]
    #: The number of words of each text.
    words: Sequence[int]
    #: The number of UTF-8 bytes of each text.
    bytes: Sequence[int]


@dataclass
class Choices:
    """The model's answers to multiple-choice documents with the same number of choices.

    Arrays have one row per document and one column per choice.
    """

    #: The log-likelihood of each choice as a continuation of the question.
    loglikelihoods: Array
    #: The log-likelihood of each choice without the question. None unless a metric is registered
    #: with `needs=["unconditional"]`.
    unconditional: Array | None
    #: The gold answer of each document: the index of a choice, a list of indices if several are
    #: correct, or `NOT_A_CHOICE`.
    golds: Golds
    #: The choices of each document, as text.
    choices: Sequence[Sequence[str]]
    #: The answers as the model returned them: the log-likelihood of each choice, and whether greedy
    #: decoding would generate it.
    answers: Sequence[Sequence[Answer]]
    #: The number of tokens of each choice. None unless a metric is registered with
    #: `needs=["tokens"]` and the model reports token counts.
    token_counts: Sequence[Sequence[int]] | None = None

    @cached_property
    def likeliest(self) -> np.ndarray[Any, Any]:
        """The index of the choice with the highest log-likelihood, for each document."""
        best: np.ndarray[Any, Any] = self.loglikelihoods.argmax(axis=1)
        return best

    @cached_property
    def characters(self) -> Array:
        """The length of every choice in characters, `[documents, choices]`."""
        return self._lengths(len)

    @cached_property
    def bytes(self) -> Array:
        """The length of every choice in UTF-8 bytes, `[documents, choices]`."""
        return self._lengths(count_bytes)

    @cached_property
    def tokens(self) -> Array:
        """The length of every choice in tokens, `[documents, choices]`.

        Only available to metrics that are registered with `needs=["tokens"]`. Raises `ModelError`
        if the model does not report token counts.
        """
        if self.token_counts is None:
            raise ModelError(
                "a metric such as acc_tokens needs the number of tokens of every choice, but this "
                "model does not report it. Use acc_norm (normalized by characters) or acc_bytes."
            )
        options = len(self.choices[0])
        return np.array([counts[:options] for counts in self.token_counts], dtype=float)

    @cached_property
    def gold_indices(self) -> list[list[int]]:
        """The indices of the correct choices of each document; an empty list if there are none."""
        return [
            [i for i in (gold if isinstance(gold, list) else [gold]) if i != NOT_A_CHOICE]
            for gold in self.golds
        ]

    def hits(self, predicted: np.ndarray[Any, Any]) -> list[float]:
        """Returns one value per document: 1.0 if its predicted index is a gold answer, else 0.0.

        `predicted` holds the index of the predicted choice of each document.
        """
        return self._judge(predicted)

    @cached_property
    def _judge(self) -> Callable[[np.ndarray[Any, Any]], list[float]]:
        """The implementation of `hits`, vectorized if no document has several gold answers."""
        if any(isinstance(gold, list) for gold in self.golds):
            correct = [frozenset(indices) for indices in self.gold_indices]
            return lambda predicted: [
                1.0 if index in indices else 0.0
                for index, indices in zip(predicted.tolist(), correct, strict=True)
            ]
        single = np.fromiter(self.golds, np.int64, len(self.golds))
        return lambda predicted: (predicted == single).astype(float).tolist()

    def _lengths(self, measure: Callable[[str], int]) -> Array:
        """Returns `measure(choice)` of every choice as an array `[documents, choices]`."""
        rows, options = len(self.choices), len(self.choices[0])
        flat = map(measure, chain.from_iterable(self.choices))
        return np.fromiter(flat, float, rows * options).reshape(-1, options)


def count_words(text: str) -> int:
    """Returns the number of pieces between runs of whitespace, as the published harness counts.

    Whitespace at the beginning or end adds an empty piece, which counts too. An empty text has one
    piece.
    """
    return len(re.split(r"\s+", text))


def count_bytes(text: str) -> int:
    """Returns the length of a text in UTF-8 bytes."""
    return len(text.encode("utf-8"))


def gold_index(gold: Any, choices: Sequence[str]) -> Any:
    """Returns the index of a gold answer among `choices`, or `NOT_A_CHOICE` if it is not one.

    `gold` is the text of a choice, its index (from 0; a negative one is not a choice), or a list of
    these, for which a list is returned. Raises `DataError` if it is anything else.
    """
    if isinstance(gold, list):
        return [gold_index(one, choices) for one in gold]
    if isinstance(gold, str):
        return choices.index(gold) if gold in choices else NOT_A_CHOICE
    if isinstance(gold, (int, np.integer)):
        return int(gold) if 0 <= gold < len(choices) else NOT_A_CHOICE
    raise DataError(
        f"the gold answer is {gold!r}; doc_to_target must return the text of a choice or its index."
    )


def is_missing(gold: Any) -> bool:
    """Returns whether a gold answer, or one of a list of gold answers, is `NOT_A_CHOICE`."""
    return NOT_A_CHOICE in gold if isinstance(gold, list) else bool(gold == NOT_A_CHOICE)


# -- registered metrics --------------------------------------------------------------------------


def is_computed(metric: str, output_type: str) -> bool:
    """Returns whether `metric` is registered as a log-likelihood metric of `output_type`.

    Always False for `generate_until`. Imports a plug-in's metric, which may register it.
    """
    if output_type not in likelihood_registries:
        return False
    if metric in metric_registry:
        metric_registry.get(metric)  # Imports an entry point, which then registers the metric.
    return metric in likelihood_registries[output_type]


def needs_of(metrics: Iterable[str]) -> set[Need]:
    """Returns the additional inputs that multiple-choice metrics need.

    These are the `needs` with which the `metrics` were registered: `tokens` or `unconditional`.
    Names that are not registered are ignored.
    """
    known = likelihood_registries["multiple_choice"]
    return {need for name in metrics if name in known for need in known.get(name).needs}


def select_metrics(wanted: Collection[str], values: Values) -> Values:
    """Returns the `values` whose names are in `wanted`."""
    return {name: value for name, value in values.items() if name in wanted}


def _compute_columns(output_type: str, documents: Any, wanted: Collection[str]) -> Columns:
    """Returns the values of the `wanted` metrics of an output type, in order of registration.

    `documents` is the object that the metric functions take: `Targets`, `Texts` or `Choices`.
    A metric that returns None is left out.
    """
    registered = likelihood_registries[output_type]
    columns: Columns = {}
    for name in registered:
        if name in wanted:
            values = registered.get(name).compute(documents)
            if values is not None:
                columns[name] = values
    return columns


# -- one document, or all of them -------------------------------------------------------------


def score_loglikelihood(answer: Answer, wanted: Collection[str]) -> Values:
    """Returns the `wanted` metrics of one document, by name, given the answer to its target text.

    Raises `DataError` if the answer is not a pair of log-likelihood and is_greedy.
    """
    return _first_document(score_targets([answer], wanted))


def score_targets(answers: Sequence[Answer], wanted: Collection[str]) -> Columns:
    """Returns the `wanted` metrics of documents with one target text each: a list per metric.

    `answers` holds one answer per document. Names that are not log-likelihood metrics are left out.
    Raises `DataError` if an answer is not a pair of log-likelihood and is_greedy.
    """
    try:
        targets = Targets([ll for ll, _ in answers], [greedy for _, greedy in answers])
    except (TypeError, ValueError) as error:
        raise _answer_format_error(error) from error
    return _compute_columns("loglikelihood", targets, wanted)


def _answer_format_error(error: Exception) -> DataError:
    """Returns the error to raise if an answer is not a pair of log-likelihood and is_greedy."""
    return DataError(
        "an answer is not a pair of log-likelihood and is_greedy "
        f"({type(error).__name__}: {error}). Check whether a filter of the task changes the "
        "answers."
    )


def score_rolling(
    loglikelihood: float, words: int, byte_count: int, wanted: Collection[str]
) -> Values:
    """Returns the `wanted` metrics of one whole text, by name, from its log-likelihood and size."""
    return _first_document(score_texts(Texts([loglikelihood], [words], [byte_count]), wanted))


def score_texts(texts: Texts, wanted: Collection[str]) -> Columns:
    """Returns the `wanted` metrics of whole texts: a list per metric, with one value per text.

    Names that are not metrics of whole texts are left out.
    """
    return _compute_columns("loglikelihood_rolling", texts, wanted)


def _first_document(columns: Columns) -> Values:
    """Returns the values of the first document."""
    return {name: column[0] for name, column in columns.items()}


def score_multiple_choice(
    answers: Sequence[Answer],
    choices: Sequence[str],
    gold: Any,
    wanted: Collection[str],
    tokens: Sequence[int] | None = None,
) -> Values:
    """Returns the `wanted` metrics of one multiple-choice document.

    The parameters are those of `score_choices`, for one document.
    """
    return _first_document(
        score_choices([answers], [choices], [gold], wanted, None if tokens is None else [tokens])
    )


def score_choices(
    answers: Sequence[Sequence[Answer]],
    choices: Sequence[Sequence[str]],
    golds: Golds,
    wanted: Collection[str],
    tokens: Sequence[Sequence[int]] | None = None,
) -> Columns:
    """Returns the `wanted` metrics of multiple-choice documents: a list per metric.

    Documents with the same number of choices are computed together. A metric that is not computed
    for any document (it returns None, or is no log-likelihood metric) is left out.

    Args:
        answers: the answers to the choices of each document. If a metric needs `unconditional`, a
            document has two answers per choice: first all choices with the question, then all
            choices without it.
        choices: the choices of each document, as text.
        golds: the gold answer of each document: an index, a list of indices, or `NOT_A_CHOICE`.
        wanted: the names of the metrics to compute.
        tokens: the number of tokens of the choices of each document, or None if unknown.

    Raises:
        DataError: an answer is not a pair of log-likelihood and is_greedy.
        ModelError: a metric needs token counts, and `tokens` is None.
    """
    shapes: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, (given_answers, offered_choices) in enumerate(zip(answers, choices, strict=True)):
        shapes[len(given_answers), len(offered_choices)].append(number)
    if len(shapes) == 1:  # Usually, all documents have the same number of choices.
        ((given, options),) = shapes
        return _score_block(answers, choices, golds, wanted, tokens, given, options)
    columns: Columns = {}
    for (given, options), numbers in shapes.items():
        block = _score_block(
            [answers[i] for i in numbers],
            [choices[i] for i in numbers],
            [golds[i] for i in numbers],
            wanted,
            [tokens[i] for i in numbers] if tokens else None,
            given,
            options,
        )
        for name, values in block.items():
            column = columns.setdefault(name, [None] * len(answers))
            for i, value in zip(numbers, values, strict=True):
                column[i] = value
    return columns


def _score_block(
    answers: Sequence[Sequence[Answer]],
    choices: Sequence[Sequence[str]],
    golds: Golds,
    wanted: Collection[str],
    tokens: Sequence[Sequence[int]] | None,
    given: int,
    options: int,
) -> Columns:
    """Returns the metrics of documents that all have `given` answers and `options` choices.

    If a metric needs `unconditional` and `given` is twice `options`, the second half of the answers
    is that without the question. The other parameters and the errors are those of `score_choices`.
    """
    likelihoods = map(itemgetter(0), chain.from_iterable(answers))
    try:
        every = np.fromiter(likelihoods, float, len(answers) * given).reshape(-1, given)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise _answer_format_error(error) from error
    halves = given == 2 * options and "unconditional" in needs_of(wanted)
    block = Choices(
        loglikelihoods=every[:, :options] if halves else every,
        unconditional=every[:, options:] if halves else None,
        golds=golds,
        choices=choices,
        answers=answers,
        token_counts=tokens,
    )
    # Dividing by the length of an empty choice gives -inf or nan, which needs no warning.
    with np.errstate(divide="ignore", invalid="ignore"):
        return _compute_columns("multiple_choice", block, wanted)


def predicted_index(answers: Sequence[Answer], options: int) -> int:
    """Returns the index of the most likely choice of one document with `options` choices.

    Of equally likely ones, it is the first. Answers after the first `options` (choices without the
    question) are ignored.
    """
    return int(np.argmax([answer[0] for answer in answers[:options]]))


def softmax(x: Any) -> Array:
    """Returns the softmax of `x` along the last axis: probabilities that sum to 1."""
    scores = np.asarray(x, dtype=float)
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities: Array = shifted / shifted.sum(axis=-1, keepdims=True)
    return probabilities
