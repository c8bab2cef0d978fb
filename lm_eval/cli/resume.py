"""`lm-eval resume`: go on with a run that was cut off, from its folder alone."""

from __future__ import annotations

import argparse

HELP = "go on with a run that was cut off"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="where its --output_path pointed")
    parser.add_argument("--verbosity", "-v", metavar="LEVEL", help="DEBUG, INFO, WARNING, ERROR")


def execute(arguments: argparse.Namespace) -> int:
    from lm_eval.cli.run import run_and_report
    from lm_eval.config.run import RunConfig
    from lm_eval.results.run_folder import RunFolder

    folder = RunFolder.find(arguments.folder)
    record = folder.read()
    folder.go_where_it_was_run()
    run_and_report(RunConfig(**record["settings"]))
    return 0
