"""`CachingLM`: a model that answers requests from a file where possible, as published."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from lm_eval.api.instance import Failure, Instance
from lm_eval.api.model import LM, CacheHook
from lm_eval.config.run import RunConfig
from lm_eval.engine.keys import is_sampled, set_digests
from lm_eval.engine.store import MISSING, AnswerStore
from lm_eval.models.identity import model_identity

logger = logging.getLogger(__name__)

_METHODS = ("loglikelihood", "loglikelihood_rolling", "generate_until")


class CachingLM:
    """Wraps a model: requests whose answers are in a file are not sent to it.

    The file is an answer store, the same as that of `simple_evaluate(use_cache=…)`. Answers are
    kept apart by the identity of the model, so several models can share a file. Requests that
    sample, and those that cannot be hashed (images), are always sent. All other attributes are
    those of the model.

    Example::

        lm = CachingLM(HFLM(pretrained="gpt2"), "answers.db")
        results = lm_eval.evaluate(lm, get_task_dict(["arc_easy"]))
    """

    def __init__(self, lm: LM, cache_db: str) -> None:
        """Opens the file, and creates it with its folder if it does not exist.

        Raises `StoreError` if the file is not an answer store.
        """
        self.lm = lm
        self.cache_db = cache_db
        self._store = AnswerStore(cache_db, model_identity(RunConfig(model=lm), lm))
        self._close = weakref.finalize(self, self._store.close)
        lm.set_cache_hook(self.get_cache_hook())

    def __getattr__(self, attr: str) -> Any:
        if attr in ("lm", "cache_db", "_store"):  # not set yet, for example while unpickling
            raise AttributeError(attr)
        if attr in _METHODS:
            return lambda requests, **options: self._answer(attr, requests, **options)
        return getattr(self.lm, attr)

    def _answer(self, kind: str, requests: Sequence[Any], **options: Any) -> list[Any]:
        """Returns one answer per request, stored or new; stores the new ones."""
        keys = _keys(kind, [request.args for request in requests])
        answers = self._store.find(keys)
        missing = [i for i, answer in enumerate(answers) if answer is MISSING]
        logger.info(
            "%s: %d of %d answers were found in %s.",
            kind,
            len(requests) - len(missing),
            len(requests),
            self.cache_db,
        )
        if not missing:
            return answers
        ask: Callable[..., Any] = getattr(self.lm, kind)
        new = list(ask([requests[i] for i in missing], **options))
        for i, answer in zip(missing, new, strict=True):
            answers[i] = answer
        self._keep(kind, [keys[i] for i in missing], new)
        return answers

    def _keep(self, kind: str, keys: Sequence[bytes | None], answers: Sequence[Any]) -> None:
        pairs = [
            (key, answer)
            for key, answer in zip(keys, answers, strict=True)
            if key is not None and not isinstance(answer, Failure)
        ]
        self._store.add(kind, [key for key, _ in pairs], [answer for _, answer in pairs])

    def get_cache_hook(self) -> CacheHook:
        """Returns the hook through which the model stores answers while it works."""
        return CacheHook(
            lambda kind, arguments, answer: self._report(kind, [arguments], [answer]),
            self._report,
        )

    def _report(self, kind: str, arguments: Sequence[Any], answers: Sequence[Any]) -> None:
        self._keep(kind, _keys(kind, arguments), answers)

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        """Makes the model report to `cache_hook` as well as to the file."""

        def report(kind: str, arguments: Sequence[Any], answers: Sequence[Any]) -> None:
            self._report(kind, arguments, answers)
            cache_hook.add_batch(kind, arguments, answers)

        self.lm.set_cache_hook(
            CacheHook(lambda kind, one, answer: report(kind, [one], [answer]), report)
        )

    def close(self) -> None:
        """Closes the file. It is also closed when the object is no longer used."""
        self._close()


def _keys(kind: str, arguments: Sequence[Any]) -> list[bytes | None]:
    """Returns the key of each request, given its arguments; None if it is not stored."""
    requests = [Instance(kind, {}, tuple(one), 0) for one in arguments]  # type: ignore[arg-type]
    set_digests(requests)
    return [
        None if any(is_sampled(part) for part in request.args[1:]) else request.digest
        for request in requests
    ]
