"""Make tasks and groups from what the index found: load the file, apply overrides, instantiate."""

from __future__ import annotations

import inspect
import itertools
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.group import Group
from lm_eval.api.registry import (
    aggregation_registry,
    filter_registry,
    metric_registry,
    reduction_registry,
    sampler_registry,
)
from lm_eval.api.task import Task
from lm_eval.config.functions import resolve_functions, run_modules_that_register
from lm_eval.config.group import GroupConfig
from lm_eval.config.task import TaskConfig
from lm_eval.config.types import conforms, describe, field_types
from lm_eval.config.yaml_file import YamlFile
from lm_eval.errors import ConfigError, EvalError, UnknownNameError, located, suggestion, whence
from lm_eval.metrics.reductions import reduction_name
from lm_eval.prompts.formats import apply_format
from lm_eval.prompts.promptsource import fan_out
from lm_eval.tasks import stand_ins
from lm_eval.tasks.configurable import ConfigurableTask
from lm_eval.tasks.group_file import GROUP_FIELDS, PATH_MARK, GroupFile, trust
from lm_eval.tasks.index import Entry, Index, Kind, file_of, kind_of
from lm_eval.tasks.recorded import RecordedTask

logger = logging.getLogger(__name__)

Built = Task | Group
Overrides = Mapping[str, Any]

#: Keys of a task file that say how it is found, not what it is.
_STRUCTURAL = ("tag", "group", "task_list")
#: What parts a format from a task's name.
FORMAT_MARK = "@"


