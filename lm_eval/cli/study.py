"""`lm-eval study`: runs tasks under many settings and shows what their scores depend on."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from lm_eval.cli.options import (
    add_data_dir,
    add_include_path,
    add_model_options,
    add_prompt_options,
    add_verbosity,
    given_settings,
    model_run,
)

HELP = "run tasks under many settings: how much do scores and ranks depend on them"

#: Options that are settings of all runs (`RunConfig`).
_RUN_SETTINGS = (
    *("tasks", "include_path", "data_dir", "apply_chat_template", "fewshot_as_multiturn"),
    *("system_instruction", "gen_kwargs", "metadata", "limit", "sample", "batch_size", "device"),
    *("use_cache", "trust_remote_code", "confirm_run_unsafe_code", "verbosity"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval study` to the parser."""
    parser.add_argument(
        "--model",
        "-M",
        action="append",
        required=True,
        metavar="MODEL",
        help="a model: NAME,KEY=VALUE,… such as hf,pretrained=gpt2, or a YAML file as for `lm-eval "
        "run --config`; repeat the option for several models",
    )
    parser.add_argument("--tasks", "-t", nargs="+", metavar="TASK", help="tasks, groups or tags")
    add_include_path(parser)
    add_data_dir(parser)

    group = parser.add_argument_group("what is varied")
    group.add_argument(
        "--formats",
        metavar="NAME,…",
        help="prompt formats: mcqa, cloze, hybrid, generate, cot; default is the task's own",
    )
    group.add_argument(
        "--prompts",
        metavar="FILE",
        help="a YAML file with prompts by name, each with the task keys that it replaces",
    )
    group.add_argument(
        "--num_fewshot",
        "-f",
        type=_numbers,
        metavar="N,…",
        help="numbers of few-shot examples: 0,1,5",
    )
    group.add_argument(
        "--seeds",
        type=_numbers,
        metavar="N,…",
        help="seeds of few-shot examples and sampled answers: 1,2,3 or 1..5",
    )
    group.add_argument(
        "--rotate_choices",
        type=int,
        nargs="?",
        const=4,
        default=1,
        metavar="N",
        help="show the choices in N orders, each rotated by one place more (default: 4); needs "
        "--formats that show them",
    )

    group = parser.add_argument_group("prompts")
    add_prompt_options(group, num_fewshot=False)

    group = parser.add_argument_group("documents and speed")
    group.add_argument(
        "--limit", "-L", type=float, metavar="N", help="the first N documents, or a fraction"
    )
    group.add_argument("--sample", type=float, metavar="N", help="N random documents of each task")
    group.add_argument(
        "--group_sample",
        type=int,
        metavar="N",
        help="N random documents of each group, from all its tasks in proportion to their sizes",
    )
    add_model_options(group, "the models")

    group = parser.add_argument_group("output")
    group.add_argument(
        "--metric",
        metavar="NAME",
        help="the metric to report, or METRIC,FILTER (default: the first one of each task)",
    )
    group.add_argument(
        "--output_path",
        "-o",
        metavar="DIR",
        help="folder of the study, from which an interrupted study continues",
    )
    group.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="how the result is printed (default: text)",
    )
    add_verbosity(group)


def execute(arguments: argparse.Namespace) -> int:
    """Runs the study and prints what it shows; returns 0."""
    from lm_eval.results.files import write_atomically
    from lm_eval.studies.grid import DEFAULT, Grid, read_prompts
    from lm_eval.studies.report import as_json, as_text
    from lm_eval.studies.study import study

    given = given_settings(arguments, _RUN_SETTINGS)
    formats = [name.strip() for name in (arguments.formats or DEFAULT).split(",") if name.strip()]
    grid = Grid(
        formats,
        read_prompts(arguments.prompts) if arguments.prompts else {DEFAULT: {}},
        arguments.num_fewshot or [],
        arguments.seeds or [],
        arguments.rotate_choices,
    )
    models = [model_run(spec, given) for spec in arguments.model]
    done = study(models, grid, arguments.metric, arguments.output_path, arguments.group_sample)
    print(as_json(done) if arguments.format == "json" else as_text(done), end="")
    if arguments.output_path is not None:
        file = Path(arguments.output_path) / "study.json"
        write_atomically(file, [as_json(done)])
        print(f"lm-eval: study written to {file}", file=sys.stderr)
    return 0


_MOST = 10_000
"""The most numbers in a range: each is a run."""


def _numbers(text: str) -> list[int]:
    """Returns the numbers in `1,2,5` or `1..5`; raises `ArgumentTypeError` for another text."""
    numbers: list[int] = []
    for part in text.split(","):
        span = re.fullmatch(r"\s*(\d+)\s*(?:\.\.\s*(\d+)\s*)?", part)
        if span is None or int(span[2] or span[1]) < int(span[1]):
            raise argparse.ArgumentTypeError(
                f"expected numbers such as 0,1,5 or 1..5, not {text!r}"
            )
        if int(span[2] or span[1]) - int(span[1]) >= _MOST:
            raise argparse.ArgumentTypeError(f"{part.strip()} are more than {_MOST:,} numbers")
        numbers += range(int(span[1]), int(span[2] or span[1]) + 1)
    return numbers
