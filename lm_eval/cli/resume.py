"""`lm-eval resume`: go on with a run that was cut off, from its folder alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from lm_eval.cli.options import add_verbosity

HELP = "go on with a run that was cut off"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="where its --output_path pointed")
    add_verbosity(parser)


def execute(arguments: argparse.Namespace) -> int:
    from lm_eval.cli.run import run_and_report
    from lm_eval.config.run import RunConfig
    from lm_eval.results.provenance import model_name
    from lm_eval.results.run_folder import NAME, RunFolder

    folder = RunFolder.find(Path(arguments.folder).absolute())
    run = RunConfig.from_record(folder.read()["settings"], folder.path / NAME)
    folder.go_where_it_was_run()
    run.output_path = str(folder.output_path(model_name(run)))  # the folder may have been moved
    run_and_report(run)
    return 0
