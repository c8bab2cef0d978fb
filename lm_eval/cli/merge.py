"""`lm-eval merge`: merges the runs and answers of several folders into one."""

from __future__ import annotations

import argparse

HELP = "merge the stored answers of several runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval merge` to the parser."""
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="PATH",
        help="output paths of runs, or files with stored answers (--use_cache)",
    )
    parser.add_argument(
        "--output_path", "-o", required=True, metavar="PATH", help="the new folder or file"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Merges the sources and prints what was merged; returns 0.

    Raises `OutputError` as `lm_eval.runs.merge.merge` does, for instance if answers differ.
    """
    from lm_eval.runs.merge import merge

    merged = merge(arguments.sources, arguments.output_path)
    what = f"{merged.runs} runs with {merged.answers} answers" if merged.runs else ""
    print(f"{what or f'{merged.answers} answers'} merged into {merged.path}.")
    if merged.runs:
        print(f"Score them with `lm-eval score {merged.path}`, or go on with `lm-eval resume`.")
    return 0
