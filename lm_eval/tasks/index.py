"""Find every task, group and tag by name, without running any code from their folders."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from lm_eval.config.yaml_file import YamlFile, load_yaml_file
from lm_eval.errors import ConfigError
from lm_eval.tasks import index_store
from lm_eval.tasks.index_store import State
from lm_eval.tasks.scan import Scan, scan_file

logger = logging.getLogger(__name__)

_IGNORED_FOLDERS = {"__pycache__", ".ipynb_checkpoints"}


class Kind(Enum):
    TASK = "task"
    PY_TASK = "python task"
    GROUP = "group"
    TAG = "tag"


@dataclass
class Entry:
    """What a name stands for: a YAML file, or for a tag the tasks that carry it.

    A task's or group's `tags` are those it carries itself. `cfg` holds a configuration that was
    given as a dictionary and has no file. `rivals` are files that claim the name too, in vain.
    `output_type` is what the file says of it, if anything.
    """

    name: str
    kind: Kind
    path: str | None = None
    cfg: dict[str, Any] | None = None
    tags: set[str] = field(default_factory=set)
    rivals: list[str] = field(default_factory=list)
    output_type: str | None = None


Index = dict[str, Entry]


def file_of(entry: Entry) -> YamlFile:
    """What an entry stands for, as its file or the dictionary it was given as says it."""
    if entry.path is not None:
        return load_yaml_file(entry.path)
    return YamlFile(Path("inline"), dict(entry.cfg or {}), {})


def build_index(roots: Iterable[Path]) -> Index:
    """All names under some folders; a later folder's names win, and that is said aloud."""
    index: Index = {}
    for root in roots:
        if not root.is_dir():
            raise ConfigError(f"include_path: there is no folder {root}.")
        for name, entry in _index_folder(root).items():
            if name in index and (entry.path, entry.tags) != (index[name].path, index[name].tags):
                ours = entry.path or f"a tag in {root}"
                taken = index[name].path or "a tag in a folder before it"
                logger.warning("%s from %s replaces the one from %s.", name, ours, taken)
            index[name] = entry
    return index


def offer_as_package(folder: Path, last: bool = False) -> None:
    """Let code in a task folder import its neighbours as `lm_eval.tasks.<folder>`.

    Its own come before ours of the same name, as its tasks do; or `last`, as a pack's do.
    """
    search = sys.modules[str(__package__)].__path__
    if str(folder) not in search:
        search.insert(len(search) if last else 0, str(folder))


def kind_of(values: Scan | dict[str, Any]) -> Kind | None:
    """What a configuration defines; None where it is only a part for others to include."""
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
    """The names of one folder: as stored, if no file has changed since; else read anew."""
    states = _yaml_files(str(root))
    stored = index_store.load_names(root, states, _state)
    if stored is not None:
        names, unreadable = stored
        index = {
            name: Entry(name, Kind(kind), path, None, set(tags), rivals, output_type)
            for name, kind, path, tags, rivals, output_type in names
        }
        return _told(index, unreadable)
    scans = _Scans(index_store.load_scans(root), states)
    index = _read_names(sorted(states), scans)
    unreadable = sorted(path for path in states if scans.found.get(path) is None)
    names = [
        (e.name, e.kind.value, e.path, sorted(e.tags), e.rivals, e.output_type)
        for e in index.values()
    ]
    index_store.save(root, scans.states, scans.found, names, unreadable)
    return _told(index, unreadable)


def _told(index: Index, unreadable: list[str]) -> Index:
    """A file that cannot be read has no name to ask for, so its author is told at once."""
    for path in unreadable:
        logger.warning(
            "%s cannot be read as YAML and is passed over; `lm-eval validate %s` says why.",
            path,
            path,
        )
    return index


def _read_names(paths: Iterable[str], scans: _Scans) -> Index:
    """Of two files with one name, the first by path has it."""
    index: Index = {}
    for path in paths:
        found = scans.merged(path)
        kind = kind_of(found)
        name = found.group if kind is Kind.GROUP else found.task
        if kind is None or name is None:
            continue
        if name in index:
            taken = index[name].path or "a tag of that name"
            level = logging.DEBUG if kind is Kind.GROUP else logging.WARNING
            logger.log(level, "%s: the name %r is taken already, by %s.", path, name, taken)
            index[name].rivals.append(path)
            continue
        tags = found.tags or ()
        index[name] = Entry(name, kind, path, tags=set(tags), output_type=found.output_type)
        if kind is not Kind.GROUP:
            for tag in tags:
                index.setdefault(tag, Entry(tag, Kind.TAG)).tags.add(name)
    return index


class _Scans:
    """The listed keys of every file: as stored where the file has not changed since."""

    def __init__(self, stored: index_store.Scans, states: dict[str, State]) -> None:
        self._stored = stored
        self.states = dict(states)
        self.found: dict[str, Scan | None] = {}
        self._merged: dict[str, Scan] = {}

    def _own(self, path: str) -> Scan:
        """A file's own keys; an included one may lie outside the folder or end differently."""
        if path not in self.found:
            state = self.states.get(path) or _state(path)
            self.states[path] = state
            stored = self._stored.get(path)
            known = stored is not None and stored[0] == state
            self.found[path] = stored[1] if stored is not None and known else scan_file(path)
        return self.found[path] or Scan()

    def merged(self, path: str, including: tuple[str, ...] = ()) -> Scan:
        """A file's keys over those of the files it includes."""
        if path in self._merged:
            return self._merged[path]
        own = self._own(path)
        if not own.includes or path in including:
            return own
        merged = Scan()
        for name in own.includes:
            target = os.path.normpath(os.path.join(os.path.dirname(path), name))
            merged = _over(self.merged(target, (*including, path)), merged)
        self._merged[path] = merged = _over(own, merged)
        return merged


def _over(upper: Scan, lower: Scan) -> Scan:
    """Two files' keys as one: the upper's where it has them."""
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
    """A file's time and size, by which a change is noticed; zeros where there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


def _yaml_files(root: str) -> dict[str, State]:
    """Every `.yaml` file below a folder, with its state."""
    found: dict[str, State] = {}
    waiting, seen = [root], set()
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".yaml"):
                    if entry.is_file():
                        status = entry.stat()
                        found[entry.path] = (status.st_mtime_ns, status.st_size)
                elif entry.name not in _IGNORED_FOLDERS and entry.is_dir():
                    if entry.is_symlink():  # followed once, so that a loop ends
                        real = os.path.realpath(entry.path)
                        if real in seen:
                            continue
                        seen.add(real)
                    waiting.append(entry.path)
    return found
