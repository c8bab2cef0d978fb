"""`lm-eval run`: evaluate a model on tasks, print the table, write the files."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from lm_eval.cli import ls
from lm_eval.cli.options import (
    add_data_dir,
    add_include_path,
    add_prompt_options,
    add_samples_format,
    add_table,
    add_uncertainty,
    add_verbosity,
    include_paths,
)
from lm_eval.launch import connection
from lm_eval.logs import setup_logging

if TYPE_CHECKING:
    from lm_eval.runs.observer import RunObserver

HELP = "evaluate a model on tasks"

#: `--tasks list` and its variants print names, as they did in the published harness.
LISTS = {
    "list": "tasks",
    "list_groups": "groups",
    "list_subtasks": "subtasks",
    "list_tags": "tags",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The published options, by their published names. Unset ones stay out of the namespace, so
    that a `--config` file can speak for them.
    """
    parser.argument_default = argparse.SUPPRESS
    group = parser.add_argument_group("model and tasks")
    group.add_argument("--config", "-C", metavar="FILE", help="settings from a YAML file")
    group.add_argument("--model", "-M", metavar="NAME", help="the backend (default: hf)")
    add_table(group, "--model_args", "-a", help="what the backend is given")
    group.add_argument(
        "--tasks", "-t", nargs="*", metavar="TASK", help="tasks, groups, tags, patterns or files"
    )
    add_include_path(group)
    add_data_dir(group)

    group = parser.add_argument_group("prompts")
    add_prompt_options(group)

    group = parser.add_argument_group("how much, how fast")
    group.add_argument(
        "--limit", "-L", type=float, metavar="N", help="the first N documents, or a share below 1"
    )
    group.add_argument(
        "--sample", type=float, metavar="N", help="N documents of each task, drawn by a seed"
    )
    group.add_argument("--sample_seed", type=int, metavar="N", help="the seed of that draw (1234)")
    group.add_argument(
        "--samples", "-E", metavar="JSON", help="document numbers by task: '{\"task\": [0, 3]}'"
    )
    group.add_argument("--batch_size", "-b", metavar="N", help="requests at once, or 'auto'")
    group.add_argument("--max_batch_size", type=int, metavar="N", help="the most that auto tries")
    group.add_argument("--device", metavar="NAME", help="cuda, cuda:0, cpu, mps …")
    group.add_argument(
        "--use_cache", "-c", metavar="FILE", help="keep answers in this file, shared by many runs"
    )
    _flag(group, "--fresh", help="ask everything again, whatever an earlier run has left")
    group.add_argument(
        "--cache_requests",
        nargs="?",
        const="true",
        choices=("true", "refresh", "delete"),
        help="accepted and without effect: requests are built faster than they could be read",
    )

    group = parser.add_argument_group("output")
    group.add_argument(
        "--output_path", "-o", metavar="PATH", help="a folder, or a .json file, for the results"
    )
    _flag(group, "--log_samples", "-s", help="write every prompt, answer and score too")
    add_samples_format(group)
    _flag(group, "--predict_only", "-x", help="answers only, no scores")
    _flag(group, "--write_out", "-w", help="log each task's first prompt")
    _flag(group, "--show_config", help="print the full results as JSON")
    add_verbosity(group)
    for name in ("--wandb_args", "--wandb_config_args", "--trackio_args", "--hf_hub_log_args"):
        add_table(group, name, help="arguments of that logger")

    group = parser.add_argument_group("advanced")
    group.add_argument(
        "--seed", metavar="N", help="one seed, or random,numpy,torch,fewshot (0,1234,1234,1234)"
    )
    add_uncertainty(group)
    _flag(group, "--check_integrity", help="check the tasks first")
    _flag(group, "--trust_remote_code", help="let the hub's code run")
    _flag(group, "--confirm_run_unsafe_code", help="let tasks run code the model wrote")


def _flag(group: Any, *names: str, help: str) -> None:
    group.add_argument(*names, action="store_true", help=help)


def execute(arguments: argparse.Namespace) -> int:
    # Imported here so that --help and a mistyped option answer at once.
    from lm_eval.config.run import RunConfig
    from lm_eval.errors import ConfigError
    from lm_eval.evaluator import run_evaluation

    given = {k: v for k, v in vars(arguments).items() if k not in ("command", "debug", "config")}
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
        raise ConfigError("--log_samples and --predict_only need --output_path to write to.")
    before = connection()
    run_evaluation(run, observers=observers())
    if before is None and (made := connection()) is not None:
        made.destroy_process_group()  # or a process may be aborted while it ends
    return 0


def observers() -> list[RunObserver]:
    """Returns what the command line adds to a run: the table, and the trackers that it names."""
    from lm_eval.cli.printed import Printed
    from lm_eval.cli.trackers import Trackers

    return [Printed(), Trackers()]
