"""The `Filter` interface, and the pipeline that applies filters to the answers of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lm_eval.errors import EvalError

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance


class NotFound(str):
    """The fallback text of a filter that extracts an answer and did not find one.

    It compares equal to the same plain text, so later filters and metrics treat it as text. Because
    it has a type of its own, and keeps it through `strip`, `lower` and `upper`, the pipeline can
    count the documents from which nothing was extracted. A custom filter is counted too if it
    returns `NotFound(…)`, for example `NotFound("[invalid]")`.
    """

    __slots__ = ()

    def strip(self, chars: str | None = None, /) -> NotFound:
        """Returns the stripped text, again as a `NotFound`."""
        return NotFound(super().strip(chars))

    def lower(self) -> NotFound:
        """Returns the text in lower case, again as a `NotFound`."""
        return NotFound(super().lower())

    def upper(self) -> NotFound:
        """Returns the text in upper case, again as a `NotFound`."""
        return NotFound(super().upper())


class Filter(ABC):
    """One step of a filter pipeline: turns the answers of a task into cleaner answers.

    Example::

        @register_filter("first_word")
        class FirstWord(Filter):
            def apply(self, resps, docs):
                return [[text.split(" ")[0] for text in answers] for answers in resps]

    A task file uses it as `filter_list: [{name: words, filter: [{function: first_word}]}]`.
    """

    def __init__(self, **kwargs: Any) -> None:
        """Receives the other keys of the step in the task file, such as `regex_pattern`.

        The base class ignores them. A filter is created once when the task is built, which
        validates its arguments, and again each time the pipeline is applied.
        """
        super().__init__()

    @abstractmethod
    def apply(self, resps: Any, docs: Any) -> Iterable[Any]:
        """Returns the filtered answers, one entry per request, in the order of `resps`.

        Called once per pipeline with the answers to all requests of the task.

        Args:
            resps: one entry per request. For the first step an entry is the list of the answers to
                that request, one per repeat. For a later step it is what the step before returned.
            docs: the document of each request, in the same order as `resps`.

        Returns:
            As many entries as `resps` has. An entry is a list again (one answer per repeat), or a
            single answer, as the last step of a pipeline usually returns.
        """


@dataclass
class FilterEnsemble:
    """A named filter pipeline, applied to all requests of a task."""

    name: str
    filters: Sequence[Callable[[], Filter]]
    """The steps in order: functions without arguments that create the filter."""

    def apply(self, instances: Sequence[Instance]) -> None:
        """Filters the answers in `resps` and stores them in `filtered_resps[self.name]`.

        If thinking text was removed from the answers, the filters get `conclusions` instead of
        `resps`. Requests from which nothing was extracted get the pipeline's name added to
        `extraction_failed`. Raises `EvalError` if a filter does not return one entry per request.
        """
        docs = [instance.doc for instance in instances]
        answers: Any = [
            instance.resps if instance.thinking is None else instance.conclusions
            for instance in instances
        ]
        for make in self.filters:
            answers = list(make().apply(answers, docs))
            if len(answers) != len(instances):
                raise EvalError(
                    f"filter pipeline {self.name!r}: a step returned {len(answers)} answers for "
                    f"{len(instances)} requests. The `apply` method of a filter must return one "
                    "entry per request, in order."
                )
        for instance, answer in zip(instances, answers, strict=True):
            instance.filtered_resps[self.name] = answer
        if self.extracts or not {NotFound, list}.isdisjoint(map(type, answers)):
            for instance in instances:
                self._record_extraction(instance)

    def _record_extraction(self, instance: Instance) -> None:
        """Records in the request whether extraction failed; turns `NotFound` into plain text.

        The pipeline's name is added to `extraction_failed` of the request if all its answers are
        `NotFound`; otherwise it is removed from there.
        """
        answer = instance.filtered_resps[self.name]
        others = tuple(name for name in instance.extraction_failed if name != self.name)
        instance.extraction_failed = (*others, self.name) if is_not_found(answer) else others
        instance.filtered_resps[self.name] = _as_plain_text(answer)

    @cached_property
    def extracts(self) -> bool:
        """Whether a step of this pipeline extracts answers and reports when it finds none.

        A step does if its attribute `fallback` is a `NotFound`.
        """
        return any(is_not_found(getattr(make(), "fallback", None)) for make in self.filters)


def is_not_found(answer: Any) -> bool:
    """Returns whether an answer is a `NotFound`, or a list of `NotFound` objects only.

    Lists may be nested. An empty list is not one.
    """
    if isinstance(answer, list):
        return bool(answer) and all(map(is_not_found, answer))
    return isinstance(answer, NotFound)


def _as_plain_text(answer: Any) -> Any:
    """Returns the answer (or list of answers) with every `NotFound` turned into a plain `str`."""
    if isinstance(answer, list):
        return [_as_plain_text(one) for one in answer]
    return str(answer) if isinstance(answer, NotFound) else answer
