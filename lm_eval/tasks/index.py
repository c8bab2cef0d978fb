"""The index of all tasks, groups and tags by name, built without running code of task folders."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from lm_eval.config.functions import FunctionRef
from lm_eval.config.source_imports import install_finder
from lm_eval.config.yaml_file import YamlFile, load_yaml_file
from lm_eval.errors import ConfigError
from lm_eval.tasks import index_store
from lm_eval.tasks.index_store import State
from lm_eval.tasks.scan import Scan, scan_file

logger = logging.getLogger(__name__)

_IGNORED_FOLDERS = {"__pycache__", ".ipynb_checkpoints"}
#: How many files may include each other in a row; `load_yaml_file` allows fewer.
_DEEPEST_INCLUDE = 100
#: How many unreadable files of a folder get a warning of their own.
_MOST_WARNINGS = 10


#: Stands for the file of a task or group that is given as a dictionary.
INLINE = Path("inline")


class Kind(Enum):
    """What a name in the index denotes; a Python task is one whose file has the key `class`."""

    TASK = "task"
    PY_TASK = "python task"
    GROUP = "group"
    TAG = "tag"


@dataclass
class Entry:
    """What a name in the index denotes.

    `path` is the YAML file of a task or group. A task or group that was given as a dictionary
    has that in `inline` instead. `tags` are the tags of a task or group; for a tag, they are the
    names of its tasks. `duplicates` are other files below the same root folder that define
    the same name; they are ignored. `output_type` is None if the file does not set it. `root` is
    the folder of task files in which the entry was found; None if its file was named directly.
    `written_in` is the group file that contains a task as an inline dictionary.
    """

    name: str
    kind: Kind
    path: str | None = None
    inline: dict[str, Any] | None = None
    tags: set[str] = field(default_factory=set)
    duplicates: list[str] = field(default_factory=list)
    output_type: str | None = None
    root: Path | None = None
    written_in: str | None = None

    @property
    def source(self) -> str | None:
        """The file in which a task or group is written; None for a dictionary of a program."""
        return self.path or self.written_in

    @property
    def yaml_path(self) -> Path | None:
        """The YAML file of a task or group; None for a tag or a dictionary."""
        return None if self.path is None else Path(self.path)

    @property
    def cfg(self) -> dict[str, Any] | None:
        """The configuration of a task or group, as in `file_of`; None for a tag.

        The file is read on each access. A reference to a function is text: the folder, and what
        follows `!function`.
        """
        if self.kind is Kind.TAG:
            return None
        return {key: _with_text(value) for key, value in file_of(self).values.items()}


Index = dict[str, Entry]


def file_of(entry: Entry) -> YamlFile:
    """Returns the configuration of a task or group, read from its file or its dictionary.

    Files that it includes are merged, but `!function` references are not resolved. A dictionary
    gets the path `inline` and has no line numbers. Raises `ConfigError` if a file cannot be read.
    """
    if entry.path is not None:
        return load_yaml_file(entry.path, entry.root)
    return YamlFile(INLINE, dict(entry.inline or {}), {})


def _with_text(value: Any) -> Any:
    """Returns a copy of a configuration with each reference to a function as text."""
    if isinstance(value, FunctionRef):
        return f"{value.folder}/{value.qualified_name}"
    if isinstance(value, dict):
        return {key: _with_text(one) for key, one in value.items()}
    return [_with_text(one) for one in value] if isinstance(value, list) else value


def build_index(roots: Iterable[Path]) -> Index:
    """Returns all tasks, groups and tags below the folders `roots`, by name.

    If several folders define a name, the last one wins, and a warning is logged. Within one folder,
    the file that comes first in alphabetical order wins. Raises `ConfigError` if a folder does not
    exist.
    """
    index: Index = {}
    for root in roots:
        if not root.is_dir():
            raise ConfigError(
                f"include_path: there is no folder {root}. Give the path of a folder of task files."
            )
        for name, entry in _index_folder(root).items():
            if name in index and (entry.path, entry.tags) != (index[name].path, index[name].tags):
                new = entry.path or f"a tag in {root}"
                old = index[name].path or "a tag in a folder before it"
                logger.warning(
                    "the task, group or tag %s from %s replaces the one from %s; rename one of "
                    "them to keep both.",
                    name,
                    new,
                    old,
                )
            index[name] = entry
    return index


def make_importable(folder: Path, last: bool = False) -> None:
    """Makes the subfolders of `folder` importable as `lm_eval.tasks.<subfolder>`.

    They take precedence over bundled benchmarks of the same name, or with `last`, the bundled
    ones do. A Python file directly in `folder` never replaces a module of `lm_eval.tasks`: one of
    the same name is imported first.
    """
    install_finder()
    search = sys.modules[str(__package__)].__path__
    if str(folder) not in search:
        own = {file.stem for file in Path(__file__).parent.glob("[!_]*.py")}
        for name in sorted(own & {file.stem for file in folder.glob("*.py")}):
            importlib.import_module(f"{__package__}.{name}")
        search.insert(len(search) if last else 0, str(folder))


def kind_of(values: Scan | dict[str, Any]) -> Kind | None:
    """Returns what a configuration defines, judging by its keys.

    It is a Python task if it has the key `class`, else a group if it has `group`, else a task if it
    has `task`. None if it has none of these, because it is only meant to be included by others.
    """
    if isinstance(values, dict):
        values = Scan(
            has_class="class" in values, has_group="group" in values, has_task="task" in values
        )
    if values.has_class:
        return Kind.PY_TASK
    if values.has_group:
        return Kind.GROUP
    return Kind.TASK if values.has_task else None


def _index_folder(root: Path) -> Index:
    """Returns the index of one folder.

    It comes from the on-disk cache if no file has changed; otherwise changed files are read again
    and the cache is updated. Logs a warning for each file that is not valid YAML.
    """
    states = _yaml_files(str(root))
    stored = index_store.load_names(root, states, _state)
    if stored is not None:
        names, unreadable = stored
        index = {
            name: Entry(name, Kind(kind), path, None, set(tags), duplicates, output_type, root)
            for name, kind, path, tags, duplicates, output_type in names
        }
        _warn_unreadable(unreadable)
        return index
    scans = _Scans(index_store.load_scans(root), states)
    index = _read_names(sorted(states), scans, root)
    unreadable = sorted(path for path in states if scans.found.get(path) is None)
    names = [
        (e.name, e.kind.value, e.path, sorted(e.tags), e.duplicates, e.output_type)
        for e in index.values()
    ]
    index_store.save(root, scans.states, scans.found, names, unreadable)
    _warn_unreadable(unreadable)
    return index


def _warn_unreadable(paths: list[str]) -> None:
    """Logs a warning for each file that is not valid YAML, or one for all if there are many.

    This cannot wait until the task is used, because the file's task name is not known.
    """
    for path in paths[:_MOST_WARNINGS]:
        logger.warning(
            "%s cannot be read as YAML and is ignored; `lm-eval validate %s` shows the error.",
            path,
            path,
        )
    if len(paths) > _MOST_WARNINGS:
        logger.warning(
            "%d more files cannot be read as YAML and are ignored, such as %s.",
            len(paths) - _MOST_WARNINGS,
            paths[_MOST_WARNINGS],
        )


def _read_names(paths: Iterable[str], scans: _Scans, root: Path) -> Index:
    """Returns the tasks, groups and tags that the files `paths` define, by name.

    If two files define the same name, the first in `paths` gets it; the other is added to its
    `duplicates`, and a message is logged. Files that define no task or group are skipped. `scans`
    reads the keys of the files, which are below `root`.
    """
    index: Index = {}
    for path in paths:
        found = scans.merged(path)
        kind = kind_of(found)
        name = found.group if kind is Kind.GROUP else found.task
        if kind is None or name is None:
            continue
        if name in index:
            user = index[name].path or "a tag of that name"
            level = logging.DEBUG if kind is Kind.GROUP else logging.WARNING
            logger.log(
                level,
                "%s is ignored: the name %r is already used by %s; choose another name.",
                path,
                name,
                user,
            )
            index[name].duplicates.append(path)
            continue
        tags = found.tags or ()
        index[name] = Entry(
            name, kind, path, tags=set(tags), output_type=found.output_type, root=root
        )
        if kind is not Kind.GROUP:
            for tag in tags:
                index.setdefault(tag, Entry(tag, Kind.TAG, root=root)).tags.add(name)
    return index


class _Scans:
    """The indexed keys of every file, read from the cache where the file has not changed.

    `found` holds the keys of each file read so far, None if it is not valid YAML. `states` holds
    the modification time and size of each file.
    """

    def __init__(self, stored: index_store.Scans, states: dict[str, State]) -> None:
        self._stored = stored
        self.states = dict(states)
        self.found: dict[str, Scan | None] = {}
        self._merged: dict[str, Scan] = {}

    def _own(self, path: str) -> Scan:
        """Returns the keys of a file without those of the files it includes.

        An empty `Scan` if the file is missing or not valid YAML. `path` may be outside the indexed
        folder or have another extension, if it is included.
        """
        if path not in self.found:
            state = self.states.get(path) or _state(path)
            self.states[path] = state
            stored = self._stored.get(path)
            known = stored is not None and stored[0] == state
            self.found[path] = stored[1] if stored is not None and known else scan_file(path)
        return self.found[path] or Scan()

    def merged(self, path: str, depth: int = 0) -> Scan:
        """Returns the keys of a file, merged over those of the files it includes.

        Of several included files, the last wins. Each file is visited once. `depth` is the number
        of files that lead to this one. Where files include each other in a cycle, or in too long a
        row, some keys may be missing; the file cannot be loaded then anyway.
        """
        if path in self._merged:
            return self._merged[path]
        own = self._own(path)
        self._merged[path] = own  # what a file that is included by this one sees of it
        if not own.includes or depth > _DEEPEST_INCLUDE:
            return own
        merged = Scan()
        for name in own.includes:
            target = os.path.normpath(os.path.join(os.path.dirname(path), name))
            merged = _merge(self.merged(target, depth + 1), merged)
        self._merged[path] = merged = _merge(own, merged)
        return merged


def _merge(upper: Scan, lower: Scan) -> Scan:
    """Returns the keys of a file and of one that it includes, combined.

    `upper` is the including file: its keys override those of `lower`. The result has no `includes`.
    """
    return Scan(
        task=upper.task if upper.has_task else lower.task,
        group=upper.group if upper.has_group else lower.group,
        has_class=upper.has_class or lower.has_class,
        has_task=upper.has_task or lower.has_task,
        has_group=upper.has_group or lower.has_group,
        tags=lower.tags if upper.tags is None else upper.tags,
        output_type=lower.output_type if upper.output_type is None else upper.output_type,
    )


def _state(path: str) -> State:
    """Returns a file's modification time (ns) and size, or zeros if there is no file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # ValueError: a NUL character in the name
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


def _yaml_files(root: str) -> dict[str, State]:
    """Returns every `.yaml` file below a folder, by path, with its modification time (ns) and size.

    Links to folders are followed, but only once per target. `__pycache__` and `.ipynb_checkpoints`
    are skipped. A folder that cannot be read is skipped with a warning.
    """
    found: dict[str, State] = {}
    waiting, seen = [root], set()
    while waiting:
        folder = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            logger.warning("%s is ignored: it cannot be read (%s).", folder, error.strerror)
            continue
        for entry in entries:
            if entry.name.endswith(".yaml"):
                # A pipe or a device counts as a file: `scan_file` refuses it.
                if not _is_folder(entry) and (status := _status(entry)) is not None:
                    found[entry.path] = (status.st_mtime_ns, status.st_size)
            elif entry.name not in _IGNORED_FOLDERS and _is_folder(entry):
                if entry.is_symlink():  # followed only once, because it may form a loop
                    real = os.path.realpath(entry.path)
                    if real in seen:
                        continue
                    seen.add(real)
                waiting.append(entry.path)
    return found


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # links in a circle, or a folder without permission
        return False


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Returns the status of a file; None for a link that leads nowhere."""
    try:
        return entry.stat()
    except OSError:
        return None
