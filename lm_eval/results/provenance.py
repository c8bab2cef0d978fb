"""Describes a run for its results file: settings, model, environment, usage, reproduction."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

from lm_eval.api.model import LM
from lm_eval.api.usage import Usage
from lm_eval.config.run import SECRETS, RunConfig
from lm_eval.engine.executor import Executor
from lm_eval.results.environment import describe_environment, describe_tokenizer
from lm_eval.results.names import name_of_weights, sanitize_model_name, without_folder
from lm_eval.results.schema import Reproduction, RunDescription, RunStatistics
from lm_eval.results.serialize import hash_string


def describe_run(run: RunConfig, lm: LM, started: float) -> RunDescription:
    """Returns the settings, model, software and hardware of a run, for its results.

    `started` is the start of the run in seconds since 1970; the duration is counted from it.
    """
    name = model_name(run)
    template = lm.chat_template(run.apply_chat_template) if run.apply_chat_template else None
    system = run.system_instruction
    described: dict[str, Any] = {
        "config": _config(run, lm),
        "date": started,
        **describe_environment(),
        **describe_tokenizer(lm),
        "model_source": run.model if isinstance(run.model, str) else "CUSTOM",
        "model_name": name,
        "model_name_sanitized": sanitize_model_name(name),
        "system_instruction": system,
        "system_instruction_sha": hash_string(system) if system else None,
        "fewshot_as_multiturn": run.fewshot_as_multiturn,
        "chat_template": template,
        "chat_template_sha": hash_string(template) if template else None,
        "total_evaluation_time_seconds": str(time.time() - started),
    }
    return cast("RunDescription", described)


def describe_reproduction(run: RunConfig, identity: str) -> Reproduction:
    """Returns what `lm-eval reproduce` needs to repeat the run: settings, directory, model.

    `identity` is the JSON text that `model_identity` returned. Secrets are left out.
    """
    return {
        "settings": run.settings(secrets=False),
        "directory": str(Path.cwd()),
        "model_identity": json.loads(identity),
    }


def describe_usage(
    executor: Executor, used: Usage, new_answers: int | None = None
) -> RunStatistics | None:
    """Returns token and request counts, summed over all processes of the run.

    `used` has the counts of truncated and failed requests of this process. `new_answers` is the
    number of answers that this process got from the model and stored; None if the run stores no
    answers, and then the field `answers` is left out. So is `usage` if the model counts no tokens.
    Every process must call this function. It returns None in all processes but the one that
    collects the answers.
    """
    own_counts = {
        "usage": executor.usage(),
        "truncated_requests": used.truncated,
        "failed_requests": used.failed,
        **({} if new_answers is None else {"answers": {"asked": new_answers}}),
    }
    gathered = executor.gather(own_counts)
    if gathered is None:
        return None
    summed: dict[str, Counter[str]] = {name: Counter() for name in own_counts}
    for process_counts in gathered:
        for name, counts in process_counts.items():
            summed[name].update(counts)
    described = {name: dict(counts) for name, counts in summed.items()}
    if not described["usage"]:
        del described["usage"]  # the model class does not count tokens
    return cast("RunStatistics", described)


def describe_settings(run: RunConfig) -> RunDescription:
    """Returns the description of rescored results: settings, model name, software and hardware.

    Like `describe_run`, but without what needs the loaded model or the run itself: tokenizer, chat
    template, date and duration.
    """
    name = model_name(run)
    described: dict[str, Any] = {
        "config": _config(run, None),
        **describe_environment(),
        "model_source": run.model,
        "model_name": name,
        "model_name_sanitized": sanitize_model_name(name),
        "system_instruction": run.system_instruction,
        "fewshot_as_multiturn": run.fewshot_as_multiturn,
    }
    return cast("RunDescription", described)


def model_name(run: RunConfig) -> str:
    """Returns the name of the model: that of its weights, or else its backend or class."""
    return name_of_weights(run.model_args) or without_folder(_label(run))


def _label(run: RunConfig) -> str:
    """Returns the name of the backend.

    For a model passed as an object, returns the path or hub name that it was loaded from, or else
    the name of its class.
    """
    if isinstance(run.model, str):
        return run.model
    source = getattr(getattr(run.model, "config", None), "_name_or_path", None)
    return str(source) if source else type(run.model).__name__


def _public(arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns arguments without credentials."""
    return {name: value for name, value in arguments.items() if name not in SECRETS}


def _config(run: RunConfig, lm: LM | None) -> dict[str, Any]:
    """Returns the field `config` of the results, with the keys of the published harness.

    It has the facts of `lm.get_model_info`, unless `lm` is None, as for rescored results.
    """
    info = lm.get_model_info() if lm is not None and hasattr(lm, "get_model_info") else {}
    sizes = getattr(lm, "batch_sizes", {})
    return {
        "model": _label(run),
        "model_args": run.as_given("model_args"),
        **info,
        "batch_size": run.batch_size,
        "batch_sizes": list(sizes.values()) if isinstance(sizes, dict) else [],
        "device": run.device,
        "use_cache": run.use_cache,
        "limit": run.limit,
        **({"sample": run.sample, "sample_seed": run.sample_seed} if run.sample else {}),
        "bootstrap_iters": run.bootstrap_iters,
        "gen_kwargs": None if run.as_given("gen_kwargs") is None else _public(run.gen_kwargs),
        "random_seed": run.seed.random,
        "numpy_seed": run.seed.numpy,
        "torch_seed": run.seed.torch,
        "fewshot_seed": run.seed.fewshot,
    }
