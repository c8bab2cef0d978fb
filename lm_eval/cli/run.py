"""`lm-eval run`: evaluates a model on tasks, prints the table and writes the files."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lm_eval.cli import ls
from lm_eval.cli.options import (
    add_code_options,
    add_data_dir,
    add_decontaminate,
    add_include_path,
    add_prompt_options,
    add_samples_format,
    add_table,
    add_uncertainty,
    add_verbosity,
    add_workers,
    include_paths,
)
from lm_eval.launch import torch_distributed
from lm_eval.logs import setup_logging

if TYPE_CHECKING:
    from lm_eval.runs.observer import RunObserver

HELP = "evaluate a model on tasks"

#: Values of `--tasks` that list names instead of running, as in the published harness.
LISTS = {
    "list": "tasks",
    "list_groups": "groups",
    "list_subtasks": "subtasks",
    "list_tags": "tags",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options, which have the same names as in the published harness.

    An option that is not given is absent from the namespace, so that a `--config` file can set it.
    """
    parser.argument_default = argparse.SUPPRESS
    group = parser.add_argument_group("model and tasks")
    group.add_argument("--config", "-C", metavar="FILE", help="settings from a YAML file")
    group.add_argument(
        "--model",
        "-M",
        metavar="NAME",
        help="a registered model (`lm-eval ls models`), FILE.py:CLASS or package.module:CLASS "
        "(default: hf)",
    )
    add_table(group, "--model_args", "-a", help="arguments of the model, such as pretrained=NAME")
    group.add_argument(
        "--tasks", "-t", nargs="*", metavar="TASK", help="tasks, groups, tags, patterns or files"
    )
    add_include_path(group)
    add_data_dir(group)

    group = parser.add_argument_group("prompts")
    add_prompt_options(group)

    group = parser.add_argument_group("documents, speed and caching")
    group.add_argument(
        "--limit",
        "-L",
        type=float,
        metavar="N",
        help="only the first N documents of each task, or a fraction below 1",
    )
    group.add_argument(
        "--sample",
        type=float,
        metavar="N",
        help="N random documents of each task, or a fraction below 1",
    )
    group.add_argument(
        "--sample_seed", type=int, metavar="N", help="seed of --sample (default: 1234)"
    )
    group.add_argument(
        "--samples",
        "-E",
        metavar="JSON",
        help="document numbers of each task: '{\"task\": [0, 3]}'",
    )
    group.add_argument(
        "--repeats",
        type=int,
        metavar="N",
        help="answers per document, for tasks that generate text (default: what the task sets)",
    )
    group.add_argument(
        "--metrics",
        nargs="+",
        metavar="NAME",
        help="report only these metrics, such as avg@8 maj@8 pass@4 or the task's own",
    )
    group.add_argument("--batch_size", "-b", metavar="N", help="requests per batch, or 'auto'")
    group.add_argument(
        "--max_batch_size", type=int, metavar="N", help="upper limit of the batch size with 'auto'"
    )
    group.add_argument(
        "--device", metavar="NAME", help="device of the model: cuda, cuda:0, cpu, mps …"
    )
    group.add_argument(
        "--use_cache",
        "-c",
        metavar="FILE",
        help="store answers in this file and reuse them in other runs",
    )
    _flag(group, "--fresh", help="send all requests again instead of reusing stored answers")
    group.add_argument(
        "--max_failed",
        type=float,
        metavar="N",
        help="stop if more than N requests fail, or a fraction below 1 (default: 0.05)",
    )
    group.add_argument(
        "--cache_requests",
        nargs="?",
        const="true",
        choices=("true", "refresh", "delete"),
        help="accepted for compatibility, without effect",
    )

    group = parser.add_argument_group("workers")
    add_workers(group)

    group = parser.add_argument_group("output")
    group.add_argument(
        "--output_path", "-o", metavar="PATH", help="folder or .json file for the results"
    )
    _flag(group, "--log_samples", "-s", help="also write every prompt, answer and score")
    add_samples_format(group)
    _flag(
        group,
        "--predict_only",
        "-x",
        help="store the answers without scoring them; needs --output_path",
    )
    _flag(group, "--write_out", "-w", help="log the first prompt of each task")
    _flag(group, "--show_config", help="print the full results as JSON")
    _flag(group, "--plot", help="also print the scores with their intervals as a text plot")
    add_verbosity(group)
    add_table(group, "--wandb_args", help="log to Weights & Biases: arguments of wandb.init")
    add_table(group, "--wandb_config_args", help="values for the config of the wandb run")
    add_table(group, "--trackio_args", help="log to Trackio: arguments of trackio.init")
    add_table(group, "--hf_hub_log_args", help="push to the hub: arguments of EvaluationTracker")

    group = parser.add_argument_group("advanced")
    group.add_argument(
        "--seed",
        metavar="N",
        help="one seed, or random,numpy,torch,fewshot (default: 0,1234,1234,1234)",
    )
    add_uncertainty(group)
    add_decontaminate(group)
    _flag(
        group,
        "--check_integrity",
        help="check files, prompts and scoring of the tasks before the run",
    )
    _flag(
        group,
        "--trust_remote_code",
        help="allow code from the model's hub repository to run",
    )
    add_code_options(group)


def _flag(group: Any, *names: str, help: str) -> None:
    group.add_argument(*names, action="store_true", help=help)


def execute(arguments: argparse.Namespace) -> int:
    """Runs the evaluation, or lists names if `--tasks` is `list` or a variant.

    Returns 0, or 1 if documents are missing in the results because requests failed. Raises
    `ConfigError` if samples are to be written but there is no `--output_path`.
    """
    # Imported here, so that --help and errors about options appear at once.
    from lm_eval.config.run import RunConfig
    from lm_eval.errors import ConfigError
    from lm_eval.evaluator import run_evaluation

    own = ("command", "debug", "config", "plot")
    given = {k: v for k, v in vars(arguments).items() if k not in own}
    given["include_path"] = include_paths(given.get("include_path"))
    if given["include_path"] is None:
        del given["include_path"]
    config = getattr(arguments, "config", None)
    run = RunConfig.from_file(config, **given) if config else RunConfig(**given)
    if run.verbosity is not None:
        setup_logging(run.verbosity)
    if len(run.task_list) == 1 and run.task_list[0] in LISTS:
        return ls.print_names(LISTS[run.task_list[0]], include_path=run.include_path)
    if run.log_samples and not run.output_path:
        raise ConfigError(
            "--log_samples and --predict_only need --output_path: the folder to write to."
        )
    before = torch_distributed()
    results = run_evaluation(run, observers=observers(getattr(arguments, "plot", False)))
    if before is None and (made := torch_distributed()) is not None:
        made.destroy_process_group()  # otherwise, a process may be aborted when it exits
    return exit_code(results)


def exit_code(results: Mapping[str, Any] | None) -> int:
    """Returns 1 if documents are missing in the results because requests failed, else 0."""
    return 1 if results is not None and results.get("partial") else 0


def observers(plot: bool = False) -> list[RunObserver]:
    """Returns the observers of a command-line run: they print results and log to trackers.

    With `plot`, the results are also printed as a text plot.
    """
    from lm_eval.cli.results_printer import ResultsPrinter
    from lm_eval.cli.trackers import Trackers

    return [ResultsPrinter(plot), Trackers()]
