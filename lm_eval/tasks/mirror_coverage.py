"""Determines from task files which tasks can read their documents from a mirror of the hub.

No code of the tasks is run, and no rows are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from lm_eval.data.files import FORMATS, remote_file
from lm_eval.data.mirror import Mirror, is_hub_name
from lm_eval.errors import ConfigError
from lm_eval.tasks.group_file import GROUP_FIELDS
from lm_eval.tasks.index import Entry, Index, Kind, file_of


class DocumentSource(Enum):
    """Where a task reads its documents from, if a mirror of the hub is used."""

    MIRROR = "the mirror"
    FILES = "files of the task's own"
    CODE = "code of the task's own"
    ELSEWHERE = "elsewhere: the mirror does not have them"


@dataclass(frozen=True)
class MirrorCoverage:
    """Determines which tasks and groups of `index` can read their documents from `mirror`."""

    mirror: Mirror
    index: Index

    def documents_of(self, entry: Entry) -> DocumentSource:
        """Returns where a task reads its documents from.

        For a group or tag with any other number of tasks than one, returns `ELSEWHERE`.
        """
        found = [where for _, where in self._below(entry, {}, (), set())]
        return found[0] if len(found) == 1 else DocumentSource.ELSEWHERE

    def serves(self, entry: Entry) -> bool:
        """Returns whether the mirror has the documents of a task, or of all tasks of a group.

        Some tasks of a group or tag may read local files instead, as long as one task reads the
        mirror.
        """
        found = {where for _, where in self._below(entry, {}, (), set())}
        return DocumentSource.MIRROR in found and found <= {
            DocumentSource.MIRROR,
            DocumentSource.FILES,
        }

    def _below(
        self,
        entry: Entry | None,
        overrides: Mapping[str, Any],
        chain: tuple[str, ...],
        seen: set[tuple[str, str]],
    ) -> Iterator[tuple[str, DocumentSource]]:
        """Yields the name of every task that `entry` contains, and where its documents are.

        `overrides` replace keys of the task files. `chain` are the groups that contain the entry,
        and `seen` the groups that were visited, with their overrides: each is visited once.
        If the entry is None or in `chain` (groups form a cycle), yields `("", ELSEWHERE)`; a task
        or group whose file cannot be read is `ELSEWHERE`, too.
        """
        if entry is None or entry.name in chain:
            yield "", DocumentSource.ELSEWHERE
        elif entry.kind is Kind.TAG:
            for name in sorted(entry.tags):
                yield from self._below(self.index.get(name), overrides, (*chain, entry.name), seen)
        else:
            try:
                file = file_of(entry)
            except ConfigError:
                yield entry.name, DocumentSource.ELSEWHERE
                return
            if entry.kind is Kind.GROUP:
                visit = (entry.name, repr(overrides))
                if visit not in seen:
                    seen.add(visit)
                    chain = (*chain, entry.name)
                    yield from self._members(file.values, overrides, file.path, chain, seen)
            else:
                values = {**file.values, **overrides}
                yield entry.name, self._documents(values, file.path.parent)

    def _members(
        self,
        group: Mapping[str, Any],
        overrides: Mapping[str, Any],
        path: Path,
        chain: tuple[str, ...],
        seen: set[tuple[str, str]],
    ) -> Iterator[tuple[str, DocumentSource]]:
        """Yields the name of every task below a group, and where its documents are.

        `group` holds the keys of the group; those that are not fields of a group apply to all of
        its tasks, unless `overrides` replace them. `path` is the file of the group, and `chain` are
        the groups that lead to it, itself last. `seen` is that of `_below`.
        """
        included = group.get("include")
        shared = {
            **(included if isinstance(included, Mapping) else {}),
            **{k: v for k, v in group.items() if k not in GROUP_FIELDS and k != "tag"},
            **overrides,
        }
        members = group.get("task") or []
        for member in members if isinstance(members, list) else [members]:
            spec = {"task": member} if isinstance(member, str) else member
            if not isinstance(spec, Mapping):
                continue
            if "group" in spec and "task" in spec:
                yield from self._members(spec, shared, path, chain, seen)
                continue
            name = str(spec.get("group", spec.get("task")))
            own = {k: v for k, v in spec.items() if k not in ("task", "group")}
            entry = self.index.get(name) or self.index.get(name.partition("@")[0])
            if entry is None and own:
                yield name, self._documents({**shared, **own}, path.parent)
            else:
                yield from self._below(entry, {**shared, **own}, chain, seen)

    def _documents(self, values: Mapping[str, Any], folder: Path) -> DocumentSource:
        """Returns where the task with the configuration `values` reads its documents from.

        `folder` is the folder of the task file, to which a local `dataset_path` may be relative.
        """
        path, name = values.get("dataset_path"), values.get("dataset_name")
        if values.get("custom_dataset") is not None or not isinstance(path, str):
            return DocumentSource.CODE
        given = values.get("dataset_kwargs")
        kwargs = given if isinstance(given, Mapping) else {}
        local = (folder / path).is_dir() or Path(path).expanduser().is_dir()
        if path in FORMATS:
            local = remote_file(kwargs) is None
        elif not is_hub_name(path):
            return DocumentSource.FILES if local else DocumentSource.ELSEWHERE
        if (path not in FORMATS or not local) and self.mirror.has(
            path, name, kwargs, _splits_of(values)
        ):
            return DocumentSource.MIRROR
        return DocumentSource.FILES if local else DocumentSource.ELSEWHERE


def _splits_of(values: Mapping[str, Any]) -> list[str]:
    """Returns the names of the splits that a run of the task reads.

    These are the evaluated split and, if the file sets `num_fewshot`, that of the examples. The
    list is empty if the task names no split.
    """
    evaluated = values.get("test_split") or values.get("validation_split")
    shots = values.get("fewshot_config")
    shots = shots if isinstance(shots, Mapping) else {}
    examples = None
    if values.get("num_fewshot") and shots.get("samples") is None:
        named = (shots.get("split"), values.get("fewshot_split"))
        others = (values.get("training_split"), values.get("validation_split"), evaluated)
        examples = next((split for split in (*named, *others) if split), None)
    return [str(split) for split in (evaluated, examples) if split]
