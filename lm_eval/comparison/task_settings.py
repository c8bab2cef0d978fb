"""What the scores of a task depend on besides the model: its configuration, data and prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.task import Task
from lm_eval.config.run import RunConfig
from lm_eval.logged_tasks import logs_of_tasks
from lm_eval.rescore import Source
from lm_eval.results.find_logs import results_beside
from lm_eval.results.serialize import hash_json

#: Keys of a task's configuration that do not change what is measured, and those that are compared
#: by themselves. `metadata` contains the arguments of the model, and the data of a task is compared
#: by its rows, wherever they come from.
_LEFT_OUT = {
    *("metadata", "task_alias", "tag", "task", "group", "dataset_kwargs", "should_decontaminate"),
    *("num_fewshot", "output_type", "generation_kwargs", "repeats"),
}
#: The name of the number of few-shot examples in messages.
FEWSHOT = "number of few-shot examples"
_LENGTH = 60
"""How many characters of a value messages show."""


@dataclass(frozen=True)
class TaskSettings:
    """What the scores of one task in one run depend on besides the model.

    Attributes:
        values: settings by the name that messages use: the version, the number of few-shot examples
            and others; None if a value is not known.
        prompt_options: settings of the run that only count if they change prompts: the few-shot
            seed and the system instruction.
        config: the task's configuration as it was loaded to score the answers.
        recorded: the configuration at the time of the run; empty if it is not known.
        data: a hash of the data at the time of the run; None for sample logs.
        splits: a hash of each split that the run used; empty if it is not known.
        run_prompts: a hash of all prompts at the time of the run; None if it is not known, and if
            they contain a chat template.
        prompts_changed: whether the prompts have changed between the run and now.
        prompts: for each document a hash of its prompts without chat template; empty if they are
            not needed, and if only prompts with a chat template are known.
    """

    values: Mapping[str, Any]
    prompt_options: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    recorded: Mapping[str, Any] = field(default_factory=dict)
    data: str | None = None
    splits: Mapping[str, str] = field(default_factory=dict)
    run_prompts: str | None = None
    prompts_changed: bool = False
    prompts: Sequence[int] = ()


def task_settings(
    source: Source,
    run: RunConfig,
    task: Task,
    requests: Sequence[Sequence[Instance]],
    hashes: Mapping[str, str],
    results: Mapping[str, Any],
    with_prompts: bool = True,
) -> TaskSettings:
    """Returns the settings of a task.

    Args:
        source: where the answers come from.
        run: the settings of the run.
        task: the task as it was loaded to score the answers.
        requests: the requests of each document.
        hashes: the hashes of the task as it was loaded (`runs.hashes.task_hashes`); empty for
            sample logs.
        results: the results file that was written with the answers (`recorded_results`); empty if
            there is none.
        with_prompts: whether the prompts of each document are needed.
    """
    name, config = str(task.task_name), task.dump_config()
    recorded = (results.get("configs") or {}).get(name) or {}
    before = {} if source.run is None else source.run.record.tasks.get(name, {})
    templated = bool(run.apply_chat_template or results.get("chat_template"))
    version = (results.get("versions") or {}).get(name)
    known = source.run is not None or not templated  # logs have the prompts as they were sent
    return TaskSettings(
        values={
            "version": _number(task.VERSION if version in (None, "Yaml") else version),
            FEWSHOT: config.get("num_fewshot") or 0,
            "output type": config.get("output_type"),
            "generation settings": _generation_settings(requests),
            "number of repeats": config.get("repeats") or 1,
        },
        prompt_options={
            "few-shot seed": run.seed.fewshot if source.run is not None else None,
            "system instruction": run.system_instruction,
        },
        config=_relevant(config),
        recorded=_relevant(recorded) if isinstance(recorded, Mapping) else {},
        data=before.get("data"),
        splits=_splits((results.get("datasets") or {}).get(name)),
        run_prompts=None if templated else before.get("prompts"),
        prompts_changed=not templated and before.get("prompts") != hashes.get("prompts"),
        prompts=[_prompts(one) for one in requests] if known and with_prompts else (),
    )


def same_prompts(sources: Sequence[Source], name: str) -> bool:
    """Returns whether the records of all runs show that a task had the same prompts in them."""
    if any(
        one.run is None or one.run.record.settings.get("apply_chat_template") for one in sources
    ):
        return False
    records = [one.run.record.tasks.get(name, {}) for one in sources if one.run is not None]
    return len({(one.get("prompts"), one.get("documents")) for one in records}) == 1


def chat_template(run: RunConfig, results: Mapping[str, Any]) -> str | None:
    """Returns the chat template of a run in words; None without one.

    Args:
        run: the settings of the run.
        results: its results file; empty if there is none.
    """
    given, digest = run.apply_chat_template, results.get("chat_template_sha")
    if not given and not digest:
        return None
    name = given if isinstance(given, str) else "the model's own"
    return f"{name} (SHA-256 {str(digest)[:8]}…)" if digest else name


def setting_differences(first: TaskSettings, second: TaskSettings) -> list[str]:
    """Returns in words what differs between two runs of a task besides the model and documents.

    A comparison is only about the models if nothing does. What is not known of one of them is not
    compared.
    """
    found = [
        f"{name}: {_short(first.values[name])} and {_short(second.values[name])}"
        for name in first.values
        if _known_and_different(first.values[name], second.values.get(name))
    ]
    found += _config_differences(first.config, second.config)
    found += _data_differences(first, second)
    if _prompts_changed_between(first, second):
        changed = _config_differences(first.recorded, second.recorded)
        found += [one for one in changed if one not in found] or [
            "the prompts: the files of the task or its data have changed between the runs"
        ]
    return found


def prompt_differences(
    first: TaskSettings, second: TaskSettings, pairs: Sequence[tuple[int, int]]
) -> list[str]:
    """Returns in words how the prompts of common documents differ, and why if it is known.

    Args:
        first: the settings of the first run.
        second: the settings of the second run.
        pairs: the positions of the common documents in both runs.
    """
    if not first.prompts or not second.prompts:
        return []
    different = sum(first.prompts[a] != second.prompts[b] for a, b in pairs)
    if not different:
        return []
    reasons = [
        f"{name}: {_short(first.prompt_options[name])} and {_short(second.prompt_options[name])}"
        for name in first.prompt_options
        if first.prompt_options[name] != second.prompt_options.get(name)
    ]
    because = f" ({'; '.join(reasons)})" if reasons else ""
    return [
        f"the prompts (without chat template) of {different} of {len(pairs)} documents{because}"
    ]


def _data_differences(first: TaskSettings, second: TaskSettings) -> list[str]:
    """Returns in words how the data of two runs differs.

    A run without few-shot examples does not use the split that they come from: only splits that
    both runs used are compared.
    """
    if not _known_and_different(first.data, second.data):
        return []
    common = [name for name in first.splits if name in second.splits]
    if common:
        changed = [name for name in common if first.splits[name] != second.splits[name]]
        which = ", ".join(map(repr, changed))
        return [f"the data: rows of {which} differ"] if changed else []
    if first.values[FEWSHOT] != second.values[FEWSHOT]:
        return []  # the number of examples is named, and may be the only reason
    return ["the data: its rows differ"]


def _prompts_changed_between(first: TaskSettings, second: TaskSettings) -> bool:
    """Returns whether the task's prompts were changed after one run and before the other."""
    if first.values[FEWSHOT] != second.values[FEWSHOT]:
        return False  # the number of examples explains it
    if not first.prompts_changed and not second.prompts_changed:
        return False
    if first.run_prompts is None or second.run_prompts is None:
        return False
    return first.run_prompts != second.run_prompts


