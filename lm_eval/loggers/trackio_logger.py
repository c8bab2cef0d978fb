"""Results and samples to Trackio, which keeps them on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.errors import ConfigError
from lm_eval.loggers.shapes import flat, missing, prompt_and_answer

PROJECT = "lm-eval-harness"


class TrackioLogger:
    """Opens a run with `init_args`; `step` among them is the step everything is logged under."""

    def __init__(self, init_args: dict[str, Any] | None = None) -> None:
        try:
            import trackio
        except ImportError as error:
            raise missing("trackio", "trackio") from error
        self._trackio = trackio
        arguments = {"project": PROJECT, **(init_args or {})}
        self.step = arguments.pop("step", None)
        try:
            self.run = trackio.init(**arguments)
        except Exception as error:
            raise ConfigError(
                f"trackio_args: no run could be opened with {arguments}: {error}"
            ) from error
        self.results: dict[str, Any] = {}

    def post_init(self, results: Mapping[str, Any]) -> None:
        """Take the results that the following calls are about."""
        self.results = {k: v for k, v in results.items() if k != "samples"}

    def log_eval_result(self) -> None:
        """Every score as a number."""
        self._trackio.config.update(
            {
                "task_configs": self.results.get("configs", {}),
                "cli_configs": self.results.get("config", {}),
            }
        )
        numbers = {k: v for k, v in flat(self.results).items() if isinstance(v, (int, float))}
        if numbers:
            self._trackio.log(numbers, step=self.step)

    def log_eval_samples(self, samples: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Every sample as a conversation of two turns, with its scores beside it."""
        for task, logged in samples.items():
            config = self.results.get("configs", {}).get(task, {})
            kind = config.get("output_type", "generate_until")
            for sample in logged:
                prompt, given = prompt_and_answer(sample, kind)
                about = {
                    "task": task,
                    "doc_id": sample["doc_id"],
                    "target": sample["target"],
                    "filter": sample["filter"],
                    "output_type": kind,
                    **{metric: sample[metric] for metric in sample["metrics"]},
                }
                turns = [
                    {"role": "user", "content": prompt},
                    {"role": "assistant", "content": given},
                ]
                trace = self._trackio.Trace(messages=turns, metadata=about)
                self._trackio.log({f"{task}/sample": trace}, step=self.step)

    def finish(self) -> None:
        self._trackio.finish()
