"""Converts samples to the records of single documents of Every Eval Ever."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lm_eval.results.score_rows import ScoreRow


def result_id(row: ScoreRow) -> str:
    """Returns the id of a score, by which the records of documents refer to it."""
    return f"{row.name}/{row.metric}/{row.filter}"


def sample_records(
    samples: Sequence[Mapping[str, Any]],
    rows: Sequence[ScoreRow],
    model: str,
    evaluation: str,
    schema_version: str,
) -> Iterator[dict[str, Any]]:
    """Yields one record per document and score.

    Only scores between 0 and 1 have records: the schema calls each document correct or not, which
    is a score of 1.

    Args:
        samples: the samples of a task.
        rows: the scores of the task.
        model: the id of the model.
        evaluation: the id of the evaluation that the records belong to.
        schema_version: the version of the schema.
    """
    for sample in samples:
        for row in rows:
            score = sample.get(row.metric)
            if sample.get("filter", "none") != row.filter or not isinstance(score, (int, float)):
                continue
            if not 0 <= score <= 1:
                continue
            yield {
                "schema_version": schema_version,
                "evaluation_id": evaluation,
                "model_id": model,
                "evaluation_name": row.name if row.filter == "none" else f"{row.name}/{row.filter}",
                "evaluation_result_id": result_id(row),
                "sample_id": str(sample["doc_id"]),
                **_contents(sample, row),
                "evaluation": {"score": float(score), "is_correct": score == 1},
            }


def _contents(sample: Mapping[str, Any], row: ScoreRow) -> dict[str, Any]:
    """Returns input, output and the extracted answer of a document."""
    requests: Sequence[Sequence[Any]] = sample["arguments"]
    prompt = str(requests[0][0])
    continuations = [str(given[1]) for given in requests if len(given) > 1]
    generated = not continuations or isinstance(requests[0][-1], dict)
    choices = [] if generated else continuations
    reference = _reference(sample.get("target"), choices)
    given: dict[str, Any] = {"raw": prompt, "reference": reference}
    if choices:
        given["choices"] = choices
    return {
        "sample_hash": hashlib.sha256((prompt + "".join(reference)).encode()).hexdigest(),
        "interaction_type": "single_turn",
        "input": given,
        "output": {
            "raw": [str(answer) for answers in sample["resps"] for answer in _listed(answers)]
        },
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": extracted,
                "extraction_method": "log-likelihood" if choices else row.filter,
                "is_terminal": True,
            }
            for extracted in _extracted(sample, row, choices)
        ],
    }


def _reference(target: Any, choices: Sequence[str]) -> list[str]:
    """Returns the correct answers of a document; an index becomes the choice it points to."""
    found = []
    for one in _listed(target):
        number = int(one) if str(one).isdigit() and len(choices) > 1 else -1
        found.append(choices[number] if 0 <= number < len(choices) else str(one))
    return found


def _extracted(sample: Mapping[str, Any], row: ScoreRow, choices: Sequence[str]) -> list[str]:
    """Returns the answer that was scored, in a list; empty if it is not a text of the model.

    Of several choices, accuracy takes the most likely one; how other metrics choose is not part of
    a sample.
    """
    if not choices:
        return [str(answer) for answer in (sample.get("filtered_resps") or [])[:1]]
    return [choices[_best(sample)]] if len(choices) > 1 and row.metric == "acc" else []


def _listed(answers: Any) -> list[Any]:
    return answers if isinstance(answers, list) else [answers]


def _best(sample: Mapping[str, Any]) -> int:
    """Returns the index of the request with the highest log-likelihood; 0 if it is not known."""
    values = []
    for answer in sample.get("filtered_resps") or []:
        first = answer[0] if isinstance(answer, (list, tuple)) and answer else answer
        try:
            values.append(float(first))
        except (TypeError, ValueError):
            return 0
    return values.index(max(values)) if len(values) == len(sample["arguments"]) else 0
