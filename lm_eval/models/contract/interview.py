"""Asks a model requests, always under the same conditions."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from lm_eval.api.instance import Failure, Instance, RequestType
from lm_eval.api.model import LM
from lm_eval.engine.in_process import InProcess
from lm_eval.errors import ModelError

SEED = 1234
Arguments = tuple[Any, ...]


class NotCheckedError(Exception):
    """Raised by a check that cannot be made; its text says why."""


class Interview:
    """Asks one model, and remembers what it cannot answer."""

    def __init__(self, lm: LM) -> None:
        self.lm = lm
        self.executor = InProcess(lm)
        self.requests = 0
        self._reasons: dict[str, str] = {}

    @property
    def is_stand_in(self) -> bool:
        """Whether the model only stands in for a real one (`LM.stand_in`)."""
        return bool(getattr(self.lm, "stand_in", False))

    def require(self, *kinds: RequestType) -> None:
        """Raises `NotCheckedError` if one of these request types is not answered.

        That is so if `give_up` was called for it, or the model says so (`cannot_measure`).
        """
        for kind in kinds:
            if reason := self._reasons.get(kind) or self.lm.cannot_measure(kind):
                raise NotCheckedError(reason)

    def require_real_model(self) -> None:
        """Raises `NotCheckedError` for a stand-in, whose answers need not be consistent."""
        if self.is_stand_in:
            raise NotCheckedError("the model is a stand-in for tests (stand_in = True)")

    def give_up(self, kind: RequestType, reason: str) -> None:
        """Remembers that requests of a type are not answered; `require` then raises `reason`."""
        self._reasons.setdefault(kind, reason)

    def make(self, kind: RequestType, arguments: Sequence[Arguments]) -> list[Instance]:
        """Returns one request of type `kind` per item of `arguments`, with a copy of it."""
        return [
            Instance(kind, {}, copy.deepcopy(args), number, ("check_model", number, 1))
            for number, args in enumerate(arguments)
        ]

    def ask(self, kind: RequestType, arguments: Sequence[Arguments]) -> list[Any]:
        """Returns the model's answers to requests with these arguments, in one call."""
        return self.ask_requests(kind, self.make(kind, arguments))

    def ask_requests(self, kind: RequestType, requests: Sequence[Instance]) -> list[Any]:
        """Returns the model's answers to requests of type `kind`, in their order, in one call.

        Seeds all random generators before. Raises `ModelError` if the model fails, or if an answer
        has a wrong type or is a `Failure`.
        """
        self.requests += len(requests)
        _seed_everything()
        answers = self.executor.execute(kind, requests, None)
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Failure):
                raise ModelError(f"the request {shown(request.args)} failed: {answer.reason}")
        return answers

    def ask_alone(self, kind: RequestType, arguments: Sequence[Arguments]) -> list[Any]:
        """Returns the model's answers to requests with these arguments, one call each."""
        return [self.ask(kind, [args])[0] for args in arguments]


def shown(value: Any) -> str:
    """Returns a value for a message, shortened in the middle if it is long."""
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:90]} … {text[-60:]}"


def _seed_everything() -> None:
    random.seed(SEED)
    np.random.seed(SEED)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(SEED)


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Restores the state of the global random generators at the end of the `with` block."""
    torch: Any = sys.modules.get("torch")
    states = random.getstate(), np.random.get_state()
    tensors = None if torch is None else torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        if tensors is not None:
            torch.set_rng_state(tensors)
