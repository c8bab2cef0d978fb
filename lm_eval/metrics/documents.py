"""Compute the metrics of log-likelihoods: for every output type but generated text.

The metrics themselves are registered in `functions.py` (`register_likelihood_metric`); each is a
function of one of the objects below, which hold the model's answers to many documents. Only the
metrics that are wanted are computed. Values that need all documents to become a number (a
perplexity, F1) are passed on as the pair that their aggregation takes.
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

Values = dict[str, Any]
Columns = dict[str, list[Any]]
Array = np.ndarray[Any, np.dtype[np.float64]]
Golds = Sequence[Any]
#: One answer: a log-likelihood, and whether the text is what greedy decoding would give.
Answer = tuple[float, bool]

NOT_A_CHOICE = -100


# -- what a metric is computed from -----------------------------------------------------------


@dataclass
class Targets:
    """Answers to `loglikelihood` requests: one target text per document."""

    loglikelihoods: Sequence[float]
    #: Whether greedy decoding would give the target.
    greedy: Sequence[bool]


@dataclass
class Texts:
    """Answers to `loglikelihood_rolling` requests: one whole text per document, and its size."""

    loglikelihoods: Sequence[float]
    words: Sequence[int]
    bytes: Sequence[int]


@dataclass
class Choices:
    """Answers to multiple-choice documents that all offer the same number of choices.

    Arrays have one row per document and one column per choice. A gold answer is the index of a
    choice, a list of indices where several are right, or `NOT_A_CHOICE`.
    """

    loglikelihoods: Array
    #: Each choice without the question, for metrics that need `unconditional`; otherwise None.
    unconditional: Array | None
    golds: Golds
    choices: Sequence[Sequence[str]]
    #: As the model gave them, with whether each choice is the greedy continuation.
    answers: Sequence[Sequence[Answer]]
    token_counts: Sequence[Sequence[int]] | None = None

    @cached_property
    def likeliest(self) -> np.ndarray[Any, Any]:
        """The index of the choice with the highest log-likelihood, one per document."""
        best: np.ndarray[Any, Any] = self.loglikelihoods.argmax(axis=1)
        return best

    @cached_property
    def characters(self) -> Array:
        """The length of every choice in characters."""
        return self._lengths(len)

    @cached_property
    def bytes(self) -> Array:
        """The length of every choice in bytes of UTF-8."""
        return self._lengths(count_bytes)

    @cached_property
    def tokens(self) -> Array:
        """The length of every choice in tokens, for metrics that need `tokens`."""
        if self.token_counts is None:
            raise ModelError(
                "acc_tokens needs the number of tokens of every choice, which this model does not "
                "tell; use acc_norm (characters) or acc_bytes."
            )
        options = len(self.choices[0])
        return np.array([counts[:options] for counts in self.token_counts], dtype=float)

    @cached_property
    def gold_indices(self) -> list[list[int]]:
        """The gold answers that are choices, one list per document."""
        return [
            [i for i in (gold if isinstance(gold, list) else [gold]) if i != NOT_A_CHOICE]
            for gold in self.golds
        ]

    def hits(self, predicted: np.ndarray[Any, Any]) -> list[float]:
        """Returns 1.0 for every document whose predicted index is a gold answer, otherwise 0.0."""
        return self._judge(predicted)

    @cached_property
    def _judge(self) -> Callable[[np.ndarray[Any, Any]], list[float]]:
        if any(isinstance(gold, list) for gold in self.golds):
            right = [frozenset(indices) for indices in self.gold_indices]
            return lambda predicted: [
                1.0 if index in indices else 0.0
                for index, indices in zip(predicted.tolist(), right, strict=True)
            ]
        single = np.fromiter(self.golds, np.int64, len(self.golds))
        return lambda predicted: (predicted == single).astype(float).tolist()

    def _lengths(self, measure: Callable[[str], int]) -> Array:
        rows, options = len(self.choices), len(self.choices[0])
        flat = map(measure, chain.from_iterable(self.choices))
        return np.fromiter(flat, float, rows * options).reshape(-1, options)


def count_words(text: str) -> int:
    return len(re.split(r"\s+", text))


def count_bytes(text: str) -> int:
    return len(text.encode("utf-8"))


def gold_index(gold: Any, choices: Sequence[str]) -> Any:
    """The gold answer as index (or indices) into the choices; `NOT_A_CHOICE` where it is none."""
    if isinstance(gold, list):
        return [gold_index(one, choices) for one in gold]
    if isinstance(gold, str):
        return choices.index(gold) if gold in choices else NOT_A_CHOICE
    if isinstance(gold, (int, np.integer)):
        return int(gold) if 0 <= gold < len(choices) else NOT_A_CHOICE
    raise DataError(f"the gold answer is {gold!r}; it must be a choice, or the number of one.")


def is_missing(gold: Any) -> bool:
    """Returns whether a gold answer, or one of several, is not a choice."""
    return NOT_A_CHOICE in gold if isinstance(gold, list) else bool(gold == NOT_A_CHOICE)


# -- which metrics ----------------------------------------------------------------------------


def is_computed(metric: str, output_type: str) -> bool:
    """Returns whether a metric is computed from the log-likelihoods of an output type."""
    if output_type not in likelihood_registries:
        return False
    if metric in metric_registry:
        metric_registry.get(metric)  # an entry point registers its metric when it is imported
    return metric in likelihood_registries[output_type]


def needs_of(metrics: Iterable[str]) -> set[Need]:
    """Returns what some metrics need beyond the log-likelihoods of the choices."""
    known = likelihood_registries["multiple_choice"]
    return {need for name in metrics if name in known for need in known.get(name).needs}


def only(wanted: Collection[str], values: Values) -> Values:
    return {name: value for name, value in values.items() if name in wanted}


def _columns(output_type: str, documents: Any, wanted: Collection[str]) -> Columns:
    """The wanted metrics of an output type, in the order of their registration."""
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
    """One document's values from the likelihood of its target."""
    return _first(score_targets([answer], wanted))


