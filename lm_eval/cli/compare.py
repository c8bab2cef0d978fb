"""`lm-eval compare`: compares stored runs document by document."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lm_eval.cli.options import (
    add_data_dir,
    add_include_path,
    add_verbosity,
    include_paths,
    names_in,
)

HELP = "compare stored runs: which model is better, by how much"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval compare` to the parser."""
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="two or more: the folder of a run (FOLDER#ID for one of several), or sample logs",
    )
    parser.add_argument("--tasks", "-t", nargs="+", metavar="TASK", help="compare only these tasks")
    parser.add_argument("--metrics", nargs="+", metavar="NAME", help="compare only these metrics")
    parser.add_argument(
        "--confidence",
        type=float,
        default=0.95,
        metavar="LEVEL",
        help="the level of intervals and tests (default: 0.95)",
    )
    parser.add_argument(
        "--all_pairs", action="store_true", help="compare every pair, not each run with the first"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="compare runs whose settings differ, and the answered documents of unfinished runs; "
        "says what differs",
    )
    parser.add_argument(
        "--flips",
        type=int,
        nargs="?",
        const=5,
        metavar="N",
        help="show N documents per task and direction that only one model gets right (default: 5)",
    )
    parser.add_argument(
        "--detect",
        type=float,
        metavar="DIFFERENCE",
        help="also print how many documents find this difference with a probability of 80 %%",
    )
    parser.add_argument(
        "--gate",
        metavar="margin=M",
        help="check that no run is worse than the first by more than M: the exit code is 0 if so, "
        "1 if one is, and 3 if the documents do not suffice to tell",
    )
    parser.add_argument(
        "--format",
        choices=["text", "markdown", "latex", "csv", "json"],
        default="text",
        help="how the comparison is printed (default: text)",
    )
    parser.add_argument(
        "--plot", action="store_true", help="also print the differences as a text plot"
    )
    parser.add_argument("--output_path", "-o", metavar="FILE", help="write it to this file")
    add_include_path(parser)
    add_data_dir(parser)
    add_verbosity(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Prints the comparison; returns 0, or the result of the gate."""
    from lm_eval.comparison.compare import compare
    from lm_eval.comparison.formats import FORMATS, difference_plot, flips
    from lm_eval.comparison.verdicts import gate
    from lm_eval.results.files import write_atomically

    margin = None if arguments.gate is None else _margin(arguments.gate)
    _check(arguments)
    comparison = compare(
        *arguments.runs,
        tasks=names_in(arguments.tasks),
        metrics=names_in(arguments.metrics),
        confidence=arguments.confidence,
        all_pairs=arguments.all_pairs,
        force=arguments.force,
        include_path=include_paths(arguments.include_path) or (),
        data_dir=arguments.data_dir,
        keep_requests=arguments.flips is not None,
    )
    text = FORMATS[arguments.format](comparison)
    if arguments.plot:
        text += "\n" + difference_plot(comparison)
    if arguments.detect is not None:
        text += "".join(
            f"{row.name}, {row.metric}: "
            f"{row.documents_for(arguments.detect, 1 - comparison.confidence) or 'unknown'} "
            f"documents find a difference of {arguments.detect:g}.\n"
            for row in comparison.rows
        )
    if arguments.flips is not None:
        text += "\n" + flips(comparison, arguments.flips)
    if arguments.output_path is not None:
        write_atomically(Path(arguments.output_path), [text])
        print(f"lm-eval: comparison written to {arguments.output_path}", file=sys.stderr)
    else:
        print(text, end="")
    if margin is None:
        return 0
    baseline = comparison.runs[0].label
    result, sentences = gate([row for row in comparison.rows if row.first == baseline], margin)
    for sentence in sentences:
        print(f"lm-eval: {sentence}", file=sys.stderr)
    print(f"lm-eval: the gate {_GATE_WORDS[int(result)]}.", file=sys.stderr)
    return int(result)


_SMALLEST = 1e-9
"""The smallest difference for `--detect`."""
_GATE_WORDS = {0: "passes", 1: "fails", 3: "is undecided: more documents are needed"}


def _check(arguments: argparse.Namespace) -> None:
    """Raises `ConfigError` for options that cannot work, before anything is loaded."""
    from lm_eval.errors import ConfigError

    if arguments.detect is not None and not _SMALLEST <= arguments.detect < float("inf"):
        raise ConfigError(
            f"--detect must be a difference of {_SMALLEST:g} or more, not {arguments.detect:g}."
        )
    if arguments.flips is not None and arguments.flips < 1:
        raise ConfigError(f"--flips must be 1 or more, not {arguments.flips}.")
    given = arguments.flips is not None or arguments.detect is not None or arguments.plot
    if arguments.format != "text" and given:
        raise ConfigError("--flips, --detect and --plot need --format text.")
    if arguments.output_path is not None:
        file = Path(arguments.output_path)
        if file.is_dir() or not file.absolute().parent.is_dir():
            what = "is a folder" if file.is_dir() else "is not in a folder that exists"
            raise ConfigError(f"--output_path must name a file, but {file} {what}.")


def _margin(text: str) -> float:
    """Returns the margin in `margin=M`; raises `ConfigError` if it is not 0 or more."""
    from lm_eval.errors import ConfigError

    name, _, value = text.partition("=")
    try:
        margin = float(value)
    except ValueError:
        margin = -1.0
    if name != "margin" or not 0 <= margin < float("inf"):
        raise ConfigError(f"--gate: write margin=M with a number of 0 or more, not {text!r}.")
    return margin
