"""The `Metric` class: how one metric of a task is computed, reduced and aggregated."""

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
    """One metric of a task, in three steps.

    1. `fn` computes the value of one answer (type `_T`).
    2. `reduction` combines the values of repeated answers into the value of a document (type `_K`).
    3. `aggregation` combines the values of all documents into one number.

    Example::

        Metric("exact_match", fn=exact_match, reduction=take_first, aggregation=mean)
    """

    #: The name in results files and in the `metric_list` of a task file.
    name: str
    #: Computes the value of one answer. `lm_eval.metrics.calling` describes its arguments. It
    #: returns a number, the item that `aggregation` takes, or a mapping of several named values.
    #: None if the value does not come from a function: the task's `process_results` returns it, or
    #: it is computed from log-likelihoods (`lm_eval.metrics.documents`).
    fn: Callable[..., _T] | None = None
    #: Additional keyword arguments of `fn`, from the task file.
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    #: Called as `reduction(references=gold, predictions=values)`, with one value per repeated
    #: answer. Returns the document's value, or a mapping of several named values. If it is None,
    #: `fn` gets the list of all repeated answers instead.
    reduction: Callable[..., _K] | None = None
    #: Called with the values of all documents.
    aggregation: Callable[[Sequence[_K]], float] = mean  # type: ignore[assignment]
    #: Whether a higher score is better; None if unknown.
    higher_is_better: bool | None = None

    @cached_property
    def convention(self) -> Convention:
        """The arguments with which `fn` is called; `PAIR` if there is no `fn`."""
        return Convention.PAIR if self.fn is None else convention_of(self.fn)

    def compute(self, references: Any, predictions: Any) -> _T:
        """Returns the value of one answer: what `fn`, which must be set, returns.

        Args:
            references: the gold answer.
            predictions: the model's answer.

        Raises:
            DataError: `fn` was called with lists and failed because it expects plain values, or
                because the filters left a list of answers. Other exceptions of `fn` are not caught.
        """
        assert self.fn is not None
        if self.convention is Convention.PAIR:
            return self.fn([references, predictions])
        if self.convention is Convention.VALUES:
            return self.fn(references=references, predictions=predictions, **self.kwargs)
        try:
            return self.fn(references=[references], predictions=[predictions], **self.kwargs)
        except (AttributeError, TypeError) as error:
            if isinstance(predictions, list):
                raise DataError(
                    f"metric {self.name} failed: {type(error).__name__}: {error}. The filter "
                    "pipeline leaves a list of answers per document; end it with `take_first`."
                ) from error
            if "list" in str(error):
                raise DataError(
                    f"metric {self.name} failed: {type(error).__name__}: {error}. Its function is "
                    "called with lists of one element: use references[0] and predictions[0]."
                ) from error
            raise

    def compute_any(self, references: Any, predictions: Any) -> Any:
        """Returns 1.0 if the metric is nonzero for any of several gold answers, else 0.0.

        `references` is a list of gold answers, or a single one. If `fn` returns a mapping, its
        value under the metric's name counts.
        """
        options = references if isinstance(references, list) else [references]
        values: list[Any] = [self.compute(option, predictions) for option in options]
        plain = [value[self.name] if isinstance(value, dict) else value for value in values]
        return 1.0 if any(plain) else 0.0

    def measure(self, gold: Any, answer: Any, several_targets: bool = False) -> dict[str, Any]:
        """Returns the values of one document, by name.

        There is one value under the metric's name, unless `fn` or `reduction` returns several named
        ones. The result is empty if `answer` is an empty list that is to be reduced.

        Args:
            gold: the gold answer.
            answer: the filtered answer, or a list of repeated answers if the filters keep them.
                Without a `reduction`, `fn` gets the whole list.
            several_targets: whether `gold` is a list of alternative gold answers. The value of an
                answer is then 1.0 if that of `fn` is nonzero for any of them, else 0.0.
        """
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
        """Returns `{name: value}`, or `value` itself if it is a mapping of named values."""
        return value if isinstance(value, dict) else {self.name: value}
