"""`lm-eval resume`: resumes an interrupted run with the settings stored in its folder."""

from __future__ import annotations

import argparse

from lm_eval.cli.options import add_data_dir, add_run_id, add_verbosity

HELP = "resume an interrupted run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval resume` to the parser."""
    parser.add_argument("folder", metavar="DIR", help="the --output_path of the run")
    add_run_id(parser)
    add_data_dir(parser)
    add_verbosity(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Resumes the run and prints its results; returns the exit code, as `lm-eval run` does.

    Raises `OutputError` if the folder contains no run, and `WhichRunError` if it contains several
    and `--run` does not choose one.
    """
    from lm_eval.cli.run import exit_code, observers
    from lm_eval.evaluator import resume

    results = resume(
        arguments.folder, run=arguments.run, data_dir=arguments.data_dir, observers=observers()
    )
    return exit_code(results)
