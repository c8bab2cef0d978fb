"""Chooses the metrics of a task: those of its `metric_list`, or the defaults of its output type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from lm_eval.metrics.reductions import find_reduction, take_first, with_enough_repeats
from lm_eval.metrics.repeat_metrics import RepeatMetric, parse_repeat_metric
from lm_eval.metrics.translation import CORPUS_METRICS, require_sacrebleu

#: Keys of a `metric_list` entry that are not passed to the metric function as arguments.
_RESERVED_KEYS = ("metric", "aggregation", "higher_is_better", "hf_evaluate", "reduction", "of")

#: Aggregations that need numeric items. They cannot aggregate pairs of strings.
_NUMERIC_AGGREGATIONS = (
    *(aggregations.mean, aggregations.nanmean, aggregations.median, aggregations.perplexity),
    *(aggregations.weighted_perplexity, aggregations.bits_per_byte, aggregations.brier_score),
    *(aggregations.likelihood, aggregations.acc_all),
)


@dataclass
class ChosenMetrics:
    """The metrics of a task, with the aggregation and direction of every value they return.

    A metric that returns a mapping reports several values, so `aggregations` and `higher_is_better`
    may have more keys than `metrics`.
    """

    #: The metrics by name.
    metrics: dict[str, Metric[Any, Any]] = field(default_factory=dict)
    #: The aggregation of each reported value.
    aggregations: dict[str, Callable[..., Any]] = field(default_factory=dict)
    #: Whether a higher value is better, for each reported value; None if unknown.
    higher_is_better: dict[str, Any] = field(default_factory=dict)
    #: The metrics of repeated answers by name, each with the metric that scores one answer.
    of_repeats: dict[str, tuple[RepeatMetric, Metric[Any, Any]]] = field(default_factory=dict)

    def add_of_repeats(self, wanted: RepeatMetric, base: Metric[Any, Any]) -> None:
        """Adds a metric of repeated answers; `base` scores each of the answers.

        If another one uses the same metric with other arguments, `base` gets a name of its own.
        """
        others = [other for _, other in self.of_repeats.values() if other.name == base.name]
        if any((other.fn, other.kwargs) != (base.fn, base.kwargs) for other in others):
            base = replace(base, name=f"{base.name} of {wanted.name}")
        self.of_repeats[wanted.name] = wanted, base
        self.aggregations[wanted.name] = aggregations.mean
        self.higher_is_better[wanted.name] = base.higher_is_better

    @property
    def bases(self) -> list[Metric[Any, Any]]:
        """The metrics that score single answers, for the metrics of repeated answers."""
        return list({base.name: base for _, base in self.of_repeats.values()}.values())

    def add(self, metric: Metric[Any, Any]) -> None:
        """Adds a metric, with its aggregation and direction; replaces one of the same name."""
        self.metrics[metric.name] = metric
        self.aggregations[metric.name] = metric.aggregation
        self.higher_is_better[metric.name] = metric.higher_is_better

    def register_values(self, metric: str, values: Mapping[str, Any]) -> None:
        """Sets the aggregation and direction of values that a metric returned in a mapping.

        The values have names that the metric chose, such as `pass@1`. They get the aggregation and
        direction of `metric`, the metric's name. Names that already have an aggregation keep it.
        """
        for name in values:
            self.aggregations.setdefault(name, self.aggregations[metric])
            self.higher_is_better.setdefault(name, self.higher_is_better[metric])


def choose_metrics(config: TaskConfig, entries: Any = None) -> ChosenMetrics:
    """Returns the metrics that a task reports, given its configuration.

    Names are looked up before the model runs, so that a misspelled one is reported at once.

    Args:
        config: the task's configuration.
        entries: the `metric_list` of one filter pipeline. None means the task's `metric_list` or,
            if it has none, the default metrics of its output type.

    Raises:
        ConfigError: `entries` is malformed, a metric does not fit the output type, or a package
            that it needs is not installed.
        UnknownNameError: a metric, aggregation or reduction is not registered.
        DataError: a metric of the `evaluate` library cannot be loaded.
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
            wanted = _of_repeats(entry, config)
            if wanted is not None:
                chosen.add_of_repeats(wanted, _choose_base(wanted, entry, entries, config))
                continue
            chosen.add(_choose_metric(entry, config))
        except EvalError as error:
            raise type(error)(f"task {config.task!r}: metric_list: {error}") from error
    return chosen


