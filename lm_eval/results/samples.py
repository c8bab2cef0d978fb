"""The sample log: for every document what was asked, what was answered, how it scored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lm_eval.api.task import Task
from lm_eval.results.serialise import handle_non_serializable, hash_string, sanitize_list
from lm_eval.scoring import Measurement, TaskScores

Sample = dict[str, Any]


def samples_of(scores: TaskScores) -> list[Sample]:
    """One entry a document and filter pipeline."""
    return [_sample(scores.task, measurement) for measurement in scores.measurements]


def _sample(task: Task, measured: Measurement) -> Sample:
    requests, pipeline = measured.requests, measured.pipeline
    doc = requests[0].doc
    target = task.doc_to_target(doc)
    document = json.dumps(doc, indent=2, default=handle_non_serializable, ensure_ascii=False)
    sample = {
        "doc_id": measured.doc_id,
        "doc": doc,
        "target": target,
        "arguments": [request.args for request in requests],
        "resps": [request.resps for request in requests],
        "filtered_resps": [request.filtered_resps[pipeline] for request in requests],
        "filter": pipeline,
        "metrics": list(measured.values),
        "doc_hash": hash_string(document),
        "prompt_hash": hash_string(str(requests[0].args[0])),
        "target_hash": hash_string(str(target)),
        **measured.values,
    }
    if any(request.thinking is not None for request in requests):
        sample["thinking"] = [request.thinking for request in requests]
    if task.extracting_pipelines():
        sample["extraction_failed"] = any(pipeline in r.extraction_failed for r in requests)
    return sample


def answers_of(task: Task, doc_ids: Sequence[int] | None = None) -> list[Sample]:
    """What a task asked and was answered, without scores: one entry a request."""
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
    """One hash for all documents, prompts and targets of a task, in order."""
    parts = (s["doc_hash"] + s["prompt_hash"] + s["target_hash"] for s in samples)
    return hash_string("".join(parts))


def sample_line(sample: Mapping[str, Any]) -> str:
    """A sample as a line of JSON; arguments by name and answers as text, so that every line of
    the file has the same columns and types.
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
