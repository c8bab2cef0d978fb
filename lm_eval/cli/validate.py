"""`lm-eval validate`: report everything wrong with tasks and groups, before any model is loaded."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lm_eval.cli.options import add_data_dir, add_include_path, include_paths

if TYPE_CHECKING:
    from lm_eval.api.task import Task

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
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks.check import problems_of

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
        attempt(lambda name=name: problems_of(manager.entries(name), manager.task_index))  # type: ignore[misc]
    if not problems and not arguments.no_build:
        with mirror_at(arguments.data_dir):
            for name in names:
                attempt(lambda name=name: _prompts(manager.load(name)["tasks"]))  # type: ignore[misc]
    for problem in dict.fromkeys(problems):
        print(problem)
    if problems:
        count = len(dict.fromkeys(problems))
        print(f"{count} problem{'s' if count != 1 else ''} found.")
        return 1
    print(f"{', '.join(names)}: no problem found.")
    return 0


def _prompts(tasks: Mapping[str, Task]) -> None:
    """Make the requests of every task's first documents, examples and all."""
    for task in tasks.values():
        task.set_fewshot_seed(0)
        task.build_all_requests(limit=20)
