"""The settings of one evaluation run, from the command line, a YAML file or Python."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from lm_eval.config.arguments import merge_arguments
from lm_eval.config.callables import name_of
from lm_eval.config.generation import find_meaningless, find_misspelled
from lm_eval.config.yaml_file import load_yaml_file
from lm_eval.defaults import (
    DEFAULT_BOOTSTRAP_ITERS,
    DEFAULT_MAX_FAILED,
    DEFAULT_OTHER_SEED,
    DEFAULT_RANDOM_SEED,
)
from lm_eval.errors import ConfigError, EvalError, suggestion, with_location
from lm_eval.redaction import remember_secrets, secret_names, secret_values, without_secrets

C = TypeVar("C", bound="RunConfig")


class Seeds(NamedTuple):
    """The seed of each random generator; a generator whose seed is None is not seeded."""

    random: int | None = DEFAULT_RANDOM_SEED
    numpy: int | None = DEFAULT_OTHER_SEED
    torch: int | None = DEFAULT_OTHER_SEED
    fewshot: int | None = DEFAULT_OTHER_SEED

    @property
    def model_seeds(self) -> tuple[int | None, ...]:
        """The seeds that can influence the model's answers: `(random, numpy, torch)`."""
        return (self.random, self.numpy, self.torch)

    @classmethod
    def parse(cls, given: Any) -> Seeds:
        """Returns the seeds that `given` describes; a `Seeds` object is returned unchanged.

        `given` is one number for all generators, or four in the order `random,numpy,torch,fewshot`,
        as text or a sequence; without the last, the few-shot seed is the default. None (or the text
        `None`), for all or in place of a number, means that a generator is not seeded. Raises
        `ConfigError` for anything else, and for numbers that are not between 0 and 2**32 - 1.
        """
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
                f"seed must be one number, or four (random,numpy,torch,fewshot), not {given!r}."
            )
        return cls(*(cls._number(part, given) for part in parts))

    @staticmethod
    def _number(part: Any, given: Any) -> int | None:
        """Returns one seed of `given` as a number, or as None if it is None or the text `None`.

        Raises `ConfigError` if it is anything else, or not between 0 and 2**32 - 1.
        """
        if part is None or str(part).strip().lower() == "none":
            return None
        try:
            number = int(part)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"seed: {part!r} is neither a number nor None (in {given!r})."
            ) from error
        if not 0 <= number < 2**32:
            raise ConfigError(
                f"seed: {number} (in {given!r}) is not between 0 and {2**32 - 1}. Choose another."
            )
        return number


#: Model arguments that change the speed but not the answers. They are part neither of the model's
#: identity nor of the id of a run.
SPEED_ARGUMENTS = {
    "batch_size",
    "max_batch_size",
    "device",
    "parallelize",
    "max_memory_per_gpu",
    "max_cpu_memory",
    "offload_folder",
    "num_concurrent",
    "max_retries",
    "timeout",
    "prefix_sharing",
}

#: Settings that are dictionaries and may be given as `key=value,key=value`.
_TABLES = (
    "model_args",
    "gen_kwargs",
    "metadata",
    "wandb_args",
    "wandb_config_args",
    "trackio_args",
    "hf_hub_log_args",
)


def secrets_in(settings: Mapping[str, Any]) -> list[str]:
    """Returns the names of the secrets in `settings`: `model_args auth_token`.

    `lm_eval.redaction` decides what is a secret. They are in the dictionaries among the settings,
    at any depth (`metadata server.api_key`), or part of a text.
    """
    return [
        f"{name} {inner}".strip()
        for name, value in settings.items()
        for inner in secret_names(value)
    ]


#: Settings that are text or None in a record.
_TEXT_SETTINGS = (
    *("data_dir", "use_cache", "decontaminate", "output_path", "device", "cluster", "verbosity"),
    *("system_instruction", "include_path"),
)

#: Where a model runs: in this process, in processes of this machine, or on a Ray cluster.
EXECUTORS = ("in_process", "processes", "ray")
#: The settings of executors with workers.
WORKER_SETTINGS = ("workers", "gpus_per_worker", "cpus_per_worker", "ray_address", "max_restarts")

