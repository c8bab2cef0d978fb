"""Put every request to the model, and its answers back where they belong."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

from lm_eval.api.model import CacheHook
from lm_eval.engine.keys import note_digests, prompts_hash, request_keys
from lm_eval.engine.store import MISSING, AnswerStore
from lm_eval.errors import EvalError, ModelError, also_known_as

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM

logger = logging.getLogger(__name__)

#: Seconds until answers that a model reports one by one are written.
SOON = 0.05


def answer(
    lm: LM,
    requests: Sequence[Instance],
    store: AnswerStore | None = None,
    seed: object = None,
) -> None:
    """Ask all requests of one kind together, each as often as it has repeats.

    With a store, only what it lacks is asked, and every answer is in it the moment the model
    reports it; requests are known there by their digests. `seed` is what sampled answers belong to.
    Where several processes cooperate, each asks a share, and the first collects the answers.
    """
    by_kind: dict[str, list[Instance]] = defaultdict(list)
    for request in requests:
        by_kind[request.request_type].extend([request] * (request.repeats or 1))
    if store is not None:
        note_digests(request for request in requests if request.digest is None)
    for kind, asked in by_kind.items():
        keys = None if store is None else request_keys(asked, seed)
        if getattr(lm, "world_size", 1) > 1:
            answers = _ask_share(lm, kind, asked, store, keys)
        else:
            answers = _obtain(lm, kind, asked, store, keys)
        for request, given in zip(asked, answers, strict=True) if answers is not None else ():
            request.resps.append(given)


def _ask_share(
    lm: LM,
    kind: str,
    asked: list[Instance],
    store: AnswerStore | None,
    keys: list[bytes | None] | None,
) -> list[Any] | None:
    """Ask this process's share, a stretch of neighbours; the first process gets all answers."""
    _check_alike(lm, asked)
    bounds = [_between_requests(asked, rank, lm.world_size) for rank in range(lm.world_size + 1)]
    mine = slice(bounds[lm.rank], bounds[lm.rank + 1])
    failure: Exception | None = None
    answers: list[Any] = []
    try:
        answers = _obtain(lm, kind, asked[mine], store, keys and keys[mine])
    except Exception as error:  # the others wait for this share: they must hear of it
        failure = error
        logger.error("process %d: %s (The others finish their shares.)", lm.rank, error)
    gathered = lm.gather_object((answers, failure and str(failure)), dst=0)
    if failure is not None:
        raise failure
    if gathered is None:
        return None
    if len(gathered) != lm.world_size:
        raise ModelError(
            f"{type(lm).__name__} says that it runs in {lm.world_size} processes, but its "
            f"gather_object brought the answers of {len(gathered)}; it must bring them all."
        )
    for rank, (_, problem) in enumerate(gathered):
        if problem:
            raise ModelError(f"process {rank}: {problem}")
    return [given for share, _ in gathered for given in share]


def _between_requests(asked: Sequence[Instance], rank: int, processes: int) -> int:
    """Where a process's share begins: repeats of one request are not parted, as they are numbered
    by their order.
    """
    place = len(asked) * rank // processes
    while 0 < place < len(asked) and asked[place] is asked[place - 1]:
        place -= 1
    return place


def _check_alike(lm: LM, asked: Sequence[Instance]) -> None:
    """Refuse shares of different wholes: the answers would get to other requests' places."""
    note_digests(request for request in asked if request.digest is None)
    found = lm.gather_object((prompts_hash(asked), len(asked)), dst=0)
    if found is not None and len(set(found)) > 1:
        tasks = ", ".join(sorted({str(request.task_name) for request in asked}))
        raise ModelError(
            f"the processes have made different requests ({tasks}): something in a task differs "
            "from process to process, such as the order of a set or an unseeded draw. Sort it or "
            "seed it, start the processes with PYTHONHASHSEED=0, or run one."
        )


def _obtain(
    lm: LM,
    kind: str,
    asked: list[Instance],
    store: AnswerStore | None,
    keys: list[bytes | None] | None,
) -> list[Any]:
    """Answers from the store where it has them, the others from the model."""
    if store is None or keys is None:
        return _ask(lm, kind, asked) if asked else []
    if getattr(lm, "lockstep", False):  # all processes give the same: the first keeps it
        return _ask(lm, kind, asked) if lm.rank else _ask_and_keep(lm, kind, asked, store, keys)
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
    once = missing if len(first) == len(missing) else sorted(first.values())
    wanted = asked if len(once) == len(asked) else [asked[i] for i in once]
    given = _ask_and_keep(lm, kind, wanted, store, [keys[i] for i in once])
    if len(once) == len(asked):
        return given
    for i, value in zip(once, given, strict=True):
        answers[i] = value
    if len(once) < len(missing):
        for i in missing:
            key = keys[i]
            answers[i] = answers[i if key is None else first[key]]
    return answers


def _ask_and_keep(
    lm: LM, kind: str, asked: list[Instance], store: AnswerStore, keys: list[bytes | None]
) -> list[Any]:
    """Answers from the model, each in the store the moment it is reported."""
    keeper = _Keeper(kind, store, asked, keys)
    lm.set_cache_hook(CacheHook(keeper.keep, keeper.keep_batch))
    try:
        given = _ask(lm, kind, asked)
    finally:
        lm.set_cache_hook(CacheHook())
        keeper.flush()
    return keeper.finish(given)


