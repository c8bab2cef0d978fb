"""The `Filter` interface, and the pipeline that applies filters to the answers of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import TYPE_CHECKING, Any, ClassVar

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


class LeftOut(str):
    """The type of `LEFT_OUT`, which marks a request whose document a filter pipeline leaves out."""

    __slots__ = ()


#: What a filter returns in place of the answers to a request, to leave its document out of the
#: pipeline: later steps do not get the request, and the document has no scores there.
LEFT_OUT = LeftOut("[left out]")


class Filter(ABC):
    """One step of a filter pipeline: turns the answers of a task into cleaner answers.

    Example::

        @register_filter("first_word")
        class FirstWord(Filter):
            def apply(self, resps, docs):
                return [[text.split(" ")[0] for text in answers] for answers in resps]

    A task file uses it as `filter_list: [{name: words, filter: [{function: first_word}]}]`.
    """

    #: Names of the arguments that are paths of files. A relative path in a task file is relative to
    #: the folder of that file.
    FILE_ARGUMENTS: ClassVar[tuple[str, ...]] = ()
    #: Whether `apply` reads the entries of `resps` once, in order, and changes none of them. As the
    #: first step it then gets an iterator, so that no list per request has to be created.
    ONLY_READS: ClassVar[bool] = False
    #: Whether the filter chooses among the repeats of a request, other than by taking the first.
    #: Such filters are skipped when each repeat is filtered by itself (`apply_to_repeats`).
    selects_repeats: ClassVar[bool] = False

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
            single answer, as the last step of a pipeline usually returns. `LEFT_OUT` leaves the
            document of the request out of the pipeline.
        """


class RequestFilter(Filter):
    """A filter that needs to know which requests it is applied to, not only their documents.

    The pipeline calls `apply_to_requests` in place of `apply`.
    """

    @abstractmethod
    def apply_to_requests(self, resps: Any, requests: Sequence[Instance]) -> Iterable[Any]:
        """Returns the filtered answers, as `Filter.apply` does.

        Args:
            resps: one entry per request, as for `Filter.apply`.
            requests: the requests, in the same order. Of interest are `task_name`, `doc` and
                `doc_number`; they must not be changed.
        """

    def check_task(self, task: Any) -> None:
        """Raises an `EvalError` if the filter cannot be applied to the answers of this task.

        Called before the model is loaded, and before stored answers are scored. The base class
        accepts every task.
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
        `extraction_failed`. A request for which a filter returns `LEFT_OUT` gets that as its
        answer, and is not passed to later filters. Raises `EvalError` if a filter does not return
        one entry per request.
        """
        left = instances
        answers: Any = None
        for number, make in enumerate(self.filters):
            if not left:
                break
            step = make()
            if number == 0:
                answers = _answers_for(step, instances)
            answers = self._apply_step(step, answers, left)
            if LeftOut in set(map(type, answers)):
                kept = [not isinstance(answer, LeftOut) for answer in answers]
                for instance in compress(left, (not keep for keep in kept)):
                    instance.set_filtered(self.name, LEFT_OUT)
                left, answers = list(compress(left, kept)), list(compress(answers, kept))
        for instance, answer in zip(left, answers, strict=True):
            instance.set_filtered(self.name, answer)
        if self.extracts or not {NotFound, list}.isdisjoint(map(type, answers)):
            for instance in left:
                self._record_extraction(instance)

    def apply_to_repeats(self, instances: Sequence[Instance]) -> None:
        """Filters each answer as if it were the only one of its request.

        Calls `Instance.set_filtered_repeats`. Steps that choose among repeats are skipped. Requests
        that the pipeline leaves out get `LEFT_OUT` in place of each answer.
        """
        single: list[Instance] = []
        for instance in instances:
            for number, answer in enumerate(instance.resps):
                conclusion = None if instance.conclusions is None else instance.conclusions[number]
                single.append(
                    replace(
                        instance,
                        resps=[answer],
                        filtered_resps={},
                        extraction_failed=(),
                        thinking=None if instance.thinking is None else [""],
                        conclusions=None if instance.conclusions is None else [conclusion],
                    )
                )
        steps = [make for make in self.filters if not _selects_repeats(make())]
        FilterEnsemble(self.name, steps).apply(single)
        left = iter(single)
        for instance in instances:
            own = [next(left) for _ in instance.resps]
            instance.set_filtered_repeats(
                self.name,
                [one.filtered_resps[self.name] for one in own],
                [self.name in one.extraction_failed for one in own],
            )

    @cached_property
    def selects_repeats(self) -> bool:
        """Whether a step of this pipeline chooses among the repeats of a request."""
        return any(_selects_repeats(make()) for make in self.filters)

    def _apply_step(self, step: Filter, answers: Any, requests: Sequence[Instance]) -> list[Any]:
        """Returns the answers after one step; raises `EvalError` if their number has changed."""
        if isinstance(step, RequestFilter):
            filtered = list(step.apply_to_requests(answers, requests))
        else:
            filtered = list(step.apply(answers, [request.doc for request in requests]))
        if len(filtered) != len(requests):
            raise EvalError(
                f"filter pipeline {self.name!r}: a step returned {len(filtered)} answers for "
                f"{len(requests)} requests. The `apply` method of a filter must return one entry "
                "per request, in order."
            )
        return filtered

    def check_task(self, task: Any) -> None:
        """Raises an `EvalError` if a step cannot be applied to the answers of this task."""
        for step in (make() for make in self.filters):
            if isinstance(step, RequestFilter):
                step.check_task(task)

    def _record_extraction(self, instance: Instance) -> None:
        """Records in the request whether extraction failed; turns `NotFound` into plain text.

        The pipeline's name is added to `extraction_failed` of the request if all its answers are
        `NotFound`; otherwise it is removed from there.
        """
        answer = instance.filtered(self.name)
        others = tuple(name for name in instance.extraction_failed if name != self.name)
        failed = (*others, self.name) if is_not_found(answer) else others
        instance.set_extraction_failed(failed)
        instance.set_filtered(self.name, _as_plain_text(answer))

    @cached_property
    def extracts(self) -> bool:
        """Whether a step of this pipeline extracts answers and reports when it finds none.

        A step does if its attribute `fallback` is a `NotFound`.
        """
        return any(is_not_found(getattr(make(), "fallback", None)) for make in self.filters)


def _answers_for(step: Filter, instances: Sequence[Instance]) -> Iterable[Any]:
    """Returns the answers that the first step of a pipeline gets, one entry per request."""
    only_reads = bool(getattr(step, "ONLY_READS", False))  # the class may not derive from ours
    given = (
        (instance.answers if only_reads else instance.resps)
        if instance.thinking is None
        else instance.conclusions
        for instance in instances
    )
    return given if only_reads else list(given)


def _selects_repeats(step: Any) -> bool:
    """Returns the attribute `selects_repeats`; False for a class that does not derive from ours."""
    return bool(getattr(step, "selects_repeats", False))


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
