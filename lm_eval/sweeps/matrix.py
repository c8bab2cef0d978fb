"""The file of a sweep: settings that all runs share, and lists of settings to combine."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

from lm_eval.config.arguments import merge_arguments, split_outside_brackets
from lm_eval.config.functions import function_refs
from lm_eval.config.run import RunConfig
from lm_eval.config.yaml_file import YamlFile, load_yaml_file, nested_sources
from lm_eval.errors import ConfigError, EvalError, suggestion
from lm_eval.redaction import without_secrets
from lm_eval.results.names import file_name, name_of_weights
from lm_eval.results.provenance import model_name
from lm_eval.runs.folder import ANSWERS_FILE
from lm_eval.sweeps.checkpoints import Checkpoint, find_checkpoints, find_revisions
from lm_eval.sweeps.record import LOGS

SETTINGS = [f.name for f in fields(RunConfig)]
"""The keys of a run, as in a file for `lm-eval run --config`."""
OWN_KEYS = ("matrix", "checkpoints", "revisions")
"""The keys of a sweep that a run does not have."""
CHECKPOINT = "checkpoint"
"""The name of the axis of checkpoints or revisions."""
MODELS = "models"
"""The name of the axis whose values are models, as text or with several settings."""

_TABLES = ("model_args", "gen_kwargs", "metadata", "wandb_args", "wandb_config_args")
NOT_VARIED = ("output_path", "use_cache", "environment", "show_config", "fresh")
"""Settings that all runs of a sweep share."""
MOST_RUNS = 20_000
"""The largest number of runs of a sweep; more of them are a mistake in the file."""
_RESERVED = (LOGS, ANSWERS_FILE)


@dataclass(frozen=True)
class Value:
    """One value of an axis: the settings that it stands for.

    Attributes:
        label: its name in tables.
        settings: the settings.
        checkpoint: the checkpoint, on the axis of checkpoints.
    """

    label: str
    settings: Mapping[str, Any]
    checkpoint: Checkpoint | None = None

    @property
    def name(self) -> str:
        """Its part in the names of runs."""
        return self.label if self.checkpoint is None else self.checkpoint.name


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep.

    Attributes:
        name: its name, which is also that of its folder.
        config: its settings.
        labels: for each axis of the matrix the label of its value.
        model: the name of the model in tables, without its checkpoint.
        step: the training step of its checkpoint; None if there is none.
    """

    name: str
    config: RunConfig
    labels: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    step: int | None = None


@dataclass(frozen=True)
class Matrix:
    """What a sweep runs: all combinations of the values of its axes.

    Attributes:
        path: the file that it was read from, for messages.
        shared: the settings that all runs have, unless a value of an axis replaces them.
        axes: for each axis its values.
    """

    path: Path
    shared: Mapping[str, Any]
    axes: Mapping[str, Sequence[Value]]

    def runs(self, output_path: str | Path) -> list[SweepRun]:
        """Returns all runs, each with its own folder below `output_path`.

        Raises `ConfigError` if two runs have the same name, if settings are not valid, or if there
        are more than `MOST_RUNS`.
        """
        count = math.prod(map(len, self.axes.values()))
        if count > MOST_RUNS:
            sizes = " × ".join(f"{len(values)} {axis}" for axis, values in self.axes.items())
            raise ConfigError(
                f"{self.path}: {sizes} are {count:,} runs; a sweep has at most {MOST_RUNS:,}. Vary "
                "settings that belong together in one list of mappings, or split the sweep."
            )
        runs: dict[str, SweepRun] = {}
        for values in product(*self.axes.values()):
            run = self._run(dict(zip(self.axes, values, strict=True)), Path(output_path))
            other = runs.get(run.name.lower())
            if other is not None:
                raise ConfigError(
                    f"{self.path}: two runs have the name {run.name!r}: {_described(other)} and "
                    f"{_described(run)}. Remove one of them, or write their values in `matrix` "
                    "with a `name`: {name: …, model: …}."
                )
            runs[run.name.lower()] = run
        return list(runs.values())

    def _run(self, values: Mapping[str, Value], output_path: Path) -> SweepRun:
        """Returns the run of one combination of values."""
        settings = dict(self.shared)
        for value in values.values():
            settings = merge_settings(settings, value.settings)
        labels = {axis: value.label for axis, value in values.items()}
        name = re.sub(r"[^\w.+=-]+", "_", "_".join(value.name for value in values.values())).strip(
            "_."
        )
        name = file_name(re.sub(r"\.json$", "_json", name, flags=re.IGNORECASE) or "run")
        if name.lower() in _RESERVED:
            raise ConfigError(
                f"{self.path}: {name!r} cannot be the name of a run: the folder of the sweep "
                "contains a file or folder of that name. Choose another `name`."
            )
        try:
            config = RunConfig(**{**settings, "output_path": str(output_path / name)})
        except EvalError as error:
            raise type(error)(f"{self.path}: run {name!r}: {error}") from error
        checkpoint = next((v.checkpoint for v in values.values() if v.checkpoint), None)
        given = [labels[axis] for axis in (MODELS, "model", "model_args") if axis in labels]
        if checkpoint is not None and (checkpoint.one_of_several or not given):
            given.append(checkpoint.curve)
        model = " ".join(given) or short_name(config)
        return SweepRun(name, config, labels, model, checkpoint.step if checkpoint else None)


