"""Plans the requests that score continuations: few of them, in the order of their prefixes."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval.api.instance import Failure
from lm_eval.models.planned.jobs import Score, Window, groups

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class WholeJob:
    """One request that scores all tokens of the continuations of windows.

    `windows` are the positions of the windows in the plan.
    """

    windows: tuple[int, ...]


@dataclass(frozen=True)
class NextJob:
    """Asks with one request for the log-probabilities of the same next tokens after contexts."""

    contexts: tuple[Tokens, ...]
    tokens: Tokens


Job = WholeJob | NextJob


@dataclass(frozen=True)
class Abilities:
    """What can be asked for.

    Attributes:
        whole: whether a window can be scored with one request.
        next_tokens: whether the log-probabilities of chosen next tokens can be asked for.
        max_next_tokens: the maximum number of next tokens per request.
        batch_size: how many prompts a request may contain.
    """

    whole: bool = True
    next_tokens: bool = False
    max_next_tokens: int = 1 << 30
    batch_size: int = 1


class Parts:
    """Adds up the score of a window that is asked for in several parts."""

    def __init__(self, count: int) -> None:
        self._parts: list[Score | None] = [None] * count
        self._left = count

    def add(self, place: int, score: Score | Failure) -> Score | Failure | None:
        """Adds the part at `place`; returns the window's score if it is complete, else None.

        A failed part makes the window fail. Parts that come later are ignored. NaN is a failure:
        the model computes wrongly, for example because its numbers overflow.
        """
        if not self._left:
            return None
        if not isinstance(score, Failure) and math.isnan(score[0]):
            score = Failure("a log-probability is NaN")
        if isinstance(score, Failure):
            self._left = 0
            return score
        self._parts[place] = score
        self._left -= 1
        if self._left:
            return None
        known = [part for part in self._parts if part is not None]
        return sum(part[0] for part in known), all(part[1] for part in known)


class ScorePlan:
    """The requests that score windows, and the scores found so far.

    - A window is scored once, however often it occurs.
    - If the server returns log-probabilities of chosen next tokens, all one-token continuations of
      a context are scored with one request.
    - If that is all that it returns, longer continuations are scored token by token.
    - Requests are ordered by their tokens, so that the server's prefix cache is used.
    """

    def __init__(self, windows: Sequence[Window], abilities: Abilities) -> None:
        """Plans the requests for `windows`, each of which has at least one token to score."""
        self.windows = windows
        self._abilities = abilities
        self._same: dict[tuple[Tokens, int], list[int]] = {}
        for number, window in enumerate(windows):
            self._same.setdefault((tuple(window.tokens), window.start), []).append(number)
        self._parts: dict[int, Parts] = {}
        self._whole: list[int] = []
        self._next: dict[Tokens, dict[int, list[tuple[int, int]]]] = {}
        for (tokens, start), numbers in sorted(self._same.items()):
            self._divide(numbers[0], tokens, start)

    def _divide(self, number: int, tokens: Tokens, start: int) -> None:
        """Notes how the window at `number` is asked for: as a whole, or token by token.

        `tokens` and `start` are those of the window.
        """
        length, abilities = len(tokens) - start, self._abilities
        if abilities.whole and not (abilities.next_tokens and length == 1):
            self._parts[number] = Parts(1)
            self._whole.append(number)
            return
        self._parts[number] = Parts(length)
        for place in range(length):
            wanted = self._next.setdefault(tokens[: start + place], {})
            wanted.setdefault(tokens[start + place], []).append((number, place))

    def jobs(self) -> Iterator[Job]:
        """Yields the requests to send."""
        if self._abilities.batch_size == 1:
            yield from self._single_jobs()
            return
        for some in groups(self._whole, self._abilities.batch_size):
            yield WholeJob(tuple(some))
        alike: dict[Tokens, list[Tokens]] = {}
        for context in sorted(self._next):
            for tokens in groups(sorted(self._next[context]), self._abilities.max_next_tokens):
                alike.setdefault(tuple(tokens), []).append(context)
        for candidates, contexts in alike.items():
            for part in groups(contexts, self._abilities.batch_size):
                yield NextJob(tuple(part), candidates)

    def _single_jobs(self) -> Iterator[Job]:
        """Yields requests with one prompt each, all in the order of their tokens."""
        whole = ((tuple(self.windows[n].tokens), WholeJob((n,))) for n in self._whole)
        following = (
            (context, NextJob((context,), tuple(tokens)))
            for context in sorted(self._next)
            for tokens in groups(sorted(self._next[context]), self._abilities.max_next_tokens)
        )
        jobs: Iterator[tuple[Tokens, Job]] = heapq.merge(whole, following, key=lambda item: item[0])
        return (job for _, job in jobs)

    def split(self, job: Job) -> Iterable[Job]:
        """Returns the same request as several, one per prompt."""
        if isinstance(job, WholeJob):
            return [WholeJob((number,)) for number in job.windows]
        return [NextJob((context,), job.tokens) for context in job.contexts]

    def is_single(self, job: Job) -> bool:
        """Returns whether a request has only one prompt."""
        return len(job.windows if isinstance(job, WholeJob) else job.contexts) == 1

    def add(self, job: Job, found: Any) -> list[tuple[int, Score | Failure]]:
        """Adds the result of a request; returns pairs (position, score) of finished windows.

        `found` is a list with one entry per prompt: for a `WholeJob` its score, for a `NextJob` a
        mapping of tokens to scores. Or it is a `Failure` of the whole request.
        """
        finished: list[tuple[int, Score | Failure]] = []
        if isinstance(job, WholeJob):
            scores = [found] * len(job.windows) if isinstance(found, Failure) else found
            for sent, score in zip(job.windows, scores, strict=True):
                finished += self._add_part(sent, 0, score)
            return finished
        results = [found] * len(job.contexts) if isinstance(found, Failure) else found
        for context, by_token in zip(job.contexts, results, strict=True):
            for token in job.tokens:
                score = by_token if isinstance(by_token, Failure) else _score(by_token, token)
                for number, place in self._next[context][token]:
                    finished += self._add_part(number, place, score)
        return finished

    def _add_part(
        self, number: int, place: int, score: Score | Failure
    ) -> list[tuple[int, Score | Failure]]:
        """Adds a part of the score of the window at `number`.

        If that completes it, returns pairs (position, score) of it and all equal windows, else [].
        """
        whole = self._parts[number].add(place, score)
        if whole is None:
            return []
        window = self.windows[number]
        return [(same, whole) for same in self._same[tuple(window.tokens), window.start]]


def _score(by_token: Mapping[int, Score], token: int) -> Score | Failure:
    """Returns the score of a token; a `Failure` if the server did not return it."""
    if token in by_token:
        return by_token[token]
    return Failure(f"the server returned no log-probability of the token {token}")
