"""Names for models, filters, metrics, aggregations, samplers …, and the objects behind them.

An entry may be a `"module:object"` string: it is imported when first asked for, so listing the
names of forty backends costs nothing. Packages add their own through entry points
(`lm_eval.models`, `lm_eval.filters`, `lm_eval.metrics`, `lm_eval.aggregations`,
`lm_eval.reductions`, `lm_eval.formats`, `lm_eval.samplers`), read only when a name is not already
known.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from lm_eval.errors import UnknownNameError, suggestion

if TYPE_CHECKING:
    from lm_eval.api.filter import Filter
    from lm_eval.api.model import LM

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])


class Registry(Generic[T]):
    """A dictionary of names that imports its values late and explains what it does not hold."""

    def __init__(self, kind: str, home: str, entry_points: str | None = None) -> None:
        """`home` is the module whose import registers the built-in entries."""
        self.kind = kind
        self._home = home
        self._group = entry_points
        self._entries: dict[str, T | str] = {}
        self._foreign: set[str] = set()
        self._missing: dict[str, str] = {}
        self._complete = False

    def register(
        self, *names: str, target: T | str | None = None, owner: Any = None
    ) -> Callable[[T], T]:
        """Register an object under some names: as a decorator, or with `target=` at once.

        `owner` is whose it is, for objects that do not tell.
        """

        def decorate(obj: T) -> T:
            self._add(names or (getattr(obj, "__name__", str(obj)),), obj, owner or obj)
            return obj

        if target is not None:
            self._add(names, target, owner or target)
        return decorate

    def _add(self, names: Iterable[str], entry: T | str, owner: Any) -> None:
        """What others register keeps its name, whenever this package's own comes."""
        place = owner if isinstance(owner, str) else getattr(owner, "__module__", __name__)
        ours = str(place).startswith("lm_eval.")
        for name in names:
            if not ours:
                self._foreign.add(name)
            if not ours or name not in self._foreign:
                self._entries[name] = entry

    def explain_missing(self, name: str, reason: str) -> None:
        """Sets what `get` raises for a name that users may expect while nothing is registered."""
        self._missing[name] = reason

    def get(self, name: str) -> T:
        """The object called `name`; an unknown one is answered with the nearest names."""
        if name not in self._entries:
            self._load_all()
        if name not in self._entries and name in self._missing:
            raise UnknownNameError(self._missing[name])
        if name not in self._entries:
            raise UnknownNameError(
                f"unknown {self.kind} {name!r}.{suggestion(name, self._entries)} "
                f"Known {self.kind}s: {', '.join(sorted(self._entries))}."
            )
        entry = self._entries[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            found = getattr(importlib.import_module(module), attribute)
            if self._entries[name] == entry:  # unless the module registered the name itself
                self._entries[name] = found
            entry = self._entries[name]
        return entry  # type: ignore[return-value]

    def peek(self, name: str) -> T | None:
        """Returns the object if it is registered and imported already; loads nothing."""
        entry = self._entries.get(name)
        return None if isinstance(entry, str) else entry

    def _load_all(self) -> None:
        """Fill in the built-in names, then what installed packages offer."""
        if self._complete:
            return
        self._complete = True
        already = dict(self._entries)
        importlib.import_module(self._home)
        self._entries |= already  # what task folders registered, which pass for ours
        if self._group is not None:
            for point in importlib.metadata.entry_points(group=self._group):
                self._entries.setdefault(point.name, point.value)

    def __getitem__(self, name: str) -> T:
        return self.get(name)

    def __contains__(self, name: object) -> bool:
        if name not in self._entries:
            self._load_all()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._load_all()
        return iter(self._entries)

    def __len__(self) -> int:
        self._load_all()
        return len(self._entries)

    def keys(self) -> list[str]:
        return list(self)

    def items(self) -> list[tuple[str, T]]:
        return [(name, self.get(name)) for name in self]


model_registry: Registry[type[LM]] = Registry("model", "lm_eval.models", "lm_eval.models")
filter_registry: Registry[type[Filter]] = Registry("filter", "lm_eval.filters", "lm_eval.filters")
metric_registry: Registry[Callable[..., Any]] = Registry(
    "metric", "lm_eval.metrics", "lm_eval.metrics"
)
aggregation_registry: Registry[Callable[..., Any]] = Registry(
    "aggregation", "lm_eval.metrics", "lm_eval.aggregations"
)
reduction_registry: Registry[Callable[..., Any]] = Registry(
    "reduction", "lm_eval.metrics", "lm_eval.reductions"
)
metric_agg_registry: Registry[Callable[..., Any]] = Registry(
    "metric with a default aggregation", "lm_eval.metrics"
)
metric_reduction_registry: Registry[Callable[..., Any]] = Registry(
    "metric with a default reduction", "lm_eval.metrics"
)
metric_output_registry: Registry[tuple[str, ...]] = Registry(
    "metric with a known output type", "lm_eval.metrics"
)
higher_is_better_registry: Registry[bool] = Registry(
    "metric with a known direction", "lm_eval.metrics"
)

format_registry: Registry[Any] = Registry("format", "lm_eval.prompts.formats", "lm_eval.formats")
sampler_registry: Registry[type[Any]] = Registry(
    "few-shot sampler", "lm_eval.prompts.fewshot", "lm_eval.samplers"
)

#: What a metric of log-likelihoods may need beyond them: the length of every choice in tokens, or
#: the log-likelihood of every choice without the question.
Need = Literal["tokens", "unconditional"]


@dataclass(frozen=True)
class LikelihoodMetric:
    """A function that computes a metric from log-likelihoods, and what it needs beyond them."""

    compute: Callable[[Any], list[Any] | None]
    needs: frozenset[Need] = frozenset()


#: Metrics computed from log-likelihoods, by the output type they are computed for.
likelihood_registries: dict[str, Registry[LikelihoodMetric]] = {
    output_type: Registry(f"{output_type} metric", "lm_eval.metrics")
    for output_type in ("loglikelihood", "loglikelihood_rolling", "multiple_choice")
}

#: Aggregations whose standard error is found by resampling, one call per replicate.
_resampled: set[Callable[..., Any]] = set()

MODEL_REGISTRY = model_registry
FILTER_REGISTRY = filter_registry
METRIC_REGISTRY = metric_registry
AGGREGATION_REGISTRY = aggregation_registry
REDUCTION_REGISTRY = reduction_registry
METRIC_AGGREGATION_REGISTRY = metric_agg_registry
HIGHER_IS_BETTER_REGISTRY = higher_is_better_registry

DEFAULT_METRIC_REGISTRY: dict[str, list[str]] = {
    "loglikelihood": ["perplexity", "acc"],
    "loglikelihood_rolling": ["word_perplexity", "byte_perplexity", "bits_per_byte"],
    "multiple_choice": ["acc", "acc_norm"],
    "generate_until": ["exact_match"],
}


def register_model(*names: str) -> Callable[[type[LM]], type[LM]]:
    """Class decorator: offer a model under these names."""
    return model_registry.register(*names)


def get_model(model_name: str) -> type[LM]:
    return model_registry.get(model_name)


def register_filter(name: str) -> Callable[[type[Any]], type[Any]]:
    """Class decorator: offer a filter under this name."""
    return filter_registry.register(name)


def get_filter(filter_name: str | Callable[..., Any]) -> Callable[..., Any]:
    """The filter class of that name; a class or function is taken as it is."""
    return filter_name if callable(filter_name) else filter_registry.get(filter_name)


def register_sampler(name: str) -> Callable[[type[Any]], type[Any]]:
    """Class decorator: offer a few-shot sampler as `fewshot_config: {sampler: name}`.

    The class is a `ContextSampler` (`lm_eval.api.samplers`). It is made once per task with the
    documents to draw from, seeded with `set_rnd(seed)`, and asked for examples with
    `sample(n=…, eval_doc=…)`, document after document.
    """
    return sampler_registry.register(name)


def get_sampler(name: str) -> type[Any]:
    """Returns the few-shot sampler class of that name."""
    return sampler_registry.get(name)


def register_format(name: str) -> Callable[[type[Any]], type[Any]]:
    """Class decorator: offer a prompt format under this name."""
    return format_registry.register(name)


def register_aggregation(name: str, bootstrap: bool = False) -> Callable[[C], C]:
    """Decorator: offer a function from per-document values to one number.

    With `bootstrap` its standard error is had by resampling, one call a replicate: say so of a
    function that is quick, and for which the documents' order does not matter.
    """

    def decorate(function: C) -> C:
        aggregation_registry.register(name)(function)
        if bootstrap:
            _resampled.add(function)
        return function

    return decorate


def is_resampled(aggregation: Callable[..., Any]) -> bool:
    """Returns whether an aggregation was registered with `bootstrap=True`."""
    return aggregation in _resampled


def get_aggregation(name: str) -> Callable[..., Any]:
    return aggregation_registry.get(name)


def register_reduction(name: str) -> Callable[[C], C]:
    """Decorator: offer a function that makes one value of those of a document's repeats.

    It is called with `references`, the gold answer, and `predictions`, one value a repeat.
    """

    def decorate(function: C) -> C:
        reduction_registry.register(name)(function)
        return function

    return decorate


def get_reduction(name: str) -> Callable[..., Any]:
    return reduction_registry.get(name)


def register_metric(
    *,
    metric: str,
    higher_is_better: bool | None = None,
    output_type: str | list[str] | None = None,
    aggregation: str | None = None,
    reduction: str | None = None,
) -> Callable[[C], C]:
    """Decorator: offer a per-document metric, with what it goes by where a task does not say."""

    def decorate(function: C) -> C:
        metric_registry.register(metric)(function)
        if higher_is_better is not None:
            higher_is_better_registry.register(metric, owner=function)(higher_is_better)
        if output_type is not None:
            types = (output_type,) if isinstance(output_type, str) else tuple(output_type)
            metric_output_registry.register(metric, owner=function)(types)
        if aggregation is not None:
            metric_agg_registry.register(metric, owner=function)(get_aggregation(aggregation))
        if reduction is not None:
            metric_reduction_registry.register(metric, owner=function)(get_reduction(reduction))
        return function

    return decorate


class Passthrough:
    """Stands for a metric whose value is the item it is given.

    Metrics computed from log-likelihoods, and those computed by their aggregation alone (BLEU), are
    registered under one, so that `get_metric` knows their names.
    """

    def __init__(self, metric: str) -> None:
        self.__name__ = f"{metric}_fn"

    def __call__(self, items: Any) -> Any:
        return items


def register_likelihood_metric(
    *,
    metric: str,
    output_type: str,
    higher_is_better: bool | None = None,
    aggregation: str | None = None,
    needs: Iterable[Need] = (),
) -> Callable[[C], C]:
    """Decorator: offer a metric computed from log-likelihoods, for many documents at once.

    The function gets one object of `lm_eval.metrics.documents`: `Choices` for the output type
    `multiple_choice`, `Targets` for `loglikelihood`, `Texts` for `loglikelihood_rolling`. It
    returns a list with one value per document, or None if the metric has no values there.
    A metric of several output types is registered once for each.

    Example::

        @register_likelihood_metric(
            metric="acc", output_type="multiple_choice", higher_is_better=True, aggregation="mean"
        )
        def acc(documents: Choices) -> list[float]:
            return documents.hits(documents.likeliest)
    """

    def decorate(function: C) -> C:
        computed = LikelihoodMetric(function, frozenset(needs))
        likelihood_registries[output_type].register(metric, owner=function)(computed)
        if metric_registry.peek(metric) is None:
            metric_registry.register(metric, owner=function)(Passthrough(metric))
        if higher_is_better is not None:
            higher_is_better_registry.register(metric, owner=function)(higher_is_better)
        types = dict.fromkeys((*(metric_output_registry.peek(metric) or ()), output_type))
        metric_output_registry.register(metric, owner=function)(tuple(types))
        if aggregation is not None:
            metric_agg_registry.register(metric, owner=function)(get_aggregation(aggregation))
        return function

    return decorate


def get_metric(name: str, hf_evaluate_metric: bool = False) -> Callable[..., Any]:
    """The metric function of that name; with `hf_evaluate_metric`, the `evaluate` library's."""
    if hf_evaluate_metric:
        loader = importlib.import_module("lm_eval.metrics.hf_evaluate")
        loaded: Callable[..., Any] = loader.load_metric(name)
        return loaded
    return metric_registry.get(name)


def get_metric_aggregation(name: str) -> Callable[..., Any]:
    return metric_agg_registry.get(name)


def is_higher_better(metric_name: str) -> bool | None:
    """The metric's direction, or None where nobody has said."""
    if metric_name not in higher_is_better_registry:
        return None
    return higher_is_better_registry.get(metric_name)
