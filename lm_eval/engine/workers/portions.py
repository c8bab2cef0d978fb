"""Cuts requests into portions along their common prefixes.

Requests are read in windows, so that millions of them may come from an iterator. A window is sorted
by the text of the contexts, so that requests with a common prefix are neighbors, and is cut where
neighbors have least in common. Portions become smaller towards the end of the requests, so that all
workers finish at about the same time.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lm_eval.api.instance import Instance

#: How many portions of the present size each worker would get of the remaining requests.
SHARES = 4
#: The largest portion, in requests and in characters. It limits the size of a message.
MAX_REQUESTS = 1024
MAX_CHARACTERS = 8_000_000
#: The smallest portion that is cut as long as there are many, unless the batch size is known.
MIN_REQUESTS = 16
#: A window has at least this many requests, and this many per worker.
WINDOW = 16_384
WINDOW_PER_WORKER = 256
#: The estimated cost of a request besides its text, in characters, and of a token to generate.
REQUEST_COST = 64
CHARACTERS_PER_TOKEN = 4
#: Answers are mostly shorter than allowed; a longer limit is not taken literally.
MAX_EXPECTED_TOKENS = 256


@dataclass(eq=False)
class Portion:
    """Requests that a worker gets together, with their positions among all requests."""

    positions: Sequence[int]
    requests: Sequence[Instance]
    repeats: Sequence[int]
    """Which of the occurrences of its request each position is, from 0."""
    cost: int
    strikes: int = 0
    """How many workers have died of these requests, or raised an exception."""
    is_returned: bool = False
    """Whether a worker had it before."""

    def __len__(self) -> int:
        return len(self.positions)

    def only(self, positions: Iterable[int]) -> Portion | None:
        """Returns the part of the portion with these positions; None if it has none of them."""
        wanted = set(positions)
        kept = [i for i, position in enumerate(self.positions) if position in wanted]
        if not kept:
            return None
        if len(kept) == len(self.positions):
            return self
        return self._part(kept)

    def split(self, parts: int) -> list[Portion]:
        """Returns up to `parts` portions of about equal size; repeats are not separated."""
        units = _units(self.requests)
        count = min(parts, len(units))
        found = []
        for part in range(count):
            chosen = units[part * len(units) // count : (part + 1) * len(units) // count]
            found.append(self._part(list(itertools.chain.from_iterable(chosen))))
        return found

    def struck(self) -> Portion:
        """Returns the portion with one strike more."""
        return replace(self, strikes=self.strikes + 1)

    def returned(self) -> Portion:
        """Returns the portion as one that a worker had before."""
        return replace(self, is_returned=True)

    def _part(self, kept: Sequence[int]) -> Portion:
        return Portion(
            [self.positions[i] for i in kept],
            [self.requests[i] for i in kept],
            [self.repeats[i] for i in kept],
            max(1, self.cost * len(kept) // max(1, len(self.positions))),
            self.strikes,
            self.is_returned,
        )


def _units(requests: Sequence[Instance]) -> list[range]:
    """Returns ranges of indices, one per request; a range has all its repeats."""
    starts = [i for i in range(len(requests)) if i == 0 or requests[i] is not requests[i - 1]]
    return [range(a, b) for a, b in itertools.pairwise([*starts, len(requests)])]


@dataclass(eq=False)
class _Group:
    """Neighboring requests with the same context."""

    context: Any
    positions: list[int]
    requests: list[Instance]
    repeats: list[int]
    cost: int


class Backlog:
    """The requests that no worker has yet."""

    def __init__(self, requests: Iterable[Instance], quantum: int | None = None) -> None:
        """Takes the requests.

        Args:
            requests: the requests of one type; they are read as they are needed.
            quantum: the batch size of the model. Portions are multiples of it.
        """
        self._source: Iterator[tuple[int, Instance]] = enumerate(requests)
        self._groups: deque[_Group] = deque()
        self._returned: deque[Portion] = deque()
        self._cost = self._count = 0
        self._quantum = quantum
        self._exhausted = False
        self._ahead: tuple[int, Instance] | None = None

    def __bool__(self) -> bool:
        return bool(self._groups or self._returned or not self._exhausted)

    @property
    def has_new(self) -> bool:
        """Whether there are requests that no worker has had."""
        return bool(self._groups or not self._exhausted)

    def put_back(self, portion: Portion) -> None:
        """Takes back a portion that has to be given to another worker, before all others."""
        self._returned.append(portion.returned())

    def take(self, workers: int) -> Portion | None:
        """Returns the next portion for one of so many workers; None if nothing is left."""
        if self._returned:
            return self._take_returned(workers)
        self._read(workers)
        if not self._groups:
            return None
        wanted = max(1, self._cost // (max(1, workers) * SHARES))
        fair = -(-self._count // max(1, workers))  # at the end, nobody gets more than a fair share
        if self._quantum is None:
            return self._cut(wanted, min(MIN_REQUESTS, fair))
        batches = max(1, round(self._count / (max(1, workers) * SHARES) / self._quantum))
        return self._take_count(batches * self._quantum)

    def _take_count(self, most: int) -> Portion:
        """Returns the first groups with up to so many requests; at least one group."""
        most = min(most, MAX_REQUESTS)
        taken = [self._groups.popleft()]
        count = len(taken[0].requests)
        while self._groups and count + len(self._groups[0].requests) <= most:
            taken.append(self._groups.popleft())
            count += len(taken[-1].requests)
        if len(taken) == 1 and count > most:
            self._divide(taken[0], taken[0].cost * most // count, most)
        return self._joined(taken)

    def _take_returned(self, workers: int) -> Portion:
        """Returns a portion that was put back; a large one is divided if there is little else."""
        portion = self._returned.popleft()
        others = self._cost + sum(one.cost for one in self._returned)
        smallest = 2 * (self._quantum or MIN_REQUESTS)
        if workers > 1 and len(portion) >= smallest and others < portion.cost:
            portion, *rest = portion.split(workers)
            self._returned.extendleft(reversed(rest))
        return portion

    def _read(self, workers: int) -> None:
        """Reads the next window if half of the last one is used up."""
        window = max(WINDOW, WINDOW_PER_WORKER * workers)
        if self._exhausted or self._count > window // 2:
            return
        items = list(self._until_next_request(window))
        self._exhausted = self._ahead is None
        groups = _sorted_groups(items)
        self._groups.extend(groups)
        self._cost += sum(group.cost for group in groups)
        self._count += len(items)

    def _until_next_request(self, window: int) -> Iterator[tuple[int, Instance]]:
        """Yields the items of a window; the repeats of its last request belong to it."""
        last: Instance | None = None
        first = [] if self._ahead is None else [self._ahead]
        self._ahead = None
        for count, item in enumerate(itertools.chain(first, self._source)):
            if count >= window and item[1] is not last:
                self._ahead = item
                return
            last = item[1]
            yield item

    def _cut(self, wanted: int, at_least: int) -> Portion:
        """Returns the first groups up to about a cost; cut where the least prefix is shared.

        A portion has at least so many requests, unless fewer are left. A group larger than that is
        divided.
        """
        taken: list[_Group] = []
        cost = count = 0
        best: tuple[int, int] | None = None  # the shared prefix at the best cut, and its place
        while self._groups:
            group = self._groups[0]
            enough = count >= at_least and cost >= wanted
            full = count + len(group.requests) > MAX_REQUESTS or cost + group.cost > MAX_CHARACTERS
            if taken and ((enough and cost >= wanted + wanted // 4) or full):
                break
            if taken and count >= at_least and cost >= wanted - wanted // 4:
                shared = _common(taken[-1].context, group.context)
                if best is None or shared < best[0]:
                    best = (shared, len(taken))
                if not shared:
                    break
            taken.append(self._groups.popleft())
            cost += group.cost
            count += len(group.requests)
        if best is not None:
            while len(taken) > best[1]:
                self._groups.appendleft(taken.pop())
        if len(taken) == 1 and len(taken[0].requests) > max(at_least, 1):
            self._divide(taken[0], wanted, at_least)
        return self._joined(taken)

    def _divide(self, group: _Group, wanted: int, at_least: int) -> None:
        """Leaves in a group of equal contexts only what is wanted; puts the rest back."""
        units = _units(group.requests)
        share = round(len(units) * wanted / max(1, group.cost))
        keep = min(max(share, at_least, 1), MAX_REQUESTS)
        if keep >= len(units):
            return
        cut = units[keep].start
        rest_cost = group.cost * (len(units) - keep) // len(units)
        parts = group.positions[cut:], group.requests[cut:], group.repeats[cut:]
        rest = _Group(group.context, *parts, rest_cost)
        del group.positions[cut:], group.requests[cut:], group.repeats[cut:]
        group.cost -= rest_cost
        self._groups.appendleft(rest)

    def _joined(self, groups: Sequence[_Group]) -> Portion:
        portion = Portion(
            [position for group in groups for position in group.positions],
            [request for group in groups for request in group.requests],
            [repeat for group in groups for repeat in group.repeats],
            sum(group.cost for group in groups),
        )
        self._cost -= portion.cost
        self._count -= len(portion)
        return portion


def _sorted_groups(items: Sequence[tuple[int, Instance]]) -> list[_Group]:
    """Returns the requests grouped by context, in the order of the contexts.

    Contexts that are not text keep their order, after the others.
    """
    texts: dict[str, _Group] = {}
    others: list[_Group] = []
    last: Instance | None = None
    group = _Group(None, [], [], [], 0)
    repeat = 0
    for position, request in items:
        repeat += 1
        if request is not last:
            last, repeat = request, 0
            arguments = request.args
            context = arguments[0] if arguments else None
            if isinstance(context, str):
                found = texts.get(context)
                if found is None:
                    found = texts[context] = _Group(context, [], [], [], len(context))
                group = found
            else:
                group = _Group(None, [], [], [], 0)
                others.append(group)
        group.positions.append(position)
        group.requests.append(request)
        group.repeats.append(repeat)
        group.cost += _own_cost(request)
    return [texts[context] for context in sorted(texts)] + others


def _own_cost(request: Instance) -> int:
    """Returns the estimated cost of a request without its context, in characters."""
    cost = REQUEST_COST
    for part in request.args[1:]:
        if isinstance(part, str):
            cost += len(part)
        elif isinstance(part, Mapping):
            allowed = part.get("max_gen_toks")
            tokens = allowed if isinstance(allowed, int) else MAX_EXPECTED_TOKENS
            cost += CHARACTERS_PER_TOKEN * min(tokens, MAX_EXPECTED_TOKENS)
    return cost


def _common(one: Any, two: Any) -> int:
    """Returns how many leading characters two contexts share; 0 if one of them is not text."""
    if not isinstance(one, str) or not isinstance(two, str):
        return 0
    low, high = 0, min(len(one), len(two))
    while low < high:  # slices are compared much faster than single characters
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
