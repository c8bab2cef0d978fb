"""The metrics a task file may name.

Most multiple-choice and likelihood metrics are computed together in `documents.py`, since they
share the same numbers; their functions here only carry the name, aggregation and direction.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lm_eval.api.registry import register_metric

# Aggregations and reductions are looked up by name below, so they must be registered first.
from lm_eval.metrics import aggregations as _aggregations  # noqa: F401
from lm_eval.metrics import classification as _classification  # noqa: F401
from lm_eval.metrics import reductions as _reductions  # noqa: F401
from lm_eval.metrics import translation as _translation  # noqa: F401

_LIKELIHOOD = ["loglikelihood", "multiple_choice"]

#: Functions that only carry a name; the value comes from elsewhere, or is the pair itself.
PASSTHROUGHS: set[Callable[..., Any]] = set()


def _passthrough(name: str, better: bool, output: str | list[str], aggregation: str) -> None:
    """Register a metric whose value `documents.py` already gives."""

    def passthrough(items: Any) -> Any:
        return items

    passthrough.__name__ = f"{name}_fn"
    PASSTHROUGHS.add(passthrough)
    register_metric(
        metric=name, higher_is_better=better, output_type=output, aggregation=aggregation
    )(passthrough)


_passthrough("acc", True, _LIKELIHOOD, "mean")
_passthrough("acc_norm", True, _LIKELIHOOD, "mean")
_passthrough("acc_bytes", True, _LIKELIHOOD, "mean")
_passthrough("acc_tokens", True, "multiple_choice", "mean")
_passthrough("acc_mutual_info", True, "multiple_choice", "mean")
_passthrough("acc_all", True, "loglikelihood", "acc_all")
_passthrough("f1", True, "multiple_choice", "f1")
_passthrough("mcc", True, "multiple_choice", "matthews_corrcoef")
_passthrough("matthews_corrcoef", True, "multiple_choice", "matthews_corrcoef")
_passthrough("brier_score", False, "multiple_choice", "brier_score")
_passthrough("likelihood", True, "multiple_choice", "likelihood")
_passthrough("logprob", True, _LIKELIHOOD, "mean")
_passthrough("perplexity", False, "loglikelihood", "perplexity")
_passthrough("word_perplexity", False, "loglikelihood_rolling", "weighted_perplexity")
_passthrough("byte_perplexity", False, "loglikelihood_rolling", "weighted_perplexity")
_passthrough("bits_per_byte", False, "loglikelihood_rolling", "bits_per_byte")
_passthrough("bleu", True, "generate_until", "bleu")
_passthrough("chrf", True, "generate_until", "chrf")
_passthrough("chrf++", True, "generate_until", "chrf++")
_passthrough("ter", False, "generate_until", "ter")


@register_metric(
    metric="bypass",
    higher_is_better=True,
    output_type=["loglikelihood", "multiple_choice", "generate_until"],
    aggregation="bypass",
)
def bypass(*args: Any, **kwargs: Any) -> None:
    """Scores nothing."""
    return


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


def _remover(pattern: str) -> Callable[[str], str]:
    compiled = re.compile(pattern)
    return lambda text: compiled.sub("", text)
