"""Shows the answer of a model to one document as text."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Sequence
from typing import Any

from lm_eval.api.instance import Instance

_MAX_CHOICES = 5
_CHOICE_CHARACTERS = 120
#: The unit of length that metrics divide log-likelihoods by, and the length of a text in it.
_UNITS: dict[str, tuple[str, Callable[[str], int]]] = {
    "acc_norm": ("character", len),
    "acc_bytes": ("byte", lambda text: len(text.encode("utf-8", "surrogatepass"))),
}


def answer_text(requests: Sequence[Instance], pipeline: str, metric: str) -> str:
    """Returns the answer of a model to a document, in words.

    Generated text is shown as it is. Of several choices, the one that the metric takes for the
    answer comes first, with its log-likelihood, then the others. A single text is shown with its
    log-likelihood, and whether greedy decoding generates it.

    Args:
        requests: the requests of the document, with their answers.
        pipeline: the filter pipeline whose answers are shown.
        metric: the metric that decides which choice is the answer.
    """
    answers: list[Any] = [request.filtered_resps.get(pipeline) for request in requests]
    kind = requests[0].request_type
    if kind == "generate_until":
        return repr(answers[0])
    values = [one[0] if isinstance(one, (tuple, list)) and one else one for one in answers]
    if not all(isinstance(value, (int, float)) for value in values):
        return repr(answers[0])  # a filter has made something else of them
    if kind == "loglikelihood_rolling":
        return f"log-likelihood {values[0]:.4g}"
    if len(requests) == 1:
        greedy = answers[0][1] if isinstance(answers[0], (tuple, list)) else None
        generated = f", {'generated' if greedy else 'not generated'} by greedy decoding"
        return (
            f"{_shortened(requests[0].args[1])!r} (log-likelihood {values[0]:.4g}"
            f"{'' if greedy is None else generated})"
        )
    return _choices(requests, values, metric)


def _choices(requests: Sequence[Instance], values: Sequence[float], metric: str) -> str:
    """Returns the choices from the best to the worst, each with its log-likelihood."""
    asked = [i for i, one in enumerate(requests) if one.args[0] == requests[0].args[0]]
    if len(asked) > 1:  # some metrics also need the choices without the question
        requests, values = [requests[i] for i in asked], [values[i] for i in asked]
    texts = _different_parts(requests)
    unit, length = _UNITS.get(metric, ("", lambda text: 1))
    measure = [
        value / max(1, length(text.lstrip())) for text, value in zip(texts, values, strict=True)
    ]
    order = sorted(range(len(texts)), key=lambda i: -measure[i])
    each = f" per {unit}" if unit else ""
    first, others = order[0], order[1:_MAX_CHOICES]
    best = f"{_shortened(texts[first])!r} (log-likelihood{each} {measure[first]:.4g})"
    rest = [f"{_shortened(texts[i])!r} ({measure[i]:.4g})" for i in others]
    if len(order) > _MAX_CHOICES:
        rest.append(f"{len(order) - _MAX_CHOICES} more")
    return ", before ".join([best, ", ".join(rest)]) if rest else best


def _different_parts(requests: Sequence[Instance]) -> list[str]:
    """Returns what distinguishes choices: their continuations or, if equal, their contexts."""
    continuations = [str(request.args[1]) for request in requests]
    if len(set(continuations)) > 1:
        return continuations
    contexts = [str(request.args[0]) for request in requests]
    common = len(os.path.commonprefix(contexts))  # noqa: RUF071 (these are no paths)
    return [context[common:] for context in contexts]


def _shortened(text: str) -> str:
    half = _CHOICE_CHARACTERS // 2
    return text if len(text) <= _CHOICE_CHARACTERS else f"{text[:half]} … {text[-half:]}"
