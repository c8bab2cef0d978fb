"""The fields of a task file, with their types and defaults; docs/tasks.md explains each."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lm_eval.api.instance import OUTPUT_TYPES, OutputType
from lm_eval.config.generation import find_misspelled
from lm_eval.config.record import Record
from lm_eval.config.serialize import serialize, serialize_function
from lm_eval.config.types import conforms, describe, field_types
from lm_eval.defaults import default_gen_kwargs
from lm_eval.errors import ConfigError, suggestion

logger = logging.getLogger(__name__)

Template = str | Callable[..., Any]


@dataclass
class FewshotConfig(Record):
    """How the few-shot examples of a task are drawn and rendered.

    Templates, delimiters, `gen_prefix` and `process_docs` that are not set are taken from the
    task; `split` is by default the task's `fewshot_split`.
    """

    sampler: str | type = "default"
    split: str | None = None
    process_docs: Callable[..., Any] | None = None
    fewshot_indices: list[int] | None = None
    samples: list[dict[str, Any]] | Callable[[], list[dict[str, Any]]] | None = None
    doc_to_text: Template | int | None = None
    doc_to_choice: Template | dict[str, str] | list[str] | None = None
    doc_to_target: Template | int | list[Any] | None = None
    gen_prefix: str | None = None
    fewshot_delimiter: str | None = None
    target_delimiter: str | None = None

    def __post_init__(self) -> None:
        if self.split is not None and self.samples is not None:
            logger.warning(
                "fewshot_config has both `split` (which may come from the task's fewshot_split) "
                "and `samples`; `split` is used and `samples` is ignored. Remove one of them."
            )


#: Fields that `fewshot_config` inherits from the task if it does not set them.
_INHERITED = (
    "process_docs",
    "fewshot_delimiter",
    "target_delimiter",
    "gen_prefix",
    "doc_to_text",
    "doc_to_choice",
    "doc_to_target",
)


@dataclass
class TaskConfig(Record):
    """The configuration of a task, as in its YAML file.

    Fields can also be read like a dictionary (`config["task"]`), since published task code does.
    Creating an instance raises `ConfigError` if `output_type`, `num_fewshot`, `repeats`,
    `generation_kwargs` or `fewshot_config` is invalid. The types of the other fields are not
    checked here.
    """

    # naming
    task: str | None = None
    task_alias: str | None = None
    tag: str | list[str] | None = None
    # documents
    custom_dataset: Callable[..., Any] | None = None
    dataset_path: str | None = None
    dataset_name: str | None = None
    dataset_kwargs: dict[str, Any] | None = None
    training_split: str | None = None
    validation_split: str | None = None
    test_split: str | None = None
    fewshot_split: str | None = None
    process_docs: Callable[..., Any] | None = None
    # prompts
    doc_to_text: Template | int | None = None
    doc_to_target: Template | int | list[Any] | None = None
    doc_to_image: Template | list[Any] | None = None
    doc_to_audio: Template | list[Any] | None = None
    unsafe_code: bool = False
    doc_to_choice: Template | dict[str, str] | list[str] | None = None
    process_results: Template | None = None
    use_prompt: str | None = None
    formats: str | list[Any] | dict[str, Any] | None = None
    description: str = ""
    target_delimiter: str = " "
    fewshot_delimiter: str = "\n\n"
    fewshot_config: dict[str, Any] | FewshotConfig | None = None
    num_fewshot: int | None = None
    # scoring
    metric_list: list[dict[str, Any]] | None = None
    output_type: OutputType = "generate_until"
    generation_kwargs: dict[str, Any] | None = None
    repeats: int = 1
    filter_list: list[dict[str, Any]] | None = None
    think_end_token: str | None = None
    think_tags: bool | list[Any] | None = None
    vote_on: Callable[..., Any] | None = None
    cluster: str | None = None
    should_decontaminate: bool = False
    doc_to_decontamination_query: Template | None = None
    gen_prefix: str | None = None
    metadata: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.output_type not in OUTPUT_TYPES:
            raise ConfigError(
                f"task {self.task!r}: output_type {self.output_type!r} is not one of "
                f"{', '.join(OUTPUT_TYPES)}."
            )
        for name, least in (("num_fewshot", 0), ("repeats", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(
                    f"task {self.task!r}: {name} must be {least} or more, not {value}."
                )
        self._complete_generation_kwargs()
        if not isinstance(self.fewshot_config, FewshotConfig):
            self.fewshot_config = self._make_fewshot(self.fewshot_config or {})

    def _complete_generation_kwargs(self) -> None:
        """Fills in the defaults of `generation_kwargs` and checks its values.

        If it is None, a task that generates text gets `default_gen_kwargs`. Otherwise only `until`
        has a default, the few-shot delimiter. Logs a warning for misspelled settings. Raises
        `ConfigError` for a temperature that is not a number and for stop strings (`until`) that are
        not strings.
        """
        if self.generation_kwargs is None:
            if self.output_type == "generate_until":
                self.generation_kwargs = default_gen_kwargs(self.fewshot_delimiter)
            return
        self.generation_kwargs = dict(self.generation_kwargs)  # other tasks may share it
        if problem := find_misspelled(self.generation_kwargs):
            logger.warning(
                "task %r: generation_kwargs: %s The setting is passed to the model as it is.",
                self.task,
                problem,
            )
        if "temperature" in self.generation_kwargs:
            temperature = self.generation_kwargs["temperature"]
            try:
                self.generation_kwargs["temperature"] = float(temperature)
            except (TypeError, ValueError) as error:
                raise ConfigError(
                    f"task {self.task!r}: generation_kwargs.temperature is not a number: "
                    f"{temperature!r}."
                ) from error
        self.generation_kwargs.setdefault("until", [self.fewshot_delimiter])
        until = self.generation_kwargs["until"]
        stops = [until] if isinstance(until, str) else until
        if stops is not None and not (
            isinstance(stops, (list, tuple)) and all(isinstance(stop, str) for stop in stops)
        ):
            raise ConfigError(
                f"task {self.task!r}: generation_kwargs.until must be a string or a list of "
                f"strings, not {until!r}."
            )

    def _make_fewshot(self, given: dict[str, Any]) -> FewshotConfig:
        """Returns the few-shot settings `given` in the file, completed by the task's own fields.

        Raises `ConfigError` for unknown keys and values of the wrong type.
        """
        if not isinstance(given, dict):
            raise ConfigError(
                f"task {self.task!r}: fewshot_config must be a mapping of settings, not {given!r}."
            )
        unknown = set(given) - {f.name for f in dataclasses.fields(FewshotConfig)}
        if unknown:
            name = sorted(unknown)[0]
            known = [f.name for f in dataclasses.fields(FewshotConfig)]
            raise ConfigError(
                f"task {self.task!r}: unknown key {name!r} in fewshot_config."
                f"{suggestion(name, known)} Known keys: {', '.join(known)}."
            )
        for name, value in given.items():
            hint = field_types(FewshotConfig)[name]
            if not conforms(value, hint) and not isinstance(value, type):
                raise ConfigError(
                    f"task {self.task!r}: fewshot_config: {name} must be {describe(hint)}, "
                    f"not {value!r}."
                )
        inherited = {name: getattr(self, name) for name in _INHERITED}
        return FewshotConfig(**{"split": self.fewshot_split, **inherited, **given})

    @property
    def fewshot(self) -> FewshotConfig:
        """The few-shot settings, including those inherited from the task."""
        if not isinstance(self.fewshot_config, FewshotConfig):
            self.fewshot_config = self._make_fewshot(self.fewshot_config or {})
        return self.fewshot_config

    def to_dict(self, keep_callable: bool = False) -> dict[str, Any]:
        """Returns the configuration as a dictionary of plain data.

        Fields that are None are left out, except in `fewshot_config`. Functions become their source
        code, unless `keep_callable` is set.
        """
        plain: dict[str, Any] = {}
        for name in TASK_FIELDS:
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, FewshotConfig):
                # Fields that are None are kept here, as in results files of the published harness.
                plain[name] = {
                    f.name: serialize(getattr(value, f.name), keep_callable)
                    for f in dataclasses.fields(value)
                }
            else:
                plain[name] = serialize(value, keep_callable)
        return plain

    def serialize_function(
        self, value: Callable[..., Any] | str, keep_callable: bool = False
    ) -> Any:
        """Returns the source code of a function, or `str(value)` if the source is not available.

        A string, and with `keep_callable` any function, is returned unchanged.
        """
        return serialize_function(value, keep_callable)


TASK_FIELDS: tuple[str, ...] = tuple(f.name for f in dataclasses.fields(TaskConfig))
