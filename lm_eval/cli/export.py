"""`lm-eval export`: converts stored results to formats in which results are shared."""

from __future__ import annotations

import argparse
from pathlib import Path

from lm_eval.cli.options import add_verbosity, names_in

HELP = "convert results to formats in which they are shared"
_FORMATS = ("every-eval-ever", "hf-eval-results", "csv", "lm-eval")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval export` to the parser."""
    parser.add_argument("run", metavar="RUN", help="the folder of a run, or a results file")
    parser.add_argument("--to", choices=_FORMATS, required=True, help="the format")
    parser.add_argument(
        "--output_path",
        "-o",
        metavar="FOLDER",
        help="write to this folder; csv is printed without it",
    )
    parser.add_argument("--metrics", nargs="+", metavar="NAME", help="export only these metrics")
    parser.add_argument(
        "--organization",
        default="unknown",
        metavar="NAME",
        help="who made the evaluation (every-eval-ever)",
    )
    parser.add_argument(
        "--relationship",
        choices=["first_party", "third_party", "collaborative", "other"],
        default="other",
        help="of the organization to the model (every-eval-ever; default: other)",
    )
    parser.add_argument(
        "--source_url",
        metavar="URL",
        help="where the results are published (every-eval-ever, hf-eval-results)",
    )
    add_verbosity(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Writes the files and prints their paths, or prints the CSV table; returns 0."""
    from lm_eval.errors import ConfigError
    from lm_eval.results.export.formats import FORMATS, write_export
    from lm_eval.results.export.options import ExportOptions
    from lm_eval.results.stored_results import load

    options = ExportOptions(
        organization=arguments.organization,
        relationship=arguments.relationship,
        source_url=arguments.source_url,
        metrics=names_in(arguments.metrics),
    )
    if arguments.output_path is None and arguments.to != "csv":
        raise ConfigError(f"--to {arguments.to} writes files: give a folder with --output_path.")
    stored = load(arguments.run)
    if arguments.output_path is None:
        for _, text in FORMATS["csv"](stored, options):
            print(text, end="")
        return 0
    for file in write_export(stored, arguments.to, Path(arguments.output_path), options):
        print(file)
    return 0
