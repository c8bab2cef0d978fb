"""Put every request to the model, and its answers back where they belong."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from lm_eval.api.model import CacheHook
from lm_eval.engine.keys import key_maker
from lm_eval.engine.store import MISSING, AnswerStore
from lm_eval.errors import EvalError, ModelError

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM

logger = logging.getLogger(__name__)


def answer(
    lm: LM,
    requests: Iterable[Instance],
    store: AnswerStore | None = None,
    seed: object = None,
) -> Iterator[str]:
    """Ask all requests of one kind together, each as often as it has repeats; name the kind done.

    With a store, only what it lacks is asked, and every answer is in it the moment the model
    reports it. `seed` is what sampled answers belong to.
    """
    by_kind: dict[str, list[Instance]] = defaultdict(list)
    for request in requests:
        by_kind[request.request_type].extend([request] * (request.repeats or 1))
    for kind, asked in by_kind.items():
        if store is None:
            answers = _ask(lm, kind, asked)
        else:
            answers = _ask_what_is_missing(lm, kind, asked, store, seed)
        for request, given in zip(asked, answers, strict=True):
            request.resps.append(given)
        yield kind


def _ask_what_is_missing(
    lm: LM, kind: str, asked: list[Instance], store: AnswerStore, seed: object
) -> list[Any]:
    keys = request_keys(kind, asked, seed)
    answers = store.find(keys)
    missing = [i for i, given in enumerate(answers) if given is MISSING]
    if len(missing) < len(asked):
        logger.info(
            "%s: %d of %d answers were there already (%s).",
            kind,
            len(asked) - len(missing),
            len(asked),
            store.path,
        )
    if not missing:
        return answers
    # Requests that are the same throughout are asked once.
    first = {key if (key := keys[i]) is not None else i: i for i in reversed(missing)}
    once = sorted(first.values())
    keeper = _Keeper(kind, store, [(asked[i].args, keys[i]) for i in once])
    lm.set_cache_hook(CacheHook(keeper.keep, keeper.keep_batch))
    try:
        given = _ask(lm, kind, [asked[i] for i in once])
    finally:
        lm.set_cache_hook(CacheHook())
    keeper.finish(given)
    of_key = {keys[i]: value for i, value in zip(once, given, strict=True)}
    unkeyed = dict(zip(once, given, strict=True))
    for i in missing:
        answers[i] = unkeyed[i] if keys[i] is None else of_key[keys[i]]
    return answers


def request_keys(kind: str, asked: Sequence[Instance], seed: object) -> list[bytes | None]:
    """A key for each request; a repeated one, which stands here several times, is numbered."""
    make = key_maker(kind, seed)
    keys: list[bytes | None] = []
    last, repeat = None, 0
    for request in asked:
        repeat = repeat + 1 if request is last else 0
        last = request
        keys.append(make(request.args, repeat))
    return keys


class _Keeper:
    """Writes answers to the store as the model reports them.

    A model reports `(arguments, answer)`, perhaps in an order of its own; which repeat of a
    request it means is not said and does not matter.
    """

    def __init__(
        self,
        kind: str,
        store: AnswerStore,
        asked: Sequence[tuple[tuple[Any, ...], bytes | None]],
    ) -> None:
        self._kind, self._store = kind, store
        self._keys = [key for _, key in asked]
        self._waiting: dict[Any, list[bytes]] = {}
        for arguments, key in reversed(asked):
            if key is not None:
                self._waiting.setdefault(_handle(arguments), []).append(key)
        self._kept: set[bytes] = set()

    def keep(self, kind: str, arguments: Any, given: Any) -> None:
        self.keep_batch(kind, [arguments], [given])

    def keep_batch(self, kind: str, arguments: Sequence[Any], given: Sequence[Any]) -> None:
        """Answers that belong to no waiting request are somebody else's business."""
        if kind != self._kind:
            return
        keys, answers = [], []
        for one, value in zip(arguments, given, strict=True):
            waiting = self._waiting.get(_handle(one)) if _SHAPES[kind](value) else None
            if waiting:
                keys.append(waiting.pop())
                answers.append(_plain(kind, value))
        self._store.add(kind, keys, answers)
        self._kept.update(keys)

    def finish(self, given: Sequence[Any]) -> None:
        """Keep what the model did not report while it was at it."""
        left = [
            (key, _plain(self._kind, value))
            for key, value in zip(self._keys, given, strict=True)
            if key is not None and key not in self._kept
        ]
        if left:
            keys, answers = zip(*left, strict=True)
            self._store.add(self._kind, keys, answers)


def _handle(arguments: Any) -> Any:
    """What a model's report is recognised by: the texts, since it may rewrite the settings."""
    texts = arguments if isinstance(arguments, (tuple, list)) else (arguments,)
    return tuple(part for part in texts if isinstance(part, str))


def _plain(kind: str, given: Any) -> Any:
    if kind != "loglikelihood":
        return given if isinstance(given, str) else float(given)
    return (float(given[0]), bool(given[1]))


def _ask(lm: LM, kind: str, asked: list[Instance]) -> list[Any]:
    model = f"{type(lm).__name__}.{kind}"
    try:
        answers = getattr(lm, kind)(asked)
    except EvalError:
        raise
    except Exception as error:
        raise ModelError(f"{model} failed: {type(error).__name__}: {error}") from error
    if not isinstance(answers, (list, tuple)):
        raise ModelError(f"{model} must return a list of answers, not {type(answers).__name__}.")
    if len(answers) != len(asked):
        raise ModelError(
            f"{model} gave {len(answers)} answers to {len(asked)} requests; "
            "it must return one for each, in order."
        )
    shape = _SHAPES[kind]
    for request, answer in zip(asked, answers, strict=True):
        if not shape(answer):
            raise ModelError(
                f"{model} answered {answer!r} to a request of task {request.task_name!r}, document "
                f"{request.doc_id}; it must give {_EXPECTED[kind]}."
            )
    return list(answers)


_EXPECTED = {
    "loglikelihood": "a log-probability and whether it was greedy",
    "loglikelihood_rolling": "a log-probability",
    "generate_until": "text",
}
_SHAPES: dict[str, Callable[[Any], bool]] = {
    "loglikelihood": lambda a: isinstance(a, (tuple, list)) and len(a) == 2 and _is_number(a[0]),
    "loglikelihood_rolling": lambda a: _is_number(a),
    "generate_until": lambda a: isinstance(a, str),
}


def _is_number(value: Any) -> bool:
    """A number that is one: not-a-number would be scored as if the model had said something."""
    return isinstance(value, Real) and value == value
