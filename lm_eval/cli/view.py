"""`lm-eval view`: shows the runs of a folder in the browser, also while they are under way."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lm_eval.cli.options import add_verbosity

HELP = "show the runs of a folder in the browser, with the progress of those under way"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval view` to the parser."""
    parser.add_argument(
        "folder",
        nargs="?",
        default=".",
        metavar="FOLDER",
        help="folder with runs, at any depth (default: the current one)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=0,
        metavar="N",
        help="port on this machine (default: a free one)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    add_verbosity(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Serves the folder until Ctrl-C; returns 0."""
    from lm_eval.viewer.catalog import Catalog
    from lm_eval.viewer.server import ViewServer

    catalog = Catalog(Path(arguments.folder))
    with ViewServer(catalog, arguments.port) as server:
        print(
            f"lm-eval: {server.address} shows {len(catalog.entries())} runs in "
            f"{arguments.folder}. Stop with Ctrl-C.",
            file=sys.stderr,
            flush=True,
        )
        if arguments.open:
            import webbrowser

            webbrowser.open(server.address)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print("lm-eval: stopped.", file=sys.stderr)
    return 0
