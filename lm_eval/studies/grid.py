"""The settings of a study: every combination of formats, prompts, few-shot examples and seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from lm_eval.api.registry import format_registry
from lm_eval.config.run import RunConfig
from lm_eval.config.yaml_file import load_yaml_file
from lm_eval.errors import ConfigError
from lm_eval.prompts.formats import ROTATION_MARK, SET_BY_FORMATS

DEFAULT = "default"
"""The name of the format, and of the prompt, that a task has by itself."""


@dataclass(frozen=True)
class Setting:
    """One way to ask a task.

    Attributes:
        format: the prompt format; `default` for the task's own.
        prompt: the name of the prompt variant; `default` for the task's own.
        num_fewshot: the number of few-shot examples; None for the task's own.
        seed: the seed of few-shot examples and sampled answers; None for the default seeds.
        rotation: by how many places the choices are rotated.
    """

    format: str = DEFAULT
    prompt: str = DEFAULT
    num_fewshot: int | None = None
    seed: int | None = None
    rotation: int = 0

    @property
    def cell(self) -> tuple[str, str, int, int | None]:
        """What the setting is besides its seed."""
        return self.format, self.prompt, self.rotation, self.num_fewshot

    @property
    def name(self) -> str:
        """The name of the setting in tables, which is also that of its folder."""
        parts = [part for part in (self.format, self.prompt) if part != DEFAULT] or [DEFAULT]
        if self.rotation:
            parts.append(f"rotated{self.rotation}")
        if self.num_fewshot is not None:
            parts.append(f"{self.num_fewshot}-shot")
        if self.seed is not None:
            parts.append(f"seed{self.seed}")
        name = re.sub(r"[^\w.-]", "_", "_".join(parts))
        return name if name.strip(".") else "_" * len(name)  # `..` is another folder


@dataclass(frozen=True)
class Grid:
    """What a study varies.

    Attributes:
        formats: prompt formats; `default` is the task's own.
        prompts: prompt variants by name, each with the task keys that it replaces. A format is
            applied to what they replace: their `doc_to_text` words the question in it.
        num_fewshot: numbers of few-shot examples; empty for the task's own.
        seeds: seeds; empty for the default ones.
        rotations: in how many orders the choices are shown, each rotated by one place more. Formats
            that do not show the choices are not rotated.
    """

    formats: Sequence[str] = (DEFAULT,)
    prompts: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {DEFAULT: {}})
    num_fewshot: Sequence[int] = ()
    seeds: Sequence[int] = ()
    rotations: int = 1

    def __post_init__(self) -> None:
        if self.rotations < 1:
            raise ConfigError(f"the number of rotations must be 1 or more, not {self.rotations}.")
        if self.rotations > 1 and not any(map(_shows_choices, self.formats)):
            raise ConfigError(
                "choices can be rotated only in formats that show them: give --formats mcqa, "
                "hybrid or generate."
            )
        if any(name != DEFAULT for name in self.formats):
            _check_prompts(self.prompts)
        for what, values in (
            ("formats", self.formats),
            ("num_fewshot", self.num_fewshot),
            ("seeds", self.seeds),
        ):
            if len(set(values)) < len(values):
                raise ConfigError(
                    f"{what}: a value is given twice in {', '.join(map(str, values))}."
                )

    def settings(self, seeds_matter_without_examples: bool) -> list[Setting]:
        """Returns all combinations.

        Without few-shot examples, only the first seed is used, unless seeds matter then, too,
        because answers are sampled. Raises `ConfigError` if two settings have the same name.
        """
        shots: Sequence[int | None] = self.num_fewshot or [None]
        seeds: Sequence[int | None] = self.seeds or [None]
        found = [
            Setting(form, prompt, count, seed, rotation)
            for form, prompt, rotation, count, seed in product(
                self.formats, self.prompts, range(self.rotations), shots, seeds
            )
            if count != 0 or seed == seeds[0] or seeds_matter_without_examples
            if rotation == 0 or _shows_choices(form)
        ]
        names: dict[str, Setting] = {}
        for setting in found:
            other = names.setdefault(setting.name, setting)
            if other is not setting:
                raise ConfigError(
                    f"the settings with prompt {other.prompt!r} (format {other.format}) and prompt "
                    f"{setting.prompt!r} (format {setting.format}) would both be called "
                    f"{setting.name!r}. Rename a prompt in the file of --prompts."
                )
        return found

    def run_of(self, base: RunConfig, setting: Setting, output_path: str | None) -> RunConfig:
        """Returns the settings of one run of the study.

        Args:
            base: the settings that all runs of a model have in common.
            setting: the setting of this run.
            output_path: where the run is stored; None to store nothing.
        """
        tasks: list[Any] = base.task_list
        if setting.format != DEFAULT:
            turned = f"{ROTATION_MARK}{setting.rotation}" if setting.rotation else ""
            tasks = [f"{name}@{setting.format}{turned}" for name in tasks]
        if changes := self.prompts[setting.prompt]:
            tasks = [{"task": name, **changes} for name in tasks]
        seed = base.seed if setting.seed is None else setting.seed
        shots = base.num_fewshot if setting.num_fewshot is None else setting.num_fewshot
        return replace(base, tasks=tasks, num_fewshot=shots, seed=seed, output_path=output_path)


def _check_prompts(prompts: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises `ConfigError` if prompts replace keys that formats set themselves."""
    for name, keys in prompts.items():
        if lost := [key for key in keys if key in SET_BY_FORMATS]:
            raise ConfigError(
                f"prompt {name!r} sets {', '.join(lost)}, which a format sets itself, so it would "
                "have no effect. Remove it there, or run a study of the prompts without --formats."
            )


def _shows_choices(name: str) -> bool:
    """Returns whether the prompts of a format contain the choices.

    False for `default`, of which it is not known, and for a format that is not registered: it is
    one that a task declares.
    """
    return name != DEFAULT and name in format_registry and format_registry.get(name).shows_choices


def read_prompts(path: str) -> dict[str, dict[str, Any]]:
    """Returns the prompt variants in a YAML file: by name, the task keys that each replaces.

    Raises `ConfigError` if the file is not of that form.
    """
    content = load_yaml_file(path).values
    if not content or not all(isinstance(keys, Mapping) for keys in content.values()):
        raise ConfigError(
            f"{path}: it must contain named prompts, each with the task keys that it replaces, "
            'such as  short: {doc_to_text: "{{question}}"}'
        )
    return {str(name): dict(keys) for name, keys in content.items()}
