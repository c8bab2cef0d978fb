"""`lm-eval resume`: go on with a run that was cut off, from its folder alone."""

from __future__ import annotations

import argparse

from lm_eval.cli.options import add_data_dir, add_run_id, add_verbosity

HELP = "go on with a run that was cut off"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="where its --output_path pointed")
    add_run_id(parser)
    add_data_dir(parser)
    add_verbosity(parser)


def execute(arguments: argparse.Namespace) -> int:
    from lm_eval.cli.run import observers
    from lm_eval.evaluator import resume_run

    resume_run(arguments.folder, arguments.run, arguments.data_dir, observers())
    return 0
