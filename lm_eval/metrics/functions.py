"""The metrics that a task file may name, each with its registration.

A metric of generated text is a function of predictions and references (`register_metric`). A metric
of log-likelihoods is a function of all documents at once (`register_likelihood_metric`); the order
of these is the order in which their results are reported. BLEU, chrF and TER are computed by their
aggregations, in `translation.py`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from lm_eval.api.registry import register_likelihood_metric, register_metric

# Aggregations and reductions are looked up by name below, so they must be registered first.
from lm_eval.metrics import aggregations as _aggregations  # noqa: F401
from lm_eval.metrics import classification as _classification  # noqa: F401
from lm_eval.metrics import reductions as _reductions  # noqa: F401
from lm_eval.metrics.documents import Choices, Targets, Texts, softmax

_mean = partial(register_likelihood_metric, higher_is_better=True, aggregation="mean")

# -- log-likelihoods --------------------------------------------------------------------------


@register_likelihood_metric(
    metric="perplexity",
    output_type="loglikelihood",
    higher_is_better=False,
    aggregation="perplexity",
)
def perplexity(targets: Targets) -> list[float]:
    """The log-likelihood of the target; its aggregation makes a perplexity of all of them."""
    return list(targets.loglikelihoods)


@_mean(metric="acc", output_type="loglikelihood")
def acc_of_target(targets: Targets) -> list[int]:
    """1 where the target is what greedy decoding gives."""
    return list(map(int, targets.greedy))


@_mean(metric="acc", output_type="multiple_choice")
def acc(documents: Choices) -> list[float]:
    """1 where the likeliest choice is a gold answer."""
    return documents.hits(documents.likeliest)


def _pair(metric: str, aggregation: str) -> None:
    """Registers a metric whose aggregation takes pairs of gold and predicted index."""

    @register_likelihood_metric(
        metric=metric,
        output_type="multiple_choice",
        higher_is_better=True,
        aggregation=aggregation,
    )
    def pairs(documents: Choices) -> list[tuple[Any, int]]:
        return list(zip(documents.golds, documents.likeliest.tolist(), strict=True))


_pair("f1", "f1")
_pair("mcc", "matthews_corrcoef")
_pair("matthews_corrcoef", "matthews_corrcoef")


@_mean(metric="acc_norm", output_type="multiple_choice")
def acc_norm(documents: Choices) -> list[float]:
    """Accuracy by log-likelihood per character of the choice."""
    return documents.hits((documents.loglikelihoods / documents.characters).argmax(axis=1))


@_mean(metric="acc_bytes", output_type="multiple_choice")
def acc_bytes(documents: Choices) -> list[float]:
    """Accuracy by log-likelihood per byte of the choice."""
    return documents.hits((documents.loglikelihoods / documents.bytes).argmax(axis=1))


@_mean(metric="acc_tokens", output_type="multiple_choice", needs=["tokens"])
def acc_tokens(documents: Choices) -> list[float]:
    """Accuracy by log-likelihood per token of the choice."""
    return documents.hits((documents.loglikelihoods / documents.tokens).argmax(axis=1))


_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_WITHOUT_DIGITS = str.maketrans("", "", string.digits)


@register_metric(
    metric="exact_match",
    higher_is_better=True,
    output_type=["generate_until", "multiple_choice"],
    aggregation="mean",
    reduction="mean",
)
def exact_match(
    predictions: Sequence[str],
    references: Sequence[str],
    regexes_to_ignore: Sequence[str] | None = None,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    ignore_numbers: bool = False,
) -> dict[str, float]:
    """The share of predictions equal to their reference, after what is ignored is removed."""
    steps: list[Callable[[str], str]] = [_remover(p) for p in regexes_to_ignore or ()]
    if ignore_case:
        steps.append(str.lower)
    if ignore_punctuation:
        steps.append(lambda text: text.translate(_WITHOUT_PUNCTUATION))
    if ignore_numbers:
        steps.append(lambda text: text.translate(_WITHOUT_DIGITS))

    def clean(text: Any) -> Any:
        for step in steps:
            text = step(str(text))
        return text

    pairs = list(zip(predictions, references, strict=True))
    return {"exact_match": sum(clean(p) == clean(r) for p, r in pairs) / len(pairs)}


exact_match_hf_evaluate = exact_match  # as the published module calls it


def _remover(pattern: str) -> Callable[[str], str]:
    compiled = re.compile(pattern)
    return lambda text: compiled.sub("", text)


@register_likelihood_metric(metric="exact_match", output_type="multiple_choice")
def exact_match_of_choices(documents: Choices) -> list[int]:
    """1 where a gold answer is what greedy decoding gives."""
    return [
        int(any(said[i][1] for i in indices))
        for indices, said in zip(documents.gold_indices, documents.answers, strict=True)
    ]


@register_likelihood_metric(
    metric="brier_score",
    output_type="multiple_choice",
    higher_is_better=False,
    aggregation="brier_score",
)
def brier_score(documents: Choices) -> list[tuple[Any, Any]]:
    """The gold answer and the probabilities of the choices, for the aggregation."""
    return list(zip(documents.golds, softmax(documents.loglikelihoods), strict=True))


@register_likelihood_metric(
    metric="likelihood",
    output_type="multiple_choice",
    higher_is_better=True,
    aggregation="likelihood",
)
def likelihood(documents: Choices) -> list[tuple[Any, Any]]:
    """The gold answer and the log-likelihoods of the choices, for the aggregation."""
    rows = map(tuple, documents.loglikelihoods.tolist())
    return list(zip(documents.golds, rows, strict=True))


@_mean(metric="logprob", output_type="loglikelihood")
def logprob_of_target(targets: Targets) -> list[float]:
    """The log-likelihood of the target."""
    return list(targets.loglikelihoods)


@_mean(metric="logprob", output_type="multiple_choice")
def logprob(documents: Choices) -> list[float]:
    """The log-likelihood of the gold answer, or of all gold answers together."""
    return [
        float(np.logaddexp.reduce(row[indices], initial=-np.inf))
        for indices, row in zip(documents.gold_indices, documents.loglikelihoods, strict=True)
    ]


@_mean(metric="acc_mutual_info", output_type="multiple_choice", needs=["unconditional"])
def acc_mutual_info(documents: Choices) -> list[float] | None:
    """Accuracy by how much likelier the question makes the choice."""
    if documents.unconditional is None:
        return None
    gain = documents.loglikelihoods - documents.unconditional
    return documents.hits(gain.argmax(axis=1))


_of_text = partial(
    register_likelihood_metric, output_type="loglikelihood_rolling", higher_is_better=False
)


@_of_text(metric="word_perplexity", aggregation="weighted_perplexity")
def word_perplexity(texts: Texts) -> list[tuple[float, int]]:
    """The log-likelihood of the text and its words, for the aggregation."""
    return list(zip(texts.loglikelihoods, texts.words, strict=True))


@_of_text(metric="byte_perplexity", aggregation="weighted_perplexity")
def byte_perplexity(texts: Texts) -> list[tuple[float, int]]:
    """The log-likelihood of the text and its bytes, for the aggregation."""
    return list(zip(texts.loglikelihoods, texts.bytes, strict=True))


@_of_text(metric="bits_per_byte", aggregation="bits_per_byte")
def bits_per_byte(texts: Texts) -> list[tuple[float, int]]:
    """The log-likelihood of the text and its bytes, for the aggregation."""
    return list(zip(texts.loglikelihoods, texts.bytes, strict=True))


# -- generated text ---------------------------------------------------------------------------


@register_metric(
    metric="bypass",
    higher_is_better=True,
    output_type=["loglikelihood", "multiple_choice", "generate_until"],
    aggregation="bypass",
)
def bypass(*args: Any, **kwargs: Any) -> None:
    """Scores nothing."""
    return


@register_metric(
    metric="anls",
    higher_is_better=True,
    output_type="generate_until",
    aggregation="mean",
    reduction="mean",
)
def anls(
    predictions: Sequence[str],
    references: Sequence[str | Sequence[str]],
    threshold: float = 0.5,
    ignore_case: bool = True,
) -> dict[str, float]:
    """Likeness to the nearest reference: 1 less the edits by length; 0 where they are too many.

    The average normalised Levenshtein similarity of document questions (Biten et al. 2019).
    """
    scores = []
    for prediction, reference in zip(predictions, references, strict=True):
        options = [reference] if isinstance(reference, str) else reference
        scores.append(max((_likeness(prediction, o, ignore_case) for o in options), default=0.0))
    kept = [score if score > 1 - threshold else 0.0 for score in scores]
    return {"anls": sum(kept) / len(kept)}


def _likeness(one: Any, other: Any, ignore_case: bool) -> float:
    """1 less the share of characters to change, take out or put in."""
    a, b = (" ".join(str(text).split()) for text in (one, other))
    if ignore_case:
        a, b = a.lower(), b.lower()
    if not a or not b:
        return float(a == b)
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            best = min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
            diagonal, row[j] = row[j], best
    return 1 - row[-1] / max(len(a), len(b))


def metric_max_over_ground_truths(
    metric_fn: Callable[[Any, Any], float], prediction: Any, ground_truths: Iterable[Any]
) -> float:
    """The best score of a prediction against several right answers."""
    return max(metric_fn(prediction, truth) for truth in ground_truths)
