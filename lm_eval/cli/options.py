"""Options that several commands share, and how option values are read."""

from __future__ import annotations

import argparse
from typing import Any


def add_include_path(parser: Any) -> None:
    parser.add_argument(
        "--include_path",
        metavar="DIR",
        action="append",
        type=lambda text: [part for part in text.split(":") if part],
        help="a folder of your own tasks; repeat it, or separate several with ':'. Later ones win",
    )


def add_prompt_options(parser: Any) -> None:
    """What decides how a document is asked about."""
    parser.add_argument("--num_fewshot", "-f", type=int, metavar="N", help="examples in a prompt")
    parser.add_argument(
        "--apply_chat_template",
        nargs="?",
        const=True,
        metavar="NAME",
        help="write prompts with the model's chat template",
    )
    parser.add_argument(
        "--fewshot_as_multiturn",
        nargs="?",
        const=True,
        type=boolean,
        metavar="BOOL",
        help="examples as turns of the chat (default with a chat template)",
    )
    parser.add_argument("--system_instruction", metavar="TEXT", help="a system message")
    add_table(parser, "--gen_kwargs", help="generation settings, over the tasks' own")
    add_table(parser, "--metadata", help="values for tasks that ask for them")


def add_uncertainty(parser: Any) -> None:
    """How sure the numbers are, and how that is told."""
    parser.add_argument("--bootstrap_iters", type=int, metavar="N", help="resamples for errors")
    parser.add_argument(
        "--confidence", type=float, metavar="SHARE", help="show intervals of this confidence: 0.95"
    )
    parser.add_argument(
        "--cluster", metavar="COLUMN", help="documents alike in this column err together"
    )


def add_verbosity(parser: Any) -> None:
    levels = ("DEBUG", "INFO", "WARNING", "ERROR")
    others = ("WARN", "CRITICAL", "FATAL", "NOTSET")
    parser.add_argument(
        "--verbosity",
        "-v",
        type=str.upper,
        choices=(*levels, *others),
        metavar="LEVEL",
        help=", ".join(levels),
    )


def add_samples_format(parser: Any) -> None:
    parser.add_argument(
        "--samples_format",
        choices=("jsonl", "zst", "parquet"),
        help="jsonl as published, or a row a document, compressed",
    )


def add_table(parser: Any, *names: str, help: str) -> None:
    parser.add_argument(*names, nargs="+", metavar="KEY=VALUE", help=help)


def add_data_dir(parser: Any) -> None:
    parser.add_argument(
        "--data_dir",
        metavar="DIR",
        help="a mirror of data sets that answers before the hub (or LMEVAL_DATA_DIR)",
    )


def add_run_id(parser: Any) -> None:
    parser.add_argument(
        "--run", metavar="ID", help="the run, where the folder holds several (they are listed)"
    )


def include_paths(given: list[list[str]] | None) -> list[str] | None:
    return [path for group in given for path in group] if given else None


def boolean(text: str) -> bool:
    """`true`, `false` and what people write for them."""
    lowered = text.lower()
    if lowered in ("true", "1", "yes", "on"):
        return True
    if lowered in ("false", "0", "no", "off"):
        return False
    raise argparse.ArgumentTypeError(f"expected true or false, not {text!r}")
