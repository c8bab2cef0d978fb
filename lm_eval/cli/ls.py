"""`lm-eval ls`: every task, group or tag there is, without running any of their code."""

from __future__ import annotations

import argparse
import json
from typing import Any

from lm_eval.cli.options import add_include_path, include_paths

HELP = "list tasks, groups, subtasks or tags"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        default="tasks",
        choices=("tasks", "groups", "subtasks", "tags"),
        help="tasks: all of them; subtasks: single tasks alone (default: tasks)",
    )
    parser.add_argument(
        "search",
        nargs="?",
        default="",
        help="only names holding this text; PACK: or PACK:TEXT looks into a pack",
    )
    parser.add_argument("--json", action="store_true", help="as a JSON list of objects")
    add_include_path(parser)


def print_names(what: str, include_path: Any = None, search: str = "") -> int:
    """Prints the names of all tasks, groups, subtasks or tags; returns the exit code."""
    from lm_eval.tasks import TaskManager

    listed = TaskManager(include_path=include_path).list_all_tasks(
        list_groups=what in ("tasks", "groups"),
        list_tags=what in ("tasks", "tags"),
        list_subtasks=what in ("tasks", "subtasks"),
        search=search,
    )
    print(listed or f"No {what} with {search!r} in the name.", end="" if listed else "\n")
    return 0


def execute(arguments: argparse.Namespace) -> int:
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks.index import Kind

    folders = include_paths(arguments.include_path)
    what, search = arguments.what, arguments.search
    if not arguments.json:
        return print_names(what, folders, search)
    manager = TaskManager(include_path=folders)
    kinds = {"groups": [Kind.GROUP], "subtasks": [Kind.TASK, Kind.PY_TASK], "tags": [Kind.TAG]}
    found = [
        {"name": e.name, "kind": e.kind.value, "path": e.path, "output_type": e.output_type}
        for e in manager.search(search, *kinds.get(what, Kind))
    ]
    print(json.dumps(found, indent=2))
    return 0
