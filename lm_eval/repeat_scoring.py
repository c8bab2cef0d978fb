"""Scores each repeated answer to a document as if it were the only one, and reduces the scores."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.task import Task
from lm_eval.errors import EvalError
from lm_eval.metrics.repeat_metrics import vote_of


@dataclass(frozen=True)
class RepeatScores:
    """The scores of the repeated answers to one document under one filter pipeline.

    Attributes:
        reduced: the value of each metric of repeated answers, by name, such as `avg@8`.
        values: for each metric that scores an answer, by name, its value for each repeat.
    """

    reduced: dict[str, float]
    values: dict[str, list[Any]]


def score_repeats(task: Task, pipeline: str, requests: Sequence[Instance]) -> RepeatScores:
    """Returns the scores of a document's repeated answers; both parts are empty if none are asked.

    Raises `EvalError` if the task's own `process_results` does not return a metric, and
    `DataError` if a value cannot be reduced.

    Args:
        task: the task.
        pipeline: the name of the filter pipeline.
        requests: the requests of the document, with filtered answers.
    """
    wanted = task.repeat_metrics(pipeline)
    if not wanted:
        return RepeatScores({}, {})
    scored = [
        task.score_repeat(pipeline, requests[0].doc, answers)
        for answers in repeats_of(pipeline, requests)
    ]
    values = {base: [_value(base, one) for one in scored] for _, base in wanted}
    votes: Sequence[Hashable | None] = ()
    if any(metric.kind == "maj@" for metric, _ in wanted):
        votes = _votes(task, pipeline, requests)
    reduced = {metric.name: metric.reduce(values[base], votes) for metric, base in wanted}
    return RepeatScores(reduced, values)


def repeats_of(pipeline: str, requests: Sequence[Instance]) -> list[list[Any]]:
    """Returns for each repeat the filtered answers to all requests of a document."""
    columns = [request.filtered_repeats[pipeline] for request in requests]
    return [list(answers) for answers in zip(*columns, strict=True)]


def _value(metric: str, scored: dict[str, Any]) -> Any:
    """Returns the value of a metric for one answer.

    A metric function may return its value under another name, such as `pass@1`; if it returns a
    single one, that is the value. Raises `EvalError` if there is none.
    """
    if metric in scored:
        return scored[metric]
    if len(scored) == 1:
        return next(iter(scored.values()))
    raise EvalError(
        f"scoring an answer gave no value of {metric}, but only {', '.join(scored) or 'nothing'}. "
        "Name one of these: METRIC:avg@k."
    )


def _votes(task: Task, pipeline: str, requests: Sequence[Instance]) -> list[Hashable | None]:
    """Returns what each repeat votes for in `maj@k`; None if the filters found no answer in it.

    It is what the function `vote_on` of the task returns, or else the filtered answer.
    """
    vote_on = task.get_config("vote_on")
    votes: list[Hashable | None] = []
    failed = zip(*(request.repeats_not_found[pipeline] for request in requests), strict=True)
    for answers, missing in zip(repeats_of(pipeline, requests), failed, strict=True):
        if any(missing):
            votes.append(None)
            continue
        single = [vote_of(vote_on(one) if callable(vote_on) else one) for one in answers]
        votes.append(single[0] if len(single) == 1 else tuple(single))
    return votes