#: Environment variables that select the data, packs or prompts of a run; recorded with the run.
VARIABLES = ("LMEVAL_DATA_DIR", "LMEVAL_PACKS_DIR", "LMEVAL_PROMPTSOURCE_DIR")


@dataclass
class RunConfig:
    """The settings of one evaluation run.

    The fields are named like the options of `lm-eval run` and described there. Creating an
    instance parses and checks the values; it raises `ConfigError` if one is invalid.
    """

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
    repeats: int | None = None
    metrics: Any = None
    use_cache: str | None = None
    fresh: bool = False
    max_failed: float | None = DEFAULT_MAX_FAILED
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
    bootstrap_iters: int | None = DEFAULT_BOOTSTRAP_ITERS
    confidence: float | None = None
    cluster: str | None = None
    decontaminate: str | None = None
    trust_remote_code: bool = False
    confirm_run_unsafe_code: bool = False
    require_isolation: str | None = None
    executor: str | None = None
    workers: Any = None
    gpus_per_worker: float | None = None
    cpus_per_worker: float | None = None
    ray_address: str | None = None
    max_restarts: int | None = None
    metadata: Any = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    """The `VARIABLES` that were set when the run was recorded; used for those not set now."""

    def __post_init__(self) -> None:
        self._check_types()
        self._given = {"model_args": self.model_args, "gen_kwargs": self.gen_kwargs}
        for name in _TABLES:
            setattr(self, name, self._parsed_mapping(name))
            remember_secrets(secret_values(getattr(self, name)))
        if problem := find_misspelled(self.gen_kwargs) or find_meaningless(self.gen_kwargs):
            raise ConfigError(f"gen_kwargs: {problem}")
        self.seed = Seeds.parse(self.seed)
        self.samples = self._read_samples()
        self.metrics = self._read_metrics()
        if self.metrics is not None and self.predict_only:
            raise ConfigError(
                "metrics and predict_only cannot be combined, because predict_only computes no "
                "scores. Leave metrics out, and score the answers later: lm-eval score DIR "
                "--metrics NAME"
            )
        self.log_samples = self.log_samples or self.predict_only
        self._check_numbers()
        chosen = [n for n in ("limit", "samples", "sample") if getattr(self, n) is not None]
        if len(chosen) > 1:
            raise ConfigError(f"{' and '.join(chosen)} cannot be combined; give only one of them.")
        if self.samples_format not in ("jsonl", "zst", "parquet"):
            raise ConfigError(
                f"samples_format must be jsonl, zst or parquet, not {self.samples_format!r}."
            )
        if self.decontaminate is not None:
            if not isinstance(self.decontaminate, (str, os.PathLike)):
                raise ConfigError(
                    "decontaminate must be the path of a findings file, not "
                    f"{self.decontaminate!r}."
                )
            self.decontaminate = os.fspath(self.decontaminate)
            if self.predict_only:
                raise ConfigError(
                    "decontaminate and predict_only cannot be combined, because predict_only "
                    "computes no scores. Leave decontaminate out, and score the answers later: "
                    "lm-eval score DIR --decontaminate FINDINGS"
                )
        if self.require_isolation is not None:
            self._check_isolation_name()
        self._check_workers()
        if self.fewshot_as_multiturn and not self.apply_chat_template:
            raise ConfigError("fewshot_as_multiturn needs apply_chat_template; set that too.")
        if self.fewshot_as_multiturn is None:
            self.fewshot_as_multiturn = bool(self.apply_chat_template)
        if self.trust_remote_code:
            self.model_args = {**self.model_args, "trust_remote_code": True}
            self._given["model_args"] = self.model_args

    def _check_workers(self) -> None:
        """Raises `ConfigError` if the executor is unknown, or its settings do not fit it.

        Afterwards `executor` is None for a model in this process, and `workers` is None for as many
        as there is room for.
        """
        if self.executor not in (None, *EXECUTORS):
            raise ConfigError(
                f"executor must be one of {', '.join(EXECUTORS)}, not {_shown(self.executor)}."
            )
        self.executor = None if self.executor == EXECUTORS[0] else self.executor
        given = [name for name in WORKER_SETTINGS if getattr(self, name) is not None]
        if self.executor is None and given:
            raise ConfigError(
                f"{given[0]} is a setting of workers: also give --executor processes (several "
                "processes on this machine) or --executor ray (a Ray cluster)."
            )
        if self.ray_address is not None and self.executor != "ray":
            raise ConfigError("ray_address needs --executor ray.")
        if self.workers == "auto":
            self.workers = None
        for name, smallest in (("workers", 1), ("max_restarts", 0)):
            if getattr(self, name) is not None:
                number = _number(name, getattr(self, name), "a whole number")
                if number < smallest or number != int(number):
                    raise ConfigError(
                        f"{name} must be a whole number of at least {smallest}, not {number:g}."
                    )
                setattr(self, name, int(number))
        for name in ("gpus_per_worker", "cpus_per_worker"):
            if getattr(self, name) is not None:
                number = _number(name, getattr(self, name))
                if number < 0 or (number > 1 and number != int(number)):
                    raise ConfigError(
                        f"{name} must be a whole number, or a part of 1 such as 0.5, not "
                        f"{number:g}."
                    )
                setattr(self, name, number)

    def as_given(self, name: str) -> Any:
        """Returns `model_args` or `gen_kwargs` in the form in which they were given.

        That is None or a string, if they were given so, and otherwise a dictionary. Credentials are
        removed: for a string that contains one, a dictionary without it is returned. Raises
        `KeyError` for any other `name`.
        """
        given, parsed = self._given[name], getattr(self, name)
        if given is None or (isinstance(given, str) and not secret_names(parsed)):
            return given
        return without_secrets(parsed)

    def _parsed_mapping(self, name: str) -> dict[str, Any]:
        """Returns the setting `name` as a dictionary; see `parse_arguments` for what it may be.

        A list of several values is merged; the last value of a key is used. Raises `ConfigError` if
        the setting cannot be parsed.
        """
        value = getattr(self, name)
        try:
            if value is not None and not isinstance(value, (str, dict, list, tuple)):
                raise ConfigError(f"expected key=value pairs or a mapping, not {value!r}.")
            return merge_arguments(value)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from error

    def _check_isolation_name(self) -> None:
        """Raises `ConfigError` if `require_isolation` is not a level of isolation."""
        from lm_eval.sandbox import IsolationError, mechanisms_of

        try:
            mechanisms_of(str(self.require_isolation))
        except IsolationError as error:
            raise ConfigError(f"require_isolation: {error}") from error

    def _check_types(self) -> None:
        """Raises `ConfigError` if a setting has a type that it cannot have, as in a YAML file."""
        containers = (list, tuple, set, dict)
        for name, (expected, is_valid) in _TYPES.items():
            value = getattr(self, name)
            if value is not None and not is_valid(value):
                raise ConfigError(f"{name} must be {expected}, not {_shown(value)}.")
        tasks = self.tasks if isinstance(self.tasks, (list, tuple)) else [self.tasks]
        if any(isinstance(one, (bool, int, float)) for one in tasks):
            raise ConfigError(
                f"tasks must be a name, or a list of names, not {_shown(self.tasks)}."
            )
        if isinstance(self.model, (bool, int, float, *containers)):
            raise ConfigError(f"model must be the name of a model, not {_shown(self.model)}.")

    def _check_numbers(self) -> None:
        """Converts numeric settings to numbers; raises `ConfigError` if one is out of range.

        These are `limit`, `sample`, `sample_seed`, `confidence`, `bootstrap_iters`, `num_fewshot`
        and `batch_size`.
        """
        for name in ("limit", "sample"):
            if getattr(self, name) is None:
                continue
            given = getattr(self, name)
            number = given if type(given) is int else _number(name, given)
            setattr(self, name, number)
            if number <= 0:
                raise ConfigError(
                    f"{name} must be positive, not {number:g}: either a number of documents or, "
                    "below 1, a fraction of them."
                )
        self.sample_seed = int(_number("sample_seed", self.sample_seed))
        if self.max_batch_size is not None:
            self.max_batch_size = int(_number("max_batch_size", self.max_batch_size))
        if self.max_failed is not None:
            self.max_failed = _number("max_failed", self.max_failed)
            if self.max_failed < 0:
                raise ConfigError(
                    f"max_failed must be 0 or more, not {self.max_failed:g}: a number of requests "
                    "or, below 1, a share of them."
                )
        if self.confidence is not None:
            self.confidence = _number("confidence", self.confidence, "a number such as 0.95")
            if not 0 < self.confidence < 1:
                raise ConfigError(
                    f"confidence must be between 0 and 1, such as 0.95, not {self.confidence:g}."
                )
        if self.bootstrap_iters is not None:
            number = _number("bootstrap_iters", self.bootstrap_iters, "a whole number")
            if number < 0 or number != int(number):
                raise ConfigError(
                    f"bootstrap_iters must be a whole number of at least 0, not {number:g}."
                )
            self.bootstrap_iters = int(number)
        if self.repeats is not None:
            number = _number("repeats", self.repeats, "a whole number")
            if number < 1 or number != int(number):
                raise ConfigError(f"repeats must be a whole number of at least 1, not {number:g}.")
            self.repeats = int(number)
        if self.num_fewshot is not None:
            self.num_fewshot = int(_number("num_fewshot", self.num_fewshot))
            if self.num_fewshot < 0:
                raise ConfigError(f"num_fewshot must be 0 or more, not {self.num_fewshot}.")
        if self.batch_size is not None and not str(self.batch_size).startswith("auto"):
            size = _number("batch_size", self.batch_size, "'auto' or a number")
            if size < 1 or size != int(size):
                raise ConfigError(f"batch_size must be 1 or more, or 'auto', not {size:g}.")
            self.batch_size = int(size)

    def _read_metrics(self) -> list[str] | None:
        """Returns the names of metrics as a list; text is split at commas. None if not set.

        Raises `ConfigError` if they are not names, or if there is none.
        """
        if self.metrics is None:
            return None
        given = [self.metrics] if isinstance(self.metrics, str) else self.metrics
        if not isinstance(given, (list, tuple)) or not all(isinstance(one, str) for one in given):
            raise ConfigError(
                f"metrics must be a name, or a list of names, not {_shown(self.metrics)}."
            )
        names = [name.strip() for text in given for name in text.split(",") if name.strip()]
        if not names:
            raise ConfigError("metrics must contain at least one name, such as avg@8.")
        return names

    def _read_samples(self) -> dict[str, list[int]] | None:
        """Returns the documents to evaluate: for each task, a sorted list of document numbers.

        The setting is a dictionary of that form, its JSON text, or the path of a JSON file. Numbers
        are counted from 0; duplicates are removed. Returns None if the setting is None; raises
        `ConfigError` if it is invalid, names no task, or has an empty list for one.
        """
        samples = self.samples
        if isinstance(samples, str):
            path = Path(samples)
            text = samples
            if not samples.lstrip().startswith("{"):
                if not _is_file(path):
                    raise ConfigError(
                        f"samples: there is no file {samples}. Give the path of a JSON file, or "
                        'JSON text such as {"task": [0, 3]}.'
                    )
                try:
                    text = path.read_text(encoding="utf-8")
                except (OSError, ValueError) as error:
                    raise ConfigError(
                        f"samples: the file {path} cannot be read as text ({error}). Give a JSON "
                        'file such as {"task": [0, 3]}.'
                    ) from error
            try:
                samples = json.loads(text)
            except (ValueError, RecursionError) as error:
                what = "the value" if text is samples else f"the file {path}"
                raise ConfigError(f"samples: {what} is not valid JSON: {error}.") from error
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
            raise ConfigError(
                'samples must map each task to a list of document numbers: {"task": [0, 3]}.'
            )
        # Sorted and unique, because documents are evaluated in the order of the dataset.
        return {task: sorted(set(numbers)) for task, numbers in samples.items()}

    @property
    def task_list(self) -> list[Any]:
        """The tasks of the run as a list; comma-separated names are split.

        Empty names and None are left out. Items that are not text (configurations, objects) are
        kept.
        """
        given = self.tasks if isinstance(self.tasks, (list, tuple)) else [self.tasks]
        specs: list[Any] = []
        for spec in given:
            if isinstance(spec, str):
                specs += [name.strip() for name in spec.split(",") if name.strip()]
            elif spec is not None:
                specs.append(spec)
        return list(specs)

    @property
    def include_folders(self) -> list[str]:
        """The folders of `include_path` as a list."""
        given = self.include_path
        folders = [given] if isinstance(given, (str, Path)) else given or ()
        return [str(folder) for folder in folders]

    @property
    def task_metadata(self) -> dict[str, Any]:
        """The values that are merged into the metadata of every task: model arguments, metadata.

        If both have a key, the value of `metadata` is used. Credentials among the model arguments
        are left out, because a task's metadata is written to the results.
        """
        return {**without_secrets(self.model_args), **self.metadata}

    def settings(self) -> dict[str, Any]:
        """Returns all settings that differ from the defaults, as plain data, to repeat the run.

        Paths are absolute, and `environment` holds the current `VARIABLES`. Secrets are included:
        `lm_eval.redaction.without_secrets` removes them. The seeds are always included, `fresh`
        never. A model object is replaced by the name of its class. `from_record` turns the result
        into a `RunConfig` again.
        """
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        if not isinstance(self.model, str):  # only informative: the object cannot be recreated
            plain["model"] = f"{type(self.model).__module__}.{type(self.model).__qualname__}"
        elif ".py:" in self.model:  # a model class by its file
            file, _, name = self.model.rpartition(":")
            plain["model"] = f"{absolute_path(file)}:{name}"
        seeds = self.seed
        plain["seed"] = [seeds.random, seeds.numpy, seeds.torch, seeds.fewshot]
        for name in ("include_path", "data_dir", "output_path", "use_cache", "decontaminate"):
            plain[name] = absolute_path(plain[name])
        plain["tasks"] = [_recorded_task(spec) for spec in self.task_list]
        set_now = {
            name: absolute_path(os.environ[name]) for name in VARIABLES if os.environ.get(name)
        }
        plain["environment"] = {**self.environment, **set_now}
        del plain["fresh"]  # a repeated run uses the answers that this one stored
        default = RunConfig()
        return {k: v for k, v in plain.items() if k == "seed" or v != getattr(default, k)}

    @contextmanager
    def in_environment(self) -> Iterator[None]:
        """Context manager that sets the recorded environment variables that are not set now.

        Only `VARIABLES` are set, whatever the record contains. They are removed again at the end of
        the `with` block.
        """
        recorded = {k: str(v) for k, v in self.environment.items() if k in VARIABLES}
        missing = {k: v for k, v in recorded.items() if not os.environ.get(k)}
        os.environ.update(missing)
        try:
            yield
        finally:
            for name in missing:
                os.environ.pop(name, None)

    @classmethod
    def from_record(cls, settings: Mapping[str, Any], where: object) -> RunConfig:
        """Returns the configuration of a recorded run.

        `settings` are what the method `settings()` returned, `where` is the file they come from,
        for error messages. Raises `ConfigError` if they are unknown to this version or invalid.
        """
        unknown = [name for name in settings if name not in {f.name for f in fields(cls)}]
        if unknown:
            raise ConfigError(
                f"{where}: its settings contain {', '.join(map(repr, unknown))}, which this "
                "version does not know. Use the version of lm_eval that wrote it."
            )
        for name in _TEXT_SETTINGS:
            value = settings.get(name)
            texts = value if name == "include_path" and isinstance(value, list) else [value]
            valid = all(one is None or _is_valid_text(one) for one in texts)
            if not valid or (name != "system_instruction" and _has_long_name(texts)):
                raise ConfigError(
                    f"{where}: its setting {name!r} is not valid. If the file was edited, undo the "
                    "edit; otherwise run the original command again."
                )
        try:
            return cls(**settings)
        except EvalError:
            raise
        except (TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
            raise ConfigError(
                f"{where}: the recorded settings of the run are not valid ({error}). If the file "
                "was edited, undo the edit; otherwise run the original command again."
            ) from error

    @classmethod
    def from_file(cls: type[C], path: str | Path, **overrides: Any) -> C:
        """Returns the configuration in a YAML file; `overrides` replace values of the file.

        Raises `ConfigError` if the file cannot be read, or contains an unknown setting or an
        invalid value.
        """
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
            raise with_location(error, file.path) from error
        except Exception as error:
            raise ConfigError(
                f"{file.path}: its settings cannot be used ({type(error).__name__}: {error})."
            ) from error


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def _is_paths(value: Any) -> bool:
    return all(map(_is_path, value)) if isinstance(value, (list, tuple)) else _is_path(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, (bool, int)) and value in (0, 1)


#: What settings may be, apart from None: a description for messages, and a check.
_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("use_cache", "output_path", "data_dir"), ("a path", _is_path)),
    "include_path": ("a path or a list of paths", _is_paths),
    **dict.fromkeys(("system_instruction", "cluster", "samples_format"), ("text", _is_text)),
    **dict.fromkeys(("executor", "ray_address"), ("text", _is_text)),
    "device": ("a name such as cuda:0", lambda value: not isinstance(value, (list, dict, tuple))),
    "verbosity": ("a level such as INFO", lambda value: isinstance(value, (str, int))),
    "apply_chat_template": (
        "true, false or the name of a template",
        lambda value: isinstance(value, str) or _is_flag(value),
    ),
    "environment": ("a mapping", lambda value: isinstance(value, Mapping)),
    **dict.fromkeys(
        (
            *("fresh", "check_integrity", "write_out", "log_samples", "predict_only"),
            *("fewshot_as_multiturn", "show_config", "trust_remote_code"),
            "confirm_run_unsafe_code",
        ),
        ("true or false", _is_flag),
    ),
}


