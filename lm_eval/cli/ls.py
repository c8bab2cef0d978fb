"""`lm-eval ls`: every task, group or tag there is, without running any of their code."""

from __future__ import annotations

import argparse
import json

from lm_eval.cli.options import add_include_path, include_paths

HELP = "list tasks, groups, subtasks or tags"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        default="tasks",
        choices=("tasks", "groups", "subtasks", "tags"),
        help="tasks: every name; subtasks: single tasks alone (default: tasks)",
    )
    parser.add_argument("search", nargs="?", default="", help="only names holding this text")
    parser.add_argument("--json", action="store_true", help="as a JSON list")
    add_include_path(parser)


def execute(arguments: argparse.Namespace) -> int:
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=include_paths(arguments.include_path))
    names: list[str] = getattr(manager, f"all_{arguments.what}")
    found = [name for name in names if arguments.search in name]
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(found))
    return 0
