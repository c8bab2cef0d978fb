"""Finds the answer to every request: in the store, or by handing it to an executor."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lm_eval.api.instance import Failure
from lm_eval.engine.executor import Executor, Outcome
from lm_eval.engine.keys import note_digests, request_keys
from lm_eval.engine.repeats import repeated
from lm_eval.engine.store import MISSING, AnswerStore

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

logger = logging.getLogger(__name__)

#: Of the failures of one kind of request, so many are named in the log.
NAMED_FAILURES = 5


def answer(
    executor: Executor,
    requests: Sequence[Instance],
    store: AnswerStore | None = None,
    seed: object = None,
    on_stored: Callable[[Sequence[bytes]], None] | None = None,
) -> Counter[str]:
    """Appends to every request's `resps` one answer per repeat; returns failed requests by task.

    All requests of one kind are handed over together. With a store, only those are asked whose
    answers it lacks, and each answer is stored as soon as it is reported; `on_stored` is called
    with the keys. `seed` is part of the key of sampled answers. In a process that does not collect
    answers (`Executor.collects`), requests stay without.
    """
    by_kind: dict[str, list[Instance]] = defaultdict(list)
    for request in repeated(requests):
        by_kind[request.request_type].append(request)
    if store is not None:
        note_digests(request for request in requests if request.digest is None)
    failed: Counter[str] = Counter()
    for kind, asked in by_kind.items():
        obtain = partial(_obtain, executor, kind, store, seed, on_stored)
        outcomes = executor.divide(asked, obtain)
        if outcomes is not None:
            failed += _hand_out(asked, outcomes)
    return failed


def _obtain(
    executor: Executor,
    kind: str,
    store: AnswerStore | None,
    seed: object,
    on_stored: Callable[[Sequence[bytes]], None] | None,
    asked: Sequence[Instance],
) -> list[Outcome]:
    """Returns outcomes from the store where it has them, the others from the executor."""
    if store is None:
        return executor.execute(kind, asked, None)
    keys = request_keys(asked, seed)
    if executor.needs_every_request:
        return executor.execute(kind, asked, _Keeper(kind, store, keys, on_stored))
    answers = store.find(keys)
    missing = [i for i, found in enumerate(answers) if found is MISSING]
    if len(missing) < len(asked):
        logger.info(
            "%s: %d of %d answers were there already (%s).",
            kind,
            len(asked) - len(missing),
            len(asked),
            store.path,
        )
    # Requests that are the same throughout are asked once.
    first = {key if (key := keys[i]) is not None else i: i for i in reversed(missing)}
    once = missing if len(first) == len(missing) else sorted(first.values())
    every = len(once) == len(asked)
    wanted = asked if every else [asked[i] for i in once]
    keeper = _Keeper(kind, store, keys if every else [keys[i] for i in once], on_stored)
    outcomes = executor.execute(kind, wanted, keeper)
    if every:
        return outcomes
    for i, outcome in zip(once, outcomes, strict=True):
        answers[i] = outcome
    if len(once) < len(missing):
        for i in missing:
            key = keys[i]
            answers[i] = answers[i if key is None else first[key]]
    return answers


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

    def __call__(self, positions: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        keys: list[Any] = [self._keys[i] for i in positions]
        failed = any(isinstance(outcome, Failure) for outcome in outcomes)
        if failed or None in keys:
            pairs = [pair for pair in zip(keys, outcomes, strict=True) if pair[0] is not None]
            lost = {key: one.reason for key, one in pairs if isinstance(one, Failure)}
            self._store.add_failures(lost)
            kept = [pair for pair in pairs if not isinstance(pair[1], Failure)]
            keys, outcomes = [key for key, _ in kept], [outcome for _, outcome in kept]
        self._store.add(self._kind, keys, outcomes)
        if self._on_stored is not None and keys:
            self._on_stored(keys)


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
