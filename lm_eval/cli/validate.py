"""`lm-eval validate`: report everything wrong with tasks and groups, before any model is loaded."""

from __future__ import annotations

import argparse

from lm_eval.cli.options import add_include_path, include_paths

HELP = "check task configurations"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks", "-t", required=True, nargs="+", metavar="TASK", help="what to check"
    )
    parser.add_argument(
        "--no-build",
        action="store_true",
        help="read the files only: run no code from them and load no data",
    )
    add_include_path(parser)


def execute(arguments: argparse.Namespace) -> int:
    """0 if all is well, 1 with a line a problem."""
    from lm_eval.errors import EvalError
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks.check import problems_of

    manager = TaskManager(include_path=include_paths(arguments.include_path))
    names = [name for word in arguments.tasks for name in word.split(",") if name]
    problems: list[str] = []
    for name in names:
        try:
            problems += problems_of(manager.entries(name), manager.task_index)
        except EvalError as error:
            problems.append(" ".join(map(str, error.args)))
    if not problems and not arguments.no_build:
        for name in names:
            try:
                manager.load(name)
            except EvalError as error:
                problems.append(" ".join(map(str, error.args)))
    for problem in dict.fromkeys(problems):
        print(problem)
    if problems:
        count = len(dict.fromkeys(problems))
        print(f"{count} problem{'s' if count != 1 else ''} found.")
        return 1
    print(f"{', '.join(names)}: no problem found.")
    return 0
