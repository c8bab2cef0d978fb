"""`lm-eval new`: creates a task, group, metric, filter or model from a template."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lm_eval.scaffold import Created

HELP = "create a task, group, metric, filter or model from a template"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval new` to the parser."""
    from lm_eval.scaffold import KINDS, OUTPUT_TYPES

    parser.add_argument("kind", choices=KINDS, help="what to create")
    parser.add_argument("name", metavar="NAME", help="the name of the new task, metric, …")
    parser.add_argument(
        "--to", metavar="DIR", default=".", help="the folder to write to (default: the current one)"
    )
    parser.add_argument(
        "--output_type",
        choices=OUTPUT_TYPES,
        help="the output type of a new task (default: multiple_choice)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Writes the files, prints their paths and the commands to try next, and returns 0.

    Raises `ConfigError` if the name is not valid or already used, or if `--output_type` is given
    for anything but a task; `OutputError` if a file exists or cannot be written.
    """
    from lm_eval.errors import ConfigError
    from lm_eval.scaffold import OUTPUT_TYPES, create

    if arguments.output_type is not None and arguments.kind != "task":
        raise ConfigError(
            f"--output_type is for tasks only, not for a {arguments.kind}. Remove it."
        )
    output_type = arguments.output_type or OUTPUT_TYPES[0]
    created = create(arguments.kind, arguments.name, Path(arguments.to).expanduser(), output_type)
    for path in created.files:
        print(f"wrote {path}")
    print("Next:")
    for command in _commands(arguments.kind, created):
        print(f"  {shlex.join(command)}")
    return 0


def _commands(kind: str, created: Created) -> list[list[str]]:
    """Returns the commands that check and run what was created, each as a list of words."""
    if created.model is not None:
        model = ["--model", created.model]
        return [
            ["lm-eval", "validate", *model],
            ["lm-eval", "run", *model, "--tasks", "demo_choice", "--limit", "10"],
        ]
    task, where = str(created.task), ["--include_path", str(created.folder)]
    show = [] if kind == "group" else [["lm-eval", "show", task, *where]]
    return [
        ["lm-eval", "validate", "--tasks", task, *where],
        *show,
        ["lm-eval", "run", "--model", "demo", "--tasks", task, *where],
    ]
