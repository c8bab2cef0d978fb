"""The schema of a group file: which tasks belong together, and how their scores are joined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lm_eval.config.serialise import serialise
from lm_eval.errors import ConfigError


@dataclass
class AggMetricConfig:
    """One metric to join across a group's tasks.

    `filter_list` names the filter pipelines to join over; `None` means every pipeline under which
    the tasks report the metric. `weight_by_size` weighs each task by its documents (a micro
    average); without it each task counts the same (a macro average).
    """

    metric: str
    filter_list: list[str] | None = None
    aggregation: str | Callable[..., Any] = "mean"
    weight_by_size: bool = True

    def __post_init__(self) -> None:
        if self.aggregation != "mean" and not callable(self.aggregation):
            raise ConfigError(
                f"aggregate_metric_list: aggregation {self.aggregation!r} of metric "
                f"{self.metric!r} is neither 'mean' nor a function (!function file.name)."
            )
        if isinstance(self.filter_list, str):
            self.filter_list = [self.filter_list]


@dataclass
class GroupConfig:
    """A group file, loose spellings (a bare string, a single dict) made regular."""

    group: str
    group_alias: str | None = None
    task: str | list[str | dict[str, Any]] | None = None
    include: str | dict[str, Any] | None = None
    aggregate_metric_list: dict[str, Any] | list[Any] | None = None
    metadata: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.task, str):
            self.task = [self.task]
        metrics: Any = self.aggregate_metric_list
        if metrics is None:
            return
        if isinstance(metrics, (dict, AggMetricConfig)):
            metrics = [metrics]
        self.aggregate_metric_list = [self._metric(item) for item in metrics]

    def _metric(self, item: Any) -> AggMetricConfig:
        if isinstance(item, AggMetricConfig):
            return item
        if not isinstance(item, dict) or "metric" not in item:
            raise ConfigError(
                f"group {self.group!r}: each entry of aggregate_metric_list needs a `metric`, "
                f"this one has none: {item!r}."
            )
        # `higher_is_better` stands in published group files; the tasks' own direction is used.
        known = {k: v for k, v in item.items() if k != "higher_is_better"}
        try:
            return AggMetricConfig(**known)
        except TypeError as error:
            raise ConfigError(
                f"group {self.group!r}: aggregate_metric_list takes metric, filter_list, "
                f"aggregation and weight_by_size; got {sorted(item)}."
            ) from error

    @property
    def members(self) -> list[str | dict[str, Any]]:
        return [self.task] if isinstance(self.task, str) else list(self.task or [])

    @property
    def aggregates(self) -> list[AggMetricConfig] | None:
        """The metrics to join, in their settled form."""
        metrics = self.aggregate_metric_list
        return None if metrics is None else [self._metric(item) for item in metrics]

    def to_dict(self, keep_callable: bool = False) -> dict[str, Any]:
        """The configuration as plain data, unset fields left out."""
        plain: dict[str, Any] = serialise(self, keep_callable)
        return plain
