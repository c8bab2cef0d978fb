"""Logs results and samples to Weights & Biases."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.errors import ConfigError
from lm_eval.loggers.tracker_formats import (
    SCORE_COLUMNS,
    flatten_rows,
    missing_package_error,
    sample_table,
    score_table,
)
from lm_eval.results.samples import without_samples
from lm_eval.results.serialize import handle_non_serializable


class WandbLogger:
    """Logs an evaluation to the open Weights & Biases run, or to a new one.

    `init_args` are passed to `wandb.init` if no run is open, except `step`, the step under which
    everything is logged. `config_args` are added to the configuration of the run. Raises
    `ConfigError` if wandb is not installed or the run cannot be opened. Call `post_init`,
    `log_eval_result`, `log_eval_samples` and `finish` in this order.
    """

    def __init__(
        self, init_args: dict[str, Any] | None = None, config_args: dict[str, Any] | None = None
    ) -> None:
        try:
            import wandb
        except ImportError as error:
            raise missing_package_error("wandb", "wandb") from error
        self._wandb = wandb
        arguments = dict(init_args or {})
        self.step = arguments.pop("step", None)
        try:
            self.run = wandb.run or wandb.init(**arguments)
            if config_args:
                self.run.config.update(config_args)
        except Exception as error:
            raise ConfigError(
                f"wandb_args: could not open a Weights & Biases run with {arguments}: {error}. "
                "Correct the arguments, or remove the option."
            ) from error
        self.results: dict[str, Any] = {}

    def post_init(self, results: Mapping[str, Any]) -> None:
        """Sets the results, without their samples, that the following calls log."""
        self.results = without_samples(results)

    def log_eval_result(self) -> None:
        """Logs the scores as numbers and as tables, and the whole results as an artifact."""
        results = self.results
        self.run.config.update(
            {"task_configs": results.get("configs", {}), "cli_configs": results.get("config", {})},
            allow_val_change=self.step is not None,
        )
        values = flatten_rows(results)
        self.run.summary.update({k: v for k, v in values.items() if isinstance(v, str)})
        numbers = {k: v for k, v in values.items() if not isinstance(v, str)}
        self.run.log(numbers, step=self.step)
        for key, title, name in (
            ("results", "Tasks", "evaluation/eval_results"),
            ("groups", "Groups", "evaluation/group_eval_results"),
            ("decontaminated", "Tasks", "evaluation/clean_eval_results"),
        ):
            if key in results:
                shown = self._wandb.Table(
                    columns=[title, *SCORE_COLUMNS],
                    data=[
                        ["" if v is None else str(v) for v in row]
                        for row in score_table(results, key)
                    ],
                )
                self.run.log({name: shown}, step=self.step)
        self._artifact("results", "eval_results", "results.json", results)

    def log_eval_samples(self, samples: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Logs one table and one artifact per task. `samples` are the samples by task."""
        for task, logged in samples.items():
            columns = sample_table(logged, self.results.get("configs", {}).get(task, {}))
            rows = [list(row) for row in zip(*columns.values(), strict=True)]
            shown = self._wandb.Table(columns=list(columns), data=rows)
            self.run.log({f"{task}_eval_results": shown}, step=self.step)
            self._artifact(task, "samples_by_task", f"{task}_eval_samples.json", logged)

    def finish(self) -> None:
        """Closes the run."""
        self.run.finish()

    def _artifact(self, name: str, kind: str, file: str, content: Any) -> None:
        """Logs `content` as the JSON file `file` of the artifact `name` of type `kind`.

        `::` in names is replaced by a dot.
        """
        artifact = self._wandb.Artifact(name.replace("::", "."), type=kind)
        with artifact.new_file(file.replace("::", "."), mode="w", encoding="utf-8") as opened:
            json.dump(
                content, opened, indent=2, default=handle_non_serializable, ensure_ascii=False
            )
        self.run.log_artifact(artifact)
