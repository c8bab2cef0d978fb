"""`lm-eval packs`: add, list, update and remove task folders that others have published."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lm_eval.tasks.packs import Pack

HELP = "task folders that others have published"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = commands.add_parser("add", help="fetch a pack's task files; runs none of them")
    add.add_argument(
        "source", help="pypi:PACKAGE==VERSION, git+URL@COMMIT, a folder, or an archive"
    )
    add.add_argument("--name", help="what to call it (default: after its source)")
    add.add_argument("--hash", metavar="sha256:…", help="refuse it unless its files have this hash")
    listing = commands.add_parser("ls", help="the packs there are")
    listing.add_argument("--json", action="store_true", help="as JSON")
    commands.add_parser("update", help="fetch a pack anew").add_argument("name")
    commands.add_parser("remove", help="forget a pack").add_argument("name")


def execute(arguments: argparse.Namespace) -> int:
    from lm_eval.tasks import packs

    if arguments.action in ("add", "update") and sys.stderr.isatty():
        named = arguments.source if arguments.action == "add" else arguments.name
        print(f"fetching {named} …", file=sys.stderr)
    if arguments.action == "add":
        _report(packs.add(arguments.source, arguments.name, arguments.hash))
    elif arguments.action == "update":
        pack, changed = packs.update(arguments.name)
        print(f"{pack.name}: {'changed' if changed else 'as it was'}.")
    elif arguments.action == "remove":
        packs.remove(arguments.name)
        print(f"{arguments.name}: removed.")
    else:
        _list(arguments.json)
    return 0


def _report(pack: Pack) -> None:
    """What was added, and which of its names others have too."""
    from lm_eval.tasks.index import Kind, build_index
    from lm_eval.tasks.manager import LIBRARY
    from lm_eval.tasks.packs import installed

    def names(folder: Path) -> list[str]:
        index = build_index([folder])
        return [name for name, entry in index.items() if entry.kind is not Kind.TAG]

    record, theirs = pack.record(), names(pack.tasks)
    counted = (
        f"{len(theirs)} task or group" if len(theirs) == 1 else f"{len(theirs)} tasks and groups"
    )
    print(f"{pack.name}: {counted} from {record['source']}, sha256:{record['hash']}")
    others = [("the library", LIBRARY)]
    others += [(f"the pack {p.name}", p.tasks) for p in installed() if p.name != pack.name]
    for owner, folder in others:
        taken = sorted(set(theirs) & set(names(folder)))
        if taken:
            print(
                f"{owner} has {len(taken)} of these names too and goes first; "
                f"{pack.name}:{taken[0]} is this pack's."
            )


def _list(as_json: bool) -> None:
    from lm_eval import markdown
    from lm_eval.tasks import packs

    found = [(pack.name, pack.record()) for pack in packs.installed()]
    if as_json:
        print(json.dumps([{"name": name, **record} for name, record in found], indent=2))
        return
    rows = [[n, r["source"], r["version"] or "", r["hash"][:16]] for n, r in found]
    if not rows:
        print("No packs. `lm-eval packs add pypi:lm-eval==0.4.13` adds the published tasks.")
        return
    print(markdown.table(["Pack", "Source", "Version", "Hash"], rows), end="")
