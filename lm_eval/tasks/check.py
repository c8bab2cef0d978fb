"""Find everything wrong with tasks and groups at once, without running any of their code."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import TemplateSyntaxError

from lm_eval.api.registry import (
    DEFAULT_METRIC_REGISTRY,
    aggregation_registry,
    filter_registry,
    format_registry,
    metric_registry,
    reduction_registry,
    sampler_registry,
)
from lm_eval.config.functions import FunctionRef, modules_mentioning
from lm_eval.config.generation import misspelt
from lm_eval.config.group import AggMetricConfig, GroupConfig
from lm_eval.config.task import FewshotConfig, TaskConfig
from lm_eval.config.types import conforms, describe, field_types
from lm_eval.config.yaml_file import YamlFile
from lm_eval.errors import ConfigError, at, suggestion
from lm_eval.metrics import hf_evaluate
from lm_eval.metrics.reductions import reduction_name
from lm_eval.prompts.formats import declared
from lm_eval.prompts.template import env
from lm_eval.tasks.index import Entry, Index, Kind, file_of

#: Keys a task file may have beside the fields of a task.
_BESIDE = ("tag", "class", "include", "task_list", "group")
_TEMPLATES = ("doc_to_text", "doc_to_target", "doc_to_choice", "description", "gen_prefix")


def problems_of(entries: Iterable[Entry], index: Index) -> list[str]:
    """Every problem of some entries and of all they lead to, each with its file and line."""
    checker = _Checker(index)
    for entry in entries:
        checker.check(entry, ())
    return list(dict.fromkeys(checker.problems))


class _Checker:
    """Collects problems on a walk through tasks and groups."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.problems: list[str] = []
        self._seen: set[str] = set()
        #: The groups whose metrics are being looked up, so that a circle ends.
        self._walking: set[str] = set()

    def check(self, entry: Entry, chain: tuple[str, ...]) -> None:
        if entry.kind is Kind.TAG:
            for name in sorted(entry.tags):
                self.check(self.index[name], chain)
            return
        if entry.name in self._seen:
            return
        self._seen.add(entry.name)
        self.problems += [
            f"{path}: the name {entry.name!r} is taken already, by {entry.path}; give it another."
            for path in entry.rivals
        ]
        try:
            file = file_of(entry)
        except ConfigError as error:
            self.problems.append(str(error))
            return
        self._functions(file)
        if entry.kind is Kind.GROUP:
            self._group(entry.name, file, file.values, (*chain, entry.name))
        else:
            self._task(file, file.values, python=entry.kind is Kind.PY_TASK)

    def _say(self, where: str, what: str) -> None:
        self.problems.append(f"{where}: {what}")

    # -- functions ----------------------------------------------------------------------------

    def _functions(self, file: YamlFile) -> None:
        """Each `!function` must name something its file defines; the file is read, not run."""
        for ref in _refs(file.values):
            where = f"{at(ref.file, ref.line)}: !function {ref.qualified_name}"
            module, _, name = ref.qualified_name.rpartition(".")
            path = ref.folder / (module.replace(".", "/") + ".py")
            if not module:
                self._say(where, "write it as file.name, where file.py stands beside the file.")
            elif path.is_file():
                defined = _defined_names(path)
                if defined is not None and name not in defined:
                    self._say(where, f"{path} has no {name!r}.{suggestion(name, defined)}")
            elif "." not in module:
                self._say(where, f"there is no file {path}.")

    # -- tasks --------------------------------------------------------------------------------

    def _task(self, file: YamlFile, values: Mapping[str, Any], python: bool) -> None:
        known = field_types(TaskConfig)
        for key, value in values.items():
            if key in known:
                self._type(file.where(key), key, value, known[key])
            elif key not in _BESIDE and not python:
                self._say(file.where(key), f"unknown key {key!r}.{suggestion(key, known)}")
        if python:
            return
        if not any(values.get(key) for key in ("dataset_path", "custom_dataset")):
            self._say(str(file.path), "names no data set: set dataset_path or custom_dataset.")
        if not any(values.get(key) for key in ("test_split", "validation_split")):
            self._say(
                str(file.path), "has nothing to evaluate: set test_split or validation_split."
            )
        choices = any(values.get(key) for key in ("doc_to_choice", "use_prompt"))
        if values.get("output_type") == "multiple_choice" and not choices:
            self._say(file.where("output_type"), "multiple_choice needs doc_to_choice.")
        for key in _TEMPLATES:
            self._template(file.where(key), key, values.get(key))
        self._fewshot(file, values.get("fewshot_config"))
        self._generation(file.where("generation_kwargs"), values.get("generation_kwargs"))
        own = "process_results" in values
        for number, entry in enumerate(_items(values.get("metric_list"))):
            self._metric(file.where(f"metric_list[{number}]"), entry, own)
        self._filters(file, values.get("filter_list"), own)
        self._formats(file, values.get("formats"))

    def _type(self, where: str, key: str, value: Any, hint: Any) -> bool:
        if conforms(value, hint):
            return True
        self._say(where, f"{key} must be {describe(hint)}, not {value!r}.")
        return False

    def _template(self, where: str, key: str, source: Any) -> None:
        if isinstance(source, str):
            try:
                env.parse(source)
            except TemplateSyntaxError as error:
                self._say(where, f"{key}, line {error.lineno} of the template: {error.message}.")

    def _fewshot(self, file: YamlFile, given: Any) -> None:
        if not isinstance(given, Mapping):
            return
        where, known = file.where("fewshot_config"), field_types(FewshotConfig)
        for key, value in given.items():
            if key not in known:
                self._say(where, f"fewshot_config: unknown key {key!r}.{suggestion(key, known)}")
            else:
                self._type(where, f"fewshot_config.{key}", value, known[key])
        sampler = given.get("sampler", "default")
        if isinstance(sampler, str):
            self._name(where, "few-shot sampler", sampler, sampler_registry)

    def _generation(self, where: str, given: Any) -> None:
        for name in given if isinstance(given, Mapping) else ():
            if problem := misspelt([name]):
                self._say(where, f"generation_kwargs: {problem}")

    def _metric(self, where: str, entry: Any, own: bool) -> None:
        """Check an entry of a metric_list; where a task scores by itself (`own`) any name does."""
        if not isinstance(entry, Mapping) or "metric" not in entry:
            self._say(where, f"an entry of metric_list needs a `metric`: {entry!r}.")
            return
        metric, aggregation = entry["metric"], entry.get("aggregation")
        elsewhere = entry.get("hf_evaluate") or metric in hf_evaluate.KNOWN
        if isinstance(metric, str) and not own and not elsewhere:
            self._name(where, "metric", metric, metric_registry)
        if isinstance(aggregation, str):
            self._name(where, "aggregation", aggregation, aggregation_registry)
        reduction = reduction_name(entry.get("reduction"))
        if reduction is not None:
            self._name(where, "reduction", reduction, reduction_registry)

    def _filters(self, file: YamlFile, given: Any, own: bool) -> None:
        for number, pipeline in enumerate(_items(given)):
            where = file.where(f"filter_list[{number}]")
            steps = pipeline.get("filter") if isinstance(pipeline, Mapping) else None
            if not isinstance(steps, list) or "name" not in pipeline:
                self._say(where, "an entry of filter_list needs a `name` and a list `filter`.")
                continue
            for entry in _items(pipeline.get("metric_list")):
                self._metric(where, entry, own)
            for step in steps:
                function = step.get("function") if isinstance(step, Mapping) else None
                if function is None:
                    self._say(where, f"a filter step needs a `function`: {step!r}.")
                elif isinstance(function, str):
                    self._name(where, "filter", function, filter_registry)

    def _formats(self, file: YamlFile, given: Any) -> None:
        where = file.where("formats")
        try:
            tables = declared(given)
        except ConfigError as error:
            self._say(where, str(error))
            return
        for name, table in tables.items():
            self._name(where, "format", str(table.get("type", name)), format_registry)

    def _name(self, where: str, kind: str, name: str, known: Any) -> None:
        folder = Path(where.rpartition(":")[0]).parent
        if name not in known and not _mentioned(name, folder):
            self._say(where, f"unknown {kind} {name!r}.{suggestion(name, list(known))}")

    # -- groups -------------------------------------------------------------------------------

    def _group(
        self, name: str, file: YamlFile, values: Mapping[str, Any], chain: tuple[str, ...]
    ) -> None:
        known = field_types(GroupConfig)
        top = len(chain) == 1 or file.values is values
        for key, value in values.items():
            where = file.where(key) if top else str(file.path)
            if key in known:
                self._type(where, key, value, known[key])
            elif key not in field_types(TaskConfig) and key not in _BESIDE:
                close = suggestion(key, [*known, *field_types(TaskConfig)])
                self._say(where, f"unknown key {key!r}.{close}")
        if file.values is values:  # of a group written out in place, its member entry tells
            self._generation(file.where("generation_kwargs"), values.get("generation_kwargs"))
        for number, member in enumerate(_items(values.get("task"))):
            where = file.where(f"task[{number}]") if top else file.where("task")
            self._member(name, file, where, member, chain)
        self._aggregates(name, file, values)

    def _member(
        self, group: str, file: YamlFile, where: str, member: Any, chain: tuple[str, ...]
    ) -> None:
        spec = {"task": member} if isinstance(member, str) else member
        if not isinstance(spec, Mapping) or not ("task" in spec or "group" in spec):
            self._say(where, f"a member is a name, or has a `task` or `group` key: {member!r}.")
            return
        self._generation(where, spec.get("generation_kwargs"))
        name = str(spec.get("group", spec.get("task")))
        base, mark, format_name = name.rpartition("@")
        if mark and name not in self.index:
            self._name(where, "format", format_name, format_registry)
            name = base
        if name in chain:
            circle = " -> ".join([*chain[chain.index(name) :], name])
            self._say(where, f"groups hold one another in a circle: {circle}.")
        elif "group" in spec and "task" in spec:
            inner = f"{group}::{name}"
            self._group(inner, file, spec, (*chain, inner))
        elif name in self.index:
            self.check(self.index[name], chain)
        elif set(spec) <= {"task", "group"} and "::" not in name:
            close = suggestion(name, self.index)
            self._say(where, f"there is no task, group or tag {name!r}.{close}")

    def _aggregates(self, group: str, file: YamlFile, values: Mapping[str, Any]) -> None:
        wanted = values.get("aggregate_metric_list")
        for number, item in enumerate([wanted] if isinstance(wanted, Mapping) else _items(wanted)):
            where = file.where(f"aggregate_metric_list[{number}]")
            if not isinstance(item, Mapping) or "metric" not in item:
                self._say(where, f"an entry of aggregate_metric_list needs a `metric`: {item!r}.")
                continue
            known = [f.name for f in fields(AggMetricConfig)]
            for key in item:
                if key not in known and key != "higher_is_better":
                    self._say(
                        where,
                        f"aggregate_metric_list: unknown key {key!r}.{suggestion(str(key), known)}",
                    )
            self._lacking(where, group, _metric_name(item["metric"]), values.get("task"))

    def _lacking(self, where: str, group: str, metric: str, members: Any) -> None:
        """Say which tasks below a group do not report a metric it joins."""
        below = dict(self._metrics_below(members))
        lacking = [name for name, found in below.items() if found and metric not in found]
        if lacking:
            shown = ", ".join(lacking[:3]) + (" …" if len(lacking) > 3 else "")
            reported = sorted({name for task in lacking for name in below[task] or ()})
            self._say(
                where,
                f"group {group!r} joins {metric!r}, which {len(lacking)} of its {len(below)} tasks "
                f"do not report ({shown}; they report {', '.join(reported)}).",
            )

    def _metrics_below(self, members: Any) -> Iterator[tuple[str, set[str] | None]]:
        """The tasks below some members with the metrics they report; None where code decides."""
        for member in _items(members):
            spec = {"task": member} if isinstance(member, str) else member
            if not isinstance(spec, Mapping):
                continue
            if "group" in spec and "task" in spec:
                yield from self._metrics_below(spec["task"])
                continue
            name = str(spec.get("group", spec.get("task")))
            yield from self._metrics_of_entry(self.index.get(name), spec)

    def _metrics_of_entry(
        self, entry: Entry | None, overrides: Mapping[str, Any]
    ) -> Iterator[tuple[str, set[str] | None]]:
        if entry is None or entry.kind is Kind.PY_TASK or entry.name in self._walking:
            return
        self._walking.add(entry.name)
        try:
            if entry.kind is Kind.TAG:
                for name in sorted(entry.tags):
                    yield from self._metrics_of_entry(self.index[name], overrides)
                return
            try:
                file = file_of(entry)
            except ConfigError:
                return
            if entry.kind is Kind.GROUP:
                yield from self._metrics_below(file.values.get("task"))
            else:
                yield entry.name, _reported({**file.values, **overrides})
        finally:
            self._walking.discard(entry.name)