class _Keeper:
    """Writes answers to the store as the model reports them.

    A model reports `(arguments, answer)`, perhaps in an order of its own; which repeat of a
    request it means is not said, and settled when it returns.
    """

    def __init__(
        self,
        kind: str,
        store: AnswerStore,
        asked: Sequence[Instance],
        keys: Sequence[bytes | None],
    ) -> None:
        self._kind, self._store, self._asked, self._keys = kind, store, asked, keys
        self._kept: dict[bytes, Any] = {}
        self._lock = threading.Lock()
        self._reported: list[tuple[Any, Any]] = []
        self._timer: threading.Timer | None = None
        self._failure: EvalError | None = None

    @cached_property
    def _waiting(self) -> dict[Any, list[bytes]]:
        """Keys by what a report will be recognised by; made when the first one comes."""
        waiting: dict[Any, list[bytes]] = {}
        for request, key in zip(reversed(self._asked), reversed(self._keys), strict=True):
            if key is not None:
                waiting.setdefault(_handle(request.args), []).append(key)
        return waiting

    def keep(self, kind: str, arguments: Any, given: Any) -> None:
        """Answers reported one by one come in bursts: they are written together, and soon."""
        if kind != self._kind:
            return
        if self._failure is not None:
            raise self._failure
        with self._lock:
            self._reported.append((arguments, given))
            if self._timer is None:
                self._timer = threading.Timer(SOON, self._flush_aside)
                self._timer.daemon = True
                self._timer.start()

    def _flush_aside(self) -> None:
        """What goes wrong beside the model's own thread is told there, at its next report."""
        try:
            self.flush()
        except EvalError as error:
            self._failure = error

    def flush(self) -> None:
        """Write what was reported one by one."""
        with self._lock:
            reported, self._reported = self._reported, []
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if reported:
                self._write(*zip(*reported, strict=True))

    def keep_batch(self, kind: str, arguments: Sequence[Any], given: Sequence[Any]) -> None:
        if kind == self._kind:
            with self._lock:
                self._write(arguments, given)

    def _write(self, arguments: Sequence[Any], given: Sequence[Any]) -> None:
        """Answers that belong to no waiting request are somebody else's business."""
        keys, answers = [], []
        for one, value in zip(arguments, given, strict=True):
            waiting = self._waiting.get(_handle(one)) if _SHAPES[self._kind](value) else None
            if waiting:
                keys.append(waiting.pop())
                answers.append(_plain(self._kind, value))
        self._store.add(self._kind, keys, answers)
        self._kept.update(zip(keys, answers, strict=True))

    def finish(self, given: Sequence[Any]) -> list[Any]:
        """Keep what the model did not report while it was at it, or returned otherwise: repeats
        may have been reported in another order. All answers as they are kept, so that scores are
        the same whether they come from the model or from the store.
        """
        plain = [_plain(self._kind, value) for value in given]
        keys: Sequence[Any] = self._keys
        left: Sequence[Any] = plain
        if self._kept or None in keys:
            kept = self._kept.get
            late = [
                i
                for i, (key, answer) in enumerate(zip(keys, plain, strict=True))
                if key is not None and kept(key, MISSING) != answer
            ]
            keys, left = [keys[i] for i in late], [plain[i] for i in late]
        self._store.add(self._kind, keys, left)
        return plain


def _handle(arguments: Any) -> Any:
    """What a model's report is recognised by: the texts, since it may rewrite the settings."""
    texts = arguments if isinstance(arguments, (tuple, list)) else (arguments,)
    return tuple(part for part in texts if isinstance(part, str))


def _plain(kind: str, given: Any) -> Any:
    """An answer in the types it will be read back in."""
    if kind != "loglikelihood":
        return given if isinstance(given, str) else float(given)
    value, greedy = given
    if type(given) is tuple and type(value) is float and type(greedy) is bool:
        return given
    return (float(value), bool(greedy))


def _ask(lm: LM, kind: str, asked: list[Instance]) -> list[Any]:
    model = f"{type(lm).__name__}.{kind}"
    try:
        given = getattr(lm, kind)(asked)
        if not isinstance(given, Iterable) or isinstance(given, (str, Mapping)):
            raise ModelError(f"{model} must return a list of answers, not {type(given).__name__}.")
        answers = [_as_python(answer) for answer in given]
    except EvalError:
        raise
    except Exception as error:
        told = ModelError(f"{model} failed: {type(error).__name__}: {error}")
        raise also_known_as(told, error) from error
    if len(answers) != len(asked):
        raise ModelError(
            f"{model} gave {len(answers)} answers to {len(asked)} requests; "
            "it must return one for each, in order."
        )
    if kind == "generate_until" and (lost := sum(answer is None for answer in answers)):
        logger.warning("%s gave no answer to %d requests; they count as empty.", model, lost)
        answers = ["" if answer is None else answer for answer in answers]
    shape = _SHAPES[kind]
    for request, answer in zip(asked, answers, strict=True):
        if not shape(answer):
            raise ModelError(
                f"{model} answered {answer!r} to a request of task {request.task_name!r}, document "
                f"{request.doc_id}; it must give {_EXPECTED[kind]}."
            )
    return answers


def _as_python(answer: Any) -> Any:
    """An answer with arrays and tensors as the numbers that they hold."""
    if type(answer) in _PLAIN:
        return answer
    if type(answer) is tuple and len(answer) == 2:
        value, greedy = answer
        plain = type(value) in _PLAIN and type(greedy) in _PLAIN
        return answer if plain else (_as_python(value), _as_python(greedy))
    if isinstance(answer, list) and len(answer) == 2:
        return _as_python(tuple(answer))
    size = getattr(answer, "ndim", None)
    if size == 0:
        return answer.item()
    return tuple(answer.tolist()) if size == 1 and len(answer) == 2 else answer


_PLAIN = (float, str, int, bool, type(None))
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
