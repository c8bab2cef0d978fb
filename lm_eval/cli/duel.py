"""`lm-eval duel`: asks two models until it is known which one is better."""

from __future__ import annotations

import argparse
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
from lm_eval.defaults import DEFAULT_OTHER_SEED

HELP = "ask two models until it is known which one is better"

#: Options that are settings of both runs (`RunConfig`). One that is not given is left to the
#: configuration file, if there is one.
_RUN_SETTINGS = (
    *("tasks", "include_path", "data_dir", "num_fewshot", "apply_chat_template"),
    *("fewshot_as_multiturn", "system_instruction", "gen_kwargs", "metadata", "limit"),
    *("batch_size", "device", "use_cache", "output_path", "seed"),
    *("trust_remote_code", "confirm_run_unsafe_code", "verbosity"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval duel` to the parser."""
    for name, which in (("model_a", "first"), ("model_b", "second")):
        parser.add_argument(
            name,
            metavar=name.upper(),
            help=f"the {which} model: NAME,KEY=VALUE,… such as hf,pretrained=gpt2 (`lm-eval ls "
            "models` lists the names), or a YAML file as for `lm-eval run --config`",
        )
    parser.add_argument(
        "--tasks", "-t", nargs="+", metavar="TASK", help="tasks, groups, tags, patterns or files"
    )
    add_include_path(parser)
    add_data_dir(parser)

    group = parser.add_argument_group("decision")
    group.add_argument(
        "--metric",
        metavar="NAME",
        help="the metric to decide by, or METRIC,FILTER (default: the first metric of each task "
        "with scores between 0 and 1)",
    )
    group.add_argument(
        "--alpha",
        type=float,
        default=0.05,
        metavar="P",
        help="the largest probability of a wrong decision (default: 0.05)",
    )
    group.add_argument(
        "--decide",
        choices=("each", "pooled"),
        default="each",
        help="stop when every task is decided, or when all documents of all tasks together are "
        "(default: each)",
    )
    group.add_argument(
        "--order_seed",
        type=int,
        default=DEFAULT_OTHER_SEED,
        metavar="N",
        help=f"seed of the order of documents (default: {DEFAULT_OTHER_SEED})",
    )

    add_prompt_options(parser.add_argument_group("prompts"))

    group = parser.add_argument_group("documents and speed")
    group.add_argument(
        "--limit",
        "-L",
        type=float,
        metavar="N",
        help="decide about the first N documents of each task, or a fraction below 1",
    )
    group.add_argument(
        "--one_at_a_time",
        action="store_true",
        help="load only one model at a time, in turns; portions are then larger",
    )
    add_model_options(group, "both models")
    group.add_argument(
        "--seed",
        metavar="N",
        help="seeds of both runs, as for `lm-eval run` (default: 0,1234,1234,1234)",
    )

    group = parser.add_argument_group("output")
    group.add_argument(
        "--output_path",
        "-o",
        metavar="DIR",
        help="folder for the answers of both models, from which an interrupted duel continues",
    )
    group.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="how the result is printed (default: text)",
    )
    add_verbosity(group)


def execute(arguments: argparse.Namespace) -> int:
    """Fights the duel and prints its result; returns 0."""
    from lm_eval.duels.duel import DuelSettings, duel
    from lm_eval.duels.report import as_json, as_text, progress
    from lm_eval.results.files import write_atomically
    from lm_eval.results.names import file_name

    given = given_settings(arguments, _RUN_SETTINGS)
    first, second = (model_run(spec, given) for spec in (arguments.model_a, arguments.model_b))
    settings = DuelSettings(
        arguments.metric,
        arguments.alpha,
        arguments.order_seed,
        arguments.decide == "each",
        arguments.one_at_a_time,
    )
    result = duel(
        first, second, settings, lambda state: print(progress(state), file=sys.stderr, flush=True)
    )
    print(as_json(result) if arguments.format == "json" else as_text(result), end="")
    if first.output_path is not None:
        names = "_".join(map(file_name, result.labels))
        file = Path(first.output_path) / f"duel_{names}.json"
        write_atomically(file, [as_json(result)])
        print(f"lm-eval: duel written to {file}", file=sys.stderr)
    return 0
