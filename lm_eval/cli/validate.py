"""`lm-eval validate`: build tasks without a model and report everything wrong with them."""

from __future__ import annotations

import argparse

from lm_eval.cli.options import add_include_path, include_paths

HELP = "check task configurations"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks", "-t", required=True, nargs="+", metavar="TASK", help="what to check"
    )
    add_include_path(parser)


def execute(arguments: argparse.Namespace) -> int:
    """0 if all is well, 1 with a line a problem."""
    from lm_eval.errors import EvalError
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=include_paths(arguments.include_path))
    names = [name for word in arguments.tasks for name in word.split(",") if name]
    problems: list[str] = []
    count = 0
    for name in names:
        try:
            count += len(manager.load(name)["tasks"])
        except EvalError as error:
            problems.append(" ".join(map(str, error.args)))
    for problem in problems:
        print(problem)
    if problems:
        print(f"{len(problems)} of {len(names)} cannot be used.")
        return 1
    print(f"{count} task{'s' if count != 1 else ''} can be used.")
    return 0