def read_matrix(
    path: str | Path,
    overrides: Mapping[str, Any] | None = None,
    checkpoints: Sequence[str] = (),
    revisions: Sequence[str] = (),
) -> Matrix:
    """Returns the matrix that a file describes.

    Args:
        path: a YAML file with the keys of a run (`lm-eval run --config`) and `matrix`.
        overrides: settings that replace those of the file.
        checkpoints: patterns of checkpoint folders, used instead of those of the file.
        revisions: revisions on the hub, used instead of those of the file.

    Raises:
        ConfigError: the file cannot be read, has an unknown key, or an axis without values.
    """
    file = load_yaml_file(path)
    content = {**file.values, **(overrides or {})}
    _check_keys(file, content)
    if refs := list(function_refs(content)):
        raise ConfigError(f"{refs[0].where}: a sweep cannot contain !function. Use a task file.")
    folder = content.get("output_path")
    if not isinstance(folder, str | Path | None):
        raise ConfigError(f"{file.where('output_path')}: output_path must be a path, not {folder}.")
    axes = dict(_axes(file, content.get("matrix")))
    shared = {key: value for key, value in content.items() if key in SETTINGS}
    patterns = checkpoints or _texts(file, "checkpoints", content.get("checkpoints"))
    versions = revisions or _texts(file, "revisions", content.get("revisions"))
    if patterns and versions:
        raise ConfigError(f"{file.path}: give either checkpoints or revisions, not both.")
    found = find_checkpoints(patterns) if patterns else _revisions(file, shared, axes, versions)
    if found:
        if CHECKPOINT in axes:
            raise ConfigError(
                f"{file.where('matrix')}: an axis named {CHECKPOINT!r} cannot be combined with "
                "checkpoints or revisions. Rename the axis."
            )
        axes[CHECKPOINT] = [Value(one.label, {"model_args": one.arguments}, one) for one in found]
    if not axes:
        raise ConfigError(
            f"{file.path}: there is nothing to vary. Write lists of settings under `matrix`, such "
            "as  matrix: {num_fewshot: [0, 5]}, or give --checkpoints."
        )
    return Matrix(file.path, shared, axes)


