"""`TaskManager`: ask for tasks by name, and get them ready to run."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypedDict

from lm_eval.api.group import ConfigurableGroup, Group
from lm_eval.api.task import Task
from lm_eval.config.yaml_file import load_yaml_file
from lm_eval.errors import ConfigError, UnknownNameError, suggestion
from lm_eval.tasks.build import Builder, Built
from lm_eval.tasks.index import Entry, Index, Kind, build_index, kind_of

LIBRARY = Path(__file__).parent


class TaskDict(TypedDict):
    """What `TaskManager.load` gives: every task, every group, and who is whose child."""

    tasks: dict[str, Task]
    groups: dict[str, Group]
    group_map: dict[str, list[str]]


Spec = str | dict[str, Any] | Task | Group


class TaskManager:
    """Knows every task, group and tag under the library and the folders it was given."""

    def __init__(
        self,
        verbosity: str | None = None,
        include_path: str | Path | Sequence[str | Path] | None = None,
        include_defaults: bool = True,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """`verbosity` is accepted and ignored: logging is set up by whoever runs the program."""
        self.include_path = include_path
        self.metadata = metadata or {}
        roots = ([LIBRARY] if include_defaults else []) + _folders(include_path)
        self._index: Index = build_index(roots)
        self._builder = Builder(self._index, self.metadata)

    @property
    def task_index(self) -> Index:
        return self._index

    @property
    def all_tasks(self) -> list[str]:
        """Every name: tasks, groups and tags."""
        return sorted(self._index)

    @property
    def all_groups(self) -> list[str]:
        return self._named(Kind.GROUP)

    @property
    def all_subtasks(self) -> list[str]:
        """Single tasks alone."""
        return self._named(Kind.TASK, Kind.PY_TASK)

    @property
    def all_tags(self) -> list[str]:
        return self._named(Kind.TAG)

    def _named(self, *kinds: Kind) -> list[str]:
        return sorted(name for name, entry in self._index.items() if entry.kind in kinds)

    def match_tasks(self, task_list: Iterable[str]) -> list[str]:
        """The known names that some patterns (`mmlu_*`) match."""
        patterns = list(task_list)
        return sorted(n for n in self._index if any(fnmatch.fnmatchcase(n, p) for p in patterns))

    # -- loading ------------------------------------------------------------------------------

    def load(self, task_list: Spec | Sequence[Spec]) -> TaskDict:
        """Build what is asked for: names, tags, patterns, paths, dictionaries or ready objects."""
        specs = list(task_list) if isinstance(task_list, (list, tuple)) else [task_list]
        built = [item for spec in specs for item in self._build(spec)]
        tasks: dict[str, Task] = {}
        groups: dict[str, Group] = {}
        for item in built:
            if isinstance(item, Group):
                groups[item.name] = item
                groups |= {group.name: group for group in item.get_all_groups()}
                tasks |= {task.task_name: task for task in item.get_all_tasks()}
            else:
                tasks[item.task_name] = item
        _refuse_overlap(built)
        group_map = {name: group.child_names for name, group in groups.items()}
        return {"tasks": tasks, "groups": groups, "group_map": group_map}

    def _build(self, spec: Any) -> list[Built]:
        if isinstance(spec, (Task, Group)):
            return [spec]
        if isinstance(spec, dict):
            return self._from_dict(spec)
        if not isinstance(spec, str):
            raise ConfigError(f"a task is asked for by name, path or dictionary, not by {spec!r}.")
        if spec in self._index:
            return self._builder.build(self._index[spec])
        path = Path(spec).expanduser()
        if path.suffix in (".yaml", ".yml") or path.is_file():
            return self._from_file(path)
        matches = self.match_tasks([spec])
        if not matches:
            raise unknown_task(spec, self._index)
        return [item for name in matches for item in self._builder.build(self._index[name])]

    def _from_file(self, path: Path) -> list[Built]:
        values = load_yaml_file(path).values
        kind = kind_of(values)
        if kind is None:
            raise ConfigError(f"{path}: defines no task or group: it has neither key.")
        name = values.get("group" if kind is Kind.GROUP else "task")
        return self._builder.build(Entry(str(name), kind, str(path.resolve())))

    def _from_dict(self, config: dict[str, Any]) -> list[Built]:
        kind = kind_of(config)
        if kind is None:
            raise ConfigError(f"a task dictionary needs a `task` or `group` key: {config!r}.")
        name = config["group" if kind is Kind.GROUP else "task"]
        if kind is Kind.TASK and name in self._index:
            overrides = dict(config)
            if self._index[name].kind is not Kind.TASK:
                overrides.pop("task")
            return self._builder.build(self._index[name], overrides)
        return self._builder.build(Entry(str(name), kind, None, cfg=config))

    def load_task_or_group(self, task_list: Spec | Sequence[Spec]) -> dict[Any, Any]:
        """The older, nested form: `{ConfigurableGroup: {name: Task}, name: Task}`."""
        specs = list(task_list) if isinstance(task_list, (list, tuple)) else [task_list]
        nested: dict[Any, Any] = {}
        for spec in specs:
            for item in self._build(spec):
                nested |= _nested(item)
        return nested


def unknown_task(name: str, index: Index) -> UnknownNameError:
    return UnknownNameError(
        f"there is no task, group or tag {name!r}.{suggestion(name, index)} "
        "`lm-eval ls tasks` lists them all; --include_path DIR adds a folder of your own."
    )


def _folders(include_path: str | Path | Sequence[str | Path] | None) -> list[Path]:
    if not include_path:
        return []
    given = [include_path] if isinstance(include_path, (str, Path)) else include_path
    return [Path(folder).expanduser().resolve() for folder in given]


def _nested(item: Built) -> dict[Any, Any]:
    if not isinstance(item, Group):
        return {item.task_name: item}
    inside: dict[Any, Any] = {}
    for child in item:
        inside |= _nested(child)
    return {ConfigurableGroup.from_group(item): inside}


def _refuse_overlap(built: Sequence[Built]) -> None:
    """A task counted in two of the things asked for would be reported once, under either."""
    source_of: dict[str, str] = {}
    for item in built:
        source = item.name if isinstance(item, Group) else item.task_name
        tasks = item.get_all_tasks() if isinstance(item, Group) else [item]
        for name in (task.task_name for task in tasks):
            if source_of.setdefault(name, source) != source:
                raise ConfigError(
                    f"task {name!r} is part of both {source_of[name]!r} and {source!r}; "
                    "ask for one of them, or evaluate them in separate runs."
                )
