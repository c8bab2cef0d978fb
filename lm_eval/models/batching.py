"""Helpers that sort requests into batches and restore the original order of the answers.

Model classes written for the published harness import them from `lm_eval.models.utils`. The models
of this package do not use them: they batch requests by shared prefixes (`engine/plan.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

Size = Callable[[int, Sequence[Any]], int]
"""Returns the size of the current batch, given the index of its last item and all items."""
_NOTHING = object()


class Collator:
    """Sorts requests, splits them into batches, and restores the original order of the answers.

    Args:
        arr: the requests.
        sort_fn: the sort key of a request.
        group_fn: the group key of a request, used with `group_by`.
        group_by: None for no groups. "gen_kwargs": all requests of a batch have the same
            `group_fn`. "contexts": of the requests with the same `group_fn` (the same input tokens)
            only one is in a batch; `get_cache` then yields the others with its logits. Any other
            value raises `ValueError`.
    """

    def __init__(
        self,
        arr: Iterable[Any],
        sort_fn: Callable[[Any], Any] = lambda request: request,
        group_fn: Callable[[Any], Any] = lambda request: request[1],
        group_by: str | None = None,
    ) -> None:
        if group_by not in (None, "gen_kwargs", "contexts"):
            raise ValueError(
                f"group_by must be 'gen_kwargs', 'contexts' or None, not {group_by!r}."
            )
        self._requests = list(arr)
        self._sort = sort_fn
        self._by_context = group_by == "contexts"
        self._groups: dict[Any, list[int]] = {}
        for number, request in enumerate(self._requests):
            key = None if group_by is None else _hashable(group_fn(request))
            self._groups.setdefault(key, []).append(number)
        self._expected: list[int] = []
        """Indices of the requests in the order in which their answers are expected."""

    def __len__(self) -> int:
        """Returns the number of requests."""
        return len(self._requests)

    def get_batched(self, n: int = 1, batch_fn: Size | None = None) -> Iterator[list[Any]]:
        """Yields batches of requests, group after group, in sorted order within each group.

        With `group_by="contexts"`, all batches form one group, with one request per context.

        Args:
            n: the batch size; 0 for a single batch per group.
            batch_fn: computes the batch size instead of `n`; see `Size`.
        """
        if self._by_context:
            groups = [[self._longest(group) for group in self._groups.values()]]
        else:
            groups = list(self._groups.values())
        for group in groups:
            numbers = sorted(group, key=lambda number: self._sort(self._requests[number]))
            if not self._by_context:
                self._expected += numbers
            ordered = [self._requests[number] for number in numbers]
            yield from chunks(ordered, n, batch_fn)

    def _longest(self, group: list[int]) -> int:
        """Returns the index of the request of `group` (indices) with the longest continuation.

        Its logits include those of the others.
        """
        return max(group, key=lambda number: len(self._requests[number][-1]))

    def get_cache(
        self, req_str: Any, cxt_toks: list[int], cont_toks: list[int], logits: Any
    ) -> Iterator[tuple[Any, list[int], Any]]:
        """Yields every request that the logits of one request answer.

        Args:
            req_str: identifies the request.
            cxt_toks: its context tokens.
            cont_toks: its continuation tokens.
            logits: its logits, of shape (1, tokens, vocabulary).

        Yields:
            `(req_str, continuation tokens, logits of the continuation)` of each request with the
            same input tokens; only of the request itself unless `group_by` is "contexts".
        """
        if not self._by_context:
            yield req_str, cont_toks, logits
            return
        for number in self._groups.pop(tuple(cxt_toks + cont_toks[:-1])):
            identifier, _, continuation = self._requests[number]
            self._expected.append(number)
            yield identifier, continuation, logits[:, -len(continuation) :]

    def get_original(self, newarr: Sequence[Any]) -> list[Any]:
        """Returns `newarr`, the answers in the order of the batches, in the original order.

        Raises `ValueError` if there are not as many answers as requests in the batches.
        """
        answers: list[Any] = [None] * len(self._requests)
        for number, answer in zip(self._expected, newarr, strict=True):
            answers[number] = answer
        return answers


def chunks(items: Iterable[Any], n: int = 0, fn: Size | None = None) -> Iterator[list[Any]]:
    """Yields the items in lists of `n` items, or of as many as `fn` returns if it is given.

    The last list may be shorter. With `n` 0 and no `fn`, all items are in one list. `fn` is called
    with the index (from 0) of the last item and the list of all items.
    """
    every = list(items)
    chunk: list[Any] = []
    for index, item in enumerate(every):
        chunk.append(item)
        if len(chunk) == (fn(index, every) if fn is not None else n):
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _hashable(key: Any) -> Any:
    """Returns the key with dictionaries and lists, also nested ones, converted to tuples.

    The order of a dictionary's keys does not matter.
    """
    if isinstance(key, dict):
        return tuple((name, _hashable(key[name])) for name in sorted(key))
    return tuple(map(_hashable, key)) if isinstance(key, (list, tuple)) else key


class Reorderer:
    """Sorts requests by the key `fn`, and restores the original order of the answers."""

    def __init__(self, arr: Iterable[Any], fn: Callable[[Any], Any]) -> None:
        self._requests = list(arr)
        self._order = sorted(
            range(len(self._requests)), key=lambda number: fn(self._requests[number])
        )

    def get_reordered(self) -> list[Any]:
        """Returns the requests in sorted order."""
        return [self._requests[number] for number in self._order]

    def get_original(self, newarr: Sequence[Any]) -> list[Any]:
        """Returns `newarr`, the answers in sorted order, in the original order of the requests.

        Raises `ValueError` if there are not as many answers as requests.
        """
        answers: list[Any] = [None] * len(self._requests)
        for number, answer in zip(self._order, newarr, strict=True):
            answers[number] = answer
        return answers


class Grouper:
    """Groups requests by the key `fn`, and restores the original order of the answers."""

    def __init__(self, arr: Iterable[Any], fn: Callable[[Any], Any]) -> None:
        self._requests = list(arr)
        self._groups: dict[Any, list[int]] = {}
        for number, request in enumerate(self._requests):
            self._groups.setdefault(_hashable(fn(request)), []).append(number)

    def get_grouped(self) -> dict[Any, list[Any]]:
        """Returns the requests of each group, by its key.

        Dictionaries and lists in keys are converted to tuples.
        """
        return {
            key: [self._requests[number] for number in numbers]
            for key, numbers in self._groups.items()
        }

    def get_original(self, grouped_dict: Mapping[Any, Sequence[Any]]) -> list[Any]:
        """Returns the answers, which are given by group key, in the original order.

        `grouped_dict` has the keys of `get_grouped`, with one answer per request of the group.
        Raises `KeyError` if a group is missing, and `ValueError` if a number of answers is wrong.
        """
        answers: list[Any] = [None] * len(self._requests)
        for key, numbers in self._groups.items():
            for number, answer in zip(numbers, grouped_dict[key], strict=True):
                answers[number] = answer
        return answers


def undistribute(iterable: Iterable[Sequence[Any]]) -> list[Any]:
    """Returns the items of several lists, taking one item from each in turn.

    This reverses the distribution of items to processes in turn: `[[0, 2], [1]]` becomes
    `[0, 1, 2]`.
    """
    rounds = zip_longest(*iterable, fillvalue=_NOTHING)
    return [item for row in rounds for item in row if item is not _NOTHING]
