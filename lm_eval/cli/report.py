"""`lm-eval report`: writes stored runs as one HTML file that opens anywhere."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lm_eval.cli.options import add_include_path, add_verbosity, include_paths

HELP = "write an HTML report of runs: scores, plots and every sample in one file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval report` to the parser."""
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="the folder of a run (FOLDER#ID for one of several), a results file, sample logs, or "
        "the folder of a study or a sweep; several are shown side by side",
    )
    parser.add_argument(
        "--output_path",
        "-o",
        default="report.html",
        metavar="FILE",
        help="the file to write (default: report.html)",
    )
    parser.add_argument(
        "--samples",
        default="all",
        metavar="WHICH",
        help="which samples it contains: all, wrong, flips (right in one run, wrong in another), "
        "or a number per task (default: all)",
    )
    add_include_path(parser)
    add_verbosity(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Writes the report and prints its path and size; returns 0."""
    from lm_eval.engine.progress import stage
    from lm_eval.report.report import write_report

    file = Path(arguments.output_path)
    with stage("Writing the report"):
        report = write_report(
            arguments.runs,
            file,
            arguments.samples,
            include_paths(arguments.include_path) or (),
        )
    shown = sum(task.summary["shown"] for task in report.tasks)
    size = file.stat().st_size / 1e6
    print(f"lm-eval: report written to {file} ({shown:,} samples, {size:.1f} MB)", file=sys.stderr)
    return 0
