"""The checkpoints of a training run: folders that match a pattern, or revisions on the hub."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from lm_eval.errors import ConfigError, ModelError

_STEP = re.compile(r"(?:step|checkpoint|ckpt|iter(?:ation)?|global_step)[-_]?(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint of a training run.

    Attributes:
        label: its name in tables.
        name: its name in folders, unique among the checkpoints of a sweep.
        arguments: the model arguments that load it.
        step: the training step; None if its name contains no number.
        curve: the training run that it belongs to.
        one_of_several: whether the sweep has checkpoints of several training runs.
    """

    label: str
    name: str
    arguments: dict[str, Any]
    step: int | None
    curve: str
    one_of_several: bool = False


def find_checkpoints(patterns: Sequence[str]) -> list[Checkpoint]:
    """Returns the folders that match the patterns, by training run and step.

    Folders with the same parent belong to one training run. Raises `ConfigError` if a pattern
    matches no folder.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        folders = [Path(path) for path in glob(os.path.expanduser(pattern))]  # noqa: PTH111, PTH207
        folders = [path.absolute() for path in folders if path.is_dir()]
        if not folders:
            raise ConfigError(
                f"checkpoints: no folder matches {pattern!r}. Give a pattern such as "
                "'runs/a/step*', in quotes so that the shell does not expand it."
            )
        found.update(dict.fromkeys(folders))
    curves = _curve_names({path.parent for path in found})
    several = len(curves) > 1
    checkpoints = [
        Checkpoint(
            path.name,
            f"{curves[path.parent]}_{path.name}" if several else path.name,
            {"pretrained": str(path)},
            step_in(path.name),
            curves[path.parent],
            several,
        )
        for path in found
    ]
    return _sorted(checkpoints)


def find_revisions(pretrained: str, revisions: Sequence[str]) -> list[Checkpoint]:
    """Returns revisions of a model on the hub, by step.

    Names with wildcards (`step*`) are matched with the branches and tags of the repository. Raises
    `ConfigError` if one matches nothing, and `ModelError` if the hub cannot be asked.
    """
    names: dict[str, None] = {}
    known: list[str] | None = None
    for revision in revisions:
        if not has_magic(revision):
            names[revision] = None
            continue
        known = _branches(pretrained) if known is None else known
        matching = [name for name in known if fnmatchcase(name, revision)]
        if not matching:
            raise ConfigError(
                f"revisions: {pretrained} has no branch or tag that matches {revision!r}. It has "
                f"{', '.join(known[:10])}{' …' if len(known) > 10 else ''}."
            )
        names.update(dict.fromkeys(matching))
    curve = Path(pretrained).name
    return _sorted(
        [Checkpoint(name, name, {"revision": name}, step_in(name), curve) for name in names],
    )


def _branches(pretrained: str) -> list[str]:
    """Returns the names of the branches and tags of a repository on the hub."""
    try:
        from huggingface_hub import HfApi

        refs = HfApi().list_repo_refs(pretrained)
    except Exception as error:  # the client raises errors of many packages
        raise ModelError(
            f"revisions: the branches of {pretrained} cannot be listed ({error}). Write the names "
            "of the revisions without wildcards."
        ) from error
    return [ref.name for ref in (*refs.branches, *refs.tags)]


def step_in(name: str) -> int | None:
    """Returns the training step in the name of a checkpoint; None if there is no number.

    It is the number after `step`, `checkpoint`, `ckpt` or `iter`, or else the last number.
    """
    if found := _STEP.search(name):
        return int(found[1])
    numbers = _NUMBER.findall(name)
    return int(numbers[-1]) if numbers else None


def _sorted(checkpoints: list[Checkpoint]) -> list[Checkpoint]:
    """Returns checkpoints by training run and step; those without a step come last."""
    return sorted(
        checkpoints, key=lambda one: (one.curve, one.step is None, one.step or 0, one.label)
    )


def _curve_names(parents: set[Path]) -> dict[Path, str]:
    """Returns a short name for each folder of a training run, unique among them.

    It has as many of the last parts of the path as it takes to tell it from the others.
    """
    names = {path: path.name for path in parents}
    for size in range(2, max((len(path.parts) for path in parents), default=0) + 1):
        count = Counter(names.values())
        for path, name in names.items():
            if count[name] > 1:
                names[path] = "_".join(path.parts[-size:])
    return names
