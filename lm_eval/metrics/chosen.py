"""The metrics one task reports: its `metric_list`, or what its output type goes by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lm_eval.api.registry import (
    DEFAULT_METRIC_REGISTRY,
    get_aggregation,
    get_metric,
    get_metric_aggregation,
    is_higher_better,
    metric_agg_registry,
)
from lm_eval.config.task import TaskConfig
from lm_eval.errors import ConfigError, UnknownNameError
from lm_eval.metrics.aggregations import mean
from lm_eval.metrics.documents import GenerationMetric

#: Keys of a `metric_list` entry that are not arguments of the metric itself.
_OWN_KEYS = ("metric", "aggregation", "higher_is_better", "hf_evaluate")


@dataclass
class ChosenMetrics:
    """A task's metrics by name: the function, its arguments, its aggregation, its direction."""

    functions: dict[str, Callable[..., Any] | None] = field(default_factory=dict)
    arguments: dict[str, dict[str, Any]] = field(default_factory=dict)
    aggregations: dict[str, Callable[..., Any]] = field(default_factory=dict)
    higher_is_better: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def for_generation(self) -> list[GenerationMetric]:
        return [
            GenerationMetric(name, function, self.arguments[name])
            for name, function in self.functions.items()
        ]

    def adopt(self, metric: str, values: Mapping[str, Any]) -> None:
        """Give values that a metric named itself (`pass@1`) that metric's aggregation."""
        for name in values:
            self.aggregations.setdefault(name, self.aggregations[metric])
            self.higher_is_better.setdefault(name, self.higher_is_better[metric])


def choose_metrics(config: TaskConfig) -> ChosenMetrics:
    """Look up everything the task reports, now, so that a misspelt name costs no model time."""
    entries = config.metric_list
    if entries is None:
        entries = [{"metric": name} for name in DEFAULT_METRIC_REGISTRY[config.output_type]]
    chosen = ChosenMetrics()
    for entry in entries:
        try:
            _choose(entry, chosen, scored_by_task=config.process_results is not None)
        except (UnknownNameError, ConfigError) as error:
            raise type(error)(f"task {config.task!r}: metric_list: {error}") from error
    return chosen


def _choose(entry: Any, chosen: ChosenMetrics, scored_by_task: bool) -> None:
    if not isinstance(entry, Mapping) or "metric" not in entry:
        raise ConfigError(f"each entry needs a `metric`; this one has none: {entry!r}.")
    metric = entry["metric"]
    if not isinstance(metric, str) and not callable(metric):
        raise ConfigError(f"`metric` must be a name or a !function, not {metric!r}.")
    name = metric if isinstance(metric, str) else metric.__name__
    if scored_by_task:
        # The task's own process_results gives the values; the name need not be registered.
        chosen.functions[name], chosen.arguments[name] = None, {}
    else:
        chosen.functions[name] = get_metric(metric) if isinstance(metric, str) else metric
        chosen.arguments[name] = {k: v for k, v in entry.items() if k not in _OWN_KEYS}
    chosen.aggregations[name] = _aggregation(entry.get("aggregation"), name)
    direction = entry.get("higher_is_better")
    chosen.higher_is_better[name] = is_higher_better(name) if direction is None else direction


def _aggregation(given: Any, metric: str) -> Callable[..., Any]:
    if callable(given):
        function: Callable[..., Any] = given
        return function
    if isinstance(given, str):
        return get_aggregation(given)
    return get_metric_aggregation(metric) if metric in metric_agg_registry else mean
