"""`TaskManager`: ask for tasks by name, and get them ready to run."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from lm_eval import markdown
from lm_eval.errors import ConfigError, UnknownNameError, suggestion
from lm_eval.tasks import packs
from lm_eval.tasks.index import Entry, Index, Kind, build_index, kind_of, offer_as_package

if TYPE_CHECKING:
    from lm_eval.api.group import Group
    from lm_eval.api.task import Task
    from lm_eval.tasks.build import Builder, Built

LIBRARY = Path(__file__).parent
_PREFIXED = re.compile(rf"\w[\w.\-]*{packs.PACK_MARK}[\w*?\[][^/\\]*")
_INSIDE, _OUTSIDE = f"{LIBRARY}{os.sep}", f"{LIBRARY.parents[1]}{os.sep}"


class TaskDict(TypedDict):
    """What `TaskManager.load` gives: every task, every group, and who is whose child."""

    tasks: dict[str, Task]
    groups: dict[str, Group]
    group_map: dict[str, list[str]]


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
        folders = _folders(include_path)
        self._index: Index = build_index(([LIBRARY] if include_defaults else []) + folders)
        #: Every pack's own names; those that nobody else has are found without its name too.
        self._packs = {p.name: build_index([p.tasks]) for p in packs.installed()}
        if include_defaults:
            for index in self._packs.values():
                _add_new(self._index, index)
        for folder in folders:
            offer_as_package(folder)

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
        return [entry.name for entry in _of_kind(self._index, *kinds)]

    def match_tasks(self, task_list: Iterable[str]) -> list[str]:
        """The known names that some patterns (`mmlu_*`) match."""
        return pattern_match(task_list, self._index)

    def search(self, text: str, *kinds: Kind) -> list[Entry]:
        """Everything of some kinds whose name holds a text; `pack:text` looks into a pack."""
        pack, mark, inside = text.partition(packs.PACK_MARK)
        if mark and pack in self._packs:
            found = _of_kind(self._packs[pack], *kinds)
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
        """Tables of what there is, and where; with `search` or `only`, of what these find alone."""
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

    def load(
        self, task_list: Any, documents: Callable[[str], Sequence[Any]] | None = None
    ) -> TaskDict:
        """Build what is asked for: names, tags, patterns, paths, dictionaries or ready objects.

        A name may carry a format (`arc_easy@mcqa`) or lead into a group (`mmlu::mmlu_anatomy`).
        `documents` gives those of a task by its name, in place of its data set.
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
                        f"task {task.task_name!r} is asked for twice with different settings; "
                        "give one of them a name of its own (`task:`), or evaluate them in "
                        "separate runs."
                    )
        group_map = {name: group.child_names for name, group in groups.items()}
        return {"tasks": tasks, "groups": groups, "group_map": group_map}

    def _build_all(
        self, task_list: Any, documents: Callable[[str], Sequence[Any]] | None = None
    ) -> list[Built]:
        from lm_eval.tasks.build import Builder

        specs = list(task_list) if isinstance(task_list, (list, tuple)) else [task_list]
        builder = Builder(self._index, self.metadata, documents)
        return [item for spec in specs for item in self._build(builder, spec)]

    def _build(self, builder: Builder, spec: Any) -> list[Built]:
        from lm_eval.api.group import Group
        from lm_eval.api.task import Task
        from lm_eval.tasks.build import FORMAT, FORMAT_MARK, Builder

        if isinstance(spec, (Task, Group)):
            return [spec]
        if isinstance(spec, dict):
            return builder.build(*self._entry_of(spec))
        if not isinstance(spec, str):
            raise ConfigError(f"a task is asked for by name, path or dictionary, not by {spec!r}.")
        pack, spec = self._parted(spec)
        index = self._packs.get(pack, self._index)
        if pack:  # its groups may name what is not its own
            builder = Builder({**self._index, **index}, builder.metadata, builder.documents)
        if spec in index or _base(spec) in index:
            found = builder.by_name(spec)
            if found is not None:
                return found
        path, _, format_name = spec.rpartition(FORMAT_MARK)
        if path.endswith((".yaml", ".yml")):
            return builder.build(_entry_of_file(Path(path).expanduser()), {FORMAT: format_name})
        return [item for entry in self._find(spec, pack) for item in builder.build(entry)]

    def _parted(self, name: str) -> tuple[str, str]:
        """`pack:name` in its parts; the first is empty for what is looked for everywhere."""
        pack, _, inside = name.partition(packs.PACK_MARK)
        if pack in self._packs and inside and not inside.startswith(packs.PACK_MARK):
            return pack, inside
        if _PREFIXED.fullmatch(name) and name not in self._index and not Path(name).exists():
            raise UnknownNameError(
                f"there is no pack {pack!r} to look for {inside!r} in."
                f"{suggestion(pack, self._packs)} `lm-eval packs ls` lists them."
            )
        return "", name

    def _entry_of(self, config: dict[str, Any]) -> tuple[Entry, dict[str, Any]]:
        """A dictionary that names a known task overrides it; any other defines its own."""
        kind = kind_of(config)
        if kind is None:
            raise ConfigError(f"a task dictionary needs a `task` or `group` key: {config!r}.")
        name = config.get("group" if kind is Kind.GROUP else "task")
        if kind is Kind.TASK and isinstance(name, str):
            pack, inside = self._parted(name)
            known = self._packs.get(pack, self._index).get(inside)
            if known is not None:
                return known, {k: v for k, v in config.items() if k != "task"}
        return Entry(str(name), kind, None, cfg=config), {}

    def entries(self, name: str) -> list[Entry]:
        """What a name, a pattern of names, or a path leads to, found but not built."""
        pack, name = self._parted(name)
        index = self._packs.get(pack, self._index)
        return [index[_base(name)]] if _base(name) in index else self._find(name, pack)

    def _find(self, name: str, pack: str) -> list[Entry]:
        """What a pattern of names (in a pack, its own alone) or a path leads to.

        A folder stands for the task files right in it, but names that match go before a folder
        that happens to be called so too.
        """
        index = self._packs.get(pack, self._index)
        path = Path(name).expanduser()
        if path.is_file() or (path.suffix in (".yaml", ".yml") and not glob.has_magic(name)):
            return [_entry_of_file(path)]
        names = sorted(fnmatch.filter(index, name))
        if names:
            return [index[found] for found in names]
        files = sorted(path.glob("*.yaml")) if path.is_dir() else _files_like(path)
        found = [entry for file in files if (entry := _entry_in(file)) is not None]
        if not found:
            raise unknown_task(name, index, pack)
        return found

    def load_task_or_group(self, task_list: Any) -> dict[Any, Any]:
        """The older, nested form: `{ConfigurableGroup: {name: Task}, name: Task}`."""
        nested: dict[Any, Any] = {}
        for item in self._build_all(task_list):
            nested |= _nested(item)
        return nested


