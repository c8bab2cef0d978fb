"""Put every request to the model, and its answers back where they belong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lm_eval.errors import ModelError

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM


def answer(lm: LM, requests: Iterable[Instance]) -> None:
    """Ask all requests of one kind together, each as often as it has repeats."""
    by_kind: dict[str, list[Instance]] = defaultdict(list)
    for request in requests:
        by_kind[request.request_type].extend([request] * (request.repeats or 1))
    for kind, asked in by_kind.items():
        answers: list[Any] = getattr(lm, kind)(asked)
        if len(answers) != len(asked):
            raise ModelError(
                f"{type(lm).__name__}.{kind} gave {len(answers)} answers to {len(asked)} requests; "
                "it must return one for each, in order."
            )
        for request, given in zip(asked, answers, strict=True):
            request.resps.append(given)
