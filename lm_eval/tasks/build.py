"""Builds tasks and groups from index entries: loads the file, applies overrides, instantiates."""

from __future__ import annotations

import inspect
import itertools
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
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
from lm_eval.config.functions import resolve_functions
from lm_eval.config.group import GroupConfig
from lm_eval.config.python_files import run_modules_that_register
from lm_eval.config.task import TaskConfig
from lm_eval.config.types import conforms, describe, field_types
from lm_eval.config.yaml_file import YamlFile
from lm_eval.errors import (
    ConfigError,
    EvalError,
    UnknownNameError,
    describe_cause,
    raise_interrupt,
    suggestion,
    with_location,
)
from lm_eval.metrics.reductions import reduction_name
from lm_eval.prompts.formats import apply_format
from lm_eval.prompts.promptsource import fan_out
from lm_eval.tasks import import_shims
from lm_eval.tasks.configurable import ConfigurableTask
from lm_eval.tasks.group_file import (
    DEEPEST_GROUP,
    ELSEWHERE,
    GROUP_FIELDS,
    MEMBER_SEPARATOR,
    GroupFile,
    prepare_pack,
)
from lm_eval.tasks.index import INLINE, Entry, Index, Kind, file_of, kind_of
from lm_eval.tasks.recorded import RecordedTask, UnloadedTask

logger = logging.getLogger(__name__)

TaskOrGroup = Task | Group
Overrides = Mapping[str, Any]

#: Keys of a task file that only the index uses; they are not part of a task's configuration.
_INDEX_KEYS = ("tag", "group", "task_list")
#: How many groups may be built together.
_MOST_GROUPS = 10_000
#: Separates a task's name from a prompt format, as in `arc_easy@mcqa`.
FORMAT_SEPARATOR = "@"


