"""Logs results to experiment trackers: Weights & Biases, Trackio and the Hugging Face Hub.

Everything is logged under the same names as in the published harness, so that existing dashboards
continue to work.
"""

from lm_eval.loggers.evaluation_tracker import EvaluationTracker
from lm_eval.loggers.trackio_logger import TrackioLogger
from lm_eval.loggers.wandb_logger import WandbLogger

__all__ = ["EvaluationTracker", "TrackioLogger", "WandbLogger"]
