"""A group as its file writes it: its members and where each stands, before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lm_eval.config.functions import resolve_functions
from lm_eval.config.group import GroupConfig
from lm_eval.config.yaml_file import YamlFile, load_yaml_file
from lm_eval.errors import ConfigError, EvalError, UnknownNameError, located, suggestion
from lm_eval.tasks import packs
from lm_eval.tasks.index import Entry, Index, Kind, file_of, offer_as_package

GROUP_FIELDS = {f.name for f in fields(GroupConfig)}
#: What parts a group from its member.
PATH_MARK = "::"


@dataclass
class GroupFile:
    """A group's configuration, wherever it stands, and the groups it was reached through."""

    name: str
    file: YamlFile
    values: dict[str, Any]
    chain: tuple[str, ...]
    defaults: dict[str, Any]

    @classmethod
    def load(cls, entry: Entry, chain: tuple[str, ...] = ()) -> GroupFile:
        file = file_of(entry)
        trust(file)
        try:
            return cls._of(entry.name, file, resolve_functions(file.values), chain)
        except EvalError as error:
            raise located(error, file.path if entry.path else None) from error

    @classmethod
    def _of(
        cls, name: str, file: YamlFile, values: dict[str, Any], chain: tuple[str, ...]
    ) -> GroupFile:
        """Keys that are not the group's own are for every task below it, and so is `include`."""
        included = values.get("include") or {}
        if isinstance(included, str):
            included = resolve_functions(load_yaml_file(file.path.parent / included).values)
        own = {k: v for k, v in values.items() if k not in GROUP_FIELDS and k != "tag"}
        return cls(name, file, values, (*chain, name), {**included, **own})

    def inline(self, member: Mapping[str, Any]) -> GroupFile:
        """A group written out inside this one."""
        name = f"{self.name}{PATH_MARK}{member['group']}"
        return self._of(name, self.file, dict(member), self.chain)

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def members(self) -> list[Any]:
        members = self.values.get("task") or []
        return [members] if isinstance(members, (str, Mapping)) else list(members)

    def where(self, number: int) -> str:
        """The line of a member."""
        return self.file.where(f"task[{number}]" if len(self.chain) == 1 else "task")

    def member(self, name: str, index: Index) -> tuple[int, Mapping[str, Any]]:
        """The member called `name`, or a task of a tag among the members."""
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

    def refuse_circle(self, entry: Entry, number: int) -> None:
        if entry.name in self.chain:
            chain = " -> ".join([*self.chain[self.chain.index(entry.name) :], entry.name])
            raise ConfigError(
                f"{self.where(number)}: groups hold one another in a circle: {chain}."
            )


def trust(file: YamlFile) -> None:
    """Before code of a pack runs, its files are checked, and its neighbours can be imported."""
    pack = packs.pack_of(file.path)
    if pack is not None:
        packs.trust(pack, {file.path, *(source.file for source in file.sources.values())})
        offer_as_package(pack.tasks, last=True)
