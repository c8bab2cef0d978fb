"""Score the documents of a task made from a configuration, by the kind of output they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval.api.instance import Instance
from lm_eval.metrics import documents
from lm_eval.metrics.chosen import ChosenMetrics

if TYPE_CHECKING:
    from lm_eval.tasks.configurable import ConfigurableTask

Values = dict[str, Any]


def score_document(
    task: ConfigurableTask,
    metrics: ChosenMetrics,
    doc: Any,
    answers: Any,
    tokens: Sequence[int] | None = None,
) -> Values:
    """One document's values; `tokens` are the lengths of its choices, where they are known."""
    if task.OUTPUT_TYPE != "generate_until":
        answers = _first_repeats(answers)
    wanted = metrics.metrics
    values: Values
    items: Any
    if task.OUTPUT_TYPE == "loglikelihood":
        items = answers[0]
        values = documents.score_loglikelihood(items, wanted)
    elif task.OUTPUT_TYPE == "loglikelihood_rolling":
        text = task.doc_to_target(doc)
        loglikelihood, words, size = answers[0], task.count_words(text), task.count_bytes(text)
        items = (loglikelihood, words, size)
        values = documents.score_rolling(loglikelihood, words, size, wanted)
    elif task.OUTPUT_TYPE == "multiple_choice":
        choices, gold = choices_and_gold(task, doc)
        if documents.NOT_A_CHOICE in (gold if isinstance(gold, list) else [gold]):
            task.gold_missing += 1
        items = (gold, documents.predictions_of(answers, len(choices)))
        values = documents.score_multiple_choice(answers, choices, gold, wanted, tokens)
    else:
        return score_generation(task, metrics, doc, answers[0])
    return values | _own_functions(metrics, items)


def _keeps_repeats(answer: Any) -> bool:
    """Whether filters left a list of answers; a pair with its `is_greedy` may be a list too."""
    return isinstance(answer, list) and not isinstance(answer[-1], (bool, np.bool_))


def _first_repeats(answers: Any) -> list[Any]:
    """Likelihoods do not vary, so of repeats that the filters left the first is as good as any."""
    return [answer[0] if _keeps_repeats(answer) else answer for answer in answers]


def _own_functions(metrics: ChosenMetrics, items: Sequence[Any]) -> Values:
    """The values of functions that a task folder brings for answers that are no text.

    They are called with what the documents describe: gold and predicted label for multiple
    choice, and otherwise what the model gave.
    """
    values: Values = {}
    for metric in metrics.metrics.values():
        if metric.fn is not None:
            scored = metric.measure(items[0], items[1]) if len(items) == 2 else metric.fn(items)
            named = scored if isinstance(scored, dict) else {metric.name: scored}
            metrics.adopt(metric.name, named)
            values |= named
    return values


def choices_and_gold(task: ConfigurableTask, doc: Any) -> tuple[list[str], Any]:
    """A document's choices, and the index (or indices) of the right one."""
    choices = task.doc_to_choice(doc)
    gold = task.doc_to_text(doc) if task.multiple_input else task.doc_to_target(doc)
    return choices, documents.gold_index(gold, choices)


def score_choices(
    task: ConfigurableTask, metrics: ChosenMetrics, asked: Sequence[Sequence[Instance]], name: str
) -> documents.Columns:
    """All documents of a multiple-choice task at once, under the pipeline `name`."""
    docs = [requests[0].doc for requests in asked]
    choices = _every(task, "doc_to_choice", docs)
    stated = _every(task, "doc_to_text" if task.multiple_input else "doc_to_target", docs)
    golds = list(map(documents.gold_index, stated, choices))
    tokens = None
    if "acc_tokens" in metrics.metrics:
        counts = [[request.tokens for request in requests] for requests in asked]
        if all(count is not None for row in counts for count in row):
            tokens = counts
    answers = [[request.filtered_resps[name] for request in requests] for requests in asked]
    if _keeps_repeats(answers[0][0]):
        answers = list(map(_first_repeats, answers))
    columns = documents.score_choices(
        answers,
        choices,
        golds,
        metrics.metrics,
        tokens,  # type: ignore[arg-type]
    )
    task.gold_missing = sum(
        documents.NOT_A_CHOICE in gold if isinstance(gold, list) else gold == documents.NOT_A_CHOICE
        for gold in golds
    )
    return columns


def _every(task: ConfigurableTask, field: str, docs: Sequence[Any]) -> list[Any]:
    """A field of many documents; a column, the usual case, is read straight away."""
    column = task.get_config(field)
    if isinstance(column, str) and column in task.features and task.is_unchanged(field):
        return [doc[column] for doc in docs]
    return list(map(getattr(task, field), docs))


def score_generation(
    task: ConfigurableTask, metrics: ChosenMetrics, doc: Any, answer: Any
) -> Values:
    """The values of a generated text, each metric by its own function."""
    gold = task.doc_to_target(doc)
    if task.has_choices:
        gold = task.doc_to_choice(doc)[gold]
    elif task.multiple_target:
        gold = list(gold)
    elif type(gold) is not type(answer) and not (
        isinstance(answer, list) or "bypass" in metrics.metrics
    ):
        gold = type(answer)(gold)
    values: Values = {}
    for metric in metrics.metrics.values():
        measured = metric.measure(gold, answer, bool(task.multiple_target))
        metrics.adopt(metric.name, measured)
        values |= measured
    return values
