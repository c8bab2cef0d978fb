"""`lm-eval fetch`: copy the data sets of tasks into a mirror, for machines without a network."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval.cli.options import add_data_dir, add_include_path, include_paths

if TYPE_CHECKING:
    from lm_eval.tasks import TaskManager

HELP = "copy the data sets of tasks into a mirror"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks", "-t", required=True, nargs="+", metavar="TASK", help="whose data sets"
    )
    parser.add_argument("--to", required=True, metavar="DIR", help="the mirror to make or add to")
    parser.add_argument(
        "--force", action="store_true", help="replace data sets that lie there with other rows"
    )
    add_data_dir(parser)
    add_include_path(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Copy what can be had, say what was done, and name at the end what could not be had."""
    from lm_eval.data.fetch import copy_to_mirror, is_remote
    from lm_eval.data.load import recorded_loads
    from lm_eval.data.mirror import mirror_at
    from lm_eval.errors import DataError, EvalError
    from lm_eval.tasks import TaskManager

    if not arguments.to:
        raise DataError("--to names no folder.")
    root = Path(arguments.to).expanduser()
    if root.exists() and not root.is_dir():
        raise DataError(f"--to {arguments.to}: a mirror is a folder, and this is a file.")
    manager = TaskManager(include_path=include_paths(arguments.include_path))
    problems: list[str] = []
    seen: set[Path] = set()
    with mirror_at(arguments.data_dir):
        for name in _single_names(manager, arguments.tasks):
            with recorded_loads() as loads:
                try:
                    manager.load(name)
                    built = True
                except EvalError as error:
                    problems.append(str(error))
                    built = False
            remote = [loaded for loaded in loads if is_remote(loaded)]
            if built and not remote:
                print(f"{name}: nothing to fetch: its documents are in files, or its own code's.")
            for loaded in remote:
                try:
                    copied = copy_to_mirror(loaded, root, arguments.force)
                except EvalError as error:
                    problems.append(str(error))
                    continue
                if copied.folder in seen:
                    continue
                seen.add(copied.folder)
                rows = ", ".join(f"{split} {count}" for split, count in copied.rows.items())
                done = "written" if copied.new else "there already"
                print(f"{copied.folder.relative_to(root)}: {rows} ({done})", flush=True)
    for problem in dict.fromkeys(problems):
        print(f"lm-eval: {' '.join(problem.split())}", file=sys.stderr)
    if problems:
        count = len(dict.fromkeys(problems))
        raise DataError(
            f"{count} problem{'s' if count != 1 else ''}, named above; {len(seen)} data "
            f"set{'s are' if len(seen) != 1 else ' is'} complete in {root}."
        )
    if seen:
        print(f"Use it with --data_dir {root} (or LMEVAL_DATA_DIR={root}).")
    return 0


def _single_names(manager: TaskManager, words: list[str]) -> list[str]:
    """Names asked for, tags and patterns taken apart: one task's trouble is not the next one's."""
    from lm_eval.tasks.index import Kind

    names: list[str] = []
    for name in (name for word in words for name in word.split(",") if name):
        for entry in manager.entries(name):
            if entry.kind is Kind.TAG:
                names += sorted(entry.tags)
            else:  # by its own name where a pattern found it; a format or path in `name` counts
                names.append(entry.name if "*" in name else name)
    return list(dict.fromkeys(names))
