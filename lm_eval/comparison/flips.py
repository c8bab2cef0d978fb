"""Finds the documents on which two models differ, to look at them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lm_eval.comparison.answer_text import answer_text
from lm_eval.comparison.pairing import pair_documents
from lm_eval.comparison.rows import Comparison
from lm_eval.comparison.scored_runs import ScoredRun
from lm_eval.metrics.uncertainty import document_scores


@dataclass(frozen=True)
class Flip:
    """One document with different scores in two runs.

    Attributes:
        task: the name of the task.
        document: the number of the document in the evaluated split.
        metric: the metric, and the filter pipeline unless it is "none".
        first_label: the label of the first run.
        second_label: the label of the second run.
        first_score: the score of the first run.
        second_score: the score of the second run.
        prompt: the prompt that both were given (the end of it).
        first_answer: the answer of the first model, in words.
        second_answer: the answer of the second model.
    """

    task: str
    document: int
    metric: str
    first_label: str
    second_label: str
    first_score: float
    second_score: float
    prompt: str
    first_answer: str
    second_answer: str


_PROMPT_CHARACTERS = 600


def flipped_documents(comparison: Comparison, count: int) -> Iterator[Flip]:
    """Yields documents with different scores, in both directions.

    Only means have scores of documents. The runs must have been loaded with their requests.

    Args:
        comparison: the comparison.
        count: how many documents per task, metric and direction; the first ones.
    """
    runs = {run.label: run for run in comparison.runs}
    for row in comparison.rows:
        if not row.group:
            yield from _of_row(
                runs[row.first], runs[row.second], row.name, row.metric, row.filter, count
            )


def _of_row(
    first: ScoredRun, second: ScoredRun, name: str, metric: str, pipeline: str, count: int
) -> Iterator[Flip]:
    one, two = first.tasks[name], second.tasks[name]
    columns = []
    for scores in (one.scores[metric, pipeline], two.scores[metric, pipeline]):
        numbers = document_scores(scores.aggregation, scores.values)
        if numbers is None:
            return
        columns.append(dict(zip(scores.positions, numbers, strict=True)))
    shown = {True: 0, False: 0}
    for a, b in pair_documents(one, two).pairs:
        if a not in columns[0] or b not in columns[1] or columns[0][a] == columns[1][b]:
            continue
        direction = columns[0][a] > columns[1][b]
        shown[direction] += 1
        if shown[direction] <= count:
            yield Flip(
                name,
                one.documents[a],
                metric if pipeline == "none" else f"{metric} ({pipeline})",
                first.label,
                second.label,
                float(columns[0][a]),
                float(columns[1][b]),
                str(one.requests[a][0].args[0])[-_PROMPT_CHARACTERS:],
                answer_text(one.requests[a], pipeline, metric),
                answer_text(two.requests[b], pipeline, metric),
            )
