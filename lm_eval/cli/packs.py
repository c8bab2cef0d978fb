"""`lm-eval packs`: adds, lists, updates and removes packs, task folders from other sources."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lm_eval.tasks.packs import Pack

HELP = "add, list, update or remove packs: task folders from PyPI, git or archives"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the actions of `lm-eval packs` (`add`, `ls`, `update`, `remove`) to the parser."""
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = commands.add_parser(
        "add", help="download the task files of a pack; none of its code is run"
    )
    add.add_argument(
        "source", help="pypi:PACKAGE==VERSION, git+URL@COMMIT, a folder, or an archive"
    )
    add.add_argument("--name", help="name of the pack (default: derived from its source)")
    add.add_argument(
        "--hash", metavar="sha256:…", help="fail unless the files of the pack have this hash"
    )
    listing = commands.add_parser("ls", help="list the installed packs")
    listing.add_argument("--json", action="store_true", help="print JSON")
    commands.add_parser("update", help="download a pack again").add_argument("name")
    commands.add_parser("remove", help="delete a pack").add_argument("name")


def execute(arguments: argparse.Namespace) -> int:
    """Performs the action `add`, `update`, `remove` or `ls`, prints its outcome, and returns 0."""
    from lm_eval.tasks import packs

    if arguments.action in ("add", "update") and sys.stderr.isatty():
        named = arguments.source if arguments.action == "add" else arguments.name
        print(f"fetching {named} …", file=sys.stderr)
    if arguments.action == "add":
        _report(packs.add(arguments.source, arguments.name, arguments.hash))
    elif arguments.action == "update":
        pack, changed = packs.update(arguments.name)
        print(f"{pack.name}: {'changed' if changed else 'unchanged'}.")
    elif arguments.action == "remove":
        packs.remove(arguments.name)
        print(f"{arguments.name}: removed.")
    else:
        _list(arguments.json)
    return 0


def _report(pack: Pack) -> None:
    """Prints how many tasks and groups a new pack has, and which of their names exist elsewhere.

    Elsewhere is the built-in library, a plug-in or another pack, which takes precedence.
    """
    from lm_eval.tasks.index import Kind, build_index
    from lm_eval.tasks.manager import LIBRARY
    from lm_eval.tasks.packs import installed
    from lm_eval.tasks.plugins import task_folders

    def names(folder: Path) -> list[str]:
        index = build_index([folder])
        return [name for name, entry in index.items() if entry.kind is not Kind.TAG]

    record, theirs = pack.record(), names(pack.tasks)
    counted = (
        f"{len(theirs)} task or group" if len(theirs) == 1 else f"{len(theirs)} tasks and groups"
    )
    print(f"{pack.name}: {counted} from {record['source']}, sha256:{record['hash']}")
    others = [("the library", LIBRARY)]
    others += [(f"the plug-in {name}", folder) for name, folder in task_folders().items()]
    others += [(f"the pack {p.name}", p.tasks) for p in installed() if p.name != pack.name]
    for owner, folder in others:
        taken = sorted(set(theirs) & set(names(folder)))
        if taken:
            print(
                f"{owner} also has {len(taken)} of these names and takes precedence; use "
                f"{pack.name}:{taken[0]} for the task of this pack."
            )


def _list(as_json: bool) -> None:
    """Prints the installed packs as a table (with a shortened hash), or as JSON."""
    from lm_eval import markdown
    from lm_eval.tasks import packs

    found = [(pack.name, pack.record()) for pack in packs.installed()]
    if as_json:
        print(json.dumps([{"name": name, **record} for name, record in found], indent=2))
        return
    rows = [[n, r["source"], r["version"] or "", r["hash"][:16]] for n, r in found]
    if not rows:
        print(
            "No packs are installed. `lm-eval packs add pypi:lm-eval==0.4.13` adds the tasks of "
            "the published harness."
        )
        return
    print(markdown.table(["Pack", "Source", "Version", "Hash"], rows), end="")
