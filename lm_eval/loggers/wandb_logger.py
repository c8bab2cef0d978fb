"""Results and samples to Weights & Biases."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.errors import ConfigError
from lm_eval.loggers.shapes import TABLE, flat, missing, sample_table, table
from lm_eval.results.serialise import handle_non_serializable


class WandbLogger:
    """Joins the run that is open, or opens one with `init_args` (`project=…,mode=offline`).

    `step` among them is the step that everything is logged under.
    """

    def __init__(
        self, init_args: dict[str, Any] | None = None, config_args: dict[str, Any] | None = None
    ) -> None:
        try:
            import wandb
        except ImportError as error:
            raise missing("wandb", "wandb") from error
        self._wandb = wandb
        arguments = dict(init_args or {})
        self.step = arguments.pop("step", None)
        try:
            self.run = wandb.run or wandb.init(**arguments)
            if config_args:
                self.run.config.update(config_args)
        except Exception as error:
            raise ConfigError(
                f"wandb_args: no run could be opened with {arguments}: {error}"
            ) from error
        self.results: dict[str, Any] = {}

    def post_init(self, results: Mapping[str, Any]) -> None:
        """Take the results that the following calls are about."""
        self.results = {k: v for k, v in results.items() if k != "samples"}

    def log_eval_result(self) -> None:
        """Scores as numbers, as a table, and the whole as an artifact."""
        results = self.results
        self.run.config.update(
            {"task_configs": results.get("configs", {}), "cli_configs": results.get("config", {})},
            allow_val_change=self.step is not None,
        )
        values = flat(results)
        self.run.summary.update({k: v for k, v in values.items() if isinstance(v, str)})
        numbers = {k: v for k, v in values.items() if not isinstance(v, str)}
        self.run.log(numbers, step=self.step)
        for key, title, name in (
            ("results", "Tasks", "evaluation/eval_results"),
            ("groups", "Groups", "evaluation/group_eval_results"),
        ):
            if key in results:
                shown = self._wandb.Table(
                    columns=[title, *TABLE],
                    data=[["" if v is None else str(v) for v in r] for r in table(results, key)],
                )
                self.run.log({name: shown}, step=self.step)
        self._artifact("results", "eval_results", "results.json", results)

    def log_eval_samples(self, samples: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """A table and an artifact a task."""
        for task, logged in samples.items():
            columns = sample_table(logged, self.results.get("configs", {}).get(task, {}))
            rows = [list(row) for row in zip(*columns.values(), strict=True)]
            shown = self._wandb.Table(columns=list(columns), data=rows)
            self.run.log({f"{task}_eval_results": shown}, step=self.step)
            self._artifact(task, "samples_by_task", f"{task}_eval_samples.json", logged)

    def finish(self) -> None:
        self.run.finish()

    def _artifact(self, name: str, kind: str, file: str, content: Any) -> None:
        artifact = self._wandb.Artifact(name.replace("::", "."), type=kind)
        with artifact.new_file(file.replace("::", "."), mode="w", encoding="utf-8") as opened:
            json.dump(
                content, opened, indent=2, default=handle_non_serializable, ensure_ascii=False
            )
        self.run.log_artifact(artifact)
