"""Typed configuration of tasks, groups and runs, and the reading of YAML files."""

from __future__ import annotations

from lm_eval.config.group import AggMetricConfig, GroupConfig
from lm_eval.config.task import FewshotConfig, TaskConfig

__all__ = ["AggMetricConfig", "FewshotConfig", "GroupConfig", "TaskConfig"]
