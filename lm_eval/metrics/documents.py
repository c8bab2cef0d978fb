"""Score one document from the model's answers, for each kind of output.

Each function gives only the metrics that are wanted. Values that need all documents to become a
number (a perplexity, F1) are passed on as the pair their aggregation takes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lm_eval.errors import DataError

Values = dict[str, Any]


def only(wanted: Collection[str], values: Values) -> Values:
    return {name: value for name, value in values.items() if name in wanted}


def score_loglikelihood(answer: tuple[float, bool], wanted: Collection[str]) -> Values:
    """Likelihood of one target: its log-probability, and whether it was the greedy choice."""
    loglikelihood, is_greedy = answer
    return only(wanted, {"perplexity": loglikelihood, "acc": int(is_greedy)})


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
) -> Values:
    """Which choice is likeliest: plainly, by character, by byte, or against its own likelihood.

    `gold` is an index or, where several answers are right, a list of them. The answers of
    `acc_mutual_info` come in two halves: with the question, then without it.
    """
    loglikelihoods = np.array([answer[0] for answer in answers], dtype=float)
    greedy = [answer[1] for answer in answers]
    unconditional = None
    if "acc_mutual_info" in wanted and len(answers) == 2 * len(choices):
        unconditional = loglikelihoods[len(choices) :]
        loglikelihoods = loglikelihoods[: len(choices)]

    right = set(gold) if isinstance(gold, list) else {gold}

    def hit(scores: np.ndarray[Any, np.dtype[np.float64]]) -> float:
        return 1.0 if int(np.argmax(scores)) in right else 0.0

    values: Values = {}
    if "acc" in wanted:
        values["acc"] = hit(loglikelihoods)
    for pair in ("f1", "mcc"):
        if pair in wanted:
            values[pair] = (gold, int(np.argmax(loglikelihoods)))
    if "acc_norm" in wanted:
        values["acc_norm"] = hit(_per_length(loglikelihoods, [len(c) for c in choices]))
    if "acc_bytes" in wanted:
        values["acc_bytes"] = hit(_per_length(loglikelihoods, [count_bytes(c) for c in choices]))
    if "exact_match" in wanted:
        values["exact_match"] = int(any(greedy[i] for i in right if i != NOT_A_CHOICE))
    if unconditional is not None:
        values["acc_mutual_info"] = hit(loglikelihoods - unconditional)
    return values


def _per_length(
    loglikelihoods: np.ndarray[Any, np.dtype[np.float64]], lengths: Sequence[int]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """An empty choice scores as numpy has it (-inf or nan), without the warning."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scores: np.ndarray[Any, np.dtype[np.float64]] = loglikelihoods / np.array(
            lengths, dtype=float
        )
        return scores


def softmax(x: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Scores as probabilities that sum to one."""
    shifted = np.exp(np.asarray(x, dtype=float) - np.max(x))
    probabilities: np.ndarray[Any, np.dtype[np.float64]] = shifted / shifted.sum()
    return probabilities


@dataclass
class GenerationMetric:
    """A metric on generated text, with the arguments the task file gives it."""

    name: str
    function: Any
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_keyword = _takes_keywords(self.function)

    def __call__(self, gold: Any, answer: Any) -> Any:
        """Call it as `fn(references=, predictions=)`; an older one takes one `[gold, answer]`."""
        if self._by_keyword:
            return self.function(references=[gold], predictions=[answer], **self.arguments)
        return self.function([gold, answer])


def _takes_keywords(function: Any) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return any_keyword or {"references", "predictions"} <= parameters.keys()


def score_generation(
    answer: Any, gold: Any, metrics: Sequence[GenerationMetric], several_targets: bool
) -> dict[str, Values]:
    """The values of each metric on the generated text; a metric may name several itself.

    With several targets a text is right if any of them makes it so.
    """
    values: dict[str, Values] = {}
    for metric in metrics:
        score = _any_target(answer, gold, metric) if several_targets else metric(gold, answer)
        values[metric.name] = score if isinstance(score, dict) else {metric.name: score}
    return values


def _any_target(answer: Any, gold: Any, metric: GenerationMetric) -> float:
    scores = [
        score[metric.name] if isinstance(score, dict) else score
        for score in (metric(g, answer) for g in (gold if isinstance(gold, list) else [gold]))
    ]
    return 1.0 if any(scores) else 0.0
