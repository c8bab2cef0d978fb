"""`lm-eval sweep`: runs models × tasks × settings from one file, and prints a table over all."""

from __future__ import annotations

import argparse
import sys

from lm_eval.cli.options import add_data_dir, add_include_path, add_verbosity, given_settings

HELP = "run models × tasks × settings from one file"

#: Options that are settings of all runs (`RunConfig`).
_RUN_SETTINGS = ("limit", "include_path", "data_dir", "verbosity")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval sweep` to the parser."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a YAML file: settings as for `lm-eval run --config`, and lists of them in `matrix`",
    )
    parser.add_argument(
        "--output_path",
        "-o",
        metavar="DIR",
        help="folder of the sweep, from which it continues (default: that of the file, or the "
        "name of the file without its ending)",
    )
    group = parser.add_argument_group("checkpoints")
    group.add_argument(
        "--checkpoints",
        nargs="+",
        metavar="PATTERN",
        help="run every folder that matches, such as 'run/step*', in quotes",
    )
    group.add_argument(
        "--revisions",
        nargs="+",
        metavar="NAME",
        help="run these revisions of the model on the hub; NAME may contain wildcards",
    )
    group = parser.add_argument_group("what is run")
    group.add_argument(
        "--dry_run",
        action="store_true",
        help="list the runs, their requests and stored answers, and run nothing",
    )
    group.add_argument(
        "--jobs",
        "-j",
        type=int,
        metavar="N",
        help="how many models run at a time (default: as many as free GPUs hold; 1 without GPUs)",
    )
    group.add_argument(
        "--fresh", action="store_true", help="run everything again, in spite of stored answers"
    )
    group.add_argument(
        "--limit", "-L", type=float, metavar="N", help="the first N documents, or a fraction"
    )
    add_include_path(group)
    add_data_dir(group)
    group = parser.add_argument_group("output")
    group.add_argument(
        "--format",
        choices=("text", "markdown", "csv", "json"),
        default="text",
        help="how the scores are printed (default: text)",
    )
    group.add_argument(
        "--metric",
        metavar="NAME",
        help="the metric in the table, or METRIC,FILTER (default: the first one of each task)",
    )
    add_verbosity(group)


def execute(arguments: argparse.Namespace) -> int:
    """Runs the sweep and prints its table; returns 1 if a run failed or is incomplete, else 0."""
    from pathlib import Path

    from lm_eval.sweeps import plan, scores
    from lm_eval.sweeps.matrix import read_matrix
    from lm_eval.sweeps.record import FINISHED
    from lm_eval.sweeps.sweep import SweepOptions, plan_sweep, run_sweep, sweep_runs

    matrix = read_matrix(
        arguments.file,
        given_settings(arguments, _RUN_SETTINGS),
        arguments.checkpoints or (),
        arguments.revisions or (),
    )
    fresh = arguments.fresh or bool(matrix.shared.get("fresh"))
    options = SweepOptions(arguments.jobs, fresh)
    folder = arguments.output_path or matrix.shared.get("output_path")
    folder = Path(folder or Path(arguments.file).stem)
    runs = sweep_runs(matrix, folder)
    if arguments.dry_run:
        print(plan.as_text(plan_sweep(runs, fresh)), end="")
        return 0
    record = run_sweep(runs, folder, options)
    if arguments.format == "csv":
        print(scores.as_csv(record), end="")
    elif arguments.format == "json":
        print(scores.as_json(record), end="")
    elif arguments.format == "markdown":
        print(scores.as_markdown(record, arguments.metric), end="")
    else:
        print(scores.as_text(record, arguments.metric), end="")
    if arguments.format != "text":
        for run in record.failed:
            print(f"lm-eval: {run.name} failed: {run.message}", file=sys.stderr)
    print(f"lm-eval: sweep written to {folder}", file=sys.stderr)
    return 0 if all(run.state == FINISHED for run in record.runs) else 1
