"""Registries: models, filters, metrics, aggregations, few-shot samplers … by name.

An entry may be a `"module:object"` string, which is imported on first use, so that listing the
names is cheap. Installed packages add entries through the entry-point groups `lm_eval.models`,
`lm_eval.filters`, `lm_eval.metrics`, `lm_eval.aggregations`, `lm_eval.reductions`,
`lm_eval.formats` and `lm_eval.samplers`. These are read when a name is not registered yet, or when
names are listed.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload

from lm_eval.entry_points import PluginEntry, plugin_entries
from lm_eval.errors import ConfigError, UnknownNameError, describe_cause, suggestion

if TYPE_CHECKING:
    from lm_eval.api.filter import Filter
    from lm_eval.api.model import LM

logger = logging.getLogger(__name__)

T = TypeVar("T")
D = TypeVar("D")
C = TypeVar("C", bound=Callable[..., Any])

#: The `default` of `Registry.get` if none is given, because None may be a default.
_NO_DEFAULT: Any = object()


class Registry(Generic[T]):
    """Maps names to objects, imports them on first use, and suggests names for unknown ones.

    Example::

        @model_registry.register("my-model")
        class MyModel(LM): ...

        model_registry.get("my-model")
    """

    def __init__(
        self,
        kind: str,
        home: str | None = None,
        entry_points: str | None = None,
        *,
        unique: bool = True,
    ) -> None:
        """Creates an empty registry.

        Args:
            kind: the kind of objects, for error messages ("model").
            home: the module whose import registers the built-in entries; None for none.
            entry_points: the entry-point group of installed packages; None for none.
            unique: whether it is an error to register another object under a name that is taken.
                Otherwise the later one replaces the earlier.
        """
        self.kind = kind
        self._home = home
        self._group = entry_points
        self._unique = unique
        self._entries: dict[str, T | str] = {}
        self._third_party: set[str] = set()
        self._replaceable: set[str] = set()
        self._defined: dict[str, str] = {}
        self._missing: dict[str, str] = {}
        self._complete = False

    def register(
        self,
        *names: str,
        target: T | str | None = None,
        owner: Any = None,
        replaceable: bool = False,
    ) -> Callable[[T], T]:
        """Registers `target` under `names`; without `target`, returns a decorator that registers.

        If a name is taken, a registry that is not `unique` replaces the entry, but never a
        third-party one by a built-in one. A `unique` one raises `ConfigError`, unless it is the
        same object, or was defined again in the same place (a cell of a notebook that is run
        twice).

        Args:
            names: the names. A decorator without names uses the name of the decorated object.
            target: the object, or a `"module:object"` string that is imported on first use.
            owner: the function or module that the object belongs to, for objects without a
                `__module__` such as booleans.
            replaceable: whether the names of a `unique` registry may be taken by another object.
        """
        if replaceable:
            self._replaceable.update(names)

        def decorate(obj: T) -> T:
            self._add(names or (getattr(obj, "__name__", str(obj)),), obj, owner or obj)
            return obj

        if target is not None:
            self._add(names, target, owner or target)
        return decorate

    def _add(self, names: Iterable[str], entry: T | str, owner: Any) -> None:
        """Adds an entry; a built-in one does not replace a third-party one of the same name.

        It is built-in if the module of `owner`, or `owner` itself if it is a string, begins with
        `lm_eval.`. If names are unique in this registry, raises `ConfigError` for a third-party
        entry whose name is taken (`_check_free`).
        """
        module = owner if isinstance(owner, str) else getattr(owner, "__module__", __name__)
        built_in = str(module).startswith("lm_eval.")
        if self._unique and not built_in:
            if self._home is not None:
                importlib.import_module(self._home)  # registers the names that are taken
            for name in names:
                self._check_free(name, entry)
        for name in names:
            if not built_in:
                self._third_party.add(name)
            if not built_in or name not in self._third_party:
                self._entries[name] = entry
                self._defined[name] = _location(entry, owner)

    def _check_free(self, name: str, entry: T | str) -> None:
        """Raises `ConfigError` if another object is registered as `name`.

        An object of an installed package that is not imported yet may be replaced: it is known only
        by the name under which the package offers it.
        """
        current = self._entries.get(name)
        if current is None or current == entry:
            return
        here, there = _definition(entry), _definition(current)
        if here is not None and here == there:
            return
        if isinstance(current, str) and not current.startswith("lm_eval."):
            return
        if name in self._replaceable and name not in self._third_party:
            return
        raise ConfigError(
            f"the {self.kind} {name!r} is already registered as {there or repr(current)}. "
            f"Choose another name for {here or repr(entry)}."
        )

    def explain_missing(self, name: str, reason: str) -> None:
        """Sets the error message of `get` for a name that users may expect but that is not here."""
        self._missing[name] = reason

    @overload
    def get(self, name: str) -> T: ...

    @overload
    def get(self, name: str, default: D) -> T | D: ...

    def get(self, name: str, default: Any = _NO_DEFAULT) -> Any:
        """Returns the object registered as `name`, importing it if necessary.

        Returns `default`, if it is given, for an unknown name. Otherwise raises `UnknownNameError`,
        with the most similar names, or with the reason that `explain_missing` set. If the object
        must be imported and a module is missing, raises `ModuleNotFoundError`; if a third-party
        module fails otherwise, `ConfigError`.
        """
        if name not in self._entries:
            self._load_all()
        if name not in self._entries and default is not _NO_DEFAULT:
            return default
        if name not in self._entries and name in self._missing:
            raise UnknownNameError(self._missing[name])
        if name not in self._entries:
            raise UnknownNameError(
                f"unknown {self.kind} {name!r}.{suggestion(name, self._entries)} "
                f"Registered names: {', '.join(sorted(self._entries))}."
            )
        entry = self._entries[name]
        if isinstance(entry, str):
            found = self._import(name, entry)
            if self._entries[name] == entry:  # the import may have registered the name itself
                self._entries[name] = found
            entry = self._entries[name]
        return entry

    def _import(self, name: str, location: str) -> T:
        """Imports `location`, a `module:object`, and returns the object.

        Raises `ModuleNotFoundError` if a module is missing, and `ConfigError` if the import of a
        third-party module fails otherwise. Other errors of built-in modules are not caught.
        """
        module, _, attributes = location.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for attribute in attributes.split("."):
                found = getattr(found, attribute)
        except ModuleNotFoundError:
            raise  # the caller knows what to install
        except (Exception, SystemExit) as error:  # third-party code may raise anything
            if module.startswith("lm_eval."):
                raise
            raise ConfigError(
                f"the {self.kind} {name!r} of an installed package cannot be imported from "
                f"{location}: {describe_cause(error)}. Repair or uninstall the package."
            ) from error
        return cast("T", found)

    def peek(self, name: str) -> T | None:
        """Returns the object if it is registered and already imported, else None.

        Imports nothing, neither plug-ins nor built-in entries.
        """
        entry = self._entries.get(name)
        return None if isinstance(entry, str) else entry

    def _load_all(self) -> None:
        """Registers the built-in entries, then those of installed packages; runs only once."""
        if self._complete:
            return
        self._complete = True  # before the import, which looks names up itself
        already = dict(self._entries)
        try:
            if self._home is not None:
                importlib.import_module(self._home)
        except BaseException:
            self._complete = False
            raise
        # Entries that task folders registered look built-in and must not be overwritten.
        self._entries |= already
        if self._group is not None:
            for entry in plugin_entries(self._group):
                self._add_plugin(entry)

    def _add_plugin(self, entry: PluginEntry) -> None:
        """Adds what an installed package offers, unless the name is used already.

        In that case logs a warning, unless the name already means the same object.
        """
        if entry.name not in self._entries:
            self._entries[entry.name] = self._defined[entry.name] = entry.value
        elif self._defined.get(entry.name) != entry.value:
            logger.warning(
                "The entry point %s (group %s) is ignored: %s is already the %s %s. Rename it in "
                "its package, or uninstall that package.",
                entry,
                self._group,
                entry.name,
                self.kind,
                self._defined.get(entry.name),
            )

    def locations(self) -> dict[str, str]:
        """Returns where each name is defined, as `module:object`, sorted by name.

        Imports no plug-in. An object that a function created has only its `module`.
        """
        self._load_all()
        return {name: self._defined.get(name, "") for name in sorted(self._entries)}

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
        """Returns all names, those of plug-ins included; imports no plug-in."""
        return list(self)

    def values(self) -> list[T | str]:
        """Returns all objects, in the order of `keys`; one that is not imported as its location.

        The location is `"module:object"`. Imports nothing.
        """
        return [entry for _, entry in self.items()]

    def items(self) -> list[tuple[str, T | str]]:
        """Returns `(name, object)` for all names; an object that is not imported as its location.

        The location is `"module:object"`. Imports nothing.
        """
        return [(name, self._entries[name]) for name in self]

    def __repr__(self) -> str:
        return f"Registry({self.kind!r}, {len(self._entries)} entries)"


def _definition(obj: Any) -> str | None:
    """Returns `module:qualified name` of a class or function; a string unchanged, else None."""
    if isinstance(obj, str):
        return obj
    named = hasattr(obj, "__module__") and hasattr(obj, "__qualname__")
    return f"{obj.__module__}:{obj.__qualname__}" if named else None


def _location(entry: Any, owner: Any) -> str:
    """Returns `module:object` for a registered object, or the string that an entry is.

    `owner` is used in place of `entry` if it has a name. An object that a function created has only
    its `module`.
    """
    if isinstance(entry, str):
        return entry
    named = owner if hasattr(owner, "__qualname__") else entry
    module = getattr(named, "__module__", type(named).__module__)
    name = getattr(named, "__qualname__", type(named).__qualname__)
    return module if "<locals>" in name else f"{module}:{name}"


model_registry: Registry[type[LM]] = Registry("model", "lm_eval.models", "lm_eval.models")
filter_registry: Registry[type[Filter]] = Registry(
    "filter", "lm_eval.filters", "lm_eval.filters", unique=False
)
metric_registry: Registry[Callable[..., Any]] = Registry(
    "metric", "lm_eval.metrics", "lm_eval.metrics", unique=False
)
aggregation_registry: Registry[Callable[..., Any]] = Registry(
    "aggregation", "lm_eval.metrics", "lm_eval.aggregations", unique=False
)
reduction_registry: Registry[Callable[..., Any]] = Registry(
    "reduction", "lm_eval.metrics", "lm_eval.reductions", unique=False
)
metric_agg_registry: Registry[Callable[..., Any]] = Registry(
    "metric with a default aggregation", "lm_eval.metrics", unique=False
)
metric_reduction_registry: Registry[Callable[..., Any]] = Registry(
    "metric with a default reduction", "lm_eval.metrics", unique=False
)
metric_output_registry: Registry[tuple[str, ...]] = Registry(
    "metric with a known output type", "lm_eval.metrics", unique=False
)
higher_is_better_registry: Registry[bool] = Registry(
    "metric with a known direction", "lm_eval.metrics", unique=False
)

format_registry: Registry[Any] = Registry(
    "format", "lm_eval.prompts.formats", "lm_eval.formats", unique=False
)
sampler_registry: Registry[type[Any]] = Registry(
    "few-shot sampler", "lm_eval.prompts.fewshot", "lm_eval.samplers", unique=False
)

#: What a log-likelihood metric may need in addition to the log-likelihoods: "tokens", the length of
#: every choice in tokens; "unconditional", the log-likelihood of every choice without the question.
Need = Literal["tokens", "unconditional"]


@dataclass(frozen=True)
class LikelihoodMetric:
    """A function that computes a metric from log-likelihoods, and what it needs besides them."""

    compute: Callable[[Any], list[Any] | None]
    needs: frozenset[Need] = frozenset()


#: The registries that `lm-eval ls KIND` lists.
REGISTRIES: dict[str, Registry[Any]] = {
    "models": model_registry,
    "metrics": metric_registry,
    "aggregations": aggregation_registry,
    "reductions": reduction_registry,
    "filters": filter_registry,
    "samplers": sampler_registry,
    "formats": format_registry,
}

#: Metrics computed from log-likelihoods: one registry per output type.
likelihood_registries: dict[str, Registry[LikelihoodMetric]] = {
    output_type: Registry(f"{output_type} metric", "lm_eval.metrics", unique=False)
    for output_type in ("loglikelihood", "loglikelihood_rolling", "multiple_choice")
}

#: Aggregations whose standard error is computed by bootstrap.
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
    """Class decorator that registers a model class (`LM`) under these names for `--model`.

    Raises `ConfigError` if another class has one of the names; only the names of built-in classes
    that the published harness does not have (`demo`, `llama-cpp`) may be taken.

    Example::

        @register_model("my-model", "my-model-alias")
        class MyModel(LM): ...
    """
    return model_registry.register(*names)


def get_model(model_name: str) -> type[LM]:
    """Returns the model class registered under this name; imports it if necessary.

    Raises `UnknownNameError` if there is none, `ModuleNotFoundError` if it needs a missing package.
    """
    return model_registry.get(model_name)


def register_filter(name: str) -> Callable[[type[Any]], type[Any]]:
    """Class decorator that registers a `Filter` as `function: name` for task files."""
    return filter_registry.register(name)


def get_filter(filter_name: str | Callable[..., Any]) -> Callable[..., Any]:
    """Returns the filter class registered under this name; returns a class or function as is.

    Raises `UnknownNameError` if no filter has this name.
    """
    return filter_name if callable(filter_name) else filter_registry.get(filter_name)


def register_sampler(name: str) -> Callable[[type[Any]], type[Any]]:
    """Class decorator that registers a few-shot sampler as `fewshot_config: {sampler: name}`.

    The class is a `ContextSampler` (`lm_eval.api.samplers`). One instance per task is created with
    the documents to draw from and seeded with `set_rnd(seed)`. Its `sample(n=…, eval_doc=…)` is
    then called for one document after the other.
    """
    return sampler_registry.register(name)


def get_sampler(name: str) -> type[Any]:
    """Returns the few-shot sampler class registered under this name.

    Raises `UnknownNameError` if there is none.
    """
    return sampler_registry.get(name)


def register_format(name: str) -> Callable[[type[Any]], type[Any]]:
    """Class decorator that registers a prompt format under this name, for `task@name`.

    The class is a dataclass derived from `lm_eval.prompts.formats.Format`.
    """
    return format_registry.register(name)


def register_aggregation(name: str, bootstrap: bool = False) -> Callable[[C], C]:
    """Decorator that registers a function from the values of all documents to one number.

    With `bootstrap=True` its standard error is computed by bootstrap, which calls the function once
    per replicate. Set it for a function that is fast and does not depend on the order of documents.

    Example::

        @register_aggregation("median", bootstrap=True)
        def median(values):
            return statistics.median(values)
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
    """Returns the aggregation function registered under this name.

    It turns the values of all documents into one number. Raises `UnknownNameError` if there is
    none.
    """
    return aggregation_registry.get(name)


