"""Builds samples: for each document its requests, the model's answers, and the scores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.task import Task
from lm_eval.results.serialize import handle_non_serializable, hash_string, sanitize_list
from lm_eval.scoring import Measurement, TaskScores

Sample = dict[str, Any]


def without_samples(results: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a shallow copy of `results` without `samples`, which are stored in separate files."""
    return {key: value for key, value in results.items() if key != "samples"}


def samples_of(scores: TaskScores) -> list[Sample]:
    """Returns the samples of a scored task, one per document and filter pipeline."""
    return [_sample(scores.task, measurement) for measurement in scores.measurements]


def _sample(task: Task, measured: Measurement) -> Sample:
    """Returns the sample of one document and filter pipeline: requests, answers, scores, hashes."""
    requests, pipeline = measured.requests, measured.pipeline
    doc = requests[0].doc
    target = task.doc_to_target(doc)
    sample = {
        "doc_id": measured.doc_id,
        "doc": doc,
        "target": target,
        "arguments": [request.args for request in requests],
        "resps": [request.resps for request in requests],
        "filtered_resps": [request.filtered(pipeline) for request in requests],
        "filter": pipeline,
        "metrics": list(measured.values),
        "doc_hash": document_hash(doc),
        "prompt_hash": hash_string(str(requests[0].args[0])),
        "target_hash": hash_string(str(target)),
        **measured.values,
    }
    if any(request.reasoning is not None for request in requests):
        sample["thinking"] = [request.reasoning for request in requests]
    sample |= _details(requests)
    if measured.repeat_values:
        sample["filtered_repeats"] = [request.filtered_repeats[pipeline] for request in requests]
        sample["repeat_scores"] = measured.repeat_values
    if task.extracting_pipelines():
        sample["extraction_failed"] = any(pipeline in r.extraction_failed for r in requests)
    if measured.programs is not None:
        sample["program_results"] = list(measured.programs)
    return sample


def _details(requests: Sequence[Instance]) -> dict[str, list[list[Any]]]:
    """Returns what the model reported about its answers, for each request and repeat.

    These are the number of tokens, those of the thought, and why the answer ended; None for an
    answer of which it is not known. What is known of no answer is left out.
    """
    names = {
        "answer_tokens": "tokens",
        "thinking_tokens": "reasoning_tokens",
        "finish_reasons": "finish_reason",
    }
    found = {
        field: [[getattr(answer, name, None) for answer in r.resps] for r in requests]
        for field, name in names.items()
    }
    return {
        field: rows
        for field, rows in found.items()
        if any(value is not None for row in rows for value in row)
    }


def document_hash(doc: Any) -> str:
    """Returns the SHA-256 hash of a document, the `doc_hash` of its samples."""
    text = json.dumps(doc, indent=2, default=handle_non_serializable, ensure_ascii=False)
    return hash_string(text)


def requests_with_answers(task: Task, doc_ids: Sequence[int] | None = None) -> list[Sample]:
    """Returns the requests of a task with the model's answers, without scores, one entry each.

    An entry has the keys `doc_id`, `doc`, `arguments` and `resps`. `doc_ids` maps a document's
    position in the run to its number in the dataset, if only some documents were chosen; with None,
    `doc_id` is the position.
    """
    return [
        {
            "doc_id": doc_ids[request.doc_id or 0] if doc_ids else request.doc_id,
            "doc": request.doc,
            "arguments": request.args,
            "resps": request.resps,
        }
        for request in task.instances
    ]


def task_hash(samples: Iterable[Mapping[str, Any]]) -> str:
    """Returns one SHA-256 hash over the documents, prompts and targets of all samples, in order."""
    parts = (s["doc_hash"] + s["prompt_hash"] + s["target_hash"] for s in samples)
    return hash_string("".join(parts))


def sample_line(sample: Mapping[str, Any]) -> str:
    """Returns a sample as one line of a `jsonl` sample log, without the newline.

    Arguments get names (`gen_args_0`, `arg_0`), and answers and target become strings, so that all
    lines of the file have the same columns and types.
    """
    arguments = {
        f"gen_args_{i}": {f"arg_{j}": value for j, value in enumerate(values)}
        for i, values in enumerate(sample["arguments"])
    }
    plain = {
        **sample,
        "arguments": arguments,
        "resps": sanitize_list(sample["resps"]),
        "filtered_resps": sanitize_list(sample["filtered_resps"]),
        "target": str(sample["target"]),
    }
    return json.dumps(plain, default=handle_non_serializable, ensure_ascii=False)
