"""The shape of what an evaluation returns, as its users know it."""

from __future__ import annotations

from typing import Any, TypedDict

#: One task's or group's row: `name`, `alias`, `sample_len`, and `metric,filter` pairs.
Row = dict[str, Any]

EvalResults = TypedDict(
    "EvalResults",
    {
        # what was scored
        "results": dict[str, Row],
        "groups": dict[str, Row],
        "group_subtasks": dict[str, list[str]],
        "configs": dict[str, dict[str, Any]],
        "versions": dict[str, Any],
        "n-shot": dict[str, Any],
        "higher_is_better": dict[str, dict[str, Any]],
        "n-samples": dict[str, dict[str, int]],
        # beside the rows: documents in which a filter pipeline found no answer, what documents
        # were clustered by, and intervals by `metric,filter`
        "extraction_failed": dict[str, dict[str, int]],
        "clusters": dict[str, dict[str, Any]],
        "confidence": float,
        "intervals": dict[str, dict[str, tuple[float, float]]],
        "samples": dict[str, list[dict[str, Any]]],
        "datasets": dict[str, dict[str, Any]],
        "hashes": dict[str, dict[str, str]],
        "timings": dict[str, float],
        "answers": dict[str, int],
        "usage": dict[str, int],
        "truncated_requests": dict[str, int],
        "failed_requests": dict[str, int],
        # how it was run, and all that is needed to run it again
        "settings": dict[str, Any],
        "directory": str,
        "model_identity": dict[str, Any],
        "scored_from": dict[str, Any],
        "config": dict[str, Any],
        "hardware": dict[str, Any],
        "libraries": dict[str, str],
        "git_hash": str | None,
        "date": float,
        "pretty_env_info": str,
        "transformers_version": str | None,
        "lm_eval_version": str,
        "upper_git_hash": str | None,
        "tokenizer_pad_token": list[str],
        "tokenizer_eos_token": list[str],
        "tokenizer_bos_token": list[str],
        "eot_token_id": int | None,
        "max_length": int | None,
        "task_hashes": dict[str, str],
        "model_source": str,
        "model_name": str,
        "model_name_sanitized": str,
        "system_instruction": str | None,
        "system_instruction_sha": str | None,
        "fewshot_as_multiturn": bool | None,
        "chat_template": str | None,
        "chat_template_sha": str | None,
        "total_evaluation_time_seconds": str,
    },
    total=False,
)
