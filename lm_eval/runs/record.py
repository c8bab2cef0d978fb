"""What is recorded of one run: its settings, and hashes of the model, the tasks and the prompts."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from lm_eval.config.run import RunConfig, without_secrets
from lm_eval.errors import OutputError
from lm_eval.results.serialise import hash_json

#: Settings that change neither which requests are made nor how they are scored. Two commands that
#: differ in nothing else are one run, and the later one's settings replace the earlier one's.
_INCIDENTAL = {
    *("output_path", "log_samples", "samples_format", "show_config", "write_out", "verbosity"),
    *("wandb_args", "wandb_config_args", "trackio_args", "hf_hub_log_args"),
    *("batch_size", "max_batch_size", "device", "cache_requests", "check_integrity"),
    *("data_dir", "environment"),  # whether the data is the same, its hashes tell
}


def run_id(settings: Mapping[str, Any]) -> str:
    """Returns the short name of a run within its folder, made from its settings."""
    told = {name: value for name, value in settings.items() if name not in _INCIDENTAL}
    return hash_json(_normal(without_secrets(told)))[:8]


def _normal(value: Any) -> Any:
    """Settings in one spelling, whether they came from the command line or Python: 3.0 is 3."""
    if isinstance(value, Mapping):
        return {str(key): _normal(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_normal(one) for one in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


@dataclass(frozen=True)
class RunRecord:
    """One run of a folder, as `run.json` holds it."""

    settings: dict[str, Any]
    """What `RunConfig.settings` gave."""
    state: dict[str, Any]
    """Identity of the model, its `think_end_token`, and by task the hashes of `runs.hashes`."""
    begun: float
    directory: str
    """Where the command was given; paths among the model's arguments may be relative to it."""
    finished: bool = False
    results: str | None = None
    """Name of the results file in the folder, once it is finished."""
    answer_index: str | None = None
    """Name of the file that says which answer belongs to which document."""
    model_object: bool = False
    """Whether the model was a Python object, which nobody can make again from the settings."""
    more: dict[str, Any] = field(default_factory=dict)
    """What a newer version has recorded besides; it is kept."""

    @classmethod
    def read(cls, content: Any, file: Path) -> RunRecord:
        """Returns the record that `to_json` wrote; raises OutputError for anything else."""
        if not _is_whole(content):
            raise OutputError(
                f"{file}: is no whole record of a run. Move it aside; the command that made the "
                "run goes on from the stored answers, if those are there."
            )
        known = {field.name for field in fields(cls)} - {"more"}
        more = {key: value for key, value in content.items() if key not in known}
        given = {key: value for key, value in content.items() if key in known}
        return cls(**{"begun": 0.0, **given}, more=more)

    def to_json(self) -> dict[str, Any]:
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**own.pop("more"), **own}

    @property
    def id(self) -> str:
        return run_id(self.settings)

    @property
    def tasks(self) -> Mapping[str, Mapping[str, str]]:
        """The hashes of every task that was asked, by its name."""
        tasks: Mapping[str, Mapping[str, str]] = self.state["tasks"]
        return tasks

    def asked_for(self, name: str) -> bool:
        """Whether a task, group or tag of that name was part of the run."""
        return bool(self.matching(name)) or name in self.settings.get("tasks", ())

    def matching(self, pattern: str) -> list[str]:
        """Returns the tasks of the run whose names match a name or pattern."""
        return [name for name in self.tasks if fnmatchcase(name, pattern)]

    def config(self, file: Path) -> RunConfig:
        """Returns the settings to run it again; `file` is named where they cannot be used."""
        return RunConfig.from_record(self.settings, file)

    def describe(self) -> str:
        """Returns one line for a list of runs: id, what was asked, when, and whether it ended."""
        hidden = {*_INCIDENTAL, "model", "tasks", "seed"}
        given = {k: v for k, v in without_secrets(self.settings).items() if k not in hidden and v}
        if self.settings.get("seed") != RunConfig().settings()["seed"]:
            given["seed"] = ",".join(map(str, self.settings.get("seed", ())))
        words = ["--tasks", ",".join(map(_task_name, self.settings.get("tasks", ())))]
        for name, value in given.items():
            words += [f"--{name}", *([] if value is True else [_word(_normal(value))])]
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.begun))
        state = "finished" if self.finished else "not finished"
        return f"{self.id}  {shlex.join(words)}  (begun {began}, {state})"


def _word(value: Any) -> str:
    """A setting as it is given on the command line."""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={one}" for key, one in value.items())
    return value if isinstance(value, str) else json.dumps(value)


def _is_whole(content: Any) -> bool:
    """Whether a record has all that a run needs, in the types it needs them in."""
    if not isinstance(content, dict) or "directory" not in content:
        return False
    settings, state = content.get("settings"), content.get("state")
    if not isinstance(settings, dict) or not isinstance(state, dict):
        return False
    tables = ("model_args", "gen_kwargs", "metadata", "environment")
    begun = content.get("begun", 0.0)
    return (
        isinstance(content["directory"], str)
        and isinstance(content.get("answer_index"), (str, type(None)))
        and isinstance(begun, (int, float))
        and 0 <= begun < _LATEST
        and isinstance(settings.get("model", ""), str)
        and isinstance(settings.get("tasks", []), list)
        and all(isinstance(settings.get(name, {}), dict) for name in tables)
        and isinstance(state.get("tasks"), dict)
        and all(isinstance(hashes, dict) for hashes in state["tasks"].values())
    )


#: A time that no clock shows, in seconds: the end of the year 9999.
_LATEST = 253_402_300_800


def _task_name(spec: Any) -> str:
    return str(spec.get("task", "…")) if isinstance(spec, Mapping) else str(spec)


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for everything that is not as it was when the run was begun."""
    found = []
    if now.get("model") is not None and before.get("model") not in (None, now["model"]):
        what = _other_parts(before["model"], now["model"])
        found.append(
            f"the model is another one or was changed{what}: its answers are asked for anew"
        )
    for name, task in now["tasks"].items():
        old = before.get("tasks", {}).get(name)
        if old is None:
            continue
        parts = {"config": "its configuration", "data": "its data", "prompts": "its prompts"}
        if old.get("documents") != task.get("documents"):  # others were asked: others were written
            del parts["prompts"]
        changed = [words for key, words in parts.items() if old.get(key) != task[key]]
        if changed:
            found.append(f"task {name}: changed since: {', '.join(changed)}")
    return found


def _other_parts(before: str, now: str) -> str:
    """Which parts of a model's identity differ, in brackets."""
    try:
        one, two = json.loads(before), json.loads(now)
        parts = [part for part in {**one, **two} if one.get(part) != two.get(part)]
    except (ValueError, TypeError, AttributeError):  # of another version's making
        return ""
    return f" ({', '.join(parts)})"