@dataclass
class TaskMetrics:
    """The metrics of a task, for each of its filter pipelines."""

    #: The metrics of pipelines without a `metric_list` of their own.
    shared: ChosenMetrics
    #: The metrics of pipelines with their own `metric_list`, by the pipeline's name.
    own: dict[str, ChosenMetrics] = field(default_factory=dict)

    def for_pipeline(self, pipeline: str) -> ChosenMetrics:
        """Returns the metrics of the filter pipeline called `pipeline`.

        These are the pipeline's own or, if it has no `metric_list`, the shared ones.
        """
        return self.own.get(pipeline, self.shared)

    def includes(self, metric: str) -> bool:
        """Returns whether any pipeline reports the metric with this name."""
        return any(metric in {**chosen.metrics, **chosen.of_repeats} for chosen in self._all)

    def without_repeats(self, pipeline: str) -> TaskMetrics:
        """Returns the metrics without those of repeated answers, in one pipeline."""
        chosen = self.for_pipeline(pipeline)
        left = ChosenMetrics()
        for metric in chosen.metrics.values():
            left.add(metric)
        return TaskMetrics(self.shared, {**self.own, pipeline: left})

    @property
    def names(self) -> list[str]:
        """The names of the metrics of all pipelines; a name may occur several times."""
        return [name for chosen in self._all for name in chosen.metrics]

    def functions(self) -> dict[str, tuple[Callable[..., Any] | None, dict[str, Any]]]:
        """Returns the function of every metric and its additional arguments, by name.

        For a metric that is computed from log-likelihoods, the function is the registered
        placeholder.
        """
        metrics = {
            name: metric
            for chosen in self._all
            for name, metric in {**{b.name: b for b in chosen.bases}, **chosen.metrics}.items()
        }
        return {
            name: (metric.fn or metric_registry.get(name, None), dict(metric.kwargs))
            for name, metric in metrics.items()
        }

    @property
    def aggregations(self) -> dict[str, Callable[..., Any]]:
        """The aggregation of every value that any pipeline reports, by the value's name."""
        return {k: v for chosen in self._all for k, v in chosen.aggregations.items()}

    @property
    def higher_is_better(self) -> dict[str, Any]:
        """Whether higher is better, for every value that any pipeline reports, by its name."""
        return {k: v for chosen in self._all for k, v in chosen.higher_is_better.items()}

    @property
    def _all(self) -> list[ChosenMetrics]:
        return [*self.own.values(), self.shared]


def choose_for_pipelines(config: TaskConfig, pipelines: Sequence[str]) -> TaskMetrics:
    """Returns the metrics of each filter pipeline: its own `metric_list`, or the task's.

    `pipelines` are the names of all filter pipelines of the task. Raises `ConfigError` if two
    pipelines report the same metric with a different aggregation or direction, and the errors of
    `choose_metrics`.
    """
    own = {
        pipeline["name"]: choose_metrics(config, pipeline["metric_list"])
        for pipeline in config.filter_list or ()
        if pipeline.get("metric_list") is not None
    }
    # If every pipeline has its own list, no pipeline uses the defaults of the output type.
    needed = config.metric_list is not None or len(own) < len(pipelines)
    metrics = TaskMetrics(choose_metrics(config) if needed else ChosenMetrics(), own)
    settings: dict[str, tuple[Any, Any]] = {}
    for chosen in (metrics.shared, *own.values()):
        for name, metric in chosen.metrics.items():
            setting = (metric.aggregation, metric.higher_is_better)
            if settings.setdefault(name, setting) != setting:
                raise ConfigError(
                    f"task {config.task!r}: filter_list: the pipelines set a different "
                    f"aggregation or higher_is_better for the metric {name!r}; set the same in "
                    "all of them."
                )
    return metrics


def _of_repeats(entry: Any, config: TaskConfig) -> RepeatMetric | None:
    """Returns the metric of repeated answers that an entry names; None if it names another one.

    The `process_results` of a task may return a value called `pass@1`. In such tasks, an entry
    means a metric of repeated answers only if it names the metric that scores an answer.
    """
    name = entry.get("metric") if isinstance(entry, Mapping) else None
    found = None if name in metric_registry else parse_repeat_metric(name)
    if found is None or config.process_results is None:
        return found
    return found if found.base is not None or "of" in entry else None


