"""`lm-eval fetch`: copies the datasets of tasks into a mirror, for machines without a network."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval.cli.options import add_data_dir, add_include_path, include_paths
from lm_eval.printable import printable

if TYPE_CHECKING:
    from lm_eval.tasks import TaskManager

HELP = "copy the datasets of tasks into a mirror, a folder that --data_dir can read"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval fetch` to the parser."""
    parser.add_argument(
        "--tasks",
        "-t",
        required=True,
        nargs="+",
        metavar="TASK",
        help="tasks, groups, tags or files whose datasets are copied",
    )
    parser.add_argument(
        "--to", required=True, metavar="DIR", help="folder of the mirror; it is created if missing"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="overwrite datasets in the mirror whose rows differ",
    )
    add_data_dir(parser)
    add_include_path(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Copies every dataset that can be loaded, prints one line per dataset, and returns 0.

    If there are problems with other datasets, prints them at the end and raises `DataError`. Raises
    `DataError` at once if `--to` is empty or a file.
    """
    from lm_eval.data.fetch import copy_to_mirror, is_remote
    from lm_eval.data.load import recorded_loads
    from lm_eval.data.mirror import mirror_at
    from lm_eval.errors import DataError, EvalError
    from lm_eval.tasks import TaskManager

    if not arguments.to:
        raise DataError("--to is empty. Pass the folder of the mirror.")
    root = Path(arguments.to).expanduser()
    if root.exists() and not root.is_dir():
        raise DataError(f"--to {arguments.to}: this is a file. Pass a folder for the mirror.")
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
                print(
                    f"{name}: nothing to fetch: it reads its documents from files or creates them "
                    "with its own code."
                )
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
                state = "written" if copied.new else "already present"
                print(f"{copied.folder.relative_to(root)}: {rows} ({state})", flush=True)
    for problem in dict.fromkeys(problems):
        print(printable(f"lm-eval: {' '.join(problem.split())}"), file=sys.stderr)
    if problems:
        count = len(dict.fromkeys(problems))
        raise DataError(
            f"{count} problem{'s' if count != 1 else ''}, listed above; {len(seen)} "
            f"dataset{'s are' if len(seen) != 1 else ' is'} complete in {root}."
        )
    if seen:
        print(f"Use the mirror with --data_dir {root} (or LMEVAL_DATA_DIR={root}).")
    return 0


def _single_names(manager: TaskManager, words: list[str]) -> list[str]:
    """Returns the names in `words`, with tags and patterns replaced by the names they match.

    Each name is then loaded separately, so that an error in one does not affect the others. `words`
    are the values of `--tasks`, which may contain several names separated by commas. Duplicates are
    removed. Raises `UnknownNameError` for a name that does not exist.
    """
    from lm_eval.tasks.index import Kind

    names: list[str] = []
    for name in (name for word in words for name in word.split(",") if name):
        for entry in manager.entries(name):
            if entry.kind is Kind.TAG:
                names += sorted(entry.tags)
            else:  # keep `name` if it is not a pattern: it can be a path, or select a format
                names.append(entry.name if "*" in name else name)
    return list(dict.fromkeys(names))