def pattern_match(patterns: str | Iterable[str], source_list: Iterable[str]) -> list[str]:
    """The names that one or several patterns (`mmlu_*`) match, in the order of the alphabet."""
    wanted = [patterns] if isinstance(patterns, str) else patterns
    return sorted({name for pattern in wanted for name in fnmatch.filter(source_list, pattern)})


def _of_kind(index: Index, *kinds: Kind) -> list[Entry]:
    return [entry for _, entry in sorted(index.items()) if entry.kind in kinds]


def _base(name: str) -> str:
    """The task or group that `name@format` and `group::member` begin with."""
    return name.partition("@")[0].partition("::")[0]


def _location(entry: Entry) -> str:
    """Where an entry is defined; in the library, as seen from outside the package."""
    if entry.path is None:
        return "---"
    return entry.path.removeprefix(_OUTSIDE) if entry.path.startswith(_INSIDE) else entry.path


def unknown_task(name: str, index: Index, pack: str = "") -> UnknownNameError:
    if pack:
        return UnknownNameError(
            f"the pack {pack} has no task, group or tag {name!r}.{suggestion(name, index)} "
            f"`lm-eval ls tasks {pack}:` lists all it has."
        )
    return UnknownNameError(
        f"there is no task, group or tag {name!r}.{suggestion(name, index)} "
        "`lm-eval ls tasks` lists them all; --include_path DIR adds a folder of your own, `lm-eval "
        "packs add SOURCE` what others have published."
    )


def _files_like(path: Path) -> list[Path]:
    matches = glob.glob(str(path))  # noqa: PTH207 (the pattern may be absolute)
    return sorted(Path(found) for found in matches if found.endswith(".yaml"))


def _entry_of_file(path: Path) -> Entry:
    entry = _entry_in(path)
    if entry is None:
        raise ConfigError(f"{path}: defines no task or group: it has neither key.")
    return entry


def _entry_in(path: Path) -> Entry | None:
    """What a file defines; None where it is only a part for others to include."""
    from lm_eval.config.yaml_file import load_yaml_file

    values = load_yaml_file(path).values
    kind = kind_of(values)
    if kind is None:
        return None
    name = values.get("group" if kind is Kind.GROUP else "task")
    return Entry(str(name), kind, str(path.resolve()))


def _folders(include_path: str | Path | Sequence[str | Path] | None) -> list[Path]:
    if not include_path:
        return []
    given = [include_path] if isinstance(include_path, (str, Path)) else include_path
    return [Path(folder).expanduser().resolve() for folder in given]


def _add_new(index: Index, pack: Index) -> None:
    """A pack's names, where they are free; a tag grows by the pack's tasks."""
    for name, entry in pack.items():
        if name not in index:
            index[name] = entry
        elif entry.kind is Kind.TAG and index[name].kind is Kind.TAG:
            index[name].tags.update(t for t in entry.tags if index.get(t) is pack.get(t))


def _nested(item: Built) -> dict[Any, Any]:
    from lm_eval.api.group import ConfigurableGroup, Group

    if not isinstance(item, Group):
        return {item.task_name: item}
    inside: dict[Any, Any] = {}
    for child in item:
        inside |= _nested(child)
    return {ConfigurableGroup.from_group(item): inside}