@dataclass
class Builder:
    """Builds the tasks and groups of one index.

    `metadata` is merged into the metadata of every task and group. `documents`, if given, is
    called with a task's name and returns its documents, or None if only its configuration is
    needed; the task's dataset is then not loaded.

    A task that several groups use with the same overrides is built once and shared. If the
    overrides differ, the task keeps its name in the first group and is named `group::task` in the
    others.
    """

    index: Index
    metadata: dict[str, Any] = field(default_factory=dict)
    documents: Callable[[str], Sequence[Any] | None] | None = None
    #: The tasks built so far, with the overrides of each, by the path of the task file.
    _built_tasks: dict[str, list[tuple[Overrides, Task]]] = field(default_factory=dict)
    #: The groups built so far, with the overrides of each, by the path of the group file.
    _built_groups: dict[str, list[tuple[Overrides, Group]]] = field(default_factory=dict)
    _used_names: set[str] = field(default_factory=set)
    _group_count: int = 0

    # -- by name ------------------------------------------------------------------------------

    def by_name(self, name: str, overrides: Overrides | None = None) -> list[TaskOrGroup] | None:
        """Builds the tasks and groups that `name` denotes; returns None if the name is unknown.

        `name` is a task, group or tag, optionally with a prompt format (`name@format`) or a path to
        a member of a group (`group::member`). A tag gives all of its tasks. `overrides` replace
        keys of the task files. Raises `UnknownNameError` if a known group has no such member.
        """
        if name in self.index:
            return self.build(self.index[name], overrides)
        base, mark, format_name = name.rpartition(FORMAT_SEPARATOR)
        if mark and format_name and FORMAT not in (overrides or {}):
            return self.by_name(base, {**(overrides or {}), FORMAT: format_name})
        return (
            self._by_member_path(name.split(MEMBER_SEPARATOR), overrides)
            if MEMBER_SEPARATOR in name
            else None
        )

    def _by_member_path(
        self, names: list[str], overrides: Overrides | None = None
    ) -> list[TaskOrGroup] | None:
        """Builds the member that the path `group::subgroup::member`, split into `names`, denotes.

        For a task with `use_prompt`, `task::prompt` denotes one of the prompts that it matches.
        Returns None if the first name is unknown or is neither a group nor a task with such a
        prompt. Raises `UnknownNameError` if a group has no such member, and `ConfigError` if a name
        in the middle is not that of a group.
        """
        if names[0] not in self.index:
            return None
        if self.index[names[0]].kind is Kind.TASK and len(names) == 2:
            entry = self.index[names[0]]
            file = file_of(entry)
            prompts = _named_prompts(names[0], self._prompts(entry, file, overrides or {}))
            own = prompts.get(MEMBER_SEPARATOR.join(names))
            if own is None:
                return None
            return [self._shared_task(entry, file, {**(overrides or {}), **own}, None)]
        if self.index[names[0]].kind is not Kind.GROUP:
            return None
        group = GroupFile.load(self.index[names[0]])
        inherited: Overrides = dict(overrides or {})
        for depth, name in enumerate(names[1:], start=1):
            number, member = group.member(name, self.index)
            if depth == len(names) - 1:
                return self._make_member(group, number, member, {**group.defaults, **inherited})
            inherited = {**group.defaults, **inherited}
            group = self._subgroup(group, number, member)
        return None

    def _subgroup(self, group: GroupFile, number: int, member: Mapping[str, Any]) -> GroupFile:
        """Returns the group that `member`, an entry of the members of `group`, names or defines.

        Further keys of a member that names a group become defaults of its tasks. `number` is the
        position of the member, counted from 0, for the error message. Raises `ConfigError` if it is
        a task or tag.
        """
        name = member.get("group", member.get("task"))
        if name in self.index and self.index[name].kind is Kind.GROUP:
            own = {k: v for k, v in member.items() if k not in ("group", "task")}
            inner = GroupFile.load(self.index[name])
            inner.defaults.update(own)
            return inner
        if "group" in member:
            return group.inline(member)
        raise ConfigError(
            f"{group.where(number)}: {name!r} is a task and has no members; remove what follows "
            f"`{name}{MEMBER_SEPARATOR}`."
        )

    # -- entries ------------------------------------------------------------------------------

    def build(
        self, entry: Entry, overrides: Overrides | None = None, group: str | None = None
    ) -> list[TaskOrGroup]:
        """Builds what `entry` describes: a list with one task or group, or with all tasks of a tag.

        A task whose `use_prompt` matches several prompts becomes a group with one task per prompt.
        `overrides` replace keys of the task files. `group` is the name of the group that is being
        built, if any: it becomes part of a task's name (`group::task`) if that name is already
        used.
        """
        overrides = overrides or {}
        if entry.kind is Kind.TAG:
            members = (self.index[name] for name in sorted(entry.tags))
            return [built for member in members for built in self.build(member, overrides, group)]
        if entry.kind is Kind.GROUP:
            return [self._shared_group(entry, (), overrides)]
        file = file_of(entry)
        prompts = self._prompts(entry, file, overrides)
        if len(prompts) > 1:
            return [self._prompt_group(entry, file, overrides, prompts)]
        return [self._shared_task(entry, file, overrides, group)]

    # -- many prompts -------------------------------------------------------------------------

    def _prompts(self, entry: Entry, file: YamlFile, overrides: Overrides) -> dict[str, str]:
        """Returns the prompts that a task's `use_prompt` matches.

        Maps the name of each prompt to the value of `use_prompt` that selects only this one. Empty
        if the task does not set `use_prompt`. `file` is the configuration of `entry`. Raises
        `UnknownNameError` if no prompt matches, and `ConfigError` if the templates are not found.
        """
        try:
            folder = Path(entry.source).parent if entry.source else None
            return fan_out({**file.values, **overrides}, folder)
        except EvalError as error:
            raise with_location(error, file.where("use_prompt") if entry.path else None) from error

    def _prompt_group(
        self, entry: Entry, file: YamlFile, overrides: Overrides, prompts: Mapping[str, str]
    ) -> Group:
        """Returns a group, named like the task, with one task per prompt in `prompts`.

        `prompts` maps prompt names to values of `use_prompt`. The tasks are called `task::prompt`.
        `file` is the configuration of `entry`.
        """
        group = Group.from_config(GroupConfig(group=entry.name, task=[]))
        for own in _named_prompts(entry.name, prompts).values():
            group.add(self._shared_task(entry, file, {**overrides, **own}, None))
        return group

    def _shared_task(
        self, entry: Entry, file: YamlFile, overrides: Overrides, group: str | None
    ) -> Task:
        """Returns the task of an index entry, built only once per task file and set of overrides.

        `file` is its configuration. An entry without a file is built each time. If another task
        already has the name, this one is renamed to `group::name`, where `group` is the group that
        it is built for; not if `group` is None.
        """
        built = self._built_tasks.setdefault(entry.path, []) if entry.path else []
        for others, task in built:
            if others == overrides:
                return task
        task = self._make_task(entry, file, overrides)
        if group is not None:
            self._rename_if_used(task, f"{group}{MEMBER_SEPARATOR}{task.task_name}")
        self._used_names.add(task.task_name)
        built.append((overrides, task))
        return task

    def _rename_if_used(self, task: Task, name: str) -> None:
        """Renames `task` to `name` if another task already has its name.

        If `name` is used too, a number is appended (`name_2`). Result tables still show the task's
        alias or, without one, its original name.
        """
        if task.task_name not in self._used_names:
            return
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        free = next(n for n in (name, *itertools.islice(numbered, 99)) if n not in self._used_names)
        task.rename(free, alias=task.config.task_alias or task.task_name)

    # -- tasks --------------------------------------------------------------------------------

    def _make_task(self, entry: Entry, file: YamlFile, overrides: Overrides) -> Task:
        """Returns the task of an index entry, with `overrides` applied; runs code from its folder.

        `file` is the configuration of `entry`. The task is an instance of the `class` that the file
        names, or else a `ConfigurableTask`, or a `RecordedTask` if `documents` is set. An
        `EvalError` gets the file and, if known, the line put before its message. Any other
        exception, usually of the task's code, becomes a `ConfigError`.
        """
        prepare_pack(file)
        import_shims.install()
        try:
            values = self.configure(entry, file, overrides)
            task_class = values.pop("class", None)
            if task_class is not None:
                return _python_task(task_class, values)
            if entry.source:
                names, folder = _unregistered_names(values), Path(entry.source).parent
                run_modules_that_register(names, folder, file.root)
            config = known_fields(values, file)
            if self.documents is not None:
                documents = self.documents(config["task"])
                return (
                    UnloadedTask(config) if documents is None else RecordedTask(config, documents)
                )
            return ConfigurableTask(config=config)
        except EvalError as error:
            raise with_location(error, _line_of(error, file) if entry.path else None) from error
        except BaseException as error:  # usually from code in the task folder
            raise_interrupt(error)
            raise ConfigError(
                f"{file.path}: task {entry.name!r} cannot be built: {describe_cause(error)}"
            ) from error

    def configure(
        self, entry: Entry, file: YamlFile, overrides: Overrides | None = None
    ) -> dict[str, Any]:
        """Returns a task's configuration: the values of `file`, replaced by those in `overrides`.

        `!function` references are resolved, and `metadata` is completed with that of the run. Keys
        that only the index uses (`tag`, `group`, `task_list`) are removed. A prompt format is
        applied; if it was requested by `name@format`, it becomes part of the task's name. `entry`
        is the index entry of the task. Raises `ConfigError` if a format is requested for a Python
        class.
        """
        values: dict[str, Any] = resolve_functions({**file.values, **(overrides or {})}, file.root)
        format_name = values.pop(FORMAT, None)
        values["metadata"] = self._with_metadata(values.get("metadata"), entry)
        for key in _INDEX_KEYS:
            values.pop(key, None)
        if format_name is not None:
            values["task"] = f"{values['task']}{FORMAT_SEPARATOR}{format_name}"
        if "class" not in values:
            return apply_format(values, format_name)
        if format_name is not None:
            raise ConfigError(
                f"task {entry.name!r} is a Python class, to which no prompt format can be "
                f"applied; remove {FORMAT_SEPARATOR}{format_name}."
            )
        return values

    def _with_metadata(self, given: Any, entry: Entry) -> dict[str, Any]:
        """Returns the metadata `given` in a task file, overridden by that of the run.

        `config_source` is set to the file in which the task is written, or "inline". Metadata that
        is not a mapping is stored under the key `_metadata`; None counts as empty.
        """
        own = given if isinstance(given, dict) else {} if given is None else {"_metadata": given}
        return {**own, **self.metadata, "config_source": entry.source or "inline"}

    # -- groups -------------------------------------------------------------------------------

    def _shared_group(self, entry: Entry, chain: tuple[str, ...], overrides: Overrides) -> Group:
        """Returns the group of an index entry, built only once per group file and overrides.

        So a group that is a member of many others is not built again for each path that leads to
        it. `chain` holds the names of the groups that contain it, the outermost first.
        """
        built = self._built_groups.setdefault(entry.path, []) if entry.path else []
        for others, group in built:
            if others == overrides:
                return group
        made = self._make_group(GroupFile.load(entry, chain), overrides)
        built.append((overrides, made))
        return made

    def _make_group(self, file: GroupFile, overrides: Overrides) -> Group:
        """Returns a group with all its members; `overrides` win over the group's defaults.

        Raises `ConfigError` if a field of the group is invalid, if the group has no members, or if
        groups are nested too deeply or too often.
        """
        self._group_count += 1
        if len(file.chain) > DEEPEST_GROUP or self._group_count > _MOST_GROUPS:
            raise ConfigError(
                f"{file.path}: group {file.name!r}: groups are nested more than {DEEPEST_GROUP} "
                f"levels deep, or {_MOST_GROUPS} times in all. List the tasks directly."
            )
        try:
            own = {k: v for k, v in file.values.items() if k in GROUP_FIELDS}
            for key, hint in field_types(GroupConfig).items():
                if key in own and not conforms(own[key], hint):
                    raise ConfigError(
                        f"{file.file.where(key)}: {key} of group {file.name!r} must be "
                        f"{describe(hint)}, not {own[key]!r}."
                    )
            config = GroupConfig(**{**own, "group": file.name})
        except EvalError as error:
            raise with_location(error, file.path) from error
        config.metadata = {**(config.metadata or {}), **self.metadata}
        group = Group.from_config(config)
        for number, member in enumerate(config.members):
            for child in self._make_member(file, number, member, {**file.defaults, **overrides}):
                group.add(child)
        if not len(group):
            raise ConfigError(
                f"{file.path}: group {file.name!r} has no members; list them under the key `task`."
            )
        return group

    def _make_member(
        self, file: GroupFile, number: int, member: Any, overrides: Overrides
    ) -> list[TaskOrGroup]:
        """Builds a member of the group `file`: one task or group, or all tasks of a tag, as a list.

        `member` is a name, a mapping with a name and overrides, or a mapping that defines a new
        task or group inline. `number` is its position, counted from 0, for error messages. Raises
        `UnknownNameError` if the name is unknown, and `ConfigError` if the member is malformed or
        contains the group that it belongs to.
        """
        if isinstance(member, str):
            member = {"task": member}
        named = isinstance(member, Mapping) and isinstance(
            member.get("group", member.get("task")), str
        )
        if not named:
            raise ConfigError(
                f"{file.where(number)}: a member of group {file.name!r} must be a name or a "
                f"mapping whose `task` or `group` is a name, not {member!r}."
            )
        if "group" in member:
            return self._make_member_group(file, member, overrides)
        name, own = member["task"], {k: v for k, v in member.items() if k != "task"}
        base, mark, format_name = name.rpartition(FORMAT_SEPARATOR)
        if mark and name not in self.index:
            name, own[FORMAT] = base, format_name
        if name in self.index:
            file.check_cycle(self.index[name], number)
            return self._make_indexed(file, self.index[name], {**overrides, **own})
        if not own.keys() - {FORMAT}:
            found = self.by_name(name, {**overrides, **own})
            if found is not None:
                return found
            raise UnknownNameError(
                f"{file.where(number)}: group {file.name!r} lists {name!r}, but there is no task, "
                f"group or tag of that name.{suggestion(name, self.index)} {ELSEWHERE}"
            )
        inline = {**overrides, **own, "task": f"{file.name}{MEMBER_SEPARATOR}{name}"}
        source = None if file.path == INLINE else str(file.path)
        kind = kind_of(inline) or Kind.TASK
        entry = Entry(inline["task"], kind, None, inline=inline, written_in=source)
        try:
            return self.build(entry)
        except EvalError as error:
            raise with_location(error, file.where(number)) from error

    def _make_member_group(
        self, file: GroupFile, member: Mapping[str, Any], overrides: Overrides
    ) -> list[TaskOrGroup]:
        """Builds a member with the key `group`: the one of that name in the index, or a new one.

        It is a new group, defined inline, if the member also has the key `task`, or if the index
        does not have the name. The list has one element, unless the name is that of a tag.
        """
        name = member["group"]
        if name not in self.index or "task" in member:
            return [self._make_group(file.inline(member), overrides)]
        own = {k: v for k, v in member.items() if k != "group"}
        return self._make_indexed(file, self.index[name], {**overrides, **own})

    def _make_indexed(
        self, file: GroupFile, entry: Entry, overrides: Overrides
    ) -> list[TaskOrGroup]:
        """Builds `entry`, a task, group or tag of the index, as a member of the group `file`."""
        if entry.kind is Kind.GROUP:
            return [self._shared_group(entry, file.chain, overrides)]
        return self.build(entry, overrides, file.name)


