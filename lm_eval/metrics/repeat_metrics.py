"""Metrics of repeated answers: `avg@k`, `maj@k`, `pass@k` and `pass^k`.

A name such as `avg@32`, in a `metric_list` or after `--metrics`, stands for a metric of the task,
computed for each of the repeated answers as if it were the only one, and then reduced to one value
per document. `exact_match:avg@32` names the metric; otherwise it is the first one of the task.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval.errors import ConfigError, DataError
from lm_eval.metrics.reductions import pass_at_k, pass_hat_k
from lm_eval.stats.repeats import majority_at_k

_NAME = re.compile(r"(?:(?P<base>.+):)?(?P<kind>avg@|maj@|pass@|pass\^)(?P<k>\d+)")


@dataclass(frozen=True)
class RepeatMetric:
    """A metric of repeated answers, such as `pass@4`.

    Attributes:
        name: the name under which it is reported.
        kind: `avg@`, `maj@`, `pass@` or `pass^`.
        k: the number after the kind.
        base: the metric that scores each answer; None for the first one of the task.
    """

    name: str
    kind: str
    k: int
    base: str | None = None

    def check_repeats(self, repeats: int) -> None:
        """Raises `ConfigError` unless a document has at least `k` answers; `repeats` is how many.

        Called before the model is asked.
        """
        if not 1 <= self.k <= repeats:
            raise ConfigError(
                f"{self.name} needs at least {max(self.k, 1)} answers per document, but the task's "
                f"`repeats` is {repeats}. Raise it with --repeats, or choose a smaller number."
            )

    def reduce(self, values: Sequence[Any], votes: Sequence[Hashable | None]) -> float:
        """Returns the value of a document.

        Each is the exact mean over all ways to draw `k` of the answers, so it uses all of them.
        Raises `DataError` if a value is not a number or, for `pass@k` and `pass^k`, neither 1 nor
        0.

        Args:
            values: the score of each answer.
            votes: what each answer votes for in `maj@k`; None if it does not vote.
        """
        for value in values:
            if not isinstance(value, (int, float)) and not hasattr(value, "__float__"):
                raise DataError(f"{self.name} needs a number for each answer, not {value!r}.")
        if self.kind == "pass@":
            return pass_at_k(None, values, self.k)[f"pass@{self.k}"]
        if self.kind == "pass^":
            return pass_hat_k(None, values, self.k)[f"pass^{self.k}"]
        if self.kind == "maj@":
            return majority_at_k(votes, values, self.k)
        return float(sum(values) / len(values))


def parse_repeat_metric(name: Any) -> RepeatMetric | None:
    """Returns what a name such as `avg@32` or `exact_match:pass@4` means; None for other names."""
    found = _NAME.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        return None
    return RepeatMetric(name, found["kind"], int(found["k"]), found["base"])


def vote_of(answer: Any) -> Hashable:
    """Returns what a filtered answer votes for: its text, without whitespace around it.

    An answer that is not text votes for itself, or for its `repr` if it is not hashable.
    """
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    if isinstance(answer, str):
        return str(answer).strip()
    try:
        hash(answer)
    except TypeError:
        return repr(answer)
    return answer if isinstance(answer, Hashable) else repr(answer)