def register_reduction(name: str) -> Callable[[C], C]:
    """Decorator that registers a function which reduces the repeats of a document to one value.

    It is called with `references`, the gold answer, and `predictions`, one metric value per repeat.
    """

    def decorate(function: C) -> C:
        reduction_registry.register(name)(function)
        return function

    return decorate


def get_reduction(name: str) -> Callable[..., Any]:
    """Returns the reduction (from the repeats of a document to one value) with this name.

    Raises `UnknownNameError` if there is none.
    """
    return reduction_registry.get(name)


def register_metric(
    *,
    metric: str,
    higher_is_better: bool | None = None,
    output_type: str | list[str] | None = None,
    aggregation: str | None = None,
    reduction: str | None = None,
) -> Callable[[C], C]:
    """Decorator that registers a metric computed for each document, for generated text.

    The function is called with `references`, a list with the gold answer, and `predictions`, a list
    with the answer. (A function whose source uses them as plain values, such as
    `predictions.strip()`, gets the values instead: see `lm_eval.metrics.calling`.) It returns a
    number, or a dictionary of several values by name.

    Args:
        metric: its name in the `metric_list` of task files.
        higher_is_better: the direction, unless the task file sets another.
        output_type: the output type or types that the metric can be used with; None for any.
        aggregation: name of the default aggregation over documents; `UnknownNameError` is raised if
            it is not registered.
        reduction: name of the default reduction over repeats; `UnknownNameError` as above.

    Example::

        @register_metric(metric="length", higher_is_better=False, aggregation="mean")
        def length(references, predictions):
            return len(predictions[0])
    """

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
    """A placeholder metric function that returns its argument.

    Metrics computed from log-likelihoods, and metrics computed by their aggregation alone (BLEU),
    have no function for a single document. They are registered with this one, so that `get_metric`
    finds their names. `function` is the function that computes the metric instead.
    """

    def __init__(self, metric: str, function: Callable[..., Any]) -> None:
        self.__name__ = f"{metric}_fn"
        self.__module__ = function.__module__
        self.__qualname__ = function.__qualname__

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
    """Decorator that registers a metric computed from log-likelihoods, for all documents at once.

    The function gets one object of `lm_eval.metrics.documents`: `Choices` for the output type
    `multiple_choice`, `Targets` for `loglikelihood`, `Texts` for `loglikelihood_rolling`. It
    returns a list with one value per document, or None if the metric is not defined for these
    documents. A metric for several output types is registered once for each.

    Args:
        metric: its name in the `metric_list` of task files.
        output_type: the output type that the function is for, one of the three above; any other
            raises `KeyError`.
        higher_is_better: the direction, unless the task file sets another.
        aggregation: name of the default aggregation over documents.
        needs: what the function needs besides log-likelihoods: "tokens" for the lengths of the
            choices in tokens, "unconditional" for their log-likelihoods without the question.

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
            metric_registry.register(metric, owner=function)(Passthrough(metric, function))
        if higher_is_better is not None:
            higher_is_better_registry.register(metric, owner=function)(higher_is_better)
        types = dict.fromkeys((*(metric_output_registry.peek(metric) or ()), output_type))
        metric_output_registry.register(metric, owner=function)(tuple(types))
        if aggregation is not None:
            metric_agg_registry.register(metric, owner=function)(get_aggregation(aggregation))
        return function

    return decorate


def get_metric(name: str, hf_evaluate_metric: bool = False) -> Callable[..., Any]:
    """Returns the metric function registered under this name.

    With `hf_evaluate_metric`, loads the metric from the Hugging Face `evaluate` library instead.
    Raises `UnknownNameError` if the name is not registered; `ConfigError` if that library is not
    installed, and `DataError` if it cannot load the metric.
    """
    if hf_evaluate_metric:
        loader = importlib.import_module("lm_eval.metrics.hf_evaluate")
        loaded: Callable[..., Any] = loader.load_metric(name)
        return loaded
    return metric_registry.get(name)


def get_metric_aggregation(name: str) -> Callable[..., Any]:
    """Returns the default aggregation function of the metric `name`.

    Raises `UnknownNameError` if the metric has none, or is not registered.
    """
    return metric_agg_registry.get(name)


def is_higher_better(metric_name: str) -> bool | None:
    """Returns whether higher values of the metric are better; None if that is not known.

    The direction of a plug-in's metric is known once `get_metric` has imported it.
    """
    if metric_name not in higher_is_better_registry:
        return None
    return higher_is_better_registry.get(metric_name)
