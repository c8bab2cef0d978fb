"""Find every task, group and tag by name, without running any code from their folders."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from lm_eval.config.yaml_file import load_yaml_file
from lm_eval.errors import ConfigError

logger = logging.getLogger(__name__)

_IGNORED_FOLDERS = {"__pycache__", ".ipynb_checkpoints"}


class Kind(Enum):
    TASK = "task"
    PY_TASK = "python task"
    GROUP = "group"
    TAG = "tag"


@dataclass
class Entry:
    """What a name stands for: a YAML file, or for a tag the tasks that carry it."""

    name: str
    kind: Kind
    yaml_path: Path | None
    cfg: dict[str, Any] | None = None
    tags: set[str] = field(default_factory=set)


Index = dict[str, Entry]


def build_index(roots: Iterable[Path]) -> Index:
    """All names under some folders; a later folder's names win, and that is said aloud."""
    index: Index = {}
    for root in roots:
        if not root.is_dir():
            raise ConfigError(f"include_path: there is no folder {root}.")
        for name, entry in _index_folder(root).items():
            if name in index:
                logger.warning(
                    "%s from %s replaces the one from %s.",
                    name,
                    entry.yaml_path,
                    index[name].yaml_path,
                )
            index[name] = entry
    return index


def _index_folder(root: Path) -> Index:
    index: Index = {}
    for path in _yaml_files(root):
        try:
            values = load_yaml_file(path).values
        except ConfigError as error:
            logger.debug("skipped while listing: %s", error)
            continue
        kind = kind_of(values)
        if kind is None:
            continue
        name = values.get("group" if kind is Kind.GROUP else "task")
        if not isinstance(name, str):
            continue
        if name in index and index[name].kind is not Kind.TAG:
            logger.warning("%s: the name %r is taken by %s.", path, name, index[name].yaml_path)
            continue
        tags = _tags(values)
        index[name] = Entry(name, kind, path, tags=set(tags))
        if kind is not Kind.GROUP:
            for tag in tags:
                index.setdefault(tag, Entry(tag, Kind.TAG, None)).tags.add(name)
    return index


def kind_of(values: dict[str, Any]) -> Kind | None:
    """What a configuration defines; None where it is only a part for others to include."""
    if "class" in values:
        return Kind.PY_TASK
    if "group" in values:
        return Kind.GROUP
    return Kind.TASK if "task" in values else None


def _tags(values: dict[str, Any]) -> list[str]:
    tags = values.get("tag") or []
    return [tags] if isinstance(tags, str) else [str(tag) for tag in tags]


def _yaml_files(root: Path) -> Iterator[Path]:
    found = (p for p in root.rglob("*.yaml") if not _IGNORED_FOLDERS.intersection(p.parts))
    return iter(sorted(found, key=lambda p: p.as_posix()))
