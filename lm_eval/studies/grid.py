"""The settings of a study: every combination of formats, prompts, few-shot examples and seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from lm_eval.config.run import RunConfig
from lm_eval.config.yaml_file import load_yaml_file
from lm_eval.errors import ConfigError

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
    """

    format: str = DEFAULT
    prompt: str = DEFAULT
    num_fewshot: int | None = None
    seed: int | None = None

    @property
    def cell(self) -> tuple[str, str, int | None]:
        """What the setting is besides its seed."""
        return self.format, self.prompt, self.num_fewshot

    @property
    def name(self) -> str:
        """The name of the setting in tables, which is also that of its folder."""
        parts = [part for part in (self.format, self.prompt) if part != DEFAULT] or [DEFAULT]
        if self.num_fewshot is not None:
            parts.append(f"{self.num_fewshot}-shot")
        if self.seed is not None:
            parts.append(f"seed{self.seed}")
        return re.sub(r"[^\w.-]", "_", "_".join(parts))


@dataclass(frozen=True)
class Grid:
    """What a study varies.

    Attributes:
        formats: prompt formats; `default` is the task's own.
        prompts: prompt variants by name, each with the task keys that it replaces.
        num_fewshot: numbers of few-shot examples; empty for the task's own.
        seeds: seeds; empty for the default ones.
    """

    formats: Sequence[str] = (DEFAULT,)
    prompts: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {DEFAULT: {}})
    num_fewshot: Sequence[int] = ()
    seeds: Sequence[int] = ()

    def __post_init__(self) -> None:
        if list(self.formats) != [DEFAULT] and list(self.prompts) != [DEFAULT]:
            raise ConfigError(
                "formats and prompts cannot be combined: a format writes the prompt itself. Run "
                "two studies."
            )
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
        because answers are sampled.
        """
        shots: Sequence[int | None] = self.num_fewshot or [None]
        seeds: Sequence[int | None] = self.seeds or [None]
        return [
            Setting(form, prompt, count, seed)
            for form, prompt, count, seed in product(self.formats, self.prompts, shots, seeds)
            if count != 0 or seed == seeds[0] or seeds_matter_without_examples
        ]

    def run_of(self, base: RunConfig, setting: Setting, output_path: str | None) -> RunConfig:
        """Returns the settings of one run of the study.

        Args:
            base: the settings that all runs of a model have in common.
            setting: the setting of this run.
            output_path: where the run is stored; None to store nothing.
        """
        tasks: list[Any] = base.task_list
        if setting.format != DEFAULT:
            tasks = [f"{name}@{setting.format}" for name in tasks]
        if changes := self.prompts[setting.prompt]:
            tasks = [{"task": name, **changes} for name in tasks]
        seed = base.seed if setting.seed is None else setting.seed
        shots = base.num_fewshot if setting.num_fewshot is None else setting.num_fewshot
        return replace(base, tasks=tasks, num_fewshot=shots, seed=seed, output_path=output_path)


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
