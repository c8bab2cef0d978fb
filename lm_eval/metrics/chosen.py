"""The metrics one task reports: its `metric_list`, or what its output type goes by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.instance import OUTPUT_TYPES
from lm_eval.api.registry import (
    DEFAULT_METRIC_REGISTRY,
    Passthrough,
    get_aggregation,
    get_metric,
    get_metric_aggregation,
    is_higher_better,
    likelihood_registries,
    metric_agg_registry,
    metric_output_registry,
    metric_reduction_registry,
    metric_registry,
)
from lm_eval.config.task import TaskConfig
from lm_eval.errors import ConfigError, EvalError, UnknownNameError, suggestion
from lm_eval.metrics import aggregations, hf_evaluate
from lm_eval.metrics.calling import Convention
from lm_eval.metrics.documents import is_computed
from lm_eval.metrics.metric import Metric
from lm_eval.metrics.reductions import find_reduction, take_first
from lm_eval.metrics.translation import CORPUS_METRICS, require_sacrebleu

#: Keys of a `metric_list` entry that are not arguments of the metric itself.
_OWN_KEYS = ("metric", "aggregation", "higher_is_better", "hf_evaluate", "reduction")

#: Aggregations that need numbers, and can make nothing of a pair of texts.
_OF_NUMBERS = (
    *(aggregations.mean, aggregations.nanmean, aggregations.median, aggregations.perplexity),
    *(aggregations.weighted_perplexity, aggregations.bits_per_byte, aggregations.brier_score),
    *(aggregations.likelihood, aggregations.acc_all),
)


@dataclass
class ChosenMetrics:
    """A task's metrics by name, with the aggregation and direction of every value they give."""

    metrics: dict[str, Metric[Any, Any]] = field(default_factory=dict)
    aggregations: dict[str, Callable[..., Any]] = field(default_factory=dict)
    higher_is_better: dict[str, Any] = field(default_factory=dict)

    def add(self, metric: Metric[Any, Any]) -> None:
        self.metrics[metric.name] = metric
        self.aggregations[metric.name] = metric.aggregation
        self.higher_is_better[metric.name] = metric.higher_is_better

    def adopt(self, metric: str, values: Mapping[str, Any]) -> None:
        """Give values that a metric named itself (`pass@1`) that metric's aggregation."""
        for name in values:
            self.aggregations.setdefault(name, self.aggregations[metric])
            self.higher_is_better.setdefault(name, self.higher_is_better[metric])


def choose_metrics(config: TaskConfig, entries: Any = None) -> ChosenMetrics:
    """Look up everything the task reports, now, so that a misspelt name costs no model time.

    `entries` are a pipeline's own, where it has some.
    """
    if entries is None:
        entries = config.metric_list
    if entries is None:
        entries = [{"metric": name} for name in DEFAULT_METRIC_REGISTRY[config.output_type]]
    if not isinstance(entries, list):
        raise ConfigError(f"task {config.task!r}: metric_list must be a list, not {entries!r}.")
    chosen = ChosenMetrics()
    for entry in entries:
        try:
            chosen.add(_choose(entry, config))
        except EvalError as error:
            raise type(error)(f"task {config.task!r}: metric_list: {error}") from error
    return chosen


@dataclass
class TaskMetrics:
    """The metrics of a task's filter pipelines: those they share, and those some have alone."""

    shared: ChosenMetrics
    own: dict[str, ChosenMetrics] = field(default_factory=dict)

    def of(self, pipeline: str) -> ChosenMetrics:
        return self.own.get(pipeline, self.shared)

    def wants(self, metric: str) -> bool:
        return any(metric in chosen.metrics for chosen in self._all)

    @property
    def names(self) -> list[str]:
        """The names of all metrics, whichever pipeline reports them."""
        return [name for chosen in self._all for name in chosen.metrics]

    @property
    def aggregations(self) -> dict[str, Callable[..., Any]]:
        return {k: v for chosen in self._all for k, v in chosen.aggregations.items()}

    @property
    def higher_is_better(self) -> dict[str, Any]:
        return {k: v for chosen in self._all for k, v in chosen.higher_is_better.items()}

    @property
    def _all(self) -> list[ChosenMetrics]:
        return [*self.own.values(), self.shared]