def _config_differences(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    if not one or not two:
        return []
    return [
        f"{key}: {_short(one.get(key))} and {_short(two.get(key))}"
        for key in sorted({**one, **two})
        if one.get(key) != two.get(key) and hash_json(one.get(key)) != hash_json(two.get(key))
    ]


def _known_and_different(one: Any, two: Any) -> bool:
    return one is not None and two is not None and one != two


def _splits(described: Any) -> dict[str, str]:
    """Returns the hash of each split in the entry of a task under `datasets` of the results."""
    splits = described.get("splits") if isinstance(described, Mapping) else None
    return {
        str(name): str(one["fingerprint"])
        for name, one in (splits.items() if isinstance(splits, Mapping) else ())
        if isinstance(one, Mapping) and "fingerprint" in one
    }


def _relevant(config: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in config.items() if k not in _LEFT_OUT and v is not None}


def _short(value: Any) -> str:
    """Returns a value for a message: as JSON, cut in the middle if it is long."""
    text = value if isinstance(value, (int, float)) else json.dumps(value, default=str)
    text = "not set" if value is None else str(text)
    return text if len(text) <= _LENGTH else f"{text[: _LENGTH // 2]} … {text[-_LENGTH // 2 :]}"


def _number(version: Any) -> Any:
    """Returns a version as a number, so that 1, 1.0 and "1.0" are the same, or as a string."""
    try:
        return float(version)
    except (TypeError, ValueError):
        return str(version)


def _prompts(requests: Sequence[Instance]) -> int:
    """Returns a hash of the texts of a document's requests, without generation settings."""
    return hash(tuple(part for one in requests for part in one.args if isinstance(part, str)))


def _generation_settings(requests: Sequence[Sequence[Instance]]) -> Any:
    """Returns the generation settings of the first request; None if answers are not generated."""
    first = requests[0][0] if requests and requests[0] else None
    if first is None or first.request_type != "generate_until" or len(first.args) < 2:
        return None
    return first.args[1]


def recorded_results(source: Source) -> dict[str, Mapping[str, Any]]:
    """Returns the results file of each task: that of the run, or those beside the sample logs.

    Tasks without one are left out.
    """
    if source.run is None:
        return dict(results_beside(logs_of_tasks(source.path, source.wanted.include_path)))
    record, folder = source.run.record, source.run.folder.path
    for file in (folder, folder.parent) if record.results is not None else ():
        try:
            content = json.loads((file / str(record.results)).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(content, dict):
            return dict.fromkeys(record.tasks, content)
    return {}