def _reported(values: Mapping[str, Any]) -> set[str] | None:
    if values.get("process_results") or values.get("formats"):
        return None
    entries = values.get("metric_list")
    if any(
        isinstance(p, Mapping) and "metric_list" in p for p in _items(values.get("filter_list"))
    ):
        return None
    if entries is None:
        return set(DEFAULT_METRIC_REGISTRY.get(values.get("output_type", "generate_until"), ()))
    names = {entry.get("metric") for entry in _items(entries) if isinstance(entry, Mapping)}
    return {_metric_name(name) for name in names}


def _metric_name(metric: Any) -> str:
    return metric.name if isinstance(metric, FunctionRef) else str(metric)


@cache
def _mentioned(name: str, folder: Path) -> bool:
    """Whether Python code beside a file speaks of a name, and so may register it when it runs."""
    return any(True for _ in modules_mentioning([name], folder))


def _items(value: Any) -> list[Any]:
    """A list's items; a single name counts as one, anything else as none."""
    if isinstance(value, str):
        return [value]
    return value if isinstance(value, list) else []


def _refs(value: Any) -> Iterator[FunctionRef]:
    if isinstance(value, FunctionRef):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _refs(item)
    elif isinstance(value, list):
        for item in value:
            yield from _refs(item)


def _defined_names(path: Path) -> set[str] | None:
    """The names a module defines or imports, from its text; None where that cannot be told."""
    try:
        text = path.read_bytes()
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return None
    if b"globals()" in text or b"__getattr__" in text:  # it makes up names as it runs
        return None
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            if any(alias.name == "*" for alias in node.names):
                return None
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