@dataclass
class Builder:
    """Builds entries of one index. `metadata` goes into every task and group made. `documents`,
    where given, has those of a task, whose data set is then not read.

    A task that several groups share is made once. One that they want differently keeps its name
    in the first and is called `group::task` in the others.
    """

    index: Index
    metadata: dict[str, Any] = field(default_factory=dict)
    documents: Callable[[str], Sequence[Any]] | None = None
    _made: dict[str, list[tuple[Overrides, Task]]] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)

    # -- by name ------------------------------------------------------------------------------

    def by_name(self, name: str, overrides: Overrides | None = None) -> list[Built] | None:
        """What a name, `name@format` or `group::member` stands for; None if nothing does."""
        if name in self.index:
            return self.build(self.index[name], overrides)
        base, mark, format_name = name.rpartition(FORMAT_MARK)
        if mark and format_name and FORMAT not in (overrides or {}):
            return self.by_name(base, {**(overrides or {}), FORMAT: format_name})
        return self._at_path(name.split(PATH_MARK), overrides) if PATH_MARK in name else None

    def _at_path(self, names: list[str], overrides: Overrides | None = None) -> list[Built] | None:
        """Walk from a group down to one of its members."""
        if names[0] not in self.index:
            return None
        if self.index[names[0]].kind is Kind.TASK and len(names) == 2:
            prompts = _named_prompts(names[0], self._prompts(self.index[names[0]], overrides or {}))
            own = prompts.get(PATH_MARK.join(names))
            if own is None:
                return None
            return [self._shared_task(self.index[names[0]], {**(overrides or {}), **own}, None)]
        if self.index[names[0]].kind is not Kind.GROUP:
            return None
        group = GroupFile.load(self.index[names[0]])
        inherited: Overrides = dict(overrides or {})
        for depth, name in enumerate(names[1:], start=1):
            number, member = group.member(name, self.index)
            if depth == len(names) - 1:
                return self._member(group, number, member, {**group.defaults, **inherited})
            inherited = {**group.defaults, **inherited}
            group = self._descend(group, number, member)
        return None

    def _descend(self, group: GroupFile, number: int, member: Mapping[str, Any]) -> GroupFile:
        name = member.get("group", member.get("task"))
        if name in self.index and self.index[name].kind is Kind.GROUP:
            own = {k: v for k, v in member.items() if k not in ("group", "task")}
            inner = GroupFile.load(self.index[name])
            inner.defaults.update(own)
            return inner
        if "group" in member:
            return group.inline(member)
        raise ConfigError(f"{group.where(number)}: {name!r} is a task; nothing lies below it.")

    # -- entries ------------------------------------------------------------------------------

    def build(
        self, entry: Entry, overrides: Overrides | None = None, group: str | None = None
    ) -> list[Built]:
        """One task or group; for a tag, all of its tasks."""
        overrides = overrides or {}
        if entry.kind is Kind.TAG:
            members = (self.index[name] for name in sorted(entry.tags))
            return [built for member in members for built in self.build(member, overrides, group)]
        if entry.kind is Kind.GROUP:
            return [self._group(GroupFile.load(entry), overrides)]
        prompts = self._prompts(entry, overrides)
        if len(prompts) > 1:
            return [self._prompt_group(entry, overrides, prompts)]
        return [self._shared_task(entry, overrides, group)]

    # -- many prompts -------------------------------------------------------------------------

    def _prompts(self, entry: Entry, overrides: Overrides) -> dict[str, str]:
        """The prompts a task's `use_prompt` stands for, by name."""
        file = file_of(entry)
        try:
            return fan_out({**file.values, **overrides}, file.path.parent if entry.path else None)
        except EvalError as error:
            raise located(error, file.where("use_prompt") if entry.path else None) from error

    def _prompt_group(
        self, entry: Entry, overrides: Overrides, prompts: Mapping[str, str]
    ) -> Group:
        """One task asked in many ways: a group of it, a member a prompt."""
        group = Group.from_config(GroupConfig(group=entry.name, task=[]))
        for own in _named_prompts(entry.name, prompts).values():
            group.add(self._shared_task(entry, {**overrides, **own}, None))
        return group

    def _shared_task(self, entry: Entry, overrides: Overrides, group: str | None) -> Task:
        """A task from a file is made once for all who want it the same way."""
        made = self._made.setdefault(entry.path, []) if entry.path else []
        for others, task in made:
            if others == overrides:
                return task
        task = self._task(entry, overrides)
        if group is not None:
            self._rename(task, f"{group}{PATH_MARK}{task.task_name}")
        self._taken.add(task.task_name)
        made.append((overrides, task))
        return task

    def _rename(self, task: Task, name: str) -> None:
        """Give a task whose name is taken another; the table goes on showing its own."""
        if task.task_name not in self._taken:
            return
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        free = next(n for n in (name, *itertools.islice(numbered, 99)) if n not in self._taken)
        task.rename(free, alias=task.config.task_alias or task.task_name)

    # -- tasks --------------------------------------------------------------------------------

    def _task(self, entry: Entry, overrides: Overrides) -> Task:
        file = file_of(entry)
        trust(file)
        stand_ins.offer()
        try:
            values = self.configure(entry, file, overrides)
            make = values.pop("class", None)
            if make is not None:
                return _python_task(make, values)
            if entry.path:
                run_modules_that_register(_unregistered(values), file.path.parent)
            config = known_fields(values, file)
            if self.documents is not None:
                return RecordedTask(config, self.documents(config["task"]))
            return ConfigurableTask(config=config)
        except EvalError as error:
            raise located(error, _place(error, file) if entry.path else None) from error
        except (Exception, SystemExit) as error:  # from code in the task folder, mostly
            raise ConfigError(
                f"{file.path}: task {entry.name!r} cannot be built: {whence(error)}"
            ) from error

    def configure(
        self, entry: Entry, file: YamlFile, overrides: Overrides | None = None
    ) -> dict[str, Any]:
        """A task's fields: its file, what goes over it, its functions looked up, its format."""
        values: dict[str, Any] = resolve_functions({**file.values, **(overrides or {})})
        format_name = values.pop(FORMAT, None)
        values["metadata"] = self._with_metadata(values.get("metadata"), entry)
        for key in _STRUCTURAL:
            values.pop(key, None)
        if format_name is not None:
            values["task"] = f"{values['task']}{FORMAT_MARK}{format_name}"
        if "class" not in values:
            return apply_format(values, format_name)
        if format_name is not None:
            raise ConfigError(f"task {entry.name!r} is a Python class: a format does not reach it.")
        return values

    def _with_metadata(self, given: Any, entry: Entry) -> dict[str, Any]:
        own = given if isinstance(given, dict) else {} if given is None else {"_metadata": given}
        return {**own, **self.metadata, "config_source": entry.path or "inline"}

    # -- groups -------------------------------------------------------------------------------

    def _group(self, file: GroupFile, overrides: Overrides) -> Group:
        """A group and its children. What the caller overrides goes before the group's own."""
        try:
            own = {k: v for k, v in file.values.items() if k in GROUP_FIELDS}
            config = GroupConfig(**{**own, "group": file.name})
        except EvalError as error:
            raise located(error, file.path) from error
        config.metadata = {**(config.metadata or {}), **self.metadata}
        group = Group.from_config(config)
        for number, member in enumerate(config.members):
            for child in self._member(file, number, member, {**file.defaults, **overrides}):
                group.add(child)
        if not len(group):
            raise ConfigError(
                f"{file.path}: group {file.name!r} has no members: list them as task."
            )
        return group

    def _member(
        self, file: GroupFile, number: int, member: Any, overrides: Overrides
    ) -> list[Built]:
        """A child given by name, by name with overrides, or written out in place."""
        if isinstance(member, str):
            member = {"task": member}
        if not isinstance(member, Mapping) or not ("task" in member or "group" in member):
            raise ConfigError(
                f"{file.where(number)}: a member of group {file.name!r} is a name, or has a "
                f"`task` or `group` key; this one has not: {member!r}."
            )
        if "group" in member:
            return self._member_group(file, member, overrides)
        name, own = member["task"], {k: v for k, v in member.items() if k != "task"}
        base, mark, format_name = name.rpartition(FORMAT_MARK)
        if mark and name not in self.index:
            name, own[FORMAT] = base, format_name
        if name in self.index:
            file.refuse_circle(self.index[name], number)
            return self._in(file, self.index[name], {**overrides, **own})
        if not own.keys() - {FORMAT}:
            found = self.by_name(name, {**overrides, **own})
            if found is not None:
                return found
            raise UnknownNameError(
                f"{file.where(number)}: group {file.name!r} names {name!r}, but there is no such "
                f"task, group or tag.{suggestion(name, self.index)}"
            )
        inline = {**overrides, **own, "task": f"{file.name}{PATH_MARK}{name}"}
        entry = Entry(inline["task"], kind_of(inline) or Kind.TASK, None, cfg=inline)
        try:
            return self.build(entry)
        except EvalError as error:
            raise located(error, file.where(number)) from error

    def _member_group(
        self, file: GroupFile, member: Mapping[str, Any], overrides: Overrides
    ) -> list[Built]:
        name = member["group"]
        if name not in self.index or "task" in member:
            return [self._group(file.inline(member), overrides)]
        own = {k: v for k, v in member.items() if k != "group"}
        return self._in(file, self.index[name], {**overrides, **own})

    def _in(self, file: GroupFile, entry: Entry, overrides: Overrides) -> list[Built]:
        if entry.kind is Kind.GROUP:
            return [self._group(GroupFile.load(entry, file.chain), overrides)]
        return self.build(entry, overrides, file.name)


