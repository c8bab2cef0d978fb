"""What a filter is: a step that turns the answers of a task into cleaner answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lm_eval.errors import EvalError

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance


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
        """Run the answers through the steps and keep the outcome under the pipeline's name."""
        docs = [instance.doc for instance in instances]
        answers: Any = [instance.resps for instance in instances]
        for make in self.filters:
            answers = list(make().apply(answers, docs))
            if len(answers) != len(instances):
                raise EvalError(
                    f"filter pipeline {self.name!r}: a step returned {len(answers)} answers for "
                    f"{len(instances)} requests; a filter must return one for each, in order."
                )
        for instance, answer in zip(instances, answers, strict=True):
            instance.filtered_resps[self.name] = answer
