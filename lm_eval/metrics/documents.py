"""Score documents from the model's answers, for each kind of output but generated text.

Each function gives only the metrics that are wanted. Values that need all documents to become a
number (a perplexity, F1) are passed on as the pair their aggregation takes. Multiple choice is
computed for all documents at once.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from lm_eval.errors import DataError, ModelError

Values = dict[str, Any]
Columns = dict[str, list[Any]]
Array = np.ndarray[Any, np.dtype[np.float64]]
Golds = Sequence[Any]

#: The metrics computed here, by the kind of output they are computed from.
NATIVE: dict[str, frozenset[str]] = {
    "loglikelihood": frozenset({"perplexity", "acc", "logprob"}),
    "loglikelihood_rolling": frozenset({"word_perplexity", "byte_perplexity", "bits_per_byte"}),
    "multiple_choice": frozenset(
        {
            *("acc", "acc_norm", "acc_bytes", "acc_tokens", "acc_mutual_info", "exact_match"),
            *("f1", "mcc", "matthews_corrcoef", "brier_score", "likelihood", "logprob"),
        }
    ),
    "generate_until": frozenset(),
}


def only(wanted: Collection[str], values: Values) -> Values:
    return {name: value for name, value in values.items() if name in wanted}


def score_loglikelihood(answer: tuple[float, bool], wanted: Collection[str]) -> Values:
    """Likelihood of one target: its log-probability, and whether it was the greedy choice."""
    loglikelihood, is_greedy = answer
    return only(
        wanted,
        {"perplexity": loglikelihood, "acc": int(is_greedy), "logprob": loglikelihood},
    )


def count_words(text: str) -> int:
    return len(re.split(r"\s+", text))


def count_bytes(text: str) -> int:
    return len(text.encode("utf-8"))


def score_rolling(
    loglikelihood: float, words: int, byte_count: int, wanted: Collection[str]
) -> Values:
    """Likelihood of a whole text, to be divided by its words or bytes."""
    return only(
        wanted,
        {
            "word_perplexity": (loglikelihood, words),
            "byte_perplexity": (loglikelihood, byte_count),
            "bits_per_byte": (loglikelihood, byte_count),
        },
    )


NOT_A_CHOICE = -100


def gold_index(gold: Any, choices: Sequence[str]) -> Any:
    """The gold answer as index (or indices) into the choices; `NOT_A_CHOICE` where it is none."""
    if isinstance(gold, list):
        return [gold_index(one, choices) for one in gold]
    if isinstance(gold, str):
        return choices.index(gold) if gold in choices else NOT_A_CHOICE
    if isinstance(gold, (int, np.integer)):
        return int(gold) if 0 <= gold < len(choices) else NOT_A_CHOICE
    raise DataError(f"the gold answer is {gold!r}; it must be a choice, or the number of one.")


def score_multiple_choice(
    answers: Sequence[tuple[float, bool]],
    choices: Sequence[str],
    gold: Any,
    wanted: Collection[str],
    tokens: Sequence[int] | None = None,
) -> Values:
    """One document's values; see `score_choices`."""
    columns = score_choices(
        [answers], [choices], [gold], wanted, None if tokens is None else [tokens]
    )
    return {name: column[0] for name, column in columns.items()}