#: Under this key a format asked for by `@` travels among the overrides.
FORMAT = "@format"


def _place(error: EvalError, file: YamlFile) -> str:
    """The line of the key whose template the error quotes; failing that, the file."""
    quoted = {k: v for k, v in file.values.items() if isinstance(v, str) and repr(v) in str(error)}
    templates = [key for key, value in quoted.items() if "{" in value]
    return file.where(next(iter(templates), ""))


def _named_prompts(task: str, prompts: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """What each prompt makes of the task, by the name `task::prompt` it gets, all different."""
    named: dict[str, dict[str, str]] = {}
    for prompt, use_prompt in prompts.items():
        name = f"{task}{PATH_MARK}{_slug(prompt)}"
        numbered = (f"{name}-{number}" for number in itertools.count(2))
        name = next(n for n in itertools.chain([name], numbered) if n not in named)
        named[name] = {"use_prompt": use_prompt, "task": name, "task_alias": prompt}
    return named


def _slug(name: str) -> str:
    """A prompt's name as part of a task's name: no spaces, nothing a file name minds."""
    return re.sub(r"[^\w.]+", "-", name).strip("-").lower()


def _unregistered(values: Mapping[str, Any]) -> set[str]:
    """The filters, metrics and samplers that are named and not registered yet."""
    used: list[tuple[Any, Any]] = []
    pipelines = [p for p in values.get("filter_list") or () if isinstance(p, Mapping)]
    for holder in (values, *pipelines):
        for entry in holder.get("metric_list") or ():
            if isinstance(entry, Mapping):
                used.append((entry.get("metric"), metric_registry))
                used.append((entry.get("aggregation"), aggregation_registry))
                used.append((reduction_name(entry.get("reduction")), reduction_registry))
    for pipeline in pipelines:
        for step in pipeline.get("filter") or ():
            if isinstance(step, Mapping):
                used.append((step.get("function"), filter_registry))
    shots = values.get("fewshot_config")
    if isinstance(shots, Mapping):
        used.append((shots.get("sampler"), sampler_registry))
    return {name for name, known in used if isinstance(name, str) and name not in known}


def known_fields(values: Mapping[str, Any], file: YamlFile) -> dict[str, Any]:
    """The fields a task has, each of its type; others are named and left out."""
    known = field_types(TaskConfig)
    for key, value in values.items():
        if key not in known:
            close = suggestion(key, known)
            logger.warning("%s: unknown key %r is ignored.%s", file.where(key), key, close)
        elif not conforms(value, known[key]):
            raise ConfigError(
                f"{file.where(key)}: {key} must be {describe(known[key])}, not {value!r}."
            )
    return {k: v for k, v in values.items() if k in known}


def _python_task(make: Any, values: dict[str, Any]) -> Task:
    if not callable(make):
        raise ConfigError(f"class: {make!r} is not a class; write `class: !function file.Name`.")
    takes_config = "config" in inspect.signature(make.__init__).parameters
    # The class stands in its own configuration, where those written for the published harness
    # remove it.
    task: Task = make(config={**values, "class": make}) if takes_config else make()
    task.rename(values["task"])
    return task