def score_targets(answers: Sequence[Answer], wanted: Collection[str]) -> Columns:
    """The wanted metrics of documents with one target each, one list of values per metric."""
    try:
        targets = Targets([ll for ll, _ in answers], [greedy for _, greedy in answers])
    except (TypeError, ValueError) as error:
        raise _not_a_pair(error) from error
    return _columns("loglikelihood", targets, wanted)


def _not_a_pair(error: Exception) -> DataError:
    return DataError(
        "an answer is not a pair of log-likelihood and is_greedy "
        f"({type(error).__name__}: {error}); do its filters change it?"
    )


def score_rolling(
    loglikelihood: float, words: int, byte_count: int, wanted: Collection[str]
) -> Values:
    """One document's values from the likelihood of a whole text."""
    return _first(score_texts(Texts([loglikelihood], [words], [byte_count]), wanted))


def score_texts(texts: Texts, wanted: Collection[str]) -> Columns:
    """The wanted metrics of whole texts, one list of values per metric."""
    return _columns("loglikelihood_rolling", texts, wanted)


def _first(columns: Columns) -> Values:
    return {name: column[0] for name, column in columns.items()}


def score_multiple_choice(
    answers: Sequence[Answer],
    choices: Sequence[str],
    gold: Any,
    wanted: Collection[str],
    tokens: Sequence[int] | None = None,
) -> Values:
    """One document's values; see `score_choices`."""
    return _first(
        score_choices([answers], [choices], [gold], wanted, None if tokens is None else [tokens])
    )


def score_choices(
    answers: Sequence[Sequence[Answer]],
    choices: Sequence[Sequence[str]],
    golds: Golds,
    wanted: Collection[str],
    tokens: Sequence[Sequence[int]] | None = None,
) -> Columns:
    """The wanted metrics of multiple-choice documents, one list of values per metric.

    Everything is given document by document. A gold answer is an index or, where several answers
    are right, a list of them. Where a metric needs the choices without the question, the answers
    come in two halves: with the question, then without it. Documents with equally many choices are
    computed together.
    """
    shapes: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, (said, offered) in enumerate(zip(answers, choices, strict=True)):
        shapes[len(said), len(offered)].append(number)
    if len(shapes) == 1:  # the usual case: nothing to take apart
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
    """The columns of documents that all have `given` answers to `options` choices."""
    likelihoods = map(itemgetter(0), chain.from_iterable(answers))
    try:
        every = np.fromiter(likelihoods, float, len(answers) * given).reshape(-1, given)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise _not_a_pair(error) from error
    halves = given == 2 * options and "unconditional" in needs_of(wanted)
    block = Choices(
        loglikelihoods=every[:, :options] if halves else every,
        unconditional=every[:, options:] if halves else None,
        golds=golds,
        choices=choices,
        answers=answers,
        token_counts=tokens,
    )
    # An empty choice scores as numpy has it (-inf or nan), without the warning.
    with np.errstate(divide="ignore", invalid="ignore"):
        return _columns("multiple_choice", block, wanted)


def predictions_of(answers: Sequence[Answer], options: int) -> int:
    """The likeliest choice of one document."""
    return int(np.argmax([answer[0] for answer in answers[:options]]))


def softmax(x: Any) -> Array:
    """Scores as probabilities that sum to one, along the last axis."""
    scores = np.asarray(x, dtype=float)
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities: Array = shifted / shifted.sum(axis=-1, keepdims=True)
    return probabilities
