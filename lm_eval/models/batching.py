"""Requests in an order of their own, some at a time: for models that bring their own loops.

The backends here plan by shared prefixes instead (`engine/plan.py`); classes written for the
published harness import this from `lm_eval.models.utils`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

Size = Callable[[int, Sequence[Any]], int]
_NOTHING = object()


class Collator:
    """Sorts requests, cuts them into batches, and puts answers back into the order of asking.

    With `group_by="gen_kwargs"` a batch holds requests of one `group_fn` only. With
    `group_by="contexts"` one request stands for all that read the same tokens, and `get_cache`
    tells the others once its scores are there.
    """

    def __init__(
        self,
        arr: Iterable[Any],
        sort_fn: Callable[[Any], Any] = lambda request: request,
        group_fn: Callable[[Any], Any] = lambda request: request[1],
        group_by: str | None = None,
    ) -> None:
        if group_by not in (None, "gen_kwargs", "contexts"):
            raise ValueError(f"group_by is 'gen_kwargs', 'contexts' or None, not {group_by!r}")
        self._requests = list(arr)
        self._sort = sort_fn
        self._by_context = group_by == "contexts"
        self._groups: dict[Any, list[int]] = {}
        for number, request in enumerate(self._requests):
            key = None if group_by is None else _hashable(group_fn(request))
            self._groups.setdefault(key, []).append(number)
        self._asked: list[int] = []
        """The requests whose answers come next, in the order they were given out."""

    def __len__(self) -> int:
        return len(self._requests)

    def get_batched(self, n: int = 1, batch_fn: Size | None = None) -> Iterator[list[Any]]:
        """Batches of `n` requests, or as many as `batch_fn` says; of all at once if neither."""
        if self._by_context:
            portions = [[self._longest(group) for group in self._groups.values()]]
        else:
            portions = list(self._groups.values())
        for portion in portions:
            numbers = sorted(portion, key=lambda number: self._sort(self._requests[number]))
            if not self._by_context:
                self._asked += numbers
            ordered = [self._requests[number] for number in numbers]
            yield from chunks(ordered, n, batch_fn)

    def _longest(self, group: list[int]) -> int:
        """Of requests that read alike, the one that is scored at the most places."""
        return max(group, key=lambda number: len(self._requests[number][-1]))

    def get_cache(
        self, req_str: Any, cxt_toks: list[int], cont_toks: list[int], logits: Any
    ) -> Iterator[tuple[Any, list[int], Any]]:
        """Every request that these scores (1, T, V) answer: what it is, its tokens, its scores."""
        if not self._by_context:
            yield req_str, cont_toks, logits
            return
        for number in self._groups.pop(tuple(cxt_toks + cont_toks[:-1])):
            asked, _, continuation = self._requests[number]
            self._asked.append(number)
            yield asked, continuation, logits[:, -len(continuation) :]

    def get_original(self, newarr: Sequence[Any]) -> list[Any]:
        """Answers, given in the order of batches, in the order of asking."""
        answers: list[Any] = [None] * len(self._requests)
        for number, answer in zip(self._asked, newarr, strict=True):
            answers[number] = answer
        return answers


def chunks(items: Iterable[Any], n: int = 0, fn: Size | None = None) -> Iterator[list[Any]]:
    """Cut items into lists of `n`, or of as many as `fn` says at that place; of all if neither."""
    every = list(items)
    held: list[Any] = []
    for place, item in enumerate(every):
        held.append(item)
        if len(held) == (fn(place, every) if fn is not None else n):
            yield held
            held = []
    if held:
        yield held


def _hashable(key: Any) -> Any:
    if isinstance(key, dict):
        return tuple((name, _hashable(key[name])) for name in sorted(key))
    return tuple(map(_hashable, key)) if isinstance(key, (list, tuple)) else key


class Reorderer:
    """Requests sorted by a key, and answers put back into the order of asking."""

    def __init__(self, arr: Iterable[Any], fn: Callable[[Any], Any]) -> None:
        self._requests = list(arr)
        self._order = sorted(
            range(len(self._requests)), key=lambda number: fn(self._requests[number])
        )

    def get_reordered(self) -> list[Any]:
        return [self._requests[number] for number in self._order]

    def get_original(self, newarr: Sequence[Any]) -> list[Any]:
        answers: list[Any] = [None] * len(self._requests)
        for number, answer in zip(self._order, newarr, strict=True):
            answers[number] = answer
        return answers


class Grouper:
    """Requests by a key, and answers, given by the same keys, in the order of asking."""

    def __init__(self, arr: Iterable[Any], fn: Callable[[Any], Any]) -> None:
        self._requests = list(arr)
        self._groups: dict[Any, list[int]] = {}
        for number, request in enumerate(self._requests):
            self._groups.setdefault(_hashable(fn(request)), []).append(number)

    def get_grouped(self) -> dict[Any, list[Any]]:
        return {
            key: [self._requests[number] for number in numbers]
            for key, numbers in self._groups.items()
        }

    def get_original(self, grouped_dict: Mapping[Any, Sequence[Any]]) -> list[Any]:
        answers: list[Any] = [None] * len(self._requests)
        for key, numbers in self._groups.items():
            for number, answer in zip(numbers, grouped_dict[key], strict=True):
                answers[number] = answer
        return answers


def undistribute(iterable: Iterable[Sequence[Any]]) -> list[Any]:
    """What was dealt out in turn to several, in its order again."""
    rounds = zip_longest(*iterable, fillvalue=_NOTHING)
    return [item for dealt in rounds for item in dealt if item is not _NOTHING]