def merge_settings(settings: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings with `others` in place of equal keys; tables such as `model_args` merge."""
    merged = {**settings, **others}
    for name in _TABLES:
        if name in settings and name in others:
            merged[name] = {**merge_arguments(settings[name]), **merge_arguments(others[name])}
    return merged


def short_name(config: RunConfig) -> str:
    """Returns the name of a model without its folder or organization."""
    name = model_name(config)
    return Path(name).name or name


def _check_keys(file: YamlFile, content: Mapping[str, Any]) -> None:
    known = [*OWN_KEYS, *SETTINGS]
    for key in content:
        if key not in known:
            raise ConfigError(
                f"{file.where(key)}: unknown key {key!r}.{suggestion(str(key), known)} Known keys: "
                f"{', '.join(known)}."
            )


def _texts(file: YamlFile, key: str, value: Any) -> list[str]:
    """Returns a text or a list of texts as a list."""
    texts = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"{file.where(key)}: {key} must be a text or a list of texts.")
    if value is not None and not all(map(str.strip, texts or [""])):
        raise ConfigError(f"{file.where(key)}: {key} is empty. Name at least one, or remove it.")
    return texts


def _revisions(
    file: YamlFile,
    shared: Mapping[str, Any],
    axes: Mapping[str, Sequence[Value]],
    revisions: Sequence[str],
) -> list[Checkpoint]:
    """Returns the revisions of the model that all runs share."""
    if not revisions:
        return []
    models = [merge_settings(shared, {})]
    for values in axes.values():
        models = [merge_settings(one, value.settings) for one in models for value in values]
    names = [merge_arguments(one.get("model_args")).get("pretrained") for one in models]
    name = names[0]
    if not isinstance(name, str) or any(other != name for other in names):
        raise ConfigError(
            f"{file.path}: revisions need one model that all runs share: write "
            "model_args: {pretrained: ORGANIZATION/NAME}."
        )
    return find_revisions(name, revisions)


def _axes(file: YamlFile, matrix: Any) -> Iterator[tuple[str, list[Value]]]:
    """Yields the axes of a matrix; raises `ConfigError` if one cannot be used."""
    where = file.where("matrix")
    if matrix is None and "matrix" not in file.values:
        return
    if not matrix:
        raise ConfigError(
            f"{where}: matrix is empty. Write lists of settings to combine, such as  matrix: "
            "{num_fewshot: [0, 5]}."
        )
    if not isinstance(matrix, Mapping):
        raise ConfigError(
            f"{where}: matrix must be a mapping of lists, not {_shown(matrix)}. Write, for "
            "example,  matrix: {num_fewshot: [0, 5]}."
        )
    lines = nested_sources(file, "matrix")
    for axis, values in matrix.items():
        axis = str(axis)
        at_axis = str(lines.get(axis, where))
        if axis in NOT_VARIED:
            raise ConfigError(f"{at_axis}: {axis} cannot be varied; write it beside `matrix`.")
        if not isinstance(values, list) or not values:
            hint = "" if axis in (*SETTINGS, MODELS) else suggestion(axis, [*SETTINGS, MODELS])
            raise ConfigError(
                f"{at_axis}: {axis} must be a list with at least one value, not {_shown(values)}."
                f"{hint}"
            )
        read = _setting if axis in SETTINGS else _several
        places = [str(lines.get(f"{axis}[{i}]", at_axis)) for i in range(len(values))]
        yield axis, [read(at, axis, value) for at, value in zip(places, values, strict=True)]


def _setting(where: str, axis: str, value: Any) -> Value:
    """Returns a value of an axis that is named after a setting."""
    if axis == "tasks":
        names = value if isinstance(value, list) else [value]
        shown = [str(one.get("task", "task")) if isinstance(one, dict) else one for one in names]
        if not names or not all(isinstance(one, str) for one in shown):
            raise ConfigError(f"{where}: tasks: {_shown(value)} is not a name or a list of names.")
        return Value("+".join(part.strip() for part in shown), {axis: value})
    try:
        return Value(_label(axis, value), {axis: value})
    except EvalError as error:
        raise type(error)(f"{where}: {axis}: {error}") from error


def _several(where: str, axis: str, value: Any) -> Value:
    """Returns a value of any other axis: several settings, or a model as text."""
    if axis == MODELS and isinstance(value, str):
        return _model(where, value)
    if not isinstance(value, Mapping) or not value:
        if axis == MODELS:
            raise ConfigError(
                f"{where}: {_shown(value)} is not a model. Write its name, such as "
                "hf,pretrained=gpt2, or a mapping of settings: {name: …, model: …}."
            )
        raise ConfigError(
            f"{where}: {axis!r} is not a setting, so each of its values must be a mapping of "
            f"settings with a `name`, not {_shown(value)}.{suggestion(axis, [*SETTINGS, MODELS])}"
        )
    settings: dict[str, Any] = {str(key): one for key, one in value.items() if key != "name"}
    for key in settings:
        if key not in SETTINGS or key in NOT_VARIED:
            raise ConfigError(
                f"{where}: {axis}: {key!r} is not a setting that can be varied."
                f"{suggestion(key, [one for one in SETTINGS if one not in NOT_VARIED])}"
            )
    try:
        if "name" in value:
            return Value(_given_name(value["name"]), settings)
        if axis == MODELS:
            return Value(short_name(RunConfig(**settings)), settings)
        return Value("_".join(_label(key, one) for key, one in settings.items()), settings)
    except EvalError as error:
        raise type(error)(f"{where}: {axis}: {error}") from error


def _given_name(name: Any) -> str:
    """Returns the `name` of a value; raises `ConfigError` if it is not a text or a number."""
    if isinstance(name, bool | list | dict) or name is None or not str(name).strip():
        raise ConfigError(f"`name` must be a text, not {_shown(name)}.")
    return str(name)


def _model(where: str, text: str) -> Value:
    """Returns the model that a text such as `hf,pretrained=gpt2` stands for."""
    name, *rest = split_outside_brackets(text)
    if "=" in name or not name.strip():
        raise ConfigError(
            f"{where}: {text!r} does not begin with the name of a model. Write "
            "NAME,KEY=VALUE,… such as hf,pretrained=gpt2."
        )
    try:
        arguments = merge_arguments(",".join(rest))
        given: dict[str, Any] = {"model": name.strip(), "model_args": arguments}
        return Value(short_name(RunConfig(**given)), given)
    except EvalError as error:
        raise type(error)(f"{where}: {text!r}: {error}") from error


def _label(setting: str, value: Any) -> str:
    """Returns a short label for the value of a setting."""
    if setting == "model":
        return str(value)
    if setting == "num_fewshot":
        return "default-shot" if value is None else f"{value}-shot"
    if setting in _TABLES:
        table = without_secrets(merge_arguments(value))
        weights = name_of_weights(table)
        rest = [f"{k}={v}" for k, v in table.items() if str(v) != weights]
        named = [Path(weights).name] if weights else []
        return ",".join([*named, *rest]) or f"no-{setting}"
    shown = value if isinstance(value, str) else json.dumps(value)
    return f"{setting}-{shown}"


def _described(run: SweepRun) -> str:
    """Returns the values of a run, for a message."""
    return ", ".join(f"{axis} {label!r}" for axis, label in run.labels.items())


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:80]}…"
