"""The trackers a run names: opened before anything is asked, logged to when all is written."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval.errors import ConfigError
from lm_eval.launch import launched_rank
from lm_eval.results.provenance import model_name
from lm_eval.runs.observer import RunObserver

if TYPE_CHECKING:
    from lm_eval.config.run import RunConfig
    from lm_eval.results.schema import EvalResults

logger = logging.getLogger(__name__)


class Trackers(RunObserver):
    """Weights & Biases, Trackio, the hub: whichever the settings name."""

    def __init__(self) -> None:
        self._loggers: list[Any] = []
        self._hub: Any = None

    def opened(self, run: RunConfig) -> None:
        """Opens the trackers before anything is asked, so that bad arguments fail now."""
        asked_for = run.wandb_args or run.trackio_args or run.hf_hub_log_args
        if not asked_for or launched_rank() > 0:  # the first of several processes logs
            return
        from lm_eval.loggers import EvaluationTracker, TrackioLogger, WandbLogger

        if run.hf_hub_log_args:
            arguments = {"token": os.environ.get("HF_TOKEN", ""), **run.hf_hub_log_args}
            arguments["output_path"] = run.output_path or arguments.get("output_path")
            try:
                self._hub = EvaluationTracker(**arguments)
            except TypeError as error:
                raise ConfigError(f"hf_hub_log_args: {error}") from error
            if self._hub.push_samples_to_hub and not run.log_samples:
                logger.warning("push_samples_to_hub: there are samples only with --log_samples.")
            if self._hub.api is not None and not run.output_path:
                raise ConfigError("hf_hub_log_args: pushing to the hub needs --output_path.")
        if run.wandb_args:
            self._loggers.append(WandbLogger(run.wandb_args, run.wandb_config_args))
        if run.trackio_args:
            self._loggers.append(TrackioLogger(run.trackio_args))

    def saved(self, run: RunConfig, results: EvalResults, path: Path | None) -> None:
        """Logs to every tracker. Results are already saved, so failures only warn."""
        samples = results.get("samples")
        rest = {key: value for key, value in results.items() if key != "samples"}
        for one in self._loggers:
            try:
                one.post_init(rest)
                one.log_eval_result()
                if samples:
                    one.log_eval_samples(samples)
                one.finish()
            except Exception as error:
                logger.warning(
                    "%s could not be told: %s: %s", type(one).__name__, type(error).__name__, error
                )
        if self._hub is not None and self._hub.api is not None and path is not None:
            name = model_name(run)
            try:
                self._hub.push(path, bool(samples), name)
                self._hub.recreate_metadata_card()
            except Exception as error:
                logger.warning("the hub could not be told: %s", error)
