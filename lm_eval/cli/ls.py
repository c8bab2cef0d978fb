"""`lm-eval ls`: lists tasks, groups and tags, and registered models, metrics, filters, ….

No code of task folders or plug-ins is run.
"""

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

HELP = "list tasks, groups, tags, models, metrics, filters and other names"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval ls` to the parser."""
    from lm_eval.api.registry import REGISTRIES

    parser.add_argument(
        "what",
        nargs="?",
        default="tasks",
        choices=("tasks", "groups", "subtasks", "tags", *REGISTRIES),
        help="tasks: tasks, groups and tags; subtasks: single tasks only (default: tasks)",
    )
    parser.add_argument(
        "search",
        nargs="?",
        default="",
        help="only names that contain this; PREFIX:TEXT searches one plug-in or pack",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list of objects")
    parser.add_argument(
        "--data_dir",
        metavar="DIR",
        help="only names whose datasets are in the mirror DIR; reads no rows",
    )
    add_include_path(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Prints the names of the chosen kind (`what`) and returns 0.

    Raises `ConfigError` if `--include_path` or `--data_dir` is given with models, metrics and other
    registered names, which do not come from task folders.
    """
    from lm_eval.api.registry import REGISTRIES
    from lm_eval.errors import ConfigError

    if arguments.what in REGISTRIES:
        for option in ("include_path", "data_dir"):
            if getattr(arguments, option) is not None:
                raise ConfigError(
                    f"--{option} is for tasks and groups, not for {arguments.what}. Remove it."
                )
        return print_registered(arguments.what, arguments.search, arguments.json)
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
    """Prints the names of tasks, groups, subtasks or tags, and returns the exit code 0.

    Args:
        what: `tasks` (all kinds of names), `groups`, `subtasks` or `tags`.
        search: print only names that contain this text; `PACK:TEXT` searches a pack.
        include_path: additional folders with tasks.
        data_dir: print only names whose datasets are in this mirror; `DataError` is raised if the
            folder is not a mirror.
        as_json: instead of tables, print a JSON list of objects with the keys `name`, `kind`,
            `path` and `output_type`; it is empty if nothing is found.
    """
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks.index import Kind

    manager = TaskManager(include_path=include_path)
    kinds = {"groups": [Kind.GROUP], "subtasks": [Kind.TASK, Kind.PY_TASK], "tags": [Kind.TAG]}
    entries = manager.search(search, *kinds.get(what, Kind))
    note = ""
    if data_dir is not None:
        entries, note = _in_mirror(manager, entries, what, search, data_dir)
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


def print_registered(what: str, search: str = "", as_json: bool = False) -> int:
    """Prints the registered models, metrics, …, and where each is defined; returns 0.

    Args:
        what: a key of `lm_eval.api.registry.REGISTRIES`.
        search: only names that contain this text; if there are none, a line says so.
        as_json: print a JSON list of objects instead of a table.
    """
    from lm_eval import markdown
    from lm_eval.api.registry import REGISTRIES

    rows = [
        {"name": name, **(_describe_metric(name) if what == "metrics" else {}), "defined_in": place}
        for name, place in REGISTRIES[what].locations().items()
        if search in name
    ]
    kind = what.removesuffix("s")
    if as_json:
        print(json.dumps([{"kind": kind, **row} for row in rows], indent=2))
    elif rows:
        headers = [key.replace("_", " ").capitalize() for key in rows[0]]
        cells = [list(row.values()) for row in rows]
        print(markdown.table([kind.capitalize(), *headers[1:]], cells), end="")
    else:
        print(f"No {what} with {search!r} in the name.")
    return 0


def _describe_metric(name: str) -> dict[str, str]:
    """Returns the output types and the direction (`better`) of a metric, as text.

    The output types are "" if any is possible, and "(not imported)" for a plug-in's metric. The
    direction is "higher", "lower" or "" if unknown.
    """
    from lm_eval.api.registry import is_higher_better, metric_output_registry, metric_registry

    if metric_registry.peek(name) is None:  # of a plug-in
        return {"output_types": "(not imported)", "better": ""}
    types = metric_output_registry.get(name) if name in metric_output_registry else ()
    better = {True: "higher", False: "lower", None: ""}[is_higher_better(name)]
    return {"output_types": ", ".join(types), "better": better}


def _in_mirror(
    manager: TaskManager, entries: Sequence[Entry], what: str, search: str, data_dir: str
) -> tuple[list[Entry], str]:
    """Returns the entries whose datasets are in the mirror, and a line that says how many they are.

    `what` and `search` are the arguments of `print_names`; `data_dir` is the folder of the mirror.
    Raises `DataError` if it is not a mirror.
    """
    from lm_eval.data.mirror import Mirror
    from lm_eval.tasks.index import Kind
    from lm_eval.tasks.mirror_coverage import DocumentSource, MirrorCoverage

    mirror = Mirror(Path(data_dir).expanduser())
    mirror.check(f"--data_dir {data_dir}")
    pack, mark, _ = search.partition(":")
    own = {entry.name: entry for entry in manager.search(pack + mark, *Kind)} if mark else {}
    coverage = MirrorCoverage(mirror, {**manager.task_index, **own})
    served = [entry for entry in entries if coverage.serves(entry)]
    if what in ("groups", "tags"):
        return served, f"{len(served)} of {len(entries)} {what} have their datasets in {data_dir}."
    singles = [entry for entry in entries if entry.kind in (Kind.TASK, Kind.PY_TASK)]
    counts = Counter(map(coverage.documents_of, singles))
    note = (
        f"{counts[DocumentSource.MIRROR]} of {len(singles)} tasks have their datasets in {data_dir}"
    )
    for where, words in (
        (DocumentSource.FILES, "read their documents from files"),
        (DocumentSource.CODE, "load their documents with their own code, which `ls` does not run"),
    ):
        note += f"; {counts[where]} more {words}" if counts[where] else ""
    return served, f"{note}."
