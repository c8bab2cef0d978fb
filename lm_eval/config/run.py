"""The settings of one evaluation, from the command line, a YAML file or Python alike."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from lm_eval.config.arguments import parse_arguments
from lm_eval.config.generation import misspelt
from lm_eval.config.yaml_file import load_yaml_file
from lm_eval.defaults import DEFAULT_BOOTSTRAP_ITERS, DEFAULT_OTHER_SEED, DEFAULT_RANDOM_SEED
from lm_eval.errors import ConfigError, EvalError, located, suggestion


@dataclass
class Seeds:
    """One seed a generator; None leaves that generator alone."""

    random: int | None = DEFAULT_RANDOM_SEED
    numpy: int | None = DEFAULT_OTHER_SEED
    torch: int | None = DEFAULT_OTHER_SEED
    fewshot: int | None = DEFAULT_OTHER_SEED

    @property
    def of_model(self) -> tuple[int | None, ...]:
        """The seeds that can change what a model says."""
        return (self.random, self.numpy, self.torch)

    @classmethod
    def parse(cls, given: Any) -> Seeds:
        """One number for all four, or `random,numpy,torch,fewshot`, `None` for unset."""
        if isinstance(given, Seeds):
            return given
        if given is None:
            return cls(None, None, None, None)
        parts = given.split(",") if isinstance(given, str) else given
        parts = list(parts) if isinstance(parts, Sequence) else [parts]
        if len(parts) == 1:
            parts = parts * 4
        elif len(parts) == 3:
            parts = [*parts, DEFAULT_OTHER_SEED]
        if len(parts) != 4:
            raise ConfigError(
                f"seed takes one number, or four (random,numpy,torch,fewshot), not {given!r}."
            )
        return cls(*(cls._number(part, given) for part in parts))

    @staticmethod
    def _number(part: Any, given: Any) -> int | None:
        if part is None or str(part).strip().lower() == "none":
            return None
        try:
            number = int(part)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"seed: {part!r} is neither a number nor None (in {given!r})."
            ) from error
        if not 0 <= number < 2**32:
            raise ConfigError(f"seed: {number} is not between 0 and {2**32 - 1}.")
        return number


#: Arguments that are secrets: they open a door and change nothing behind it.
SECRETS = {"api_key", "token", "auth_token", "hf_token"}

#: Settings that are tables, and may be written `key=value,key=value`.
_TABLES = (
    "model_args",
    "gen_kwargs",
    "metadata",
    "wandb_args",
    "wandb_config_args",
    "trackio_args",
    "hf_hub_log_args",
)


def has_secrets(settings: Mapping[str, Any]) -> bool:
    """Whether recorded settings hold a secret in one of their tables."""
    return any(SECRETS & set(settings.get(name) or ()) for name in _TABLES)


def without_secrets(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings whose tables hold no secret."""
    return {
        name: {k: v for k, v in value.items() if k not in SECRETS}
        if name in _TABLES and isinstance(value, Mapping)
        else value
        for name, value in settings.items()
    }


#: Variables that decide which data, packs or prompts a run sees; recorded with it.
VARIABLES = ("LMEVAL_DATA_DIR", "LMEVAL_PACKS_DIR", "LMEVAL_PROMPTSOURCE_DIR")


