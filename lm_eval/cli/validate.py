"""`lm-eval validate`: report everything wrong with tasks and groups, before any model is loaded."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from lm_eval.cli.options import add_data_dir, add_include_path, include_paths

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
    add_data_dir(parser)
    add_include_path(parser)


def execute(arguments: argparse.Namespace) -> int:
    """0 if all is well, 1 with a line a problem."""
    from lm_eval.data import mirror_at
    from lm_eval.errors import EvalError
    from lm_eval.integrity import in_files, in_task
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=include_paths(arguments.include_path))
    names = [name for word in arguments.tasks for name in word.split(",") if name]
    problems: list[str] = []

    def attempt(check: Callable[[], list[str] | None]) -> None:
        try:
            problems.extend(check() or [])
        except EvalError as error:
            problems.append(" ".join(str(error).split()))
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}")

    for name in names:
        attempt(lambda name=name: in_files(name, manager))  # type: ignore[misc]
    if not problems and not arguments.no_build:
        with mirror_at(arguments.data_dir):
            for name in names:
                attempt(
                    lambda name=name: [  # type: ignore[misc]
                        p for task in manager.load(name)["tasks"].values() for p in in_task(task)
                    ]
                )
    for problem in dict.fromkeys(problems):
        print(problem)
    if problems:
        count = len(dict.fromkeys(problems))
        print(f"{count} problem{'s' if count != 1 else ''} found.")
        return 1
    print(f"{', '.join(names)}: no problem found.")
    return 0
