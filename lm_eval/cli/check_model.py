"""`lm-eval check-model`: checks whether a model class does what the harness requires."""

from __future__ import annotations

import argparse
import json

from lm_eval.cli.options import add_table

HELP = "check a model class with a few hundred short requests"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval check-model` to the parser."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="FILE.py:CLASS, package.module:CLASS, or the name of a model",
    )
    add_table(parser, "--model_args", "-a", help="arguments of the model: KEY=VALUE,…")
    parser.add_argument("--batch_size", "-b", metavar="N", help="the batch size of the model")
    parser.add_argument("--device", metavar="DEVICE", help="the device of the model, such as cuda")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def execute(arguments: argparse.Namespace) -> int:
    """Creates the model and prints the report; returns 0 if no problem was found, else 1."""
    from lm_eval.config.run import RunConfig
    from lm_eval.models.contract.check import check_model
    from lm_eval.models.create import check_before_loading, create_model

    run = RunConfig(
        arguments.model,
        arguments.model_args,
        batch_size=arguments.batch_size,
        device=arguments.device,
    )
    check_before_loading(run)
    report = check_model(create_model(run))
    if arguments.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        print(report, end="")
    return 0 if report.ok else 1
