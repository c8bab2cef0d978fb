"""What a filter is: a step that turns the answers of a task into cleaner answers."""

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
    """The text an extracting filter falls back on: equal to it, and known for what it is.

    It stays known through the steps after it, so that a pipeline can count the documents from
    which nothing was extracted. A filter of one's own takes part by returning `NotFound("…")`.
    """

    __slots__ = ()

    def strip(self, chars: str | None = None, /) -> NotFound:
        return NotFound(super().strip(chars))

    def lower(self) -> NotFound:
        return NotFound(super().lower())

    def upper(self) -> NotFound:
        return NotFound(super().upper())


class Filter(ABC):
    """One step of a pipeline, over all requests of a task at once."""

    def __init__(self, **kwargs: Any) -> None:
        """Arguments from the YAML file arrive here; the base has no use for any."""
        super().__init__()

    @abstractmethod
    def apply(self, resps: Any, docs: Any) -> Iterable[Any]:
        """Answers grouped by request, one a repeat, in the same order out as in.

        A step either keeps that shape, or (usually the last one) gives a single answer a request.
        """


@dataclass
class FilterEnsemble:
    """A named pipeline of filters, applied to every request of a task."""

    name: str
    filters: Sequence[Callable[[], Filter]]

    def apply(self, instances: Sequence[Instance]) -> None:
        """Run the answers through the steps and keep the outcome under the pipeline's name.

        Where thinking was cut from the answers, the steps see what is left.
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
                    f"{len(instances)} requests; a filter must return one for each, in order."
                )
        for instance, answer in zip(instances, answers, strict=True):
            instance.filtered_resps[self.name] = answer
        if self.extracts or not {NotFound, list}.isdisjoint(map(type, answers)):
            for instance in instances:
                self._note_failure(instance)

    def _note_failure(self, instance: Instance) -> None:
        answer = instance.filtered_resps[self.name]
        others = tuple(name for name in instance.extraction_failed if name != self.name)
        instance.extraction_failed = (*others, self.name) if found_nothing(answer) else others
        instance.filtered_resps[self.name] = _plain(answer)

    @cached_property
    def extracts(self) -> bool:
        """Whether some step may find nothing, and says so."""
        return any(found_nothing(getattr(make(), "fallback", None)) for make in self.filters)


def found_nothing(answer: Any) -> bool:
    """Whether an answer, or every one of several, is what an extracting filter fell back on."""
    if isinstance(answer, list):
        return bool(answer) and all(map(found_nothing, answer))
    return isinstance(answer, NotFound)


def _plain(answer: Any) -> Any:
    """The fallback as the plain text that metrics are to see."""
    if isinstance(answer, list):
        return [_plain(one) for one in answer]
    return str(answer) if isinstance(answer, NotFound) else answer
