"""`lm-eval reproduce`: repeats the run of a results file and compares the numbers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lm_eval.cli.options import add_consent, add_data_dir, add_verbosity, include_paths

HELP = "repeat the run of a results file and compare the numbers"
#: Relative tolerance for numbers of the published harness, which adds them in a different order.
_PUBLISHED_TOLERANCE = 1e-9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval reproduce` to the parser."""
    parser.add_argument(
        "results",
        metavar="FILE",
        help="a results_<time>.json, or a folder; the newest one in it is used",
    )
    parser.add_argument("--use_cache", "-c", metavar="FILE", help="use answers stored in this file")
    parser.add_argument("--output_path", "-o", metavar="PATH", help="save the new run there")
    parser.add_argument(
        "--device", metavar="NAME", help="device of the model, if it differs from the first run"
    )
    parser.add_argument("--batch_size", "-b", metavar="N", help="requests per batch, or 'auto'")
    add_data_dir(parser)
    add_consent(parser)
    add_verbosity(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Repeats the run, prints the differences, and returns 0 if there are none, else 1.

    Differences in numbers and inputs count, those in the environment do not. Returns 1 as well if
    the file contains no scores to compare. In a process of a rank other than 0, nothing is
    compared, and 0 is returned. Raises `OutputError` if the file has no settings of a run, or was
    made by `lm-eval score`, and `ForeignRunError` if it is the file of someone else whose run needs
    more than the options allow.
    """
    from lm_eval.config.run import RunConfig, absolute_path
    from lm_eval.errors import OutputError
    from lm_eval.evaluator import run_evaluation
    from lm_eval.results.agreement import compare
    from lm_eval.results.reader import latest_results, read_results
    from lm_eval.results.run_signature import made_here
    from lm_eval.runs.consent import Consent, check_secrets_given, permitted
    from lm_eval.runs.working_directory import in_original_directory

    file = latest_results(Path(arguments.results))
    before = read_results(file)
    if "scored_from" in before:
        raise OutputError(
            f"{file}: was made by `lm-eval score` from stored answers, so there is no run to "
            "repeat. Pass the results file of the original run."
        )
    if not isinstance(before.get("model_identity", {}), dict):
        raise OutputError(f"{file}: is damaged: its `model_identity` is not an object.")
    has_settings = isinstance(before.get("settings"), dict)
    recorded = dict(before["settings"]) if has_settings else _published_settings(before, file)
    recorded |= {"use_cache": None, "output_path": None, "log_samples": False}
    recorded |= {"wandb_args": {}, "trackio_args": {}, "hf_hub_log_args": {}}
    directory = before.get("directory")
    is_own = has_settings and made_here(before["settings"], directory, before.get("signature"))
    consent = Consent(
        trust_remote_code=arguments.trust_remote_code,
        confirm_run_unsafe_code=arguments.confirm_run_unsafe_code,
        include_path=include_paths(arguments.include_path) or (),
        model=arguments.model,
        model_args=RunConfig(model_args=arguments.model_args).model_args,
    )
    RunConfig.from_record(recorded, file)  # raises if the settings cannot be used
    settings = permitted(recorded, consent, file, is_own=is_own)
    left_out = before.get("left_out")
    check_secrets_given(left_out if isinstance(left_out, list) else [], consent, file)
    for name in ("use_cache", "output_path"):
        settings[name] = absolute_path(getattr(arguments, name))
    for name in ("device", "batch_size"):
        if getattr(arguments, name) is not None:
            settings[name] = getattr(arguments, name)
    if arguments.data_dir is not None:
        settings["data_dir"] = absolute_path(arguments.data_dir)
    run = RunConfig.from_record(settings, file)
    there, identity = str(directory) if is_own else None, before.get("model_identity")
    with in_original_directory(there, run.model_args, identity):
        now = run_evaluation(run)
    if now is None:
        return 0
    if not has_settings:  # compare tasks only: the scores of groups follow from theirs
        rows = {name: before["results"].get(name, {}) for name in before["configs"]}
        before = {**before, "results": rows}
    found = compare(before, now, 0.0 if has_settings else _PUBLISHED_TOLERANCE)
    rows_compared = [*before["results"].values(), *before.get("decontaminated", {}).values()]
    count = sum(_is_number(key) for row in rows_compared for key in row)
    if not count:
        print(
            f"nothing to compare: {file} contains no scores. The model has answered its requests "
            "again."
        )
        return 1
    if found.identical:
        print(f"identical: all {count} numbers of {file} were reproduced.")
        return 0
    if found.numbers:
        print(f"not identical: {len(found.numbers)} of {count} numbers of {file} differ:")
    else:
        print(f"all {count} numbers of {file} are equal, but their inputs differ:")
    for line in found.numbers:
        print(f"  {line}")
    for title, lines in (
        ("inputs that have changed:", found.inputs),
        ("differences in the environment:", found.environment),
    ):
        if lines:
            print(title)
            print("\n".join(f"  {line}" for line in lines))
    return 1


def _is_number(key: str) -> bool:
    """Returns whether a key of a row is that of a score or a standard error, such as `acc,none`.

    `bypass` is not: it is the placeholder in runs without scores (`--predict_only`).
    """
    return "," in key and not key.startswith(("bypass,", "bypass_stderr,"))


def _published_settings(results: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Returns the settings of a run from a results file of the published harness.

    They are arguments of `RunConfig`. `file` is its path, for the message. Raises `OutputError` if
    the results do not contain them.
    """
    from lm_eval.errors import OutputError

    config, configs, shots = (results.get(key) or {} for key in ("config", "configs", "n-shot"))
    whole = all(isinstance(table, Mapping) for table in (config, configs, shots))
    if not whole or not config or not configs:
        raise OutputError(
            f"{file}: does not contain the settings of the run: it has neither `settings` nor "
            "`config` and `configs`. It cannot be reproduced."
        )
    kept = ("model", "model_args", "batch_size", "device", "limit", "bootstrap_iters", "gen_kwargs")
    settings = {name: config[name] for name in kept if config.get(name) not in (None, "None")}
    seeds = [config.get(f"{name}_seed") for name in ("random", "numpy", "torch", "fewshot")]
    settings |= {
        "seed": seeds,
        "tasks": [
            {"task": name, **({"num_fewshot": shots[name]} if shots.get(name) else {})}
            for name in configs
        ],
        "system_instruction": results.get("system_instruction"),
        "apply_chat_template": bool(results.get("chat_template")),
    }
    if settings["apply_chat_template"]:
        settings["fewshot_as_multiturn"] = bool(results.get("fewshot_as_multiturn"))
    return settings
