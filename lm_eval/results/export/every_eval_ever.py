"""Exports results in the schema of Every Eval Ever, version 0.3.0: one record per task or group.

The schema: https://github.com/evaleval/every_eval_ever. Samples become records of single documents
in a file beside the record of their task.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from lm_eval.results.export.datasets import hub_dataset
from lm_eval.results.export.eee_samples import result_id, sample_records
from lm_eval.results.export.logged_samples import logged_samples
from lm_eval.results.export.options import ExportOptions
from lm_eval.results.names import file_name
from lm_eval.results.score_rows import ScoreRow
from lm_eval.results.stored_results import StoredResults

SCHEMA_VERSION = "0.3.0"

#: The lowest and highest value of metrics. The score type of others is left out.
_SHARES = {
    *("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match", "f1", "em", "pass@1"),
    *("brier_score", "rouge1", "rouge2", "rougeL", "prompt_level_strict_acc", "mc1", "mc2"),
}
_BOUNDS: dict[str, tuple[Any, Any]] = {
    "mcc": (-1, 1),
    "bleu": (0, 100),
    "chrf": (0, 100),
    "ter": (0, "Infinity"),
    "perplexity": (1, "Infinity"),
    "word_perplexity": (1, "Infinity"),
    "byte_perplexity": (1, "Infinity"),
    "bits_per_byte": (0, "Infinity"),
}

#: The inference engine of a `--model`.
_ENGINES = {
    "hf": "transformers",
    "hf-multimodal": "transformers",
    "vllm": "vllm",
    "vllm-vlm": "vllm",
    "sglang": "sglang",
    "gguf": "llama.cpp",
}


def export(stored: StoredResults, options: ExportOptions) -> Iterator[tuple[str, str]]:
    """Yields for each task and group its record, and for tasks with a sample log their documents.

    The paths are those of the shared collection: `data/<task>/<developer>/<model>/<uuid>.json`.
    """
    by_name: dict[str, list[ScoreRow]] = {}
    for row in stored.scores():
        chosen = options.metrics is None or row.metric in options.metrics
        if chosen and math.isfinite(row.value):  # JSON has no other numbers
            by_name.setdefault(row.name, []).append(row)
    for name, rows in by_name.items():
        model = _model_id(stored)
        evaluation = f"{name}/{model}/{int(stored.date or 0)}"
        developer, _, short = model.rpartition("/")
        identifier = uuid.UUID(bytes=hashlib.sha256(evaluation.encode()).digest()[:16], version=4)
        folder = f"data/{file_name(name)}/{file_name(developer or 'unknown')}/{file_name(short)}"
        record = _record(stored, name, rows, evaluation, options)
        lines = "".join(
            json.dumps(one, ensure_ascii=False) + "\n"
            for one in sample_records(
                logged_samples(stored, name), rows, model, evaluation, SCHEMA_VERSION
            )
        )
        if lines:
            file = f"{folder}/{identifier}_samples.jsonl"
            record["detailed_evaluation_results"] = {
                "format": "jsonl",
                "file_path": file,
                "hash_algorithm": "sha256",
                "checksum": hashlib.sha256(lines.encode()).hexdigest(),
                "total_rows": lines.count("\n"),
            }
            yield file, lines
        yield f"{folder}/{identifier}.json", json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def _model_id(stored: StoredResults) -> str:
    arguments = (stored.results.get("config") or {}).get("model_args")
    pretrained = arguments.get("pretrained") if isinstance(arguments, dict) else None
    return stored.model or str(pretrained or "unknown")


def _record(
    stored: StoredResults,
    name: str,
    rows: Sequence[ScoreRow],
    evaluation: str,
    options: ExportOptions,
) -> dict[str, Any]:
    results = stored.results
    record: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": evaluation,
        "retrieved_timestamp": str(int(time.time())),
        "source_metadata": {
            "source_name": "lm_eval",
            "source_type": "evaluation_run",
            "source_organization_name": options.organization,
            "evaluator_relationship": options.relationship,
        },
        "eval_library": {
            "name": "lm_eval",
            "version": str(results.get("lm_eval_version") or "unknown"),
        },
        "model_info": _model(stored),
        "evaluation_results": [_result(stored, row) for row in rows],
    }
    if date := stored.date:
        record["evaluation_timestamp"] = str(int(date))
    if options.source_url is not None:
        record["source_metadata"]["source_organization_url"] = options.source_url
    return record


def _model(stored: StoredResults) -> dict[str, Any]:
    config = stored.results.get("config") or {}
    name = _model_id(stored)
    details = {"deployment_type": "unknown", "model_availability": "unknown"}
    for key in ("model_dtype", "model_revision", "model_sha", "model_num_parameters"):
        if config.get(key) not in (None, ""):
            details[key] = str(config[key])
    model: dict[str, Any] = {"name": name, "id": name, "additional_details": details}
    if "/" in name:
        model["developer"] = name.rpartition("/")[0]
    if engine := _ENGINES.get(str(config.get("model"))):
        model["inference_engine"] = {"name": engine}
    return model


def _result(stored: StoredResults, row: ScoreRow) -> dict[str, Any]:
    result: dict[str, Any] = {
        "evaluation_result_id": result_id(row),
        "evaluation_name": row.name if row.filter == "none" else f"{row.name}/{row.filter}",
        "source_data": _source(stored, row),
        "metric_config": _metric(row),
        "score_details": {"score": row.value, "uncertainty": _uncertainty(stored, row)},
        "generation_config": _generation(stored, row),
    }
    if date := stored.date:
        result["evaluation_timestamp"] = str(int(date))
    return result


def _source(stored: StoredResults, row: ScoreRow) -> dict[str, Any]:
    dataset = hub_dataset(stored.results, row.name)
    if dataset is None:
        return {"dataset_name": row.name, "source_type": "other"}
    source: dict[str, Any] = {
        "dataset_name": row.name,
        "source_type": "hf_dataset",
        "hf_repo": dataset["id"],
    }
    if "split" in dataset:
        source["hf_split"] = dataset["split"]
    if row.documents is not None:
        source["samples_number"] = row.documents
    if details := {key: dataset[key] for key in ("config", "revision") if key in dataset}:
        source["additional_details"] = details
    return source


def _metric(row: ScoreRow) -> dict[str, Any]:
    pipeline = "" if row.filter == "none" else f" (filter: {row.filter})"
    metric: dict[str, Any] = {
        "evaluation_description": f"{row.metric}{pipeline}",
        "metric_id": row.metric,
        "metric_name": row.metric,
        "lower_is_better": row.higher_is_better is False,
    }
    bounds = (0, 1) if row.metric in _SHARES else _BOUNDS.get(row.metric)
    if bounds is not None:
        metric |= {"score_type": "continuous", "min_score": bounds[0], "max_score": bounds[1]}
    if bounds == (0, 1):
        metric["metric_unit"] = "proportion"
    return metric


def _uncertainty(stored: StoredResults, row: ScoreRow) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if row.stderr is not None and math.isfinite(row.stderr):
        found["standard_error"] = {"value": row.stderr}
    if row.low is not None and row.high is not None:
        interval = {"lower": row.low, "upper": row.high}
        found["confidence_interval"] = interval
        if (level := stored.results.get("confidence")) is not None:
            interval["confidence_level"] = level
    if row.documents is not None:
        found["num_samples"] = row.documents
    return found


#: Names of generation settings in the schema.
_GENERATION = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_gen_toks": "max_tokens",
}


def _generation(stored: StoredResults, row: ScoreRow) -> dict[str, Any]:
    config = (stored.results.get("configs") or {}).get(row.name)
    settings = config.get("generation_kwargs") if isinstance(config, dict) else None
    settings = settings if isinstance(settings, dict) else {}
    known = {new: settings[old] for old, new in _GENERATION.items() if old in settings}
    others = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in settings.items()
        if name not in _GENERATION
    }
    if row.num_fewshot is not None:
        others["num_fewshot"] = str(row.num_fewshot)
    if row.version is not None:
        others["task_version"] = str(row.version)
    return {"generation_args": known, "additional_details": others}
