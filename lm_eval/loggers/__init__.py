"""Where results go besides files: Weights & Biases, Trackio, the Hugging Face hub.

Names of what is logged are the published ones, so dashboards made for it go on working.
"""

from lm_eval.loggers.evaluation_tracker import EvaluationTracker
from lm_eval.loggers.trackio_logger import TrackioLogger
from lm_eval.loggers.wandb_logger import WandbLogger

__all__ = ["EvaluationTracker", "TrackioLogger", "WandbLogger"]
