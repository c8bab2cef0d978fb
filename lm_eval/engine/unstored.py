"""Keeps the answers of a run without a store, so that they can be stored if the run fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lm_eval.api.instance import Failure
from lm_eval.engine.executor import Outcome
from lm_eval.engine.keys import request_keys, set_digests
from lm_eval.engine.store import AnswerStore

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance


class UnstoredAnswers:
    """The answers that the model has given so far, in memory.

    Only references to the answers are kept, in the batches in which the executor reports them.
    """

    def __init__(self) -> None:
        self._parts: list[UnstoredPart] = []

    def begin(self, kind: str, requests: Sequence[Instance]) -> UnstoredPart:
        """Returns the `Report` for requests of one type, whose answers are kept from now on."""
        part = UnstoredPart(kind, requests)
        self._parts.append(part)
        return part

    def __bool__(self) -> bool:
        return any(part.batches for part in self._parts)

    def store(self, store: AnswerStore, seed: object) -> int:
        """Writes the answers to a store, without failures; returns how many were written.

        `seed` is that of sampled answers. Answers to requests without a key (images) are left out.
        """
        written = 0
        for part in self._parts:
            set_digests(request for request in part.requests if request.digest is None)
            keys = request_keys(part.requests, seed)
            found = {
                key: outcome
                for positions, outcomes in part.batches
                for position, outcome in zip(positions, outcomes, strict=True)
                if (key := keys[position]) is not None and not isinstance(outcome, Failure)
            }
            store.add(part.kind, list(found), list(found.values()))
            written += len(found)
        return written


class UnstoredPart:
    """The `report` callback of an executor: keeps the outcomes of requests of one type."""

    def __init__(self, kind: str, requests: Sequence[Instance]) -> None:
        self.kind, self.requests = kind, requests
        self.batches: list[tuple[Sequence[int], Sequence[Outcome]]] = []
        """Positions in `requests` and the outcomes there, as they were reported."""

    def __call__(self, positions: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        """Keeps the outcomes of the requests at `positions`."""
        self.batches.append((positions, outcomes))

    def store_unreported(self, outcomes: Sequence[Outcome]) -> None:
        """Keeps the returned outcomes, one per request, in place of those that were reported."""
        self.batches = [(range(len(outcomes)), outcomes)]
