"""`TaskManager`: finds tasks, groups and tags by name and builds them."""

from __future__ import annotations

import fnmatch
import glob
import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from lm_eval import markdown
from lm_eval.config.regular_file import is_regular
from lm_eval.errors import ConfigError, UnknownNameError, suggestion
from lm_eval.tasks import packs
from lm_eval.tasks.index import Entry, Index, Kind, build_index, kind_of, make_importable
from lm_eval.tasks.plugins import task_folders

if TYPE_CHECKING:
    from lm_eval.api.group import Group
    from lm_eval.api.task import Task
    from lm_eval.tasks.build import Builder, TaskOrGroup

logger = logging.getLogger(__name__)

LIBRARY = Path(__file__).parent
_PREFIXED = re.compile(rf"\w[\w.\-]*{packs.PACK_SEPARATOR}[\w*?\[][^/\\]*")
_INSIDE, _OUTSIDE = f"{LIBRARY}{os.sep}", f"{LIBRARY.parents[1]}{os.sep}"


class TaskDict(TypedDict):
    """The result of `TaskManager.load`.

    `tasks` and `groups` hold every task and group by name, including members of groups.
    `group_map` holds the names of each group's direct members.
    """

    tasks: dict[str, Task]
    groups: dict[str, Group]
    group_map: dict[str, list[str]]


