"""The typed schema of what users write: task files, group files, run settings."""

from __future__ import annotations

from lm_eval.config.group import AggMetricConfig, GroupConfig
from lm_eval.config.task import FewshotConfig, TaskConfig

__all__ = ["AggMetricConfig", "FewshotConfig", "GroupConfig", "TaskConfig"]
