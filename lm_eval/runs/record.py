"""The record of one run in `run.json`: its settings, the model's identity and hashes of tasks."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from lm_eval.config.run import SPEED_ARGUMENTS, WORKER_SETTINGS, RunConfig, secrets_in
from lm_eval.errors import OutputError
from lm_eval.redaction import known_redactor, without_secrets
from lm_eval.results.checksums import CHECKSUM, checksum
from lm_eval.results.serialize import hash_json, to_json_data

#: Settings that affect neither the requests nor their scoring. Two commands that differ only in
#: these are the same run, and the settings of the later command replace those of the earlier one.
_IRRELEVANT = {
    *("output_path", "log_samples", "samples_format", "show_config", "write_out", "verbosity"),
    *("wandb_args", "wandb_config_args", "trackio_args", "hf_hub_log_args"),
    *("batch_size", "max_batch_size", "device", "cache_requests", "check_integrity", "max_failed"),
    *("executor", *WORKER_SETTINGS),
    *("data_dir", "environment"),  # changed data is detected by its hash
}


def run_id(settings: Mapping[str, Any]) -> str:
    """Returns the id of a run: 8 hexadecimal digits, a hash of its relevant settings.

    Secrets, model arguments that change only the speed, and settings that affect neither requests
    nor scoring do not change it.
    """
    relevant = {name: value for name, value in settings.items() if name not in _IRRELEVANT}
    arguments = relevant.pop("model_args", None) or {}
    if arguments := {k: v for k, v in arguments.items() if k not in SPEED_ARGUMENTS}:
        relevant["model_args"] = arguments  # as if the others had not been given
    return hash_json(_normalize(without_secrets(relevant)))[:8]


def _normalize(value: Any) -> Any:
    """Returns a setting in canonical form, so that `3.0` and `3`, tuples and lists hash equally.

    Keys of mappings become strings.
    """
    if isinstance(value, Mapping):
        return {str(key): _normalize(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_normalize(one) for one in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


@dataclass(frozen=True)
class RunRecord:
    """The record of one run in `run.json`."""

    settings: dict[str, Any]
    """The settings of the run (`RunConfig.settings`)."""
    state: dict[str, Any]
    """`model` (the identity of the model), `think_end_token`, and `tasks`: the hashes of each task
    (`runs.hashes.task_hashes`) by its name."""
    begun: float
    """Time at which the run was started last, in seconds since the epoch."""
    directory: str
    """The working directory of the command. Paths in the model arguments may be relative to it."""
    finished: bool = False
    results: str | None = None
    """Name of the results file in the folder; None until the run is finished."""
    answer_index: str | None = None
    """Name of the answer index file in the folder, which maps answers to documents."""
    model_object: bool = False
    """Whether the model was a Python object, which cannot be created again from the settings."""
    left_out: list[str] = field(default_factory=list)
    """Names of the secret settings that the run had (`secrets_in`); their values are not stored."""
    signature: str | None = None
    """Marks a run that was made here (`results.run_signature`)."""
    unknown_fields: dict[str, Any] = field(default_factory=dict)
    """Fields that a newer version of lm_eval has written; kept when the record is rewritten."""

    @classmethod
    def read(cls, content: Any, file: Path) -> RunRecord:
        """Returns the record from the parsed JSON that `to_json` produced.

        Raises `OutputError`, naming `file`, if `content` is not a complete record.
        """
        if not _is_valid(content):
            raise OutputError(
                f"{file}: this is not a complete record of a run. Move the file away and run the "
                "original command again; it continues from the stored answers, if there are any."
            )
        if content.get(CHECKSUM) not in (None, _checksum(content)):
            raise OutputError(
                f"{file}: the record of a run in it was changed or damaged after it was written: "
                "its checksum is wrong. Put the original file back, or move it away and run the "
                "original command again; it continues from the stored answers. If you changed it "
                "on purpose, delete the `checksum` of the record."
            )
        known = {field.name for field in fields(cls)} - {"unknown_fields"}
        not_kept = {*known, CHECKSUM}
        unknown_fields = {key: value for key, value in content.items() if key not in not_kept}
        given = {key: value for key, value in content.items() if key in known}
        return cls(**{"begun": 0.0, **given}, unknown_fields=unknown_fields)

    def without_secrets(self) -> RunRecord:
        """Returns the record without secrets; `left_out` has the names of those removed now."""
        left_out = sorted({*self.left_out, *secrets_in(self.settings)})
        hidden = known_redactor()
        return replace(
            self,
            settings=without_secrets(self.settings),
            state=hidden.data(self.state),
            directory=hidden.text(self.directory),
            left_out=left_out,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the record as a dictionary for `run.json`."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        content = {**own.pop("unknown_fields"), **own}
        return {**content, CHECKSUM: _checksum(content)}

    @property
    def id(self) -> str:
        """The id of the run (`run_id`)."""
        return run_id(self.settings)

    @property
    def tasks(self) -> Mapping[str, Mapping[str, str]]:
        """The hashes of every task of the run, by task name."""
        tasks: Mapping[str, Mapping[str, str]] = self.state["tasks"]
        return tasks

    def tasks_matching(self, name: str) -> list[str]:
        """Returns the tasks of this run that match a name or pattern such as `demo_*`.

        If no task matches but `name` was given as a task or group in the run's settings, returns
        `[name]`. Otherwise empty.
        """
        tasks = [task for task in self.tasks if fnmatchcase(task, name)]
        return tasks or [spec for spec in self.settings.get("tasks", ()) if spec == name]

    def config(self, file: Path) -> RunConfig:
        """Returns the recorded settings as a `RunConfig`.

        Raises `ConfigError` if this version does not know them or they are invalid. `file` is the
        file they come from, for error messages.
        """
        return RunConfig.from_record(self.settings, file)

    def describe(self) -> str:
        """Returns one line for a list of runs: id, main options, start time, finished or not.

        The main options are the tasks and those that differ from the defaults and affect the
        scores, without the model and secrets.
        """
        hidden = {*_IRRELEVANT, "model", "tasks", "seed"}
        given = {k: v for k, v in without_secrets(self.settings).items() if k not in hidden and v}
        if self.settings.get("seed") != RunConfig().settings()["seed"]:
            given["seed"] = ",".join(map(str, self.settings.get("seed", ())))
        words = ["--tasks", ",".join(map(_task_name, self.settings.get("tasks", ())))]
        for name, value in given.items():
            for one in value if isinstance(value, list) else [value]:  # include_path
                words += [f"--{name}", *([] if one is True else [_option_value(name, one)])]
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.begun))
        state = "finished" if self.finished else "not finished"
        return f"{self.id}  {shlex.join(words)}  (started {began}, {state})"


def _checksum(content: Mapping[str, Any]) -> str:
    """Returns the checksum of what a record says about the run; not of how far the run got."""
    fixed = ("settings", "state", "directory", "answer_index", "model_object", "left_out")
    return checksum(to_json_data({name: content.get(name) for name in fixed}))


def _option_value(name: str, value: Any) -> str:
    """Returns the value of the setting `name` as it is written on the command line.

    A mapping becomes `key=value,key=value`, a string stays as it is, and anything else becomes
    JSON, as does `samples`.
    """
    value = _normalize(value)
    if isinstance(value, Mapping) and name != "samples":
        return ",".join(f"{key}={one}" for key, one in value.items())
    return value if isinstance(value, str) else json.dumps(value)


def _is_valid(content: Any) -> bool:
    """Returns whether parsed JSON has all required fields of a record, with the right types."""
    if not isinstance(content, dict) or "directory" not in content:
        return False
    settings, state = content.get("settings"), content.get("state")
    if not isinstance(settings, dict) or not isinstance(state, dict):
        return False
    tables = ("model_args", "gen_kwargs", "metadata", "environment")
    begun = content.get("begun", 0.0)
    return (
        isinstance(content["directory"], str)
        and _is_file_name(content.get("answer_index"))
        and isinstance(begun, (int, float))
        and 0 <= begun < _YEAR_10000
        and isinstance(settings.get("model", ""), str)
        and isinstance(settings.get("tasks", []), list)
        and isinstance(settings.get("seed", []), list)
        and isinstance(settings.get("use_cache"), (str, type(None)))
        and isinstance(content.get("left_out", []), list)
        and all(isinstance(settings.get(name, {}), dict) for name in tables)
        and isinstance(state.get("tasks"), dict)
        and all(isinstance(hashes, dict) for hashes in state["tasks"].values())
    )


def _is_file_name(name: Any) -> bool:
    """Returns whether `name` is None or the name of a file in the folder of the record."""
    return name is None or (
        isinstance(name, str) and Path(name).name == name and len(name) < 200 and "\0" not in name
    )


#: The end of the year 9999 in seconds since the epoch. Later times are not valid.
_YEAR_10000 = 253_402_300_800


def _task_name(spec: Any) -> str:
    return str(spec.get("task", "…")) if isinstance(spec, Mapping) else str(spec)


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns a description of every change between two states of a run (`RunRecord.state`).

    Each names the model or a task, and which part of it has changed; the list is empty if nothing
    has. Tasks that are not in `before` are skipped, and so is the model if one of the states lacks
    it. Changed prompts are not reported if the task's documents differ as well.
    """
    found = []
    if now.get("model") is not None and before.get("model") not in (None, now["model"]):
        what = _differing_parts(before["model"], now["model"])
        found.append(
            f"the model differs from that of the earlier run{what}, whose answers are not used"
        )
    for name, task in now["tasks"].items():
        old = before.get("tasks", {}).get(name)
        if old is None:
            continue
        parts = {
            "config": "its configuration or code",
            "data": "its data",
            "prompts": "its prompts",
        }
        if old.get("documents") != task.get(
            "documents"
        ):  # prompts of other documents differ anyway
            del parts["prompts"]
        changed = [words for key, words in parts.items() if old.get(key) != task[key]]
        if changed:
            found.append(f"task {name} has changed since the earlier run: {', '.join(changed)}")
    return found


def _differing_parts(before: str, now: str) -> str:
    """Returns which parts of two model identities (JSON strings) differ: ` (arguments, files)`.

    Empty if the identities were written in an unknown format.
    """
    try:
        one, two = json.loads(before), json.loads(now)
        parts = [part for part in {**one, **two} if one.get(part) != two.get(part)]
    except (ValueError, TypeError, AttributeError):  # written by another version
        return ""
    return f" ({', '.join(parts)})"