def _choose_base(
    wanted: RepeatMetric, entry: Mapping[str, Any], entries: Sequence[Any], config: TaskConfig
) -> Metric[Any, Any]:
    """Returns the metric that scores each answer, for a metric of repeated answers.

    It is the one that `wanted` or the entry (`of`) names, or else the first other metric of the
    list, of the task, or of the output type. Raises `ConfigError` if the task generates no text,
    has too few repeats, or if the metric has no mean.

    Args:
        wanted: the metric of repeated answers.
        entry: its entry in the `metric_list`.
        entries: the whole list.
        config: the configuration of the task.
    """
    if config.output_type != "generate_until":
        raise ConfigError(
            f"{wanted.name} needs generated answers, but the output_type is {config.output_type}."
        )
    wanted.check_repeats(config.repeats)
    written = base_entry(wanted, entry, entries, config)
    base = _choose_metric(written, config)
    if "k" in base.kwargs:  # of code tasks: the programs of a single answer are judged
        base = replace(base, kwargs={**base.kwargs, "k": [1]})
    if base.aggregation not in (aggregations.mean, aggregations.nanmean):
        raise ConfigError(
            f"{wanted.name}: {base.name} has no score for a single answer whose mean is reported. "
            f"Name another metric: METRIC:{wanted.kind}{wanted.k}."
        )
    return base


def base_entry(
    wanted: RepeatMetric, entry: Mapping[str, Any], entries: Sequence[Any], config: TaskConfig
) -> Mapping[str, Any]:
    """Returns the `metric_list` entry of the metric that scores each answer; see `_choose_base`."""
    of = entry.get("of", wanted.base)
    if isinstance(of, Mapping):
        return of
    defaults = [{"metric": name} for name in DEFAULT_METRIC_REGISTRY[config.output_type]]
    listed = (*entries, *(config.metric_list or ()), *defaults)
    others = [
        one for one in listed if isinstance(one, Mapping) and _of_repeats(one, config) is None
    ]
    if of is None:
        return others[0]
    named = [one for one in others if of in (one.get("metric"), _function_name(one.get("metric")))]
    if not named and config.process_results is not None:
        names = [_function_name(one["metric"]) or one["metric"] for one in others[:-1]]
        raise UnknownNameError(
            f"{wanted.name}: the task reports no metric {of!r}.{suggestion(str(of), names)} Its "
            f"metrics are: {', '.join(names) or 'none'}."
        )
    return named[0] if named else {"metric": of}


def _function_name(given: Any) -> str | None:
    return getattr(given, "__name__", None)


def _choose_metric(entry: Any, config: TaskConfig) -> Metric[Any, Any]:
    """Returns the metric that one entry of a `metric_list` describes.

    If the task has its own `process_results`, the metric has no function, and its name need not be
    registered. Raises the errors of `choose_metrics`.
    """
    if not isinstance(entry, Mapping) or "metric" not in entry:
        raise ConfigError(f"each entry needs a `metric`; this entry has none: {entry!r}.")
    given = entry["metric"]
    if not isinstance(given, str) and not callable(given):
        raise ConfigError(f"`metric` must be a name or a !function, not {given!r}.")
    name = given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
    if name in metric_registry and not entry.get("hf_evaluate"):
        get_metric(name)  # importing a plug-in's metric registers its aggregation and direction
    direction = entry.get("higher_is_better")
    metric: Metric[Any, Any] = Metric(
        name=name,
        aggregation=_find_aggregation(entry.get("aggregation"), name),
        higher_is_better=is_higher_better(name) if direction is None else direction,
    )
    if metric.aggregation in CORPUS_METRICS:
        require_sacrebleu(name)
    if config.process_results is not None:
        # The task's `process_results` computes the value, so the name need not be registered.
        return metric
    if callable(given) or not is_computed(name, config.output_type):
        metric.fn = _find_function(given, config.output_type, bool(entry.get("hf_evaluate")))
    metric.kwargs = {key: value for key, value in entry.items() if key not in _RESERVED_KEYS}
    metric.reduction = _choose_reduction(entry.get("reduction"), given, metric, config.repeats)
    _check_fits(metric, config.output_type)
    return metric


