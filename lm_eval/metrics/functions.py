"""The built-in metrics, which task files name in their `metric_list`.

A metric of generated text is a function of predictions and references, registered with
`register_metric`. A metric of log-likelihoods is a function of all documents at once, registered
with `register_likelihood_metric`; results are reported in the order of these registrations.
BLEU, chrF and TER are computed by their aggregations, in `translation.py`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from lm_eval import regexes
from lm_eval.api.registry import register_likelihood_metric, register_metric

# Aggregations and reductions are looked up by name below, so they must be registered first.
from lm_eval.metrics import aggregations as _aggregations  # noqa: F401
from lm_eval.metrics import classification as _classification  # noqa: F401
from lm_eval.metrics import reductions as _reductions  # noqa: F401
from lm_eval.metrics.documents import Choices, Targets, Texts, softmax

_mean_metric = partial(register_likelihood_metric, higher_is_better=True, aggregation="mean")

# -- log-likelihoods --------------------------------------------------------------------------


@register_likelihood_metric(
    metric="perplexity",
    output_type="loglikelihood",
    higher_is_better=False,
    aggregation="perplexity",
)
def perplexity(targets: Targets) -> list[float]:
    """Returns the log-likelihood of each target. The aggregation computes the perplexity."""
    return list(targets.loglikelihoods)


@_mean_metric(metric="acc", output_type="loglikelihood")
def acc_of_target(targets: Targets) -> list[int]:
    """Returns 1 for each document whose target greedy decoding would generate, else 0."""
    return list(map(int, targets.greedy))


@_mean_metric(metric="acc", output_type="multiple_choice")
def acc(documents: Choices) -> list[float]:
    """Returns 1 for each document whose most likely choice is a gold answer, else 0."""
    return documents.hits(documents.likeliest)


def _register_pair_metric(metric: str, aggregation: str) -> None:
    """Registers a multiple-choice metric whose value is a pair of gold index and predicted index.

    `aggregation` is the name of the aggregation that turns the pairs of all documents into a score.
    """

    @register_likelihood_metric(
        metric=metric,
        output_type="multiple_choice",
        higher_is_better=True,
        aggregation=aggregation,
    )
    def pairs(documents: Choices) -> list[tuple[Any, int]]:
        return list(zip(documents.golds, documents.likeliest.tolist(), strict=True))


_register_pair_metric("f1", "f1")
_register_pair_metric("mcc", "matthews_corrcoef")
_register_pair_metric("matthews_corrcoef", "matthews_corrcoef")


@_mean_metric(metric="acc_norm", output_type="multiple_choice")
def acc_norm(documents: Choices) -> list[float]:
    """Returns 1 for each document whose best choice is a gold answer, else 0.

    The best choice is the one with the highest log-likelihood per character.
    """
    return documents.hits((documents.loglikelihoods / documents.characters).argmax(axis=1))


@_mean_metric(metric="acc_bytes", output_type="multiple_choice")
def acc_bytes(documents: Choices) -> list[float]:
    """Returns 1 for each document whose best choice is a gold answer, else 0.

    The best choice is the one with the highest log-likelihood per byte.
    """
    return documents.hits((documents.loglikelihoods / documents.bytes).argmax(axis=1))


@_mean_metric(metric="acc_tokens", output_type="multiple_choice", needs=["tokens"])
def acc_tokens(documents: Choices) -> list[float]:
    """Returns 1 for each document whose best choice is a gold answer, else 0.

    The best choice is the one with the highest log-likelihood per token.
    """
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
    """Returns `{"exact_match": p}`, the fraction of predictions that equal their reference.

    Values that are not strings are compared as they are, or, with any of the options, as strings.

    Args:
        predictions: the answers; at least one.
        references: the gold answer of each prediction.
        regexes_to_ignore: patterns whose matches are removed from both before the comparison.
        ignore_case: whether to convert both to lower case.
        ignore_punctuation: whether to remove ASCII punctuation from both.
        ignore_numbers: whether to remove ASCII digits from both.
    """
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


exact_match_hf_evaluate = exact_match  # The name of this function in the published module.


def _remover(pattern: str) -> Callable[[str], str]:
    """Returns a function that removes all matches of a regular expression from a string."""
    compiled = re.compile(pattern)
    return lambda text: regexes.sub(compiled, "", text)


@register_likelihood_metric(metric="exact_match", output_type="multiple_choice")
def exact_match_of_choices(documents: Choices) -> list[int]:
    """Returns 1 for each document whose gold answer greedy decoding would generate, else 0.

    If there are several gold answers, one of them is enough.
    """
    return [
        int(any(answers[i][1] for i in indices))
        for indices, answers in zip(documents.gold_indices, documents.answers, strict=True)
    ]


@register_likelihood_metric(
    metric="brier_score",
    output_type="multiple_choice",
    higher_is_better=False,
    aggregation="brier_score",
)
def brier_score(documents: Choices) -> list[tuple[Any, Any]]:
    """Returns `(gold, probabilities of the choices)` per document, for the aggregation."""
    return list(zip(documents.golds, softmax(documents.loglikelihoods), strict=True))


@register_likelihood_metric(
    metric="likelihood",
    output_type="multiple_choice",
    higher_is_better=True,
    aggregation="likelihood",
)
def likelihood(documents: Choices) -> list[tuple[Any, Any]]:
    """Returns `(gold, log-likelihoods of the choices)` per document, for the aggregation."""
    rows = map(tuple, documents.loglikelihoods.tolist())
    return list(zip(documents.golds, rows, strict=True))


@_mean_metric(metric="logprob", output_type="loglikelihood")
def logprob_of_target(targets: Targets) -> list[float]:
    """Returns the log-likelihood of each target."""
    return list(targets.loglikelihoods)


@_mean_metric(metric="logprob", output_type="multiple_choice")
def logprob(documents: Choices) -> list[float]:
    """Returns the log-likelihood of the gold answer of each document.

    For several gold answers, this is the logarithm of the sum of their probabilities. It is -inf if
    there is none.
    """
    return [
        float(np.logaddexp.reduce(row[indices], initial=-np.inf))
        for indices, row in zip(documents.gold_indices, documents.loglikelihoods, strict=True)
    ]


@_mean_metric(metric="acc_mutual_info", output_type="multiple_choice", needs=["unconditional"])
def acc_mutual_info(documents: Choices) -> list[float] | None:
    """Returns 1 for each document whose best choice is a gold answer, else 0.

    The best choice is the one whose log-likelihood the question increases most, compared to the
    choice without the question. Returns None if the latter was not computed.
    """
    if documents.unconditional is None:
        return None
    gain = documents.loglikelihoods - documents.unconditional
    return documents.hits(gain.argmax(axis=1))


_rolling_metric = partial(
    register_likelihood_metric, output_type="loglikelihood_rolling", higher_is_better=False
)


@_rolling_metric(metric="word_perplexity", aggregation="weighted_perplexity")
def word_perplexity(texts: Texts) -> list[tuple[float, int]]:
    """Returns `(log-likelihood, number of words)` of each text, for the aggregation."""
    return list(zip(texts.loglikelihoods, texts.words, strict=True))


@_rolling_metric(metric="byte_perplexity", aggregation="weighted_perplexity")
def byte_perplexity(texts: Texts) -> list[tuple[float, int]]:
    """Returns `(log-likelihood, number of bytes)` of each text, for the aggregation."""
    return list(zip(texts.loglikelihoods, texts.bytes, strict=True))


@_rolling_metric(metric="bits_per_byte", aggregation="bits_per_byte")
def bits_per_byte(texts: Texts) -> list[tuple[float, int]]:
    """Returns `(log-likelihood, number of bytes)` of each text, for the aggregation."""
    return list(zip(texts.loglikelihoods, texts.bytes, strict=True))


# -- generated text ---------------------------------------------------------------------------


@register_metric(
    metric="bypass",
    higher_is_better=True,
    output_type=["loglikelihood", "multiple_choice", "generate_until"],
    aggregation="bypass",
)
def bypass(*args: Any, **kwargs: Any) -> None:
    """Returns None, whatever the arguments: the metric of a run that only generates answers."""
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
    """Returns `{"anls": s}`, the average normalized Levenshtein similarity (Biten et al. 2019).

    The similarity to a string is 1 minus the edit distance divided by the length of the longer
    string.

    Args:
        predictions: the answers; at least one.
        references: the gold answer of each prediction, or a list of gold answers, of which the most
            similar one counts. An empty list counts as 0.
        threshold: similarities of `1 - threshold` or less count as 0.
        ignore_case: whether to compare in lower case.
    """
    scores = []
    for prediction, reference in zip(predictions, references, strict=True):
        options = [reference] if isinstance(reference, str) else reference
        scores.append(
            max((_levenshtein_similarity(prediction, o, ignore_case) for o in options), default=0.0)
        )
    kept = [score if score > 1 - threshold else 0.0 for score in scores]
    return {"anls": sum(kept) / len(kept)}


def _levenshtein_similarity(one: Any, other: Any, ignore_case: bool) -> float:
    """Returns the normalized Levenshtein similarity of two strings, between 0 and 1.

    Runs of whitespace are treated as one space, and whitespace at both ends is ignored. An empty
    string has the similarity 0 to any other, and 1 to another empty one.
    """
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
    """Returns the highest `metric_fn(prediction, truth)` over all `ground_truths`.

    Raises `ValueError` if there are none.
    """
    return max(metric_fn(prediction, truth) for truth in ground_truths)