def _shown(value: Any) -> str:
    """Returns a value for a message, cut off if it is long."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _number(name: str, value: Any, expected: str = "a number") -> float:
    """Returns the value of the setting `name` as a number.

    Raises `ConfigError`, which describes what is `expected`, if it is not a finite number.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{name} must be {expected}, not {_shown(value)}.") from error
    if not math.isfinite(number):
        raise ConfigError(f"{name} must be {expected}, not {value!r}.")
    return number


def _is_file(path: Path) -> bool:
    """Returns whether `path` is an existing file; False for a name that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long, or with a NUL character
        return False


def _is_valid_text(value: Any) -> bool:
    """Returns whether a value is text that can be a path: without null characters, surrogates."""
    if not isinstance(value, str):
        return False
    return "\0" not in value and value == value.encode("utf-8", "ignore").decode()


def _has_long_name(paths: Sequence[str | None]) -> bool:
    """Returns whether a path contains a name that no file can have."""
    return any(len(part.encode()) > 255 for path in paths for part in (path or "").split("/"))


def _is_task_file(spec: Any) -> bool:
    """Returns whether a task is given as the path of an existing YAML file."""
    return isinstance(spec, str) and spec.endswith((".yaml", ".yml")) and _is_file(Path(spec))


def _recorded_task(spec: Any) -> Any:
    """Returns a task of the run as plain data that is valid in any working directory.

    A path becomes absolute, and an object becomes its name.
    """
    if isinstance(spec, Mapping):
        return _with_function_names(spec)
    if isinstance(spec, str):
        return absolute_path(spec) if _is_task_file(spec) else spec
    return str(getattr(spec, "task_name", None) or getattr(spec, "name", None) or spec)


def _with_function_names(value: Any) -> Any:
    """Returns a copy of a task's configuration with each function replaced by its `name_of`.

    Tuples become lists. The `repr` of a function contains its memory address, which differs in
    every process.
    """
    if isinstance(value, Mapping):
        return {key: _with_function_names(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_function_names(one) for one in value]
    if callable(value):
        return name_of(value)
    return value


def absolute_path(path: Any) -> Any:
    """Returns a path, or each path of a list, as an absolute path (text); None stays None.

    `~` is replaced by the home folder; links are not followed.
    """
    if isinstance(path, (list, tuple)):
        return [absolute_path(part) for part in path]
    return None if path is None else str(Path(path).expanduser().absolute())