def _find_function(given: Any, output_type: str, from_evaluate: bool) -> Callable[..., Any]:
    """Returns the function of a metric, given its name or the function itself.

    For generated text, a metric that is not registered here, or that has `hf_evaluate: true`
    (`from_evaluate`), is loaded from Hugging Face's `evaluate` library. Raises `UnknownNameError`
    if there is no metric with this name, and `ConfigError` if what is registered is not callable.
    """
    if callable(given):
        function: Callable[..., Any] = given
        return function
    if given in metric_registry and not from_evaluate:
        found = get_metric(given)
        if not callable(found):
            raise ConfigError(
                f"the metric {given!r} is not a function, but {found!r}; register a function under "
                "this name."
            )
        return found
    if output_type == "generate_until" and (from_evaluate or given in hf_evaluate.KNOWN):
        return get_metric(given, hf_evaluate_metric=True)
    if "@" in given or "^" in given:
        raise UnknownNameError(
            f"unknown metric {given!r}. Metrics of repeated answers are avg@K, maj@K, pass@K and "
            "pass^K, where K is a number of answers, as in avg@32 or exact_match:avg@32."
        )
    raise UnknownNameError(
        f"unknown metric {given!r}.{suggestion(given, metric_registry)} "
        f"Known metrics: {', '.join(sorted(metric_registry))}. To load a metric from Hugging "
        "Face's `evaluate` library in a generate_until task, set `hf_evaluate: true`."
    )


def _find_aggregation(given: Any, metric: str) -> Callable[..., Any]:
    """Returns the aggregation of a metric: the `given` name or function, or the metric's default.

    A metric without a default is aggregated by the mean. Raises `UnknownNameError` if the name
    `given` is not registered.
    """
    if callable(given):
        function: Callable[..., Any] = given
        return function
    if isinstance(given, str):
        return get_aggregation(given)
    return get_metric_aggregation(metric) if metric in metric_agg_registry else aggregations.mean


def _choose_reduction(
    requested: Any, given: Any, metric: Metric[Any, Any], repeats: int
) -> Callable[..., Any] | None:
    """Returns the function that combines the values of a document's repeated answers.

    None means that the metric function gets all repeated answers at once, as functions in published
    task folders expect.

    Args:
        requested: the `reduction` of the `metric_list` entry, or None. It takes precedence.
        given: the `metric` of the entry: a name or a function.
        metric: the metric that is being built.
        repeats: how often the task generates an answer to each document.
    """
    if requested is not None:
        return with_enough_repeats(find_reduction(requested), repeats)
    if isinstance(given, str) and given in metric_reduction_registry:
        return metric_reduction_registry.get(given)
    takes_one = metric.fn is not None and metric.convention is Convention.VALUES
    named_and_repeated = isinstance(given, str) and repeats > 1
    return take_first if takes_one or named_and_repeated else None


def _check_fits(metric: Metric[Any, Any], output_type: str) -> None:
    """Raises `ConfigError` if a metric cannot be computed from answers of `output_type`.

    This also covers a metric whose values its aggregation cannot use.
    """
    name = metric.name
    passthrough = isinstance(metric.fn, Passthrough)
    if output_type == "generate_until":
        fits = not (passthrough and metric.aggregation in _NUMERIC_AGGREGATIONS)
    else:
        fits = is_computed(name, output_type) or (
            not passthrough and output_type in _registered_for(metric)
        )
    if not fits and name != "bypass":
        known = metric_output_registry.get(name) if name in metric_output_registry else ()
        fitting = sorted(likelihood_registries.get(output_type, ())) or _generation_metrics()
        only = f", only for {' or '.join(known)}" if known else ""
        raise ConfigError(
            f"the metric {name} cannot be computed for output_type {output_type}{only}. "
            f"Metrics for this output type: {', '.join(fitting)}."
        )


def _registered_for(metric: Metric[Any, Any]) -> Sequence[str]:
    """Returns the output types that a metric was registered for.

    A function from a task folder is not registered, so it fits all output types.
    """
    if metric.name in metric_output_registry and metric.fn is get_metric(metric.name):
        return metric_output_registry.get(metric.name)
    return OUTPUT_TYPES


def _generation_metrics() -> list[str]:
    """Returns the sorted names of the metrics of generated text."""
    return sorted(
        name for name in metric_output_registry if "generate_until" in metric_output_registry[name]
    )
