"""`lm-eval reproduce`: make the numbers of a results file again, and say whether they agree."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lm_eval.cli.options import add_data_dir, add_include_path, add_verbosity, include_paths

HELP = "run a results file again and compare"
#: Numbers of the published harness are summed in another order than ours.
_OTHERS_ROUNDING = 1e-9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results", metavar="FILE", help="a results_<time>.json, or the folder it lies in"
    )
    parser.add_argument("--use_cache", "-c", metavar="FILE", help="take stored answers from there")
    parser.add_argument("--output_path", "-o", metavar="PATH", help="keep the new run there")
    parser.add_argument("--device", metavar="NAME", help="where the model runs, if elsewhere now")
    parser.add_argument("--batch_size", "-b", metavar="N", help="requests at once, or 'auto'")
    add_data_dir(parser)
    add_include_path(parser)
    add_verbosity(parser)


def execute(arguments: argparse.Namespace) -> int:
    from contextlib import nullcontext

    from lm_eval.config.run import RunConfig
    from lm_eval.errors import OutputError
    from lm_eval.evaluator import run_evaluation
    from lm_eval.results.agreement import compare
    from lm_eval.results.reader import latest_results, read_results
    from lm_eval.runs.whereabouts import where_it_was_run

    file = latest_results(Path(arguments.results))
    before = read_results(file)
    if "scored_from" in before:
        raise OutputError(
            f"{file}: was made by `lm-eval score` from stored answers, so there is nothing to run "
            "again. Name the results file of the run itself."
        )
    ours = isinstance(before.get("settings"), dict)
    settings = dict(before["settings"]) if ours else _published_settings(before, file)
    for name in ("use_cache", "output_path"):
        settings[name] = _absolute(getattr(arguments, name))
    for name in ("device", "batch_size"):
        if getattr(arguments, name) is not None:
            settings[name] = getattr(arguments, name)
    if arguments.data_dir is not None:
        settings["data_dir"] = _absolute(arguments.data_dir)
    folders = include_paths(arguments.include_path)
    if folders is not None:
        settings["include_path"] = [_absolute(folder) for folder in folders]
    settings |= {"log_samples": False, "wandb_args": {}, "trackio_args": {}, "hf_hub_log_args": {}}
    run = RunConfig.from_record(settings, file)
    directory, identity = str(before.get("directory", ".")), before.get("model_identity")
    there = where_it_was_run(directory, run.model_args, identity) if ours else nullcontext()
    with there:
        now = run_evaluation(run)
    if now is None:
        return 0
    if not ours:  # its groups are made of the same numbers
        rows = {name: before["results"].get(name, {}) for name in before["configs"]}
        before = {**before, "results": rows}
    found = compare(before, now, 0.0 if ours else _OTHERS_ROUNDING)
    count = sum(_is_number(key) for row in before["results"].values() for key in row)
    if not count:
        print(f"nothing to compare: {file} holds no scores. The answers were asked for again.")
        return 1
    if found.identical:
        print(f"identical: {count} numbers of {file} were made again.")
        return 0
    if found.numbers:
        print(f"not identical: {len(found.numbers)} of {count} numbers of {file} differ:")
    else:
        print(f"all {count} numbers of {file} agree, but not what they were made from:")
    for line in found.numbers:
        print(f"  {line}")
    for title, lines in (
        ("changed since:", found.causes),
        ("made with other means:", found.surroundings),
    ):
        if lines:
            print(title)
            print("\n".join(f"  {line}" for line in lines))
    return 1


def _is_number(key: str) -> bool:
    """Whether a key of a row is a score; `bypass` stands where nothing was scored."""
    return "," in key and not key.startswith(("bypass,", "bypass_stderr,"))


def _absolute(path: str | None) -> str | None:
    """A path of this command, which must stay true where the run was given."""
    return None if path is None else str(Path(path).expanduser().absolute())


def _published_settings(results: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """What a results file of the published harness says of the run."""
    from lm_eval.errors import OutputError

    config, configs, shots = (results.get(key) or {} for key in ("config", "configs", "n-shot"))
    whole = all(isinstance(table, Mapping) for table in (config, configs, shots))
    if not whole or not config or not configs:
        raise OutputError(
            f"{file}: does not say how it was made: it has neither `settings` nor `config` and "
            "`configs`."
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
