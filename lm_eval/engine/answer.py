"""Put every request to the model, and its answers back where they belong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from numbers import Real
from typing import TYPE_CHECKING, Any

from lm_eval.errors import EvalError, ModelError

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM


def answer(lm: LM, requests: Iterable[Instance]) -> bool:
    """Ask all requests of one kind together, each as often as it has repeats.

    Where several processes cooperate, each asks a share and the first collects the answers; tells
    whether this process has them.
    """
    by_kind: dict[str, list[Instance]] = defaultdict(list)
    for request in requests:
        by_kind[request.request_type].extend([request] * (request.repeats or 1))
    for kind, asked in by_kind.items():
        answers = _ask_share(lm, kind, asked) if lm.world_size > 1 else _ask(lm, kind, asked)
        if answers is None:
            continue
        for request, given in zip(asked, answers, strict=True):
            request.resps.append(given)
    return lm.rank == 0


def _ask_share(lm: LM, kind: str, asked: list[Instance]) -> list[Any] | None:
    """Ask this process's share, a stretch of neighbours; the first process gets all answers."""
    bounds = [len(asked) * rank // lm.world_size for rank in range(lm.world_size + 1)]
    mine = asked[bounds[lm.rank] : bounds[lm.rank + 1]]
    failure: EvalError | None = None
    answers: list[Any] = []
    try:
        answers = _ask(lm, kind, mine) if mine else []
    except EvalError as error:  # the others wait for this share: they must hear of it
        failure = error
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