@dataclass
class RunConfig:
    """Everything one evaluation is told. Names are those of the command line's options."""

    model: Any = "hf"
    model_args: Any = field(default_factory=dict)
    tasks: Any = field(default_factory=list)
    num_fewshot: int | None = None
    batch_size: int | str | None = None
    max_batch_size: int | None = None
    device: str | None = None
    limit: float | None = None
    samples: Any = None
    sample: float | None = None
    sample_seed: int = DEFAULT_OTHER_SEED
    use_cache: str | None = None
    fresh: bool = False
    cache_requests: Any = None
    check_integrity: bool = False
    write_out: bool = False
    log_samples: bool = False
    samples_format: str = "jsonl"
    output_path: str | None = None
    predict_only: bool = False
    system_instruction: str | None = None
    apply_chat_template: bool | str = False
    fewshot_as_multiturn: bool | None = None
    show_config: bool = False
    include_path: Any = None
    data_dir: str | None = None
    gen_kwargs: Any = field(default_factory=dict)
    verbosity: str | None = None
    wandb_args: Any = field(default_factory=dict)
    wandb_config_args: Any = field(default_factory=dict)
    hf_hub_log_args: Any = field(default_factory=dict)
    trackio_args: Any = field(default_factory=dict)
    seed: Any = field(default_factory=Seeds)
    bootstrap_iters: int = DEFAULT_BOOTSTRAP_ITERS
    confidence: float | None = None
    cluster: str | None = None
    trust_remote_code: bool = False
    confirm_run_unsafe_code: bool = False
    metadata: Any = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    """`VARIABLES` that were set when the run was recorded; they hold where none is set now."""

    def __post_init__(self) -> None:
        self._given = {"model_args": self.model_args, "gen_kwargs": self.gen_kwargs}
        for name in _TABLES:
            setattr(self, name, self._table(name))
        if doubt := misspelt(self.gen_kwargs):
            raise ConfigError(f"gen_kwargs: {doubt}")
        self.seed = Seeds.parse(self.seed)
        self.samples = self._read_samples()
        self.log_samples = self.log_samples or self.predict_only
        self._check_numbers()
        chosen = [n for n in ("limit", "samples", "sample") if getattr(self, n) is not None]
        if len(chosen) > 1:
            raise ConfigError(f"{' and '.join(chosen)} exclude each other: give one of them.")
        if self.samples_format not in ("jsonl", "zst", "parquet"):
            raise ConfigError(
                f"samples_format must be jsonl, zst or parquet, not {self.samples_format!r}."
            )
        if self.fewshot_as_multiturn and not self.apply_chat_template:
            raise ConfigError("fewshot_as_multiturn needs apply_chat_template.")
        if self.fewshot_as_multiturn is None:
            self.fewshot_as_multiturn = bool(self.apply_chat_template)
        if self.trust_remote_code:
            self.model_args = {**self.model_args, "trust_remote_code": True}
            self._given["model_args"] = self.model_args

    def as_given(self, name: str) -> Any:
        """Arguments as they were given, in one text or none at all, but never with a secret."""
        given, read = self._given[name], getattr(self, name)
        if given is None or (isinstance(given, str) and not SECRETS & read.keys()):
            return given
        return {key: value for key, value in read.items() if key not in SECRETS}

    def _table(self, name: str) -> dict[str, Any]:
        value = getattr(self, name)
        try:
            if value is not None and not isinstance(value, (str, dict, list, tuple)):
                raise ConfigError(f"expected key=value pairs or a table, not {value!r}.")
            if isinstance(value, (list, tuple)):
                return {k: v for part in value for k, v in parse_arguments(part).items()}
            return dict(parse_arguments(value))
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from error

    def _check_numbers(self) -> None:
        for name in ("limit", "sample"):
            if getattr(self, name) is None:
                continue
            given = getattr(self, name)
            number = given if type(given) is int else _number(name, given)
            setattr(self, name, number)
            if number <= 0:
                raise ConfigError(
                    f"{name} must be positive, not {number:g}: a number of documents, "
                    "or a share of them below 1."
                )
        self.sample_seed = int(_number("sample_seed", self.sample_seed))
        if self.confidence is not None:
            self.confidence = _number("confidence", self.confidence, "a share such as 0.95")
            if not 0 < self.confidence < 1:
                raise ConfigError(
                    f"confidence must lie between 0 and 1, such as 0.95, not {self.confidence:g}."
                )
        if self.num_fewshot is not None:
            self.num_fewshot = int(_number("num_fewshot", self.num_fewshot))
            if self.num_fewshot < 0:
                raise ConfigError(f"num_fewshot must not be negative, and is {self.num_fewshot}.")
        if self.batch_size is not None and not str(self.batch_size).startswith("auto"):
            size = _number("batch_size", self.batch_size, "'auto' or a number")
            if size < 1 or size != int(size):
                raise ConfigError(f"batch_size must be 1 or more, or 'auto', not {size:g}.")
            self.batch_size = int(size)

    def _read_samples(self) -> dict[str, list[int]] | None:
        """A table of document numbers by task, its JSON text, or a file holding that."""
        samples = self.samples
        if isinstance(samples, str):
            path = Path(samples)
            text = samples
            if not samples.lstrip().startswith("{"):
                if not path.is_file():
                    raise ConfigError(f"samples: there is no file {samples}.")
                text = path.read_text(encoding="utf-8")
            try:
                samples = json.loads(text)
            except json.JSONDecodeError as error:
                raise ConfigError(f"samples: not valid JSON: {error}.") from error
        if samples is None:
            return None
        if (
            not isinstance(samples, Mapping)
            or not samples
            or not all(
                isinstance(ids, list) and ids and all(type(i) is int for i in ids)
                for ids in samples.values()
            )
        ):
            raise ConfigError('samples: expected {"task": [document numbers]}.')
        # In order and once each, as the documents will come.
        return {task: sorted(set(numbers)) for task, numbers in samples.items()}

    @property
    def task_list(self) -> list[Any]:
        """The tasks asked for, comma-separated names split."""
        given = self.tasks if isinstance(self.tasks, (list, tuple)) else [self.tasks]
        specs: list[Any] = []
        for spec in given:
            if isinstance(spec, str):
                specs += [name.strip() for name in spec.split(",") if name.strip()]
            elif spec is not None:
                specs.append(spec)
        return list(specs)

    @property
    def metadata_of_tasks(self) -> dict[str, Any]:
        """What tasks are told of the run. It ends up in the results, so no secret is part of it."""
        open_to_all = {k: v for k, v in self.model_args.items() if k not in SECRETS}
        return {**open_to_all, **self.metadata}

    def settings(self, secrets: bool = True) -> dict[str, Any]:
        """Everything needed to make this run again, as plain data; paths that stay true.

        Without secrets it is fit to be shown around.
        """
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        if not isinstance(self.model, str):  # to be read; nobody can make the object from it
            plain["model"] = f"{type(self.model).__module__}.{type(self.model).__qualname__}"
        seeds = self.seed
        plain["seed"] = [seeds.random, seeds.numpy, seeds.torch, seeds.fewshot]
        for name in ("include_path", "data_dir", "output_path", "use_cache"):
            plain[name] = _absolute(plain[name])
        plain["tasks"] = [_recorded_task(spec) for spec in self.task_list]
        set_now = {name: _absolute(os.environ[name]) for name in VARIABLES if os.environ.get(name)}
        plain["environment"] = {**self.environment, **set_now}
        if not secrets:
            plain = without_secrets(plain)
        del plain["fresh"]  # whoever makes the run again wants the answers it left
        default = RunConfig()
        return {k: v for k, v in plain.items() if k == "seed" or v != getattr(default, k)}

    @contextmanager
    def in_environment(self) -> Iterator[None]:
        """Sets the recorded variables that are not set now, for as long as this lasts."""
        missing = {k: v for k, v in self.environment.items() if not os.environ.get(k)}
        os.environ.update(missing)
        try:
            yield
        finally:
            for name in missing:
                os.environ.pop(name, None)

    @classmethod
    def from_record(cls, settings: Mapping[str, Any], where: object) -> RunConfig:
        """Settings as a run has recorded them (`settings`); `where` says in which file."""
        unknown = [name for name in settings if name not in {f.name for f in fields(cls)}]
        if unknown:
            raise ConfigError(
                f"{where}: its settings hold {', '.join(map(repr, unknown))}, which this version "
                "does not know. Use the version of lm_eval that wrote it."
            )
        try:
            return cls(**settings)
        except EvalError:
            raise
        except (TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"{where}: its settings cannot be used ({error}).") from error

    @classmethod
    def from_file(cls, path: str | Path, **overrides: Any) -> RunConfig:
        """Settings from a YAML file; what is given beside it wins."""
        file = load_yaml_file(path)
        known = [f.name for f in fields(cls)]
        for key in file.values:
            if key not in known:
                raise ConfigError(
                    f"{file.where(key)}: unknown setting {key!r}.{suggestion(key, known)} "
                    f"Known settings: {', '.join(known)}."
                )
        try:
            return cls(**{**file.values, **overrides})
        except EvalError as error:
            raise located(error, file.path) from error
        except Exception as error:
            raise ConfigError(f"{file.path}: {type(error).__name__}: {error}") from error


def _number(name: str, value: Any, expected: str = "a number") -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{name} must be {expected}, not {value!r}.") from error
    if not math.isfinite(number):
        raise ConfigError(f"{name} must be {expected}, not {value!r}.")
    return number


def _is_file(spec: Any) -> bool:
    """Whether a task is asked for by its file, whose place must be known from anywhere."""
    return isinstance(spec, str) and spec.endswith((".yaml", ".yml")) and Path(spec).is_file()


def _recorded_task(spec: Any) -> Any:
    """A task as it can be asked for again from anywhere; of an object, its name."""
    if isinstance(spec, Mapping):
        return _with_names(spec)
    if isinstance(spec, str):
        return _absolute(spec) if _is_file(spec) else spec
    return str(getattr(spec, "task_name", None) or getattr(spec, "name", None) or spec)


def _with_names(value: Any) -> Any:
    """A task's table with functions by name: they can be read, and are the same every time."""
    if isinstance(value, Mapping):
        return {key: _with_names(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_names(one) for one in value]
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
    return value


def _absolute(path: Any) -> Any:
    if isinstance(path, (list, tuple)):
        return [_absolute(part) for part in path]
    return None if path is None else str(Path(path).expanduser().absolute())
