"""`lm-eval ls`: every task, group or tag there is, without running any of their code."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval.cli.options import add_include_path, include_paths

if TYPE_CHECKING:
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks.index import Entry

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
    parser.add_argument(
        "--data_dir",
        metavar="DIR",
        help="only those whose data sets the mirror DIR has; reads no rows",
    )
    add_include_path(parser)


def execute(arguments: argparse.Namespace) -> int:
    folders = include_paths(arguments.include_path)
    return print_names(
        arguments.what, arguments.search, folders, arguments.data_dir, arguments.json
    )


def print_names(
    what: str = "tasks",
    search: str = "",
    include_path: Any = None,
    data_dir: str | None = None,
    as_json: bool = False,
) -> int:
    """Prints tasks, groups, subtasks or tags; returns the exit code."""
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks.index import Kind

    manager = TaskManager(include_path=include_path)
    kinds = {"groups": [Kind.GROUP], "subtasks": [Kind.TASK, Kind.PY_TASK], "tags": [Kind.TAG]}
    entries = manager.search(search, *kinds.get(what, Kind))
    note = ""
    if data_dir is not None:
        entries, note = _served(manager, entries, what, search, data_dir)
    if as_json:
        found = [
            {"name": e.name, "kind": e.kind.value, "path": e.path, "output_type": e.output_type}
            for e in entries
        ]
        print(json.dumps(found, indent=2))
    elif entries or not (search or note):
        chosen = {entry.name for entry in entries}
        listed = manager.list_all_tasks(
            list_groups=what in ("tasks", "groups"),
            list_tags=what in ("tasks", "tags"),
            list_subtasks=what in ("tasks", "subtasks"),
            search=search,
            only=lambda entry: entry.name in chosen,
        )
        print(listed, end="")
    elif not note:
        print(f"No {what} with {search!r} in the name.")
    if note:
        print(note, file=sys.stderr if as_json else sys.stdout)
    return 0


def _served(
    manager: TaskManager, entries: Sequence[Entry], what: str, search: str, data_dir: str
) -> tuple[list[Entry], str]:
    """The entries that a mirror can serve, and a line that says how many of how many these are."""
    from lm_eval.data.mirror import Mirror
    from lm_eval.tasks.index import Kind
    from lm_eval.tasks.served import Documents, Serving

    mirror = Mirror(Path(data_dir).expanduser())
    mirror.check(f"--data_dir {data_dir}")
    pack, mark, _ = search.partition(":")
    own = {entry.name: entry for entry in manager.search(pack + mark, *Kind)} if mark else {}
    serving = Serving(mirror, {**manager.task_index, **own})
    served = [entry for entry in entries if serving.serves(entry)]
    if what in ("groups", "tags"):
        return served, f"{len(served)} of {len(entries)} {what} can be served from {data_dir}."
    singles = [entry for entry in entries if entry.kind in (Kind.TASK, Kind.PY_TASK)]
    counts = Counter(map(serving.documents_of, singles))
    note = f"{counts[Documents.MIRROR]} of {len(singles)} tasks can be served from {data_dir}"
    for where, words in (
        (Documents.FILES, "have their documents in files of their own"),
        (Documents.CODE, "load their documents by code, which is not run here"),
    ):
        note += f"; {counts[where]} more {words}" if counts[where] else ""
    return served, f"{note}."
