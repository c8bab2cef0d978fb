"""Checks task and group files and reports all problems at once, without running their code."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from lm_eval.api.registry import (
    DEFAULT_METRIC_REGISTRY,
    aggregation_registry,
    filter_registry,
    format_registry,
    metric_registry,
    reduction_registry,
    sampler_registry,
)
from lm_eval.config.functions import FunctionRef, function_refs
from lm_eval.config.generation import find_misspelled
from lm_eval.config.group import AggMetricConfig, GroupConfig
from lm_eval.config.python_files import modules_mentioning
from lm_eval.config.regular_file import is_regular, read_regular, user_path
from lm_eval.config.task import FewshotConfig, TaskConfig
from lm_eval.config.types import conforms, describe, field_types
from lm_eval.config.yaml_file import YamlFile
from lm_eval.errors import ConfigError, suggestion
from lm_eval.filters import file_arguments
from lm_eval.metrics import hf_evaluate
from lm_eval.metrics.reductions import reduction_name
from lm_eval.metrics.repeat_metrics import parse_repeat_metric
from lm_eval.prompts.formats import ROTATION_MARK, declared_formats
from lm_eval.prompts.template import syntax_error
from lm_eval.tasks.group_file import DEEPEST_GROUP, ELSEWHERE, GROUP_FIELDS
from lm_eval.tasks.index import Entry, Index, Kind, file_of

#: Keys that a task file may have in addition to the fields of `TaskConfig`.
_OTHER_KEYS = ("tag", "class", "include", "task_list", "group")
#: Settings of a group that change which metrics its tasks report.
_DETERMINE_METRICS = ("metric_list", "output_type", "process_results", "formats", "filter_list")
#: Published groups, and the metric that they aggregate although none of their tasks reports it.
#: They stay as they are, so that their tables stay the published ones.
_AS_PUBLISHED = {("mmlu_flan_cot_zeroshot", "acc"), ("mmlu_flan_n_shot_generative", "acc")}
_TEMPLATES = (
    *("doc_to_text", "doc_to_target", "doc_to_choice", "description", "gen_prefix"),
    "doc_to_decontamination_query",
)


def problems_of(entries: Iterable[Entry], index: Index) -> list[str]:
    """Returns all problems of `entries` and of every task and group that they contain.

    Each problem is a message that begins with the file and, where known, the line. The list is
    empty if there are none.
    """
    checker = _Checker(index)
    for entry in entries:
        checker.check(entry, ())
    return list(dict.fromkeys(checker.problems))


class _Checker:
    """Walks through tasks and groups and collects the problems of their files in `problems`."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.problems: list[str] = []
        self._seen: set[str] = set()
        #: The tasks below each group that was visited, with their metrics; see `_metrics_below`.
        self._below: dict[str, dict[str, set[str] | None]] = {}

    def check(self, entry: Entry, chain: tuple[str, ...]) -> None:
        """Adds to `problems` those of a task, a group with all its members, or all tasks of a tag.

        Each task and group is checked only once. `chain` holds the names of the groups that contain
        the entry, the outermost first.
        """
        if entry.kind is Kind.TAG:
            for name in sorted(entry.tags):
                self.check(self.index[name], chain)
            return
        if entry.name in self._seen:
            return
        self._seen.add(entry.name)
        if len(chain) > DEEPEST_GROUP:
            self._report(
                str(entry.path),
                f"groups are nested more than {DEEPEST_GROUP} levels deep. List the tasks "
                "directly.",
            )
            return
        self.problems += [
            f"{path}: the name {entry.name!r} is already used by {entry.path}; choose another name."
            for path in entry.duplicates
        ]
        try:
            file = file_of(entry)
        except ConfigError as error:
            self.problems.append(str(error))
            return
        self._check_functions(file)
        if entry.kind is Kind.GROUP:
            self._check_group(entry.name, file, file.values, (*chain, entry.name))
        else:
            self._check_task(file, file.values, python=entry.kind is Kind.PY_TASK)

    def _report(self, where: str, problem: str) -> None:
        self.problems.append(f"{where}: {problem}")

    # -- functions ----------------------------------------------------------------------------

    def _check_functions(self, file: YamlFile) -> None:
        """Reports each `!function` whose Python file is missing or does not define the name.

        A file outside the folder of task files is reported, too. Python files are parsed, not run.
        If only running one would show its names, nothing is reported; nor is a missing file whose
        module name has a dot, because it may be in an installed package.
        """
        for ref in function_refs(file.values):
            try:
                ref.check(file.root)
            except ConfigError as error:
                self.problems.append(str(error))
                continue
            if is_regular(ref.path):
                defined = _defined_names(ref.path)
                if defined is not None and ref.name not in defined:
                    close = suggestion(ref.name, defined)
                    self._report(ref.where, f"{ref.path} has no {ref.name!r}.{close}")
            elif ref.is_path or "." not in ref.module:
                self._report(ref.where, f"there is no file {ref.path}.")

    # -- tasks --------------------------------------------------------------------------------

    def _check_task(self, file: YamlFile, values: Mapping[str, Any], python: bool) -> None:
        """Reports the problems of a task file, whose keys are `values`.

        For a Python task (`python`), only fields of the wrong type are reported.
        """
        known = field_types(TaskConfig)
        for key, value in values.items():
            if key in known:
                self._check_type(file.where(key), key, value, known[key])
            elif key not in _OTHER_KEYS and not python:
                self._report(file.where(key), f"unknown key {key!r}.{suggestion(key, known)}")
        if python:
            return
        if not any(values.get(key) for key in ("dataset_path", "custom_dataset")):
            self._report(
                str(file.path), "the task has no dataset: set dataset_path or custom_dataset."
            )
        if not any(values.get(key) for key in ("test_split", "validation_split")):
            self._report(
                str(file.path),
                "the task has no split to evaluate: set test_split or validation_split.",
            )
        choices = any(values.get(key) for key in ("doc_to_choice", "use_prompt"))
        if values.get("output_type") == "multiple_choice" and not choices:
            self._report(
                file.where("output_type"),
                "multiple_choice needs doc_to_choice: set it, or choose another output_type.",
            )
        for key in _TEMPLATES:
            self._check_template(file.where(key), key, values.get(key))
        self._check_fewshot(file, values.get("fewshot_config"))
        self._check_generation(file.where("generation_kwargs"), values.get("generation_kwargs"))
        scores_itself = "process_results" in values
        for number, entry in enumerate(_items(values.get("metric_list"))):
            self._check_metric(file.where(f"metric_list[{number}]"), entry, scores_itself)
        self._check_filters(file, values.get("filter_list"), scores_itself)
        self._check_formats(file, values.get("formats"))

    def _check_type(self, where: str, key: str, value: Any, hint: Any) -> bool:
        """Returns whether `value` has the type `hint`; reports a problem if not."""
        if conforms(value, hint):
            return True
        self._report(where, f"{key} must be {describe(hint)}, not {value!r}.")
        return False

    def _check_template(self, where: str, key: str, source: Any) -> None:
        if isinstance(source, str):
            problem = syntax_error(source)
            if problem is not None:
                self._report(where, f"{key}, {problem.rstrip('.')}.")

    def _check_fewshot(self, file: YamlFile, given: Any) -> None:
        if not isinstance(given, Mapping):
            return
        where, known = file.where("fewshot_config"), field_types(FewshotConfig)
        for key, value in given.items():
            if key not in known:
                self._report(where, f"fewshot_config: unknown key {key!r}.{suggestion(key, known)}")
            else:
                self._check_type(where, f"fewshot_config.{key}", value, known[key])
        sampler = given.get("sampler", "default")
        if isinstance(sampler, str):
            self._check_registered(where, "few-shot sampler", sampler, sampler_registry)

    def _check_generation(self, where: str, given: Any) -> None:
        for name in given if isinstance(given, Mapping) else ():
            if problem := find_misspelled([name]):
                self._report(where, f"generation_kwargs: {problem}")

    def _check_metric(self, where: str, entry: Any, scores_itself: bool) -> None:
        """Reports an entry of `metric_list` that is malformed or contains an unknown name.

        These are names of metrics, aggregations and reductions. Where the task has its own
        `process_results` (`scores_itself`), any metric name is valid. `where` is the `file:line` to
        report.
        """
        if not isinstance(entry, Mapping) or "metric" not in entry:
            self._report(where, f"an entry of metric_list needs the key `metric`: {entry!r}.")
            return
        metric, aggregation = entry["metric"], entry.get("aggregation")
        if isinstance(metric, str) and not scores_itself:
            from_evaluate = entry.get("hf_evaluate") or metric in hf_evaluate.KNOWN
            if not from_evaluate and parse_repeat_metric(metric) is None:
                self._check_registered(where, "metric", metric, metric_registry)
        elif not isinstance(metric, (str, FunctionRef)):
            self._report(where, f"the `metric` of an entry must be a name, not {metric!r}.")
        if isinstance(aggregation, str):
            self._check_registered(where, "aggregation", aggregation, aggregation_registry)
        reduction = reduction_name(entry.get("reduction"))
        if reduction is not None:
            self._check_registered(where, "reduction", reduction, reduction_registry)

    def _check_filters(self, file: YamlFile, given: Any, scores_itself: bool) -> None:
        for number, pipeline in enumerate(_items(given)):
            where = file.where(f"filter_list[{number}]")
            steps = pipeline.get("filter") if isinstance(pipeline, Mapping) else None
            if not isinstance(steps, list) or "name" not in pipeline:
                self._report(
                    where, "an entry of filter_list needs a `name` and a list of filters `filter`."
                )
                continue
            for entry in _items(pipeline.get("metric_list")):
                self._check_metric(where, entry, scores_itself)
            for step in steps:
                function = step.get("function") if isinstance(step, Mapping) else None
                if function is None:
                    self._report(where, f"a filter needs the key `function`: {step!r}.")
                elif isinstance(function, str):
                    self._check_registered(where, "filter", function, filter_registry)
                    self._check_files(where, step, file.path.parent)

    def _check_files(self, where: str, step: Mapping[str, Any], folder: Path) -> None:
        """Reports files that a filter step names and that do not exist; see `FILE_ARGUMENTS`.

        Paths are relative to `folder`, that of the task file.
        """
        nested = step.get("kwargs")
        given = {**step, **nested} if isinstance(nested, Mapping) else step
        for name in file_arguments(step["function"]):
            path = given.get(name)
            if not isinstance(path, str):
                self._report(where, f"the filter {step['function']} needs `{name}`, a file.")
            elif not is_regular(folder / user_path(path)):
                self._report(
                    where,
                    f"the filter {step['function']} reads {folder / path}, but there is no such "
                    f"file. Set `{name}` to a path relative to the folder of the task file.",
                )

    def _check_formats(self, file: YamlFile, given: Any) -> None:
        where = file.where("formats")
        try:
            tables = declared_formats(given)
        except ConfigError as error:
            self._report(where, str(error))
            return
        for name, table in tables.items():
            self._check_registered(where, "format", str(table.get("type", name)), format_registry)

    def _check_registered(self, where: str, kind: str, name: str, known: Any) -> None:
        """Reports `name` if the registry `known` does not have it.

        A name that Python code in the task's folder mentions is accepted: that code may register it
        when it runs. `kind` describes the name in the message, such as "metric". `where` is the
        `file:line` to report; its folder is the task's folder.
        """
        folder = Path(where.rpartition(":")[0]).parent
        if name not in known and not _is_quoted_in(name, folder):
            self._report(where, f"unknown {kind} {name!r}.{suggestion(name, list(known))}")

    # -- groups -------------------------------------------------------------------------------

    def _check_group(
        self,
        name: str,
        file: YamlFile,
        values: Mapping[str, Any],
        chain: tuple[str, ...],
        inherited: Mapping[str, Any] | None = None,
    ) -> None:
        """Reports the problems of a group and of all its members.

        `values` are the group's keys, `file` is the file that contains them: its own, or that of
        the group in which it is written inline. `chain` holds the names of the groups that lead to
        it, itself last. `inherited` are the settings of its tasks that these groups make.
        """
        own = {k: v for k, v in values.items() if k not in GROUP_FIELDS}
        settings = {**own, **(inherited or {})}
        known = field_types(GroupConfig)
        top = len(chain) == 1 or file.values is values
        for key, value in values.items():
            where = file.where(key) if top else str(file.path)
            if key in known:
                self._check_type(where, key, value, known[key])
            elif key not in field_types(TaskConfig) and key not in _OTHER_KEYS:
                close = suggestion(key, [*known, *field_types(TaskConfig)])
                self._report(where, f"unknown key {key!r}.{close}")
        if file.values is values:  # `_check_member` checks the settings of inline groups
            self._check_generation(file.where("generation_kwargs"), values.get("generation_kwargs"))
        for number, member in enumerate(_items(values.get("task"))):
            where = file.where(f"task[{number}]") if top else file.where("task")
            self._check_member(name, file, where, member, chain, settings)
        self._check_aggregates(name, file, values, settings)

    def _check_member(
        self,
        group: str,
        file: YamlFile,
        where: str,
        member: Any,
        chain: tuple[str, ...],
        settings: Mapping[str, Any],
    ) -> None:
        """Reports the problems of an entry of a group's member list, and of what it names.

        An entry is a problem itself if it is malformed, names nothing in the index, or contains the
        group. `group` is the name of the group, `where` the `file:line` of the entry, and `chain`
        holds the names of the groups that lead to it, `group` last. `settings` are those that the
        groups make for their tasks.
        """
        spec = {"task": member} if isinstance(member, str) else member
        if not isinstance(spec, Mapping) or not ("task" in spec or "group" in spec):
            self._report(
                where,
                f"a member must be a name or a mapping with a `task` or `group` key: {member!r}.",
            )
            return
        self._check_generation(where, spec.get("generation_kwargs"))
        name = str(spec.get("group", spec.get("task")))
        base, mark, format_name = name.rpartition("@")
        if mark and name not in self.index:
            format_name = format_name.partition(ROTATION_MARK)[0]
            self._check_registered(where, "format", format_name, format_registry)
            name = base
        if name in chain:
            cycle = " -> ".join([*chain[chain.index(name) :], name])
            self._report(
                where,
                f"these groups contain each other in a cycle: {cycle}. Remove one of them from "
                "the other's members.",
            )
        elif "group" in spec and "task" in spec:
            inner = f"{group}::{name}"
            self._check_group(inner, file, spec, (*chain, inner), settings)
        elif name in self.index:
            self.check(self.index[name], chain)
        elif set(spec) <= {"task", "group"} and "::" not in name:
            close = suggestion(name, self.index)
            self._report(where, f"there is no task, group or tag {name!r}.{close} {ELSEWHERE}")

    def _check_aggregates(
        self, group: str, file: YamlFile, values: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> None:
        """Reports problems of a group's `aggregate_metric_list`; `values` are the group's keys.

        These are malformed entries, unknown keys, and metrics that no task of the group reports.
        `settings` are those that the group makes for its tasks.
        """
        wanted = values.get("aggregate_metric_list")
        for number, item in enumerate([wanted] if isinstance(wanted, Mapping) else _items(wanted)):
            where = file.where(f"aggregate_metric_list[{number}]")
            if not isinstance(item, Mapping) or "metric" not in item:
                self._report(
                    where, f"an entry of aggregate_metric_list needs the key `metric`: {item!r}."
                )
                continue
            known = [f.name for f in fields(AggMetricConfig)]
            for key in item:
                if key not in known and key != "higher_is_better":
                    self._report(
                        where,
                        f"aggregate_metric_list: unknown key {key!r}.{suggestion(str(key), known)}",
                    )
            if not any(key in settings for key in _DETERMINE_METRICS):
                self._check_reported(where, group, _metric_name(item["metric"]), values.get("task"))

    def _check_reported(self, where: str, group: str, metric: str, members: Any) -> None:
        """Reports `metric`, which a group aggregates, if none of the tasks below the group has it.

        Does nothing if the metrics of one of these tasks cannot be known without running code, and
        for published groups that are kept as they are. `members` is the group's member list.
        """
        if (group.partition("::")[0], metric) in _AS_PUBLISHED:
            return
        below = list(self._metrics_below(members).values())
        known = [found for found in below if found]
        if known and len(known) == len(below) and not any(metric in found for found in known):
            reported = ", ".join(sorted(set().union(*known)))
            self._report(
                where,
                f"group {group!r} aggregates {metric!r}, which none of its {len(below)} tasks "
                f"reports. They report: {reported}.",
            )

    def _metrics_below(self, members: Any) -> dict[str, set[str] | None]:
        """Returns the reported metrics of every task below a list of members, by task name.

        They are None where the task's code or prompt format determines them. Unknown names, Python
        tasks and unreadable files are left out.
        """
        below: dict[str, set[str] | None] = {}
        for member in _items(members):
            spec = {"task": member} if isinstance(member, str) else member
            if not isinstance(spec, Mapping):
                continue
            if "group" in spec and "task" in spec:
                below |= self._metrics_below(spec["task"])
                continue
            name = str(spec.get("group", spec.get("task")))
            below |= self._metrics_of_entry(self.index.get(name), spec)
        return below

    def _metrics_of_entry(
        self, entry: Entry | None, overrides: Mapping[str, Any]
    ) -> dict[str, set[str] | None]:
        """Returns the reported metrics of every task that `entry` leads to, by task name.

        `overrides` replace keys of a task file, also of the tasks of a tag, but not of those of a
        group. Empty if `entry` is None. Python tasks and unreadable files are left out.
        """
        if entry is None or entry.kind is Kind.PY_TASK:
            return {}
        if entry.kind is Kind.TAG:
            below: dict[str, set[str] | None] = {}
            for name in sorted(entry.tags):
                below |= self._metrics_of_entry(self.index[name], overrides)
            return below
        if entry.kind is Kind.GROUP and entry.name in self._below:
            return self._below[entry.name]
        try:
            file = file_of(entry)
        except ConfigError:
            return {}
        if entry.kind is Kind.TASK:
            return {entry.name: _reported_metrics({**file.values, **overrides})}
        self._below[entry.name] = {}  # what a group in a cycle sees of itself
        self._below[entry.name] = self._metrics_below(file.values.get("task"))
        return self._below[entry.name]


def _reported_metrics(values: Mapping[str, Any]) -> set[str] | None:
    """Returns the names of the metrics of a task; None if its file does not determine them.

    It does not if the task sets `process_results` or `formats`, or if a filter pipeline has its own
    metrics. `values` are the keys of the file.
    """
    if values.get("process_results") or values.get("formats"):
        return None
    entries = values.get("metric_list")
    if any(
        isinstance(p, Mapping) and "metric_list" in p for p in _items(values.get("filter_list"))
    ):
        return None
    if entries is None:
        return set(
            DEFAULT_METRIC_REGISTRY.get(str(values.get("output_type", "generate_until")), ())
        )
    listed = (entry for entry in _items(entries) if isinstance(entry, Mapping))
    return {_metric_name(entry.get("metric")) for entry in listed}


def _metric_name(metric: Any) -> str:
    return metric.name if isinstance(metric, FunctionRef) else str(metric)


@cache
def _is_quoted_in(name: str, folder: Path) -> bool:
    """Returns whether a Python file directly in `folder` contains `name` in quotes.

    Such a file may register the name when it runs.
    """
    return any(True for _ in modules_mentioning([name], folder))


def _items(value: Any) -> list[Any]:
    """Returns `value` if it is a list, a list with `value` if it is a string, or else []."""
    if isinstance(value, str):
        return [value]
    return value if isinstance(value, list) else []


def _defined_names(path: Path) -> set[str] | None:
    """Returns the names that a Python file defines or imports, at any level, without running it.

    None if the file cannot be parsed, imports `*`, or may create names when it runs (it contains
    `globals()` or `__getattr__`).
    """
    try:
        text = read_regular(path)
        tree = ast.parse(text)
    except (ConfigError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if b"globals()" in text or b"__getattr__" in text:
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
