"""Logs the results of a run to the trackers that its settings name."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval.errors import ConfigError
from lm_eval.results.provenance import model_name
from lm_eval.runs.observer import RunObserver

if TYPE_CHECKING:
    from lm_eval.config.run import RunConfig
    from lm_eval.results.schema import EvalResults

logger = logging.getLogger(__name__)


class Trackers(RunObserver):
    """Logs to those of Weights & Biases, Trackio and the Hugging Face Hub that a run configures.

    Trackers are opened before the model is loaded. Results are logged after the files are written.
    """

    def __init__(self) -> None:
        self._loggers: list[Any] = []
        self._hub: Any = None

    def opened(self, run: RunConfig) -> None:
        """Opens the trackers that the run configures; does nothing if there are none.

        Raises `ConfigError` for arguments that they do not accept, if a package is missing, and if
        files are to be pushed to the hub but there is no token or no `output_path`.
        """
        if not (run.wandb_args or run.trackio_args or run.hf_hub_log_args):
            return
        from lm_eval.loggers import EvaluationTracker, TrackioLogger, WandbLogger

        if run.hf_hub_log_args:
            arguments = {"token": os.environ.get("HF_TOKEN", ""), **run.hf_hub_log_args}
            arguments["output_path"] = run.output_path or arguments.get("output_path")
            try:
                self._hub = EvaluationTracker(**arguments)
            except TypeError as error:
                raise ConfigError(
                    f"hf_hub_log_args: {error}. The accepted arguments are those of "
                    "lm_eval.loggers.EvaluationTracker."
                ) from error
            if self._hub.push_samples_to_hub and not run.log_samples:
                logger.warning(
                    "push_samples_to_hub: no samples will be pushed, because the run does not keep "
                    "any. Add --log_samples."
                )
            if self._hub.api is not None and not run.output_path:
                raise ConfigError(
                    "hf_hub_log_args: pushing to the hub needs --output_path, because the files "
                    "written there are pushed."
                )
        if run.wandb_args:
            self._loggers.append(WandbLogger(run.wandb_args, run.wandb_config_args))
        if run.trackio_args:
            self._loggers.append(TrackioLogger(run.trackio_args))

    def saved(self, run: RunConfig, results: EvalResults, path: Path | None) -> None:
        """Logs the results and samples to the open trackers, and pushes the files to the hub.

        Nothing is pushed if the run does not configure it, or if `path`, the results file, is None.
        A failure is only logged as a warning, because the results are already saved.
        """
        samples = results.get("samples")
        for tracker in self._loggers:
            try:
                tracker.post_init(results)
                tracker.log_eval_result()
                if samples:
                    tracker.log_eval_samples(samples)
                tracker.finish()
            except Exception as error:
                logger.warning(
                    "%s could not log the results: %s: %s. The results themselves are complete.",
                    type(tracker).__name__,
                    type(error).__name__,
                    error,
                )
        if self._hub is not None and self._hub.api is not None and path is not None:
            name = model_name(run)
            try:
                self._hub.push(path, bool(samples), name)
                self._hub.recreate_metadata_card()
            except Exception as error:
                logger.warning(
                    "The results are saved in %s, but pushing them to the Hugging Face Hub failed: "
                    "%s",
                    path,
                    error,
                )