def score_choices(
    answers: Sequence[Sequence[tuple[float, bool]]],
    choices: Sequence[Sequence[str]],
    golds: Golds,
    wanted: Collection[str],
    tokens: Sequence[Sequence[int]] | None = None,
) -> Columns:
    """Which choice is likeliest: plainly, by character, byte or token, or against itself alone.

    Everything is given document by document. A gold answer is an index or, where several answers
    are right, a list of them. The answers of `acc_mutual_info` come in two halves: with the
    question, then without it. Documents with equally many choices are computed together.
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
    answers: Sequence[Sequence[tuple[float, bool]]],
    choices: Sequence[Sequence[str]],
    golds: Golds,
    wanted: Collection[str],
    tokens: Sequence[Sequence[int]] | None,
    given: int,
    options: int,
) -> Columns:
    """The columns of documents that all have `given` answers to `options` choices."""
    likelihoods = map(itemgetter(0), chain.from_iterable(answers))
    every = np.fromiter(likelihoods, float, len(answers) * given).reshape(-1, given)
    halves = given == 2 * options and "acc_mutual_info" in wanted
    loglikelihoods = every[:, :options] if halves else every
    likeliest = loglikelihoods.argmax(axis=1)
    hits = _judge(golds)

    def lengths(measure: Callable[[str], int]) -> Array:
        flat = map(measure, chain.from_iterable(choices))
        return np.fromiter(flat, float, len(choices) * options).reshape(-1, options)

    columns: Columns = {}
    if "acc" in wanted:
        columns["acc"] = hits(likeliest)
    for pair in ("f1", "mcc", "matthews_corrcoef"):
        if pair in wanted:
            columns[pair] = list(zip(golds, likeliest.tolist(), strict=True))
    # An empty choice scores as numpy has it (-inf or nan), without the warning.
    with np.errstate(divide="ignore", invalid="ignore"):
        if "acc_norm" in wanted:
            columns["acc_norm"] = hits((loglikelihoods / lengths(len)).argmax(axis=1))
        if "acc_bytes" in wanted:
            columns["acc_bytes"] = hits((loglikelihoods / lengths(count_bytes)).argmax(axis=1))
        if "acc_tokens" in wanted:
            sizes = _token_counts(tokens, options)
            columns["acc_tokens"] = hits((loglikelihoods / sizes).argmax(axis=1))
    if "exact_match" in wanted:
        columns["exact_match"] = [
            int(any(said[i][1] for i in _indices(gold)))
            for gold, said in zip(golds, answers, strict=True)
        ]
    if "brier_score" in wanted:
        columns["brier_score"] = list(zip(golds, softmax(loglikelihoods), strict=True))
    if "likelihood" in wanted:
        rows = map(tuple, loglikelihoods.tolist())
        columns["likelihood"] = list(zip(golds, rows, strict=True))
    if "logprob" in wanted:
        columns["logprob"] = [
            float(np.logaddexp.reduce(row[_indices(gold)], initial=-np.inf))
            for gold, row in zip(golds, loglikelihoods, strict=True)
        ]
    if halves:
        columns["acc_mutual_info"] = hits((loglikelihoods - every[:, options:]).argmax(axis=1))
    return columns


def predictions_of(answers: Sequence[tuple[float, bool]], options: int) -> int:
    """The likeliest choice of one document."""
    return int(np.argmax([answer[0] for answer in answers[:options]]))


def _judge(golds: Golds) -> Callable[[np.ndarray[Any, Any]], list[float]]:
    """A function from predicted indices to 1.0 or 0.0 a document."""
    if any(isinstance(gold, list) for gold in golds):
        right = [frozenset(_indices(gold)) for gold in golds]
        return lambda predicted: [
            1.0 if index in indices else 0.0
            for index, indices in zip(predicted.tolist(), right, strict=True)
        ]
    single = np.fromiter(golds, np.int64, len(golds))
    return lambda predicted: (predicted == single).astype(float).tolist()


def _indices(gold: Any) -> list[int]:
    """The gold answers that are choices."""
    return [i for i in (gold if isinstance(gold, list) else [gold]) if i != NOT_A_CHOICE]


def _token_counts(tokens: Sequence[Sequence[int]] | None, options: int) -> Array:
    if tokens is None:
        raise ModelError(
            "acc_tokens needs the number of tokens of every choice, which this model does not "
            "tell; use acc_norm (characters) or acc_bytes."
        )
    return np.array([counts[:options] for counts in tokens], dtype=float)


def softmax(x: Any) -> Array:
    """Scores as probabilities that sum to one, along the last axis."""
    scores = np.asarray(x, dtype=float)
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities: Array = shifted / shifted.sum(axis=-1, keepdims=True)
    return probabilities
