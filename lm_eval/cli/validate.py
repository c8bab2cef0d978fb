"""`lm-eval validate`: reports all problems of tasks and groups, or of a model class."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from lm_eval.cli.options import (
    add_code_options,
    add_data_dir,
    add_include_path,
    add_table,
    include_paths,
)

HELP = "check tasks, groups or a model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval validate` to the parser."""
    parser.add_argument("names", nargs="*", metavar="TASK", help="the same as --tasks")
    parser.add_argument(
        "--tasks", "-t", nargs="+", metavar="TASK", default=[], help="the tasks or groups to check"
    )
    parser.add_argument(
        "--no_build",
        "--no-build",
        action="store_true",
        help="only read the task files: run no code from them and load no data",
    )
    parser.add_argument(
        "--model",
        "-M",
        metavar="NAME",
        help="the model to check, such as my_models.py:Class: a few requests of each type are sent",
    )
    add_table(parser, "--model_args", "-a", help="arguments of the model")
    add_code_options(parser)
    add_data_dir(parser)
    add_include_path(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Returns 0 if no problem was found, otherwise prints one line per problem and returns 1.

    Raises `ConfigError` if neither a task nor a model is given.
    """
    from lm_eval.errors import ConfigError

    names = [
        name for word in (*arguments.names, *arguments.tasks) for name in word.split(",") if name
    ]
    if not names and arguments.model is None:
        raise ConfigError("nothing to check: give --tasks or --model.")
    found = _problems_of_model(arguments) if arguments.model is not None else []
    found += _problems_of_tasks(names, arguments) if names else []
    problems = list(dict.fromkeys(" ".join(problem.split()) for problem in found))
    for problem in problems:
        print(problem)
    if problems:
        count = len(problems)
        print(f"{count} problem{'s' if count != 1 else ''} found.")
        return 1
    folders = include_paths(arguments.include_path)
    checked = [
        *(_described(name, folders) for name in names),
        *([arguments.model] if arguments.model is not None else []),
    ]
    print(f"{', '.join(checked)}: no problem found.")
    return 0


def _described(name: str, include_path: list[str] | None) -> str:
    """Returns a name for the last line; for a folder, with the tasks that were found in it.

    A name that no task has may be that of a folder, which the user need not have meant.
    """
    if not Path(name).is_dir():
        return name
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks.index import Kind

    manager = TaskManager(include_path=include_path)
    if any(entry.name == name for entry in manager.search(name, *Kind)):
        return name
    inside = ", ".join(entry.name for entry in manager.entries(name))
    return f"{name} (the folder, with {inside})"


def _problems_of_model(arguments: argparse.Namespace) -> list[str]:
    """Prints how the model answers each request type; returns the mistakes in its answers.

    If the model cannot be created, nothing is printed, and the error is the only problem returned.
    """
    from lm_eval.config.run import RunConfig
    from lm_eval.errors import EvalError, describe_cause, raise_interrupt
    from lm_eval.models.create import check_before_loading, create_model
    from lm_eval.models.identity import model_identity
    from lm_eval.models.smoke_test import smoke_test

    try:
        run = RunConfig(arguments.model, arguments.model_args)
        check_before_loading(run)
        lm = create_model(run)
        model_identity(run, lm)
    except BaseException as error:  # third-party code may raise anything
        raise_interrupt(error)
        return [str(error) if isinstance(error, EvalError) else describe_cause(error)]
    report = smoke_test(lm)
    for line in report.lines:
        print(" ".join(line.split()))
    return report.problems


def _problems_of_tasks(names: list[str], arguments: argparse.Namespace) -> list[str]:
    """Returns everything that is wrong with the files or, if they are right, with the tasks.

    The tasks are built and tried only if no file has a problem and `--no_build` is not given.
    Errors count as problems.
    """
    from lm_eval.code_scoring import code_session
    from lm_eval.config.run import RunConfig
    from lm_eval.data import mirror_at
    from lm_eval.errors import EvalError
    from lm_eval.integrity import problems_in_files, problems_in_task
    from lm_eval.prompts.template import render_limit
    from lm_eval.tasks import TaskManager

    run = RunConfig(
        confirm_run_unsafe_code=arguments.confirm_run_unsafe_code,
        require_isolation=arguments.require_isolation,
    )
    manager = TaskManager(include_path=include_paths(arguments.include_path))
    problems: list[str] = []

    def attempt(check: Callable[[], list[str] | None]) -> None:
        try:
            problems.extend(check() or [])
        except EvalError as error:
            problems.append(" ".join(str(error).split()))
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}")

    for name in names:
        attempt(lambda name=name: problems_in_files(name, manager))  # type: ignore[misc]
    if not problems and not arguments.no_build:
        with mirror_at(arguments.data_dir), code_session(run), render_limit():
            for name in names:
                attempt(
                    lambda name=name: [  # type: ignore[misc]
                        p
                        for task in manager.load(name)["tasks"].values()
                        for p in problems_in_task(task)
                    ]
                )
    return problems