class TaskManager:
    """Finds and builds the tasks of the built-in library, plug-ins, packs and other folders.

    Creating one reads the task files, or a cache of them, and runs none of their code.
    """

    def __init__(
        self,
        verbosity: str | None = None,
        include_path: str | Path | Sequence[str | Path] | None = None,
        include_defaults: bool = True,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Indexes all task folders.

        Args:
            verbosity: accepted for compatibility and ignored; configure `logging` instead.
            include_path: A folder of task files, or several; their tasks replace tasks of the
                library that have the same name.
            include_defaults: whether the library, plug-ins and packs are included. If not, tasks of
                plug-ins and packs can still be selected as `prefix:name`.
            metadata: values to merge into the metadata of every task and group.

        Raises:
            ConfigError: a folder of `include_path` does not exist.
        """
        self.include_path = include_path
        self.metadata = metadata or {}
        folders = _folders(include_path)
        self._index: Index = build_index(([LIBRARY] if include_defaults else []) + folders)
        prefixed = _prefixed_folders()
        #: All folders of task files; a file in one of them belongs to it, also if named directly.
        self._roots = [LIBRARY, *prefixed.values(), *folders]
        #: The index of each plug-in and each pack. Names that are not used elsewhere are added to
        #: `_index`; others can only be selected as `prefix:name`.
        self._prefixed = {name: build_index([folder]) for name, folder in prefixed.items()}
        if include_defaults:
            for index in self._prefixed.values():
                _add_new(self._index, index)
        for folder in folders:
            make_importable(folder)

    @property
    def task_index(self) -> Index:
        """All tasks, groups and tags by name."""
        return self._index

    @property
    def all_tasks(self) -> list[str]:
        """The names of all tasks, groups and tags, sorted."""
        return sorted(self._index)

    @property
    def all_groups(self) -> list[str]:
        """The names of all groups, sorted."""
        return self._named(Kind.GROUP)

    @property
    def all_subtasks(self) -> list[str]:
        """The names of all tasks, without groups and tags, sorted."""
        return self._named(Kind.TASK, Kind.PY_TASK)

    @property
    def all_tags(self) -> list[str]:
        """The names of all tags, sorted."""
        return self._named(Kind.TAG)

    def _named(self, *kinds: Kind) -> list[str]:
        return [entry.name for entry in _of_kind(self._index, *kinds)]

    def match_tasks(self, task_list: Iterable[str]) -> list[str]:
        """Returns the names that match any of the patterns `task_list` (`mmlu_*`), sorted."""
        return pattern_match(task_list, self._index)

    def search(self, text: str, *kinds: Kind) -> list[Entry]:
        """Returns the entries of the given kinds whose name contains `text`, sorted by name.

        `prefix:text` searches only the plug-in or pack called `prefix`, and so does `prefix` alone,
        unless it is part of a name. The list is empty if nothing is found, or if no `kinds` are
        given.
        """
        pack, mark, inside = text.partition(packs.PACK_SEPARATOR)
        if pack in self._prefixed and (mark or not any(text in name for name in self._index)):
            found = _of_kind(self._prefixed[pack], *kinds)
            return [entry for entry in found if inside in entry.name]
        return [entry for entry in _of_kind(self._index, *kinds) if text in entry.name]

    def list_all_tasks(
        self,
        list_groups: bool = True,
        list_tags: bool = True,
        list_subtasks: bool = True,
        search: str = "",
        only: Callable[[Entry], bool] = lambda entry: True,
    ) -> str:
        """Returns Markdown tables of groups, tags and tasks with the files that define them.

        `list_groups`, `list_tags` and `list_subtasks` choose the tables. `search` and `only`
        restrict them: to names that contain a string (see `search()`), and to entries for which a
        function returns true. With `search`, a table without rows is left out.
        """
        groups = [[e.name, _location(e)] for e in filter(only, self.search(search, Kind.GROUP))]
        tags = [[e.name] for e in filter(only, self.search(search, Kind.TAG))]
        singles = filter(only, self.search(search, Kind.TASK, Kind.PY_TASK))
        tasks = [[e.name, _location(e), e.output_type or ""] for e in singles]
        tables = [
            (list_groups, ["Group", "Config Location"], groups),
            (list_tags, ["Tag"], tags),
            (list_subtasks, ["Task", "Config Location", "Output Type"], tasks),
        ]
        return "\n".join(
            markdown.table(headers, rows)
            for wanted, headers, rows in tables
            if wanted and (rows or not search)
        )

    # -- loading ------------------------------------------------------------------------------

    def outline(self, task_list: Any) -> dict[str, Task]:
        """Returns tasks by name whose configuration can be read; no dataset is loaded.

        `task_list` is as in `load`. The datasets of tasks that are Python classes are loaded
        nevertheless.
        """
        return self.load(task_list, lambda name: None)["tasks"]

    def load(
        self, task_list: Any, documents: Callable[[str], Sequence[Any] | None] | None = None
    ) -> TaskDict:
        """Builds tasks and groups and returns them by name.

        Args:
            task_list: one or a list of: the name of a task, group or tag; a pattern of names
                (`mmlu_*`); the path of a task file or folder; a dictionary with a task's
                configuration; a `Task` or `Group` object. A name may include a prompt format
                (`arc_easy@mcqa`), a member of a group (`mmlu::mmlu_anatomy`) or a pack
                (`pack:name`).
            documents: A function from a task's name to its documents, or to None if only its
                configuration is needed. If given, the datasets of the tasks are not loaded.

        Raises:
            UnknownNameError: nothing has the given name, or a pattern matches nothing.
            ConfigError: a task cannot be built, or is selected twice with different settings.
            DataError: the dataset of a task cannot be loaded.
        """
        from lm_eval.api.group import Group

        tasks: dict[str, Task] = {}
        groups: dict[str, Group] = {}
        for item in self._build_all(task_list, documents):
            if isinstance(item, Group):
                groups[item.name] = item
                groups |= {group.name: group for group in item.get_all_groups()}
                found = item.get_all_tasks()
            else:
                found = [item]
            for task in found:
                if tasks.setdefault(task.task_name, task) is not task:
                    raise ConfigError(
                        f"task {task.task_name!r} is selected twice with different settings; give "
                        "one of them a different name (`task:`), or evaluate them in separate "
                        "runs."
                    )
        group_map = {name: group.child_names for name, group in groups.items()}
        return {"tasks": tasks, "groups": groups, "group_map": group_map}

    def _build_all(
        self, task_list: Any, documents: Callable[[str], Sequence[Any] | None] | None = None
    ) -> list[TaskOrGroup]:
        """Returns the tasks and groups that `task_list` selects, in order; see `load`."""
        from lm_eval.tasks.build import Builder

        specs = list(task_list) if isinstance(task_list, (list, tuple)) else [task_list]
        builder = Builder(self._index, self.metadata, documents)
        return [item for spec in specs for item in self._build(builder, spec)]

    def _build(self, builder: Builder, spec: Any) -> list[TaskOrGroup]:
        """Returns the tasks and groups that one item of the `task_list` of `load` selects.

        Raises `UnknownNameError` if there are none, and `ConfigError` if the item has the wrong
        type.
        """
        from lm_eval.api.group import Group
        from lm_eval.api.task import Task
        from lm_eval.tasks.build import FORMAT, FORMAT_SEPARATOR, Builder

        if isinstance(spec, (Task, Group)):
            return [spec]
        if isinstance(spec, dict):
            return builder.build(*self._entry_of(spec))
        if not isinstance(spec, str):
            raise ConfigError(
                "an item of the task list must be a name, a path, a dictionary, a Task or a Group, "
                f"not {spec!r}."
            )
        pack, spec = self._split_pack(spec)
        index = self._prefixed.get(pack, self._index)
        if pack:  # groups of a pack may refer to tasks outside it
            builder = Builder({**self._index, **index}, builder.metadata, builder.documents)
        if spec in index or _base(spec) in index:
            found = builder.by_name(spec)
            if found is not None:
                return found
        path, _, format_name = spec.rpartition(FORMAT_SEPARATOR)
        if path.endswith((".yaml", ".yml")):
            return builder.build(
                self._entry_of_file(Path(path).expanduser()), {FORMAT: format_name}
            )
        return [item for entry in self._find(spec, pack) for item in builder.build(entry)]

    def _split_pack(self, name: str) -> tuple[str, str]:
        """Returns `(prefix, name)` of `prefix:name`; the prefix is "" if `name` has none.

        Raises `UnknownNameError` if the prefix is not the name of a plug-in or pack.
        """
        pack, _, inside = name.partition(packs.PACK_SEPARATOR)
        if pack in self._prefixed and inside and not inside.startswith(packs.PACK_SEPARATOR):
            return pack, inside
        if _PREFIXED.fullmatch(name) and name not in self._index and not Path(name).exists():
            raise UnknownNameError(
                f"there is no plug-in or pack {pack!r}, so {name!r} cannot be found."
                f"{suggestion(pack, self._prefixed)} "
                f"Installed: {', '.join(sorted(self._prefixed)) or 'none'}."
            )
        return "", name

    def _entry_of(self, config: dict[str, Any]) -> tuple[Entry, dict[str, Any]]:
        """Returns the index entry and the overrides that a task dictionary describes.

        If its `task` is a known name, also with a prompt format (`name@format`), the other keys
        override that task, before the format is applied. Otherwise the dictionary
        defines a new task or group, and there are no overrides. Raises `ConfigError` if it has none
        of the keys `task`, `group` and `class`.
        """
        kind = kind_of(config)
        if kind is None:
            raise ConfigError(f"a task dictionary needs a `task` or `group` key: {config!r}.")
        name = config.get("group" if kind is Kind.GROUP else "task")
        if kind is Kind.TASK and isinstance(name, str):
            from lm_eval.tasks.build import FORMAT, FORMAT_SEPARATOR

            pack, inside = self._split_pack(name)
            index = self._prefixed.get(pack, self._index)
            overrides = {k: v for k, v in config.items() if k != "task"}
            base, mark, format_name = inside.rpartition(FORMAT_SEPARATOR)
            if inside in index:
                return index[inside], overrides
            if mark and base in index:
                return index[base], {**overrides, FORMAT: format_name}
        return Entry(str(name), kind, None, inline=config), {}

    def entries(self, name: str) -> list[Entry]:
        """Returns the index entries that a name, a pattern of names or a path selects.

        Builds nothing. Of `name@format` and `group::member`, only the part before the mark counts.
        Raises `UnknownNameError` if there are none, and `ConfigError` if a file defines no task or
        group.
        """
        pack, name = self._split_pack(name)
        index = self._prefixed.get(pack, self._index)
        return [index[_base(name)]] if _base(name) in index else self._find(name, pack)

    def _find(self, name: str, pack: str) -> list[Entry]:
        """Returns the index entries that a pattern of names or a path selects.

        With a `pack`, only its own names are searched. A folder selects the task files directly in
        it. A matching name takes precedence over a folder of the same name. Raises
        `UnknownNameError` if there are none, and `ConfigError` if a file defines no task or group.
        """
        index = self._prefixed.get(pack, self._index)
        path = Path(os.path.expanduser(name))  # noqa: PTH111 (`~nobody` is not an error)
        if is_regular(path) or (path.suffix in (".yaml", ".yml") and not glob.has_magic(name)):
            return [self._entry_of_file(path)]
        names = sorted(fnmatch.filter(index, name))
        if names:
            return [index[found] for found in names]
        files = sorted(path.glob("*.yaml")) if path.is_dir() else _files_like(path)
        found = [entry for file in files if (entry := self._entry_in(file)) is not None]
        if not found:
            raise unknown_task(name, index, pack)
        return found

    def _entry_of_file(self, path: Path) -> Entry:
        """Returns the task or group that a file defines; raises `ConfigError` if it has none."""
        entry = self._entry_in(path)
        if entry is None:
            raise ConfigError(
                f"{path}: defines no task or group: it has neither the key `task` nor `group`."
            )
        return entry

    def _entry_in(self, path: Path) -> Entry | None:
        """Returns the task or group that a file defines.

        None if it has none of the keys `task`, `group` and `class`, because it is only meant to be
        included by other files. Raises `ConfigError` if the file cannot be read.
        """
        from lm_eval.config.yaml_file import load_yaml_file

        values = load_yaml_file(path).values
        kind = kind_of(values)
        if kind is None:
            return None
        name = values.get("group" if kind is Kind.GROUP else "task")
        file = path.resolve()
        around = [root for root in self._roots if file.is_relative_to(root.resolve())]
        return Entry(str(name), kind, str(file), root=around[-1] if around else None)

    def load_task_or_group(self, task_list: Any) -> dict[Any, Any]:
        """Builds tasks and groups; returns them as `{ConfigurableGroup: {name: Task}, name: Task}`.

        Groups inside groups are nested in the same way. `task_list` is that of `load`. This is the
        form of older versions of the published harness.
        """
        nested: dict[Any, Any] = {}
        known: dict[str, dict[Any, Any]] = {}
        for item in self._build_all(task_list):
            nested |= _nested(item, known)
        return nested


def pattern_match(patterns: str | Iterable[str], source_list: Iterable[str]) -> list[str]:
    """Returns the names in `source_list` that match any of the patterns (`mmlu_*`), sorted."""
    wanted = [patterns] if isinstance(patterns, str) else patterns
    return sorted({name for pattern in wanted for name in fnmatch.filter(source_list, pattern)})


def _of_kind(index: Index, *kinds: Kind) -> list[Entry]:
    return [entry for _, entry in sorted(index.items()) if entry.kind in kinds]


def _base(name: str) -> str:
    """Returns `name` without the suffixes `@format` and `::member`."""
    return name.partition("@")[0].partition("::")[0]


def _location(entry: Entry) -> str:
    """Returns the file that defines an entry; `---` for an entry without a file, such as a tag.

    The path of a library task is relative to the folder that contains the package `lm_eval`.
    """
    if entry.path is None:
        return "---"
    return entry.path.removeprefix(_OUTSIDE) if entry.path.startswith(_INSIDE) else entry.path


def unknown_task(name: str, index: Index, pack: str = "") -> UnknownNameError:
    """Returns the error about an unknown name, with the most similar names of `index`.

    `pack` is the plug-in or pack in which the name was searched, or "" for all names.
    """
    if pack:
        return UnknownNameError(
            f"{pack} has no task, group or tag {name!r}.{suggestion(name, index)} "
            f"`lm-eval ls tasks {pack}:` lists its tasks."
        )
    return UnknownNameError(
        f"there is no task, group or tag {name!r}.{suggestion(name, index)} "
        "`lm-eval ls tasks` lists them all; --include_path DIR adds the tasks of a folder, and "
        "`lm-eval packs add SOURCE` adds published ones."
    )


def _files_like(path: Path) -> list[Path]:
    matches = glob.glob(str(path))  # noqa: PTH207 (the pattern may be absolute)
    return sorted(Path(found) for found in matches if found.endswith(".yaml"))


def _folders(include_path: str | Path | Sequence[str | Path] | None) -> list[Path]:
    if not include_path:
        return []
    given = [include_path] if isinstance(include_path, (str, Path)) else include_path
    return [Path(folder).expanduser().resolve() for folder in given]


def _prefixed_folders() -> dict[str, Path]:
    """Returns the task folders of plug-ins and of packs, by the prefix that selects them.

    If a plug-in and a pack have the same name, the pack wins, and a warning is logged.
    """
    plugins = task_folders()
    installed = {pack.name: pack.tasks for pack in packs.installed()}
    for name in plugins.keys() & installed.keys():
        logger.warning(
            "There are a plug-in and a pack called %s; %s: selects the tasks of the pack. Remove "
            "the pack with `lm-eval packs remove %s`, and add it under another --name.",
            name,
            name,
            name,
        )
    return {**plugins, **installed}


def _add_new(index: Index, pack: Index) -> None:
    """Adds the names of a plug-in or pack to `index`, except those that are already used.

    If both have a tag, the tag of `index` also gets the tasks of the pack's tag. Tasks whose names
    are already used in `index` are left out.
    """
    shared = [entry for name, entry in pack.items() if name in index and entry.kind is Kind.TAG]
    for name, entry in pack.items():
        index.setdefault(name, entry)
    for tag in shared:
        if index[tag.name].kind is Kind.TAG:
            index[tag.name].tags.update(t for t in tag.tags if index.get(t) is pack.get(t))


def _nested(item: TaskOrGroup, known: dict[str, dict[Any, Any]]) -> dict[Any, Any]:
    """Returns a task or group in the form of `TaskManager.load_task_or_group`.

    `known` holds the groups that were visited, by name; each is visited once.
    """
    from lm_eval.api.group import ConfigurableGroup, Group

    if not isinstance(item, Group):
        return {item.task_name: item}
    if item.name not in known:
        inside: dict[Any, Any] = {}
        for child in item:
            inside |= _nested(child, known)
        known[item.name] = {ConfigurableGroup.from_group(item): inside}
    return known[item.name]
