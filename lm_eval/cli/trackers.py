"""The trackers a run names: opened before anything is asked, told when all is written."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval.errors import ConfigError
from lm_eval.launch import launched_rank
from lm_eval.results.provenance import model_name

if TYPE_CHECKING:
    from lm_eval.config.run import RunConfig

logger = logging.getLogger(__name__)


class Trackers:
    """Weights & Biases, Trackio, the hub: whichever the settings name."""

    def __init__(self, run: RunConfig) -> None:
        self._loggers: list[Any] = []
        self._hub: Any = None
        self._model = model_name(run)
        asked_for = run.wandb_args or run.trackio_args or run.hf_hub_log_args
        if not asked_for or launched_rank() > 0:  # the first of several tells
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

    def log(
        self,
        results: Mapping[str, Any] | None,
        samples: Mapping[str, Any] | None,
        written: Path | None,
    ) -> None:
        """Tell them all. The results are safe by now, so a tracker's failure is said, no more."""
        if results is None:
            return
        for one in self._loggers:
            try:
                one.post_init(results)
                one.log_eval_result()
                if samples:
                    one.log_eval_samples(samples)
                one.finish()
            except Exception as error:
                logger.warning(
                    "%s could not be told: %s: %s", type(one).__name__, type(error).__name__, error
                )
        if self._hub is not None and self._hub.api is not None and written is not None:
            try:
                self._hub.general_config_tracker.model_name = self._model
                self._hub.push(written, bool(samples), self._model)
                self._hub.recreate_metadata_card()
            except Exception as error:
                logger.warning("the hub could not be told: %s", error)
