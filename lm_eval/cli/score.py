"""`lm-eval score`: numbers from stored answers, with another filter or metric, and no model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval.cli.options import (
    add_data_dir,
    add_include_path,
    add_run_id,
    add_samples_format,
    add_uncertainty,
    add_verbosity,
    include_paths,
)

if TYPE_CHECKING:
    from lm_eval.config.run import RunConfig
    from lm_eval.results.schema import EvalResults

HELP = "score stored answers again, without the model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="DIR", help="a run's folder, or sample logs (samples_*.jsonl)"
    )
    add_run_id(parser)
    parser.add_argument("--tasks", "-t", nargs="+", metavar="TASK", help="these tasks alone")
    parser.add_argument(
        "--filter",
        nargs="+",
        metavar="NAME",
        help="these filter pipelines: by name, or new ones as YAML or a file of it",
    )
    parser.add_argument("--metrics", nargs="+", metavar="NAME", help="these metrics")
    add_include_path(parser)
    add_data_dir(parser)
    add_uncertainty(parser)
    parser.add_argument("--output_path", "-o", metavar="PATH", help="write the results there")
    parser.add_argument(
        "--log_samples", "-s", action="store_true", help="write every answer and score too"
    )
    add_samples_format(parser)
    parser.add_argument(
        "--confirm_run_unsafe_code", action="store_true", help="let tasks run code the model wrote"
    )
    add_verbosity(parser)


def execute(arguments: argparse.Namespace) -> int:
    from lm_eval.errors import ConfigError, DataError, EvalError
    from lm_eval.rescore import Changes, find_sources, rescore
    from lm_eval.results.files import check_writable

    if arguments.log_samples and not arguments.output_path:
        raise ConfigError("--log_samples needs --output_path to write to.")
    output = arguments.output_path
    if output is not None:
        output = Path(output).absolute()
        check_writable(output)
    settings = {
        name: getattr(arguments, name)
        for name in ("bootstrap_iters", "confidence", "cluster", "data_dir")
        if getattr(arguments, name) is not None
    }
    settings["log_samples"] = arguments.log_samples
    if arguments.confirm_run_unsafe_code:
        settings["confirm_run_unsafe_code"] = True
    folders = include_paths(arguments.include_path) or []
    changes = Changes(
        tasks=_names(arguments.tasks),
        filters=None if arguments.filter is None else _filters(arguments.filter),
        metrics=_names(arguments.metrics),
        include_path=folders,
        settings=settings,
    )
    sources = find_sources(arguments.source, changes, arguments.run)
    unscored: list[EvalError] = []
    for source in sources:
        if len(sources) > 1 and source.run is not None:
            print(f"run {source.run.describe()}")
        try:
            run, results = rescore(source)
        except DataError as error:  # one run that was cut off does not keep the others from us
            unscored.append(error)
            print(f"lm-eval: not scored: {error}", file=sys.stderr)
            continue
        _report(run, results, output, arguments.samples_format or "jsonl")
    if len(unscored) == len(sources):
        raise unscored[0]
    return 1 if unscored else 0


def _names(given: list[str] | None) -> list[str] | None:
    return None if given is None else [n for part in given for n in part.split(",") if n]


def _filters(given: list[str]) -> list[Any]:
    """Names as they are; a file, or text that is no name, as pipelines."""
    import yaml

    from lm_eval.config.functions import resolve_functions
    from lm_eval.config.yaml_file import load_yaml_file
    from lm_eval.errors import ConfigError

    found: list[Any] = []
    for text in given:
        if Path(text).suffix in (".yaml", ".yml", ".json"):
            written: Any = resolve_functions(load_yaml_file(Path(text).absolute()).values)
        elif "{" in text or "\n" in text:
            try:
                written = yaml.safe_load(text)
            except yaml.YAMLError as error:
                raise ConfigError(f"filter: not valid YAML: {error}.") from error
        else:
            found += [name for name in text.split(",") if name]
            continue
        if isinstance(written, dict):
            written = written.get("filter_list", written)
        found += written if isinstance(written, list) else [written]
    return found


def _report(run: RunConfig, results: EvalResults, output: Path | None, samples_format: str) -> None:
    from lm_eval.results.files import save
    from lm_eval.results.provenance import model_name
    from lm_eval.results.table import heading, make_tables

    samples = results.pop("samples", None)
    print(heading(results))
    print(make_tables(results))
    if output is not None:
        written = save(results, output, model_name(run), samples, samples_format)
        print(f"lm-eval: results written to {written}", file=sys.stderr)
