"""Exports results and samples exactly as the published harness lays them out."""

from __future__ import annotations

import json
from collections.abc import Iterator

from lm_eval.results.export.logged_samples import logged_samples
from lm_eval.results.export.options import ExportOptions
from lm_eval.results.names import file_name
from lm_eval.results.samples import sample_line
from lm_eval.results.stored_results import StoredResults

#: The fields of a results file of the published harness, version 0.4.13.
FIELDS = (
    *("results", "groups", "group_subtasks", "configs", "versions", "n-shot", "higher_is_better"),
    *("n-samples", "config", "git_hash", "date", "pretty_env_info", "transformers_version"),
    *("lm_eval_version", "upper_git_hash", "tokenizer_pad_token", "tokenizer_eos_token"),
    *("tokenizer_bos_token", "eot_token_id", "max_length", "task_hashes", "model_source"),
    *("model_name", "model_name_sanitized", "system_instruction", "system_instruction_sha"),
    *("fewshot_as_multiturn", "chat_template", "chat_template_sha"),
    *("total_evaluation_time_seconds",),
)


def export(stored: StoredResults, options: ExportOptions) -> Iterator[tuple[str, str]]:
    """Yields the results file and the sample logs, with the published fields alone.

    They are in a folder named after the model, as the published harness writes them.
    """
    content = {name: stored.results[name] for name in FIELDS if name in stored.results}  # type: ignore[literal-required]
    folder = file_name(str(stored.results.get("model_name_sanitized") or "model"))
    stamp = stored.file.stem.rpartition("_")[2]
    text = json.dumps(content, indent=2, ensure_ascii=False)
    yield f"{folder}/results_{stamp}.json", text + "\n"
    for task in stored.tasks:
        lines = "".join(f"{sample_line(sample)}\n" for sample in logged_samples(stored, task))
        if lines:
            yield f"{folder}/samples_{file_name(task)}_{stamp}.jsonl", lines
