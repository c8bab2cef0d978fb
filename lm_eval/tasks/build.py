"""Make tasks and groups from what the index found: load the file, apply overrides, instantiate."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from lm_eval.api.group import Group
from lm_eval.api.task import Task
from lm_eval.config.functions import resolve_functions
from lm_eval.config.group import GroupConfig
from lm_eval.config.task import TASK_FIELDS
from lm_eval.config.yaml_file import YamlFile, load_yaml_file
from lm_eval.errors import ConfigError, EvalError, UnknownNameError, suggestion
from lm_eval.tasks.configurable import ConfigurableTask
from lm_eval.tasks.index import Entry, Index, Kind, kind_of

logger = logging.getLogger(__name__)

Built = Task | Group
Overrides = Mapping[str, Any]

_GROUP_FIELDS = {f.name for f in fields(GroupConfig)}
#: Keys of a task file that say how it is found, not what it is.
_STRUCTURAL = ("tag", "group", "task_list", "class")


@dataclass
class Builder:
    """Builds entries of one index. `metadata` goes into every task and group made."""

    index: Index
    metadata: dict[str, Any] = field(default_factory=dict)

    def build(self, entry: Entry, overrides: Overrides | None = None) -> list[Built]:
        """One task or group; for a tag, all of its tasks."""
        if entry.kind is Kind.TAG:
            return [
                built
                for name in sorted(entry.tags)
                for built in self.build(self.index[name], overrides)
            ]
        if entry.kind is Kind.GROUP:
            return [self._group(entry, overrides or {})]
        return [self._task(entry, overrides or {})]

    # -- tasks --------------------------------------------------------------------------------

    def _task(self, entry: Entry, overrides: Overrides) -> Task:
        file = self._load(entry)
        values = {**resolve_functions(file.values), **overrides}
        values["metadata"] = self._with_metadata(values.get("metadata"), entry)
        make = values.get("class")
        for key in _STRUCTURAL:
            values.pop(key, None)
        try:
            if make is not None:
                return _python_task(make, values)
            return ConfigurableTask(config=_known_fields(values, file))
        except EvalError as error:
            if str(file.path) in str(error) or entry.yaml_path is None:
                raise
            raise type(error)(f"{file.path}: {error}") from error

    def _load(self, entry: Entry) -> YamlFile:
        if entry.yaml_path is not None:
            return load_yaml_file(entry.yaml_path)
        return YamlFile(Path("inline"), dict(entry.cfg or {}), {})

    def _with_metadata(self, given: Any, entry: Entry) -> dict[str, Any]:
        own = given if isinstance(given, dict) else {} if given is None else {"_metadata": given}
        source = str(entry.yaml_path) if entry.yaml_path else "inline"
        return {**own, **self.metadata, "config_source": source}

    # -- groups -------------------------------------------------------------------------------

    def _group(self, entry: Entry, overrides: Overrides) -> Group:
        values = resolve_functions(self._load(entry).values)
        return self._group_from(entry.name, values, overrides)

    def _group_from(self, name: str, values: Mapping[str, Any], overrides: Overrides) -> Group:
        """A group and its children. Keys that are not the group's own go to every task below,
        and what the caller overrides goes before them.
        """
        own = {k: v for k, v in values.items() if k in _GROUP_FIELDS}
        config = GroupConfig(**{**own, "group": name})
        config.metadata = {**(config.metadata or {}), **self.metadata}
        group = Group.from_config(config)
        defaults = {k: v for k, v in values.items() if k not in _GROUP_FIELDS}
        for member in config.task or []:
            for child in self._member(member, name, {**defaults, **overrides}):
                group.add(child)
        return group

    def _member(self, member: Any, group: str, overrides: Overrides) -> list[Built]:
        """A child given by name, by name with overrides, or written out in place."""
        if isinstance(member, str):
            member = {"task": member}
        if not isinstance(member, Mapping) or not ("task" in member or "group" in member):
            raise ConfigError(
                f"group {group!r}: each member is a name or has a `task` or `group` key; "
                f"this one has not: {member!r}."
            )
        if "group" in member:
            name = member["group"]
            own = {k: v for k, v in member.items() if k != "group"}
            if name in self.index:
                return self.build(self.index[name], {**overrides, **own})
            return [self._group_from(f"{group}::{name}", own, overrides)]
        name = member["task"]
        if name in self.index:
            entry = self.index[name]
            own = dict(member)
            if entry.kind is not Kind.TASK:
                own.pop("task")  # a group's or tag's tasks keep their own names
            return self.build(entry, {**overrides, **own})
        if set(member) <= {"task"}:
            raise UnknownNameError(
                f"group {group!r}: there is no task, group or tag {name!r}."
                f"{suggestion(name, self.index)}"
            )
        inline = {**overrides, **member, "task": f"{group}::{name}"}
        kind = kind_of(inline) or Kind.TASK
        return [self._task(Entry(inline["task"], kind, None, cfg=inline), {})]


def _known_fields(values: Mapping[str, Any], file: YamlFile) -> dict[str, Any]:
    """The fields a task has; others are named and left out."""
    for key in values:
        if key not in TASK_FIELDS:
            logger.warning(
                "%s: unknown key %r is ignored.%s",
                file.where(key),
                key,
                suggestion(key, TASK_FIELDS),
            )
    return {k: v for k, v in values.items() if k in TASK_FIELDS}


def _python_task(make: Any, values: dict[str, Any]) -> Task:
    takes_config = "config" in inspect.signature(make.__init__).parameters
    task: Task = make(config=values) if takes_config else make()
    task.config.task = values["task"]
    return task
