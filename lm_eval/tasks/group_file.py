"""A group's configuration as written in its file, before its members are built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lm_eval.config.functions import resolve_functions
from lm_eval.config.group import GroupConfig
from lm_eval.config.yaml_file import YamlFile, load_yaml_file
from lm_eval.errors import ConfigError, EvalError, UnknownNameError, suggestion, with_location
from lm_eval.tasks import packs
from lm_eval.tasks.index import Entry, Index, Kind, file_of, make_importable

GROUP_FIELDS = {f.name for f in fields(GroupConfig)}
#: Separates a group's name from its member's, as in `mmlu::mmlu_anatomy`.
MEMBER_SEPARATOR = "::"
#: How deep groups may be nested.
DEEPEST_GROUP = 50
#: What to do about a member that is not found.
ELSEWHERE = "If it is in another folder, add that folder with its own --include_path."


@dataclass
class GroupFile:
    """The configuration of a group, from its own file or written inline in another group's.

    `values` are the group's keys, `file` is the file that contains them. `chain` holds the names
    of the groups that lead to this one, itself last. `defaults` are the keys that apply to every
    task below the group.
    """

    name: str
    file: YamlFile
    values: dict[str, Any]
    chain: tuple[str, ...]
    defaults: dict[str, Any]

    @classmethod
    def load(cls, entry: Entry, chain: tuple[str, ...] = ()) -> GroupFile:
        """Returns the group that `entry` describes, with its `!function` references resolved.

        This runs code from its folder. `chain` holds the names of the groups that contain it, the
        outermost first. Raises `ConfigError` if the file is invalid or a reference cannot be
        resolved.
        """
        file = file_of(entry)
        prepare_pack(file)
        try:
            return cls._of(entry.name, file, resolve_functions(file.values, file.root), chain)
        except EvalError as error:
            raise with_location(error, file.path if entry.path else None) from error

    @classmethod
    def _of(
        cls, name: str, file: YamlFile, values: dict[str, Any], chain: tuple[str, ...]
    ) -> GroupFile:
        """Returns the group `name`, with `defaults` for its tasks.

        The defaults are the keys in `values` that are not fields of a group, over those of
        `include`, a mapping or a file. `chain` holds the names of the groups that contain the
        group.
        """
        included = values.get("include") or {}
        if isinstance(included, str):
            part = load_yaml_file(file.path.parent / included, file.task_root)
            included = resolve_functions(part.values, part.root)
        own = {k: v for k, v in values.items() if k not in GROUP_FIELDS and k != "tag"}
        return cls(name, file, values, (*chain, name), {**included, **own})

    def inline(self, member: Mapping[str, Any]) -> GroupFile:
        """Returns the group that `member`, an entry of this group's member list, defines.

        `member` is a mapping with the key `group`. The name of the new group is that of this group,
        `::` and the value of `group`; its file is that of this group.
        """
        name = f"{self.name}{MEMBER_SEPARATOR}{member['group']}"
        return self._of(name, self.file, dict(member), self.chain)

    @property
    def path(self) -> Path:
        """The file that contains the group."""
        return self.file.path

    @property
    def members(self) -> list[Any]:
        """The members as written under the key `task`, always as a list: names or mappings."""
        members = self.values.get("task") or []
        return [members] if isinstance(members, (str, Mapping)) else list(members)

    def where(self, number: int) -> str:
        """Returns `file:line` of the member at position `number`, counted from 0, for messages.

        For a group inside another group, it is the line of the key `task` in the file. If the line
        is not known, it is only the file.
        """
        return self.file.where(f"task[{number}]" if len(self.chain) == 1 else "task")

    def member(self, name: str, index: Index) -> tuple[int, Mapping[str, Any]]:
        """Returns the position, counted from 0, and the configuration of the member called `name`.

        The configuration is a mapping with the key `task` or `group`, and overrides if there are
        any. `name` may also be a task that a tag among the members contains (found in `index`): the
        position is then that of the tag, and the configuration has `name` as `task`.

        Raises `UnknownNameError` if the group has no member of that name.
        """
        names = []
        for number, member in enumerate(self.members):
            spec = {"task": member} if isinstance(member, str) else member
            own = str(spec.get("group", spec.get("task")))
            if own == name:
                return number, spec
            entry = index.get(own)
            if entry is not None and entry.kind is Kind.TAG and name in entry.tags:
                return number, {**spec, "task": name}
            names.append(own)
        raise UnknownNameError(
            f"{self.file.path}: group {self.name!r} has no member {name!r}."
            f"{suggestion(name, names)} It has: {', '.join(names)}."
        )

    def check_cycle(self, entry: Entry, number: int) -> None:
        """Raises `ConfigError` if `entry`, a member of this group, is this group or contains it.

        `number` is the position of the member, counted from 0, for the error message.
        """
        if entry.name in self.chain:
            chain = " -> ".join([*self.chain[self.chain.index(entry.name) :], entry.name])
            raise ConfigError(
                f"{self.where(number)}: these groups contain each other in a cycle: {chain}. "
                "Remove one of them from the other's members."
            )


def prepare_pack(file: YamlFile) -> None:
    """Prepares the pack that `file` belongs to before its code runs; does nothing without a pack.

    Raises `ConfigError` if the pack's files changed after it was added. Makes the folders of the
    pack importable as `lm_eval.tasks.<folder>`.
    """
    pack = packs.pack_of(file.path)
    if pack is not None:
        packs.verify(pack, {file.path, *(source.file for source in file.sources.values())})
        make_importable(pack.tasks, last=True)