def choose_for_pipelines(config: TaskConfig, pipelines: Sequence[str]) -> TaskMetrics:
    """The metrics of every pipeline: its own `metric_list`, or the task's."""
    own = {
        pipeline["name"]: choose_metrics(config, pipeline["metric_list"])
        for pipeline in config.filter_list or ()
        if pipeline.get("metric_list") is not None
    }
    # Where every pipeline has a list of its own, the task's default is nobody's.
    needed = config.metric_list is not None or len(own) < len(pipelines)
    metrics = TaskMetrics(choose_metrics(config) if needed else ChosenMetrics(), own)
    ways: dict[str, tuple[Any, Any]] = {}
    for chosen in (metrics.shared, *own.values()):
        for name, metric in chosen.metrics.items():
            way = (metric.aggregation, metric.higher_is_better)
            if ways.setdefault(name, way) != way:
                raise ConfigError(
                    f"task {config.task!r}: filter_list: its pipelines aggregate {name!r} in "
                    "different ways; one task reports a metric in one way."
                )
    return metrics


def _choose(entry: Any, config: TaskConfig) -> Metric[Any, Any]:
    if not isinstance(entry, Mapping) or "metric" not in entry:
        raise ConfigError(f"each entry needs a `metric`; this one has none: {entry!r}.")
    given = entry["metric"]
    if not isinstance(given, str) and not callable(given):
        raise ConfigError(f"`metric` must be a name or a !function, not {given!r}.")
    name = given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
    direction = entry.get("higher_is_better")
    metric: Metric[Any, Any] = Metric(
        name=name,
        aggregation=_aggregation(entry.get("aggregation"), name),
        higher_is_better=is_higher_better(name) if direction is None else direction,
    )
    if metric.aggregation in CORPUS_METRICS:
        require_sacrebleu(name)
    if config.process_results is not None:
        # The task's own function gives the values; the name need not be registered.
        return metric
    if callable(given) or not is_computed(name, config.output_type):
        metric.fn = _function(given, config.output_type, bool(entry.get("hf_evaluate")))
    metric.kwargs = {key: value for key, value in entry.items() if key not in _OWN_KEYS}
    metric.reduction = _reduction(entry.get("reduction"), given, metric, config.repeats)
    _check_fits(metric, config.output_type)
    return metric


def _function(given: Any, output_type: str, from_evaluate: bool) -> Callable[..., Any]:
    """The function behind a name; what only the `evaluate` library knows is looked up there."""
    if callable(given):
        function: Callable[..., Any] = given
        return function
    if given in metric_registry and not from_evaluate:
        return get_metric(given)
    if output_type == "generate_until" and (from_evaluate or given in hf_evaluate.KNOWN):
        return get_metric(given, hf_evaluate_metric=True)
    raise UnknownNameError(
        f"unknown metric {given!r}.{suggestion(given, metric_registry)} "
        f"Known metrics: {', '.join(sorted(metric_registry))}. `hf_evaluate: true` looks for it "
        "in the `evaluate` library."
    )


def _aggregation(given: Any, metric: str) -> Callable[..., Any]:
    if callable(given):
        function: Callable[..., Any] = given
        return function
    if isinstance(given, str):
        return get_aggregation(given)
    return get_metric_aggregation(metric) if metric in metric_agg_registry else aggregations.mean


def _reduction(
    asked: Any, given: Any, metric: Metric[Any, Any], repeats: int
) -> Callable[..., Any] | None:
    """What becomes of a document's repeats: what the entry says, else what the metric goes by.

    A function that takes lists gets all repeats at once, as published task folders expect.
    """
    if asked is not None:
        return find_reduction(asked)
    if isinstance(given, str) and given in metric_reduction_registry:
        return metric_reduction_registry.get(given)
    takes_one = metric.fn is not None and metric.convention is Convention.VALUES
    named_and_repeated = isinstance(given, str) and repeats > 1
    return take_first if takes_one or named_and_repeated else None


def _check_fits(metric: Metric[Any, Any], output_type: str) -> None:
    """Refuse a metric that gets no value, or none its aggregation can use, from such answers."""
    name = metric.name
    passthrough = isinstance(metric.fn, Passthrough)
    if output_type == "generate_until":
        fits = not (passthrough and metric.aggregation in _OF_NUMBERS)
    else:
        fits = is_computed(name, output_type) or (
            not passthrough and output_type in _registered_for(metric)
        )
    if not fits and name != "bypass":
        known = metric_output_registry.get(name) if name in metric_output_registry else ()
        fitting = sorted(likelihood_registries.get(output_type, ())) or _generation_metrics()
        only = f", only from {' or '.join(known)}" if known else ""
        raise ConfigError(
            f"{name} cannot be had from output_type {output_type}{only}. "
            f"Here there are: {', '.join(fitting)}."
        )


def _registered_for(metric: Metric[Any, Any]) -> Sequence[str]:
    """The output types an author gave a metric; a function of a task folder is for any."""
    if metric.name in metric_output_registry and metric.fn is get_metric(metric.name):
        return metric_output_registry.get(metric.name)
    return OUTPUT_TYPES


def _generation_metrics() -> list[str]:
    return sorted(
        name for name in metric_output_registry if "generate_until" in metric_output_registry[name]
    )
