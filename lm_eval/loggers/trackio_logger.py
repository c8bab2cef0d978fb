"""Logs results and samples to Trackio, which stores them on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.errors import ConfigError
from lm_eval.loggers.tracker_formats import (
    contamination_of,
    flatten_rows,
    missing_package_error,
    prompt_and_answer,
)
from lm_eval.results.samples import without_samples

PROJECT = "lm-eval-harness"


class TrackioLogger:
    """Logs an evaluation to a new Trackio run.

    `init_args` are passed to `trackio.init`, except `step`, the step under which everything is
    logged. Raises `ConfigError` if Trackio is not installed or the run cannot be opened. Call
    `post_init`, `log_eval_result`, `log_eval_samples` and `finish` in this order.
    """

    def __init__(self, init_args: dict[str, Any] | None = None) -> None:
        try:
            import trackio
        except ImportError as error:
            raise missing_package_error("trackio", "trackio") from error
        self._trackio = trackio
        arguments = {"project": PROJECT, **(init_args or {})}
        self.step = arguments.pop("step", None)
        try:
            self.run = trackio.init(**arguments)
        except Exception as error:
            raise ConfigError(
                f"trackio_args: could not open a Trackio run with {arguments}: {error}. Correct "
                "the arguments, or remove the option."
            ) from error
        self.results: dict[str, Any] = {}

    def post_init(self, results: Mapping[str, Any]) -> None:
        """Sets the results, without their samples, that the following calls log."""
        self.results = without_samples(results)

    def log_eval_result(self) -> None:
        """Logs the configuration and every numeric value of the results; text is left out."""
        self._trackio.config.update(
            {
                "task_configs": self.results.get("configs", {}),
                "cli_configs": self.results.get("config", {}),
            }
        )
        numbers = {
            k: v for k, v in flatten_rows(self.results).items() if isinstance(v, (int, float))
        }
        if numbers:
            self._trackio.log(numbers, step=self.step)

    def log_eval_samples(self, samples: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Logs every sample as a trace of two chat messages, with its scores as metadata.

        `samples` are the samples by task.
        """
        for task, logged in samples.items():
            config = self.results.get("configs", {}).get(task, {})
            kind = config.get("output_type", "generate_until")
            for sample in logged:
                prompt, answer = prompt_and_answer(sample, kind)
                metadata = {
                    "task": task,
                    "doc_id": sample["doc_id"],
                    "target": sample["target"],
                    "filter": sample["filter"],
                    "output_type": kind,
                    **contamination_of(sample),
                    **{metric: sample[metric] for metric in sample["metrics"]},
                }
                turns = [
                    {"role": "user", "content": prompt},
                    {"role": "assistant", "content": answer},
                ]
                trace = self._trackio.Trace(messages=turns, metadata=metadata)
                self._trackio.log({f"{task}/sample": trace}, step=self.step)

    def finish(self) -> None:
        """Closes the run."""
        self._trackio.finish()
