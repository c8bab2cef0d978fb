"""Exports scores as files for the folder `.eval_results` of a model on the Hugging Face Hub.

The format: https://huggingface.co/docs/hub/eval-results.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import yaml

from lm_eval.errors import ConfigError
from lm_eval.results.export.datasets import hub_dataset
from lm_eval.results.export.options import ExportOptions
from lm_eval.results.names import file_name
from lm_eval.results.score_rows import ScoreRow
from lm_eval.results.stored_results import StoredResults

logger = logging.getLogger(__name__)


def export(stored: StoredResults, options: ExportOptions) -> Iterator[tuple[str, str]]:
    """Yields one file per task whose data is on the Hub, with its first score.

    The Hub shows one value per benchmark, so `options.metrics` chooses another metric than the
    task's first. Tasks with other data are left out with a warning; raises `ConfigError` if no task
    remains.
    """
    found = False
    for task in stored.tasks:
        dataset = hub_dataset(stored.results, task)
        row = _main_score(stored, task, options)
        if dataset is None or row is None:
            why = (
                "its data is not on the Hugging Face Hub" if dataset is None else "it has no score"
            )
            logger.warning("task %s is left out: %s.", task, why)
            continue
        found = True
        entry = _entry(stored, row, dataset, options)
        text = yaml.safe_dump([entry], sort_keys=False, allow_unicode=True)
        yield f".eval_results/{file_name(task)}.yaml", text
    if not found:
        raise ConfigError(
            f"{stored.file}: no task can be exported: only tasks whose data is on the Hugging Face "
            "Hub, with the metrics that were chosen, have a place there."
        )


def _main_score(stored: StoredResults, task: str, options: ExportOptions) -> ScoreRow | None:
    """Returns the first score of a task, of the metrics that were chosen; None without one."""
    for row in stored.scores():
        if row.name == task and (options.metrics is None or row.metric in options.metrics):
            return row
    return None


def _entry(
    stored: StoredResults, row: ScoreRow, dataset: dict[str, str], options: ExportOptions
) -> dict[str, Any]:
    about: dict[str, str] = {"id": dataset["id"], "task_id": dataset.get("config", "default")}
    if "revision" in dataset:
        about["revision"] = dataset["revision"]
    entry: dict[str, Any] = {"dataset": about, "value": row.value}
    if date := stored.date:
        entry["date"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(date))
    if options.source_url is not None:
        entry["source"] = {"url": options.source_url, "name": "lm_eval results"}
    shots = "" if row.num_fewshot is None else f"{row.num_fewshot}-shot, "
    pipeline = "" if row.filter == "none" else f" ({row.filter})"
    version = stored.results.get("lm_eval_version")
    entry["notes"] = f"{shots}{row.metric}{pipeline}, task {row.name}, lm_eval {version}"
    return entry
