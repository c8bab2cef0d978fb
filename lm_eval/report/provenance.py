"""Where the numbers of a run come from, as facts for the page."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping
from typing import Any

from lm_eval.redaction import without_secrets
from lm_eval.report.inputs import ReportRun
from lm_eval.results.serialize import handle_non_serializable

#: Settings of a record that a command to reproduce it does not need.
_NOT_IN_COMMAND = {"output_path", "environment", "verbosity", "log_samples", "samples_format"}

Facts = list[tuple[str, str]]


def provenance(run: ReportRun) -> dict[str, Any]:
    """Returns `facts` about a run, `tasks` (one row each), `commands` and `contamination`."""
    results = run.results
    return {
        "facts": list(_facts(results)),
        "tasks": [_task(results, name) for name in run.tasks],
        "commands": _commands(run),
        "contamination": _contamination(results),
    }


def _facts(results: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields what is known about model, settings, software and machine."""
    config = _table(results, "config")
    settings = _table(results, "settings")
    identity = _table(results, "model_identity")
    named = {
        "Model": results.get("model_name"),
        "Backend": results.get("model_source") or config.get("model"),
        "Model arguments": _pairs(without_secrets(config.get("model_args"))),
        "Weights": _table(identity, "own").get("weights") or identity.get("weights"),
        "Model revision": config.get("model_revision"),
        "Model SHA": config.get("model_sha"),
        "Data type": config.get("model_dtype"),
        "Chat template": results.get("chat_template_sha"),
        "System instruction": results.get("system_instruction"),
        "Generation settings": _pairs(config.get("gen_kwargs")),
        "Limit": config.get("limit"),
        "Sample": settings.get("sample"),
        "Seeds": _seeds(config),
        "Bootstrap samples": config.get("bootstrap_iters"),
        "Started": _date(results.get("date")),
        "Duration": _seconds(results.get("total_evaluation_time_seconds")),
        "Answers": _listed(results.get("answers")),
        "Tokens": _listed(results.get("usage")),
        "Isolation of programs": results.get("isolation"),
        "lm_eval": results.get("lm_eval_version"),
        "git": results.get("git_hash"),
        "Libraries": _listed(results.get("libraries")),
        "transformers": "" if results.get("libraries") else results.get("transformers_version"),
        "Machine": _listed(results.get("hardware")),
    }
    for name, value in named.items():
        if value not in (None, "", {}, []):
            yield name, _text(value)


def _task(results: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns one row of the table of tasks: version, data and hashes."""
    data = _table(_table(results, "datasets"), name)
    config = _table(_table(results, "configs"), name)
    hashes = _table(_table(results, "hashes"), name)
    counts = _table(_table(results, "n-samples"), name)
    path = data.get("path") or config.get("dataset_path")
    subset = data.get("name") or config.get("dataset_name")
    splits = _table(data, "splits")
    fingerprints = [
        f"{split}: {_table(splits, split).get('fingerprint')}" for split in splits if splits
    ]
    return {
        "name": name,
        "version": _text(_table(results, "versions").get(name)),
        "data": " / ".join(str(part) for part in (path, subset) if part),
        "revision": _text(data.get("revision")),
        "fingerprints": fingerprints,
        "documents": [counts.get("effective"), counts.get("original")],
        "shots": _text(_table(results, "n-shot").get(name)),
        "hashes": {key: str(value) for key, value in hashes.items()},
        "samples_hash": _text(_table(results, "task_hashes").get(name)),
    }


def _commands(run: ReportRun) -> list[str]:
    """Returns the commands that reproduce a run: exactly from its file, and as it was started.

    There are none for runs of tasks or models that were Python objects.
    """
    results = run.results
    settings = _table(results, "settings")
    if not settings and run.stored is not None:
        settings = run.stored.record.settings
    named = settings.get("tasks")
    if run.stored is not None and run.stored.record.model_object:
        return []
    if isinstance(named, list) and not all(isinstance(one, str) for one in named):
        return []
    if not settings:
        config = _table(results, "config")
        settings = {
            "model": config.get("model"),
            "model_args": config.get("model_args"),
            "tasks": run.tasks,
            **{key: config.get(key) for key in ("gen_kwargs", "limit", "batch_size")},
        }
        shots = {one for one in _table(results, "n-shot").values() if isinstance(one, int)}
        if len(shots) == 1:
            settings["num_fewshot"] = shots.pop()
        own = []
    else:
        own = [f"lm-eval reproduce {shlex.quote(run.path.name)}"]
    if not settings.get("model"):
        return own
    words = ["lm-eval", "run"]
    for name, value in without_secrets(settings).items():
        if name in _NOT_IN_COMMAND or value in (None, False, {}, [], ""):
            continue
        words.append(f"--{name}")
        if value is True:
            continue
        if isinstance(value, list):
            words.append(",".join(_text(one) for one in value))
        else:
            words.append(_pairs(value))
    return [*own, shlex.join(words)]


def _contamination(results: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the clean scores of a run with `--decontaminate`; None for other runs."""
    rows, source = _table(results, "decontaminated"), _table(results, "decontaminated_with")
    if not rows:
        return None
    return {
        "findings": _text(source.get("findings")),
        "ngram": source.get("ngram"),
        "threshold": source.get("threshold"),
        "fingerprint": _text(source.get("fingerprint")),
        "rows": [
            {
                "name": name,
                "clean": row.get("sample_len"),
                "dropped": row.get("dropped"),
                "scores": [
                    {"key": key, "value": value, "difference": _table(row, "difference").get(key)}
                    for key, value in row.items()
                    if "," in key
                    and not key.partition(",")[0].endswith("_stderr")
                    and isinstance(value, (int, float))
                ],
            }
            for name, row in rows.items()
            if isinstance(row, Mapping)
        ],
    }


def _seeds(config: Mapping[str, Any]) -> str:
    names = ("random", "numpy", "torch", "fewshot")
    found = {name: config.get(f"{name}_seed") for name in names}
    return ", ".join(f"{k} {v}" for k, v in found.items() if v is not None)


def _date(seconds: Any) -> str:
    if not isinstance(seconds, (int, float)) or not 0 <= seconds < 2**37:
        return ""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _seconds(value: Any) -> str:
    try:
        return f"{float(value):,.1f} s"
    except (TypeError, ValueError, OverflowError):
        return ""


def _table(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = content.get(key)
    return dict(found) if isinstance(found, Mapping) else {}


def _pairs(value: Any) -> str:
    """Returns a dictionary as `key=value,key=value`, and any other value as text."""
    if isinstance(value, Mapping):
        return ",".join(f"{k}={_text(v)}" for k, v in value.items())
    return _text(value)


def _listed(value: Any) -> str:
    """Returns a dictionary for readers: `key value, key value`; any other value as text."""
    if isinstance(value, Mapping):
        words = (f"{str(k).replace('_', ' ')} {_text(v)}" for k, v in value.items())
        return ", ".join(words)
    return _text(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=handle_non_serializable)
