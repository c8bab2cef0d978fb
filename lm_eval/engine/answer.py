"""Finds the answer to every request: in the store, or by handing it to an executor."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lm_eval.api.instance import Failure
from lm_eval.engine.executor import Executor, Outcome
from lm_eval.engine.keys import note_digests, request_keys
from lm_eval.engine.repeats import repeated
from lm_eval.engine.store import MISSING, AnswerStore
from lm_eval.errors import ModelError

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

logger = logging.getLogger(__name__)

#: Of the failures of one kind of request, so many are named in the log.
NAMED_FAILURES = 5


@dataclass
class Answered:
    """What became of the requests: how many were asked, and how many failed, by task."""

    asked: int = 0
    """Requests that were not found in the store, in this process."""
    failed: Counter[str] = field(default_factory=Counter)


def answer(
    executor: Executor,
    requests: Sequence[Instance],
    store: AnswerStore | None = None,
    seed: object = None,
    on_stored: Callable[[Sequence[bytes]], None] | None = None,
    fresh: bool = False,
) -> Answered:
    """Appends to every request's `resps` one answer per repeat.

    All requests of one kind are handed over together. With a store, only those are asked whose
    answers it lacks (with `fresh`, all of them), and each answer is stored as soon as it is
    reported; `on_stored` is called with the keys. `seed` is part of the key of sampled answers. In
    a process that does not collect answers (`Executor.collects`), requests stay without.
    """
    by_kind: dict[str, list[Instance]] = defaultdict(list)
    for request in repeated(requests):
        by_kind[request.request_type].append(request)
    if store is not None:
        note_digests(request for request in requests if request.digest is None)
    answered = Answered()
    for kind, asked in by_kind.items():
        lookup = _Lookup(executor, kind, store, seed, on_stored, fresh)
        outcomes = executor.divide(asked, lookup.obtain)
        answered.asked += lookup.asked
        if outcomes is not None:
            answered.failed += _hand_out(asked, outcomes)
    return answered


class _Lookup:
    """Obtains outcomes of one kind: from the store where it has them, else from the executor."""

    def __init__(
        self,
        executor: Executor,
        kind: str,
        store: AnswerStore | None,
        seed: object,
        on_stored: Callable[[Sequence[bytes]], None] | None,
        fresh: bool,
    ) -> None:
        self._executor, self._kind, self._store, self._seed = executor, kind, store, seed
        self._on_stored, self._fresh = on_stored, fresh
        self.asked = 0
        """How many requests were handed to the executor."""

    def obtain(self, asked: Sequence[Instance]) -> list[Outcome]:
        store = self._store
        if store is None:
            return self._execute(asked, None)
        keys = request_keys(asked, self._seed)
        if self._fresh and (self._executor.collects or not self._executor.needs_every_request):
            store.forget(keys)
        if self._executor.needs_every_request:
            return self._execute(asked, _Keeper(self._kind, store, keys, self._on_stored))
        answers = store.find(keys)
        missing = [i for i, found in enumerate(answers) if found is MISSING]
        if len(missing) < len(asked):
            logger.info(
                "%s: %d of %d answers were there already (%s).",
                self._kind,
                len(asked) - len(missing),
                len(asked),
                store.path,
            )
        # Requests that are the same throughout are asked once.
        first = {key if (key := keys[i]) is not None else i: i for i in reversed(missing)}
        once = missing if len(first) == len(missing) else sorted(first.values())
        every = len(once) == len(asked)
        wanted = asked if every else [asked[i] for i in once]
        wanted_keys = keys if every else [keys[i] for i in once]
        outcomes = self._execute(wanted, _Keeper(self._kind, store, wanted_keys, self._on_stored))
        if every:
            return outcomes
        for i, outcome in zip(once, outcomes, strict=True):
            answers[i] = outcome
        if len(once) < len(missing):
            for i in missing:
                key = keys[i]
                answers[i] = answers[i if key is None else first[key]]
        return answers

    def _execute(self, wanted: Sequence[Instance], keeper: _Keeper | None) -> list[Outcome]:
        """Asks the executor, checks that it gave an outcome for each, and stores what it gave."""
        self.asked += len(wanted)
        outcomes = self._executor.execute(self._kind, wanted, keeper)
        if len(outcomes) != len(wanted):
            raise ModelError(
                f"{type(self._executor).__name__}.execute gave {len(outcomes)} outcomes for "
                f"{len(wanted)} requests; it must return one for each, in order."
            )
        if keeper is not None:
            keeper.settle(outcomes)
        return outcomes


class _Keeper:
    """Writes reported answers to the store, and the reasons of failures."""

    def __init__(
        self,
        kind: str,
        store: AnswerStore,
        keys: Sequence[bytes | None],
        on_stored: Callable[[Sequence[bytes]], None] | None,
    ) -> None:
        self._kind, self._store, self._keys, self._on_stored = kind, store, keys, on_stored
        self._kept: dict[int, Outcome] = {}

    def __call__(self, positions: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        inside = not positions or (min(positions) >= 0 and max(positions) < len(self._keys))
        if len(positions) != len(outcomes) or not inside:
            raise ModelError(
                f"an executor reported {len(outcomes)} outcomes for the positions {positions!r} of "
                f"{len(self._keys)} requests; it must report one outcome for each position."
            )
        keys: list[Any] = [self._keys[i] for i in positions]
        kept = outcomes
        failed = any(issubclass(kind, Failure) for kind in set(map(type, outcomes)))
        if failed or None in keys:
            pairs = [pair for pair in zip(keys, outcomes, strict=True) if pair[0] is not None]
            lost = {key: one.reason for key, one in pairs if isinstance(one, Failure)}
            self._store.add_failures(lost)
            pairs = [pair for pair in pairs if not isinstance(pair[1], Failure)]
            keys, kept = [key for key, _ in pairs], [outcome for _, outcome in pairs]
        self._store.add(self._kind, keys, kept)
        self._kept.update(zip(positions, outcomes, strict=True))
        if self._on_stored is not None and keys:
            self._on_stored(keys)

    def settle(self, outcomes: Sequence[Outcome]) -> None:
        """Stores the outcomes that were not reported, or reported differently."""
        late: Sequence[int] = range(len(outcomes))
        if self._kept:
            kept = self._kept.get
            late = [i for i, outcome in enumerate(outcomes) if kept(i, MISSING) != outcome]
        if late:
            self(late, [outcomes[i] for i in late])


def _hand_out(asked: Sequence[Instance], outcomes: Sequence[Outcome]) -> Counter[str]:
    """Appends each outcome to its request; returns the failures by task, logging the first few."""
    failed: Counter[str] = Counter()
    for request, outcome in zip(asked, outcomes, strict=True):
        if isinstance(outcome, Failure):
            failed[str(request.task_name)] += 1
            if failed.total() <= NAMED_FAILURES:
                logger.warning(
                    "task %s, document %s: no answer: %s",
                    request.task_name,
                    request.doc_id,
                    outcome.reason,
                )
        request.resps.append(outcome)
    return failed