#: The key of the overrides that holds the prompt format given by `name@format`.
FORMAT = "@format"


def _line_of(error: EvalError, file: YamlFile) -> str:
    """Returns `file:line` of the key whose template the error message quotes.

    Returns only the file if the message quotes no template of it.
    """
    quoted = {k: v for k, v in file.values.items() if isinstance(v, str) and repr(v) in str(error)}
    templates = [key for key, value in quoted.items() if "{" in value]
    return file.where(next(iter(templates), ""))


def _named_prompts(task: str, prompts: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Returns, for each prompt, the overrides that make `task` use it, by a unique task name.

    The name is `task::prompt`, in which the prompt's name is changed by `_slug`; a number is
    appended (`-2`) if it occurs twice. `prompts` maps each prompt's name to its value of
    `use_prompt`.
    """
    named: dict[str, dict[str, str]] = {}
    for prompt, use_prompt in prompts.items():
        name = f"{task}{MEMBER_SEPARATOR}{_slug(prompt)}"
        numbered = (f"{name}-{number}" for number in itertools.count(2))
        name = next(n for n in itertools.chain([name], numbered) if n not in named)
        named[name] = {"use_prompt": use_prompt, "task": name, "task_alias": prompt}
    return named


def _slug(name: str) -> str:
    """Returns a prompt's name in lower case, safe for file names.

    Runs of characters other than letters, digits, `_` and `.` become one `-`.
    """
    return re.sub(r"[^\w.]+", "-", name).strip("-").lower()


def _unregistered_names(values: Mapping[str, Any]) -> set[str]:
    """Returns the names in a task's configuration `values` that are not registered.

    These are names of metrics, aggregations, reductions, filters and few-shot samplers.
    """
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
    """Returns the items of `values` that are fields of `TaskConfig`.

    Logs a warning for every other key. Raises `ConfigError` if a value has the wrong type. `file`
    is the file of the task, for these messages.
    """
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


def _python_task(task_class: Any, values: dict[str, Any]) -> Task:
    """Returns an instance of a task class, renamed to the `task` in its configuration `values`.

    The configuration is passed only if the class takes a parameter `config`. Raises `ConfigError`
    if `task_class` is not callable.
    """
    if not callable(task_class):
        raise ConfigError(
            f"class: {task_class!r} is not a class; write `class: !function file.Name`."
        )
    takes_config = "config" in inspect.signature(task_class.__init__).parameters
    # Classes written for the published harness remove the key `class` from their configuration,
    # so it must be there.
    config = {**values, "class": task_class}
    task: Task = task_class(config=config) if takes_config else task_class()
    task.rename(values["task"])
    return task
