"""What a metric is: a function of one answer, a reduction over repeats, an aggregation over all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from lm_eval.errors import DataError
from lm_eval.metrics.aggregations import mean
from lm_eval.metrics.calling import Convention, convention_of

_T = TypeVar("_T")
_K = TypeVar("_K")


@dataclass
class Metric(Generic[_T, _K]):
    """`fn(...)` gives a `_T` an answer, `reduction(...)` a `_K` a document, `aggregation` a number.

    `fn` is None where the task scores documents itself and only the rest is needed; `reduction` is
    None where the function is to see all repeats at once.
    """

    name: str
    fn: Callable[..., _T] | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    reduction: Callable[..., _K] | None = None
    aggregation: Callable[[Sequence[_K]], float] = mean  # type: ignore[assignment]
    higher_is_better: bool | None = None

    @cached_property
    def convention(self) -> Convention:
        return Convention.PAIR if self.fn is None else convention_of(self.fn)

    def compute(self, references: Any, predictions: Any) -> _T:
        """The value of one answer."""
        assert self.fn is not None
        if self.convention is Convention.PAIR:
            return self.fn([references, predictions])
        if self.convention is Convention.VALUES:
            return self.fn(references=references, predictions=predictions, **self.kwargs)
        try:
            return self.fn(references=[references], predictions=[predictions], **self.kwargs)
        except (AttributeError, TypeError) as error:
            if "list" in str(error):
                raise DataError(
                    f"metric {self.name} failed: {type(error).__name__}: {error}. It is called "
                    "with lists of one: use references[0] and predictions[0]."
                ) from error
            raise

    def compute_any(self, references: Any, predictions: Any) -> Any:
        """Where several answers are right: 1 if any of them gives the answer a value."""
        options = references if isinstance(references, list) else [references]
        values: list[Any] = [self.compute(option, predictions) for option in options]
        plain = [value[self.name] if isinstance(value, dict) else value for value in values]
        return 1.0 if any(plain) else 0.0

    def measure(self, gold: Any, answer: Any, several_targets: bool = False) -> dict[str, Any]:
        """The document's values by name; `answer` is a list where the filters keep repeats."""
        compute: Callable[[Any, Any], Any] = self.compute_any if several_targets else self.compute
        if self.reduction is None or not isinstance(answer, list):
            return self._named(compute(gold, answer))
        values = [self._named(compute(gold, one)) for one in answer]
        measured: dict[str, Any] = {}
        for name in values[0] if values else ():
            column = [value[name] for value in values]
            reduced: Any = self.reduction(references=gold, predictions=column)
            measured |= reduced if isinstance(reduced, dict) else {name: reduced}
        return measured

    def _named(self, value: Any) -> dict[str, Any]:
        """A metric may give a table of values that it names itself."""
        return value if isinstance(value, dict) else {self.name: value}
