"""The fields of a group file: its tasks, and how their scores are aggregated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from lm_eval.config.serialize import serialize
from lm_eval.errors import ConfigError


@dataclass
class AggMetricConfig:
    """One metric to aggregate over the tasks of a group.

    `filter_list` names the filter pipelines whose scores are aggregated; None means every pipeline
    that the tasks report the metric for. `aggregation` is "mean" or a function, which gets a list
    of the tasks' scores and a list of their numbers of documents; `ConfigError` is raised for
    anything else. With `weight_by_size`, each task is weighted by its number of documents (micro
    average); without it, all tasks have the same weight (macro average).
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

    def to_dict(self, keep_callable: bool = False) -> dict[str, Any]:
        """Returns all fields as plain data; a function as its source unless `keep_callable`."""
        return {f.name: serialize(getattr(self, f.name), keep_callable) for f in fields(self)}


@dataclass
class GroupConfig:
    """The configuration of a group, as in its YAML file.

    A single task name or a single metric is converted to a list. `include` is a mapping of task
    keys that apply to all tasks of the group, or the path of a file that contains them. Creating an
    instance raises `ConfigError` if `aggregate_metric_list` is invalid.
    """

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
        """Returns an entry of `aggregate_metric_list` as an `AggMetricConfig`.

        Raises `ConfigError` if it is not a mapping with the key `metric`, or has unknown keys. The
        key `higher_is_better` is ignored.
        """
        if isinstance(item, AggMetricConfig):
            return item
        if not isinstance(item, dict) or "metric" not in item:
            raise ConfigError(
                f"group {self.group!r}: each entry of aggregate_metric_list needs the key "
                f"`metric`; this one has none: {item!r}."
            )
        # Published group files have `higher_is_better`; it is ignored in favor of the tasks'.
        known = {k: v for k, v in item.items() if k != "higher_is_better"}
        try:
            return AggMetricConfig(**known)
        except TypeError as error:
            names = {field.name for field in fields(AggMetricConfig)}
            unknown = [str(key) for key in known if key not in names]
            raise ConfigError(
                f"group {self.group!r}: an entry of aggregate_metric_list has unknown keys: "
                f"{', '.join(unknown)}. The known keys are metric, filter_list, aggregation and "
                "weight_by_size."
            ) from error

    @property
    def members(self) -> list[str | dict[str, Any]]:
        """The members of the group: names, or mappings with a `task` or `group` key.

        Empty if `task` is not set.
        """
        return [self.task] if isinstance(self.task, str) else list(self.task or [])

    @property
    def aggregates(self) -> list[AggMetricConfig] | None:
        """The metrics to aggregate; None if the group has no `aggregate_metric_list`."""
        metrics = self.aggregate_metric_list
        return None if metrics is None else [self._metric(item) for item in metrics]

    def to_dict(self, keep_callable: bool = False) -> dict[str, Any]:
        """Returns the configuration as a dictionary of plain data.

        Fields that are None are included, except `include`. Functions become their source code,
        unless `keep_callable` is set.
        """
        plain = {f.name: serialize(getattr(self, f.name), keep_callable) for f in fields(self)}
        if self.include is None:
            del plain["include"]
        if self.aggregates is not None:
            plain["aggregate_metric_list"] = [one.to_dict(keep_callable) for one in self.aggregates]
        return plain
