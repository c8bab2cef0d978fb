"""Obtains the answer to every request: from the store, or from the model through an executor."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lm_eval.api.instance import Failure
from lm_eval.engine.executor import Executor, Outcome
from lm_eval.engine.failures import FailureLimit, LimitedReport
from lm_eval.engine.keys import request_keys, set_digests
from lm_eval.engine.repeats import repeated
from lm_eval.engine.store import MISSING, AnswerStore
from lm_eval.engine.unstored import UnstoredAnswers, UnstoredPart
from lm_eval.errors import ModelError

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

logger = logging.getLogger(__name__)

#: Maximum number of documents with failed requests that are logged one by one, per request type.
MAX_LOGGED_FAILURES = 5


@dataclass
class Answered:
    """Counts of the requests that `answer` processed."""

    sent: int = 0
    """Number of requests that this process passed to the executor, repeats included. Requests whose
    stored answers were used do not count. With a store, equal requests count once, unless the
    executor needs every request."""
    failed: Counter[str] = field(default_factory=Counter)
    """Number of requests without an answer (`Failure`), by task name."""


def answer(
    executor: Executor,
    requests: Sequence[Instance],
    store: AnswerStore | None = None,
    seed: object = None,
    on_stored: Callable[[Sequence[bytes]], None] | None = None,
    fresh: bool = False,
    max_failed: float | None = None,
    unstored: UnstoredAnswers | None = None,
) -> Answered:
    """Appends the model's answers to every request's `resps`, one per repeat; returns counts.

    A request that the model could not answer gets a `Failure` instead. In a process that does not
    collect answers (`Executor.collects` is False) nothing is appended. Raises `ModelError` if the
    executor returns a wrong number of outcomes.

    Args:
        executor: runs the model. It gets all requests of one type (`request_type`) in one call.
        requests: the requests of all tasks, in any mix of types.
        store: where answers are looked up and stored. Requests whose answers are in the store are
            not sent to the model, unless `executor.needs_every_request`; new answers are stored as
            soon as the executor reports them. None sends every request.
        seed: the seed of sampled answers. It is part of their keys in the store.
        on_stored: called with the keys of answers that have just been stored.
        fresh: if True, stored answers to these requests are discarded first.
        max_failed: how many requests may fail, or which share of them (below 1), before
            `ModelError` is raised; None for any number.
        unstored: keeps the answers if there is no store; None if nothing is done with them.
    """
    limit = FailureLimit(max_failed, len(repeated(requests)))
    by_kind: dict[str, list[Instance]] = defaultdict(list)
    for request in repeated(requests):
        by_kind[request.request_type].append(request)
    if store is not None:
        set_digests(request for request in requests if request.digest is None)
    answered = Answered()
    for kind, of_kind in by_kind.items():
        lookup = _Lookup(executor, kind, store, seed, on_stored, fresh, limit, unstored)
        outcomes = executor.divide(of_kind, lookup.obtain)
        answered.sent += lookup.sent
        if outcomes is not None:
            answered.failed += _append_outcomes(of_kind, outcomes)
    return answered


class _Lookup:
    """Obtains the outcomes of requests of one type: from the store, or else from the executor.

    `kind` is the request type.
    """

    def __init__(
        self,
        executor: Executor,
        kind: str,
        store: AnswerStore | None,
        seed: object,
        on_stored: Callable[[Sequence[bytes]], None] | None,
        fresh: bool,
        limit: FailureLimit,
        unstored: UnstoredAnswers | None,
    ) -> None:
        self._executor, self._kind, self._store, self._seed = executor, kind, store, seed
        self._on_stored, self._fresh, self._limit = on_stored, fresh, limit
        self._unstored = unstored
        self.sent = 0
        """Number of requests that were passed to the executor."""

    def obtain(self, requests: Sequence[Instance]) -> list[Outcome]:
        """Returns one outcome per request, in order: the stored answer, or else the executor's.

        Of several requests with the same key and no stored answer, only the first is executed. All
        requests are executed if there is no store or the executor needs every request.
        """
        store = self._store
        if store is None:
            kept = None if self._unstored is None else self._unstored.begin(self._kind, requests)
            return self._execute(requests, kept)
        keys = request_keys(requests, self._seed)
        if self._fresh and (self._executor.collects or not self._executor.needs_every_request):
            store.forget(keys)
        if self._executor.needs_every_request:
            return self._execute(requests, _StoreWriter(self._kind, store, keys, self._on_stored))
        answers = store.find(keys)
        missing = [i for i, found in enumerate(answers) if found is MISSING]
        if len(missing) < len(requests):
            logger.info(
                "%s: %d of %d answers were found in the store %s.",
                self._kind,
                len(requests) - len(missing),
                len(requests),
                store.path,
            )
        # Requests with equal keys have equal answers. A request without a key is its own group.
        first = {key if (key := keys[i]) is not None else i: i for i in reversed(missing)}
        unique = missing if len(first) == len(missing) else sorted(first.values())
        every = len(unique) == len(requests)
        _set_open_repeats(requests, None if every else set(unique))
        to_send = requests if every else [requests[i] for i in unique]
        sent_keys = keys if every else [keys[i] for i in unique]
        outcomes = self._execute(
            to_send, _StoreWriter(self._kind, store, sent_keys, self._on_stored)
        )
        if every:
            return outcomes
        for i, outcome in zip(unique, outcomes, strict=True):
            answers[i] = outcome
        if len(unique) < len(missing):
            for i in missing:
                key = keys[i]
                answers[i] = answers[i if key is None else first[key]]
        return answers

    def _execute(
        self, to_send: Sequence[Instance], writer: _StoreWriter | UnstoredPart | None
    ) -> list[Outcome]:
        """Returns the executor's outcomes, one per request, after storing them with `writer`.

        Raises `ModelError` if the number of outcomes is wrong. With `writer=None` nothing is
        stored.
        """
        self.sent += len(to_send)
        report = LimitedReport(self._limit, to_send, writer)
        outcomes = self._executor.execute(self._kind, to_send, report)
        if len(outcomes) != len(to_send):
            raise ModelError(
                f"{type(self._executor).__name__}.execute returned {len(outcomes)} outcomes for "
                f"{len(to_send)} requests; it must return one outcome per request, in order."
            )
        if writer is not None:
            writer.store_unreported(outcomes)
        report.count(range(len(outcomes)), outcomes)
        return outcomes


def _set_open_repeats(requests: Sequence[Instance], sent: set[int] | None) -> None:
    """Tells each request with repeats which of them the model is asked for.

    `sent` are the positions of the requests that are sent to the model; None if all are. Each
    repeat is sampled with random numbers of its own, which depend on its number.
    """
    last: Instance | None = None
    numbers: list[int] = []
    repeat = 0
    for position, request in enumerate(requests):
        if request is not last:
            last, numbers, repeat = request, [], 0
        if sent is not None and position in sent:
            numbers.append(repeat)
        repeat += 1
        if repeat == (request.repeats or 1) and repeat > 1:
            request.set_open_repeats(None if sent is None else tuple(numbers))


class _StoreWriter:
    """The `report` callback of an executor: stores answers, and the reasons of failures.

    `kind` is the request type. `keys` holds the store key of each request, by position; an outcome
    whose key is None is not stored.
    """

    def __init__(
        self,
        kind: str,
        store: AnswerStore,
        keys: Sequence[bytes | None],
        on_stored: Callable[[Sequence[bytes]], None] | None,
    ) -> None:
        self._kind, self._store, self._keys, self._on_stored = kind, store, keys, on_stored
        self._reported: dict[int, Outcome] = {}

    def __call__(self, positions: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        """Stores the answers of the requests at `positions` (counted from 0), or why they failed.

        Then calls `on_stored` with the keys of the answers. Raises `ModelError` if there are not as
        many outcomes as positions, or if a position does not exist.
        """
        inside = not positions or (min(positions) >= 0 and max(positions) < len(self._keys))
        if len(positions) != len(outcomes) or not inside:
            raise ModelError(
                f"an executor reported {len(outcomes)} outcomes for the positions {positions!r} of "
                f"{len(self._keys)} requests; it must report one outcome per position, "
                "and positions are counted from 0."
            )
        keys: list[Any] = [self._keys[i] for i in positions]
        answers = outcomes
        failed = any(issubclass(kind, Failure) for kind in set(map(type, outcomes)))
        if failed or None in keys:
            pairs = [pair for pair in zip(keys, outcomes, strict=True) if pair[0] is not None]
            reasons = {key: one.reason for key, one in pairs if isinstance(one, Failure)}
            self._store.add_failures(reasons)
            pairs = [pair for pair in pairs if not isinstance(pair[1], Failure)]
            keys, answers = [key for key, _ in pairs], [outcome for _, outcome in pairs]
        self._store.add(self._kind, keys, answers)
        self._reported.update(zip(positions, outcomes, strict=True))
        if self._on_stored is not None and keys:
            self._on_stored(keys)

    def store_unreported(self, outcomes: Sequence[Outcome]) -> None:
        """Stores those of the returned `outcomes` that were not reported, or reported differently.

        `outcomes` has one entry per request.
        """
        late: Sequence[int] = range(len(outcomes))
        if self._reported:
            reported = self._reported.get
            late = [i for i, outcome in enumerate(outcomes) if reported(i, MISSING) != outcome]
        if late:
            self(late, [outcomes[i] for i in late])


def _append_outcomes(requests: Sequence[Instance], outcomes: Sequence[Outcome]) -> Counter[str]:
    """Appends each outcome to its request's `resps`; returns the number of failures by task.

    The first failure of each of the first `MAX_LOGGED_FAILURES` documents is logged as a warning.
    """
    failed: Counter[str] = Counter()
    logged: set[tuple[object, object]] = set()
    for request, outcome in zip(requests, outcomes, strict=True):
        if isinstance(outcome, Failure):
            failed[str(request.task_name)] += 1
            document = (request.task_name, request.doc_id)
            if document not in logged and len(logged) < MAX_LOGGED_FAILURES:
                logged.add(document)
                logger.warning(
                    "task %s, document %s: the model gave no answer (%s). The document is left "
                    "out of the scores. Run the same command again to retry it.",
                    request.task_name,
                    request.doc_id,
                    outcome.reason,
                )
        request.add_answer(outcome)
    return failed
