"""`lm-eval score`: scores stored answers with other filters or metrics, without the model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval.cli.options import (
    add_code_options,
    add_data_dir,
    add_decontaminate,
    add_include_path,
    add_run_id,
    add_samples_format,
    add_uncertainty,
    add_verbosity,
    include_paths,
    names_in,
)
from lm_eval.printable import printable

if TYPE_CHECKING:
    from lm_eval.config.run import RunConfig
    from lm_eval.results.schema import EvalResults

HELP = "score stored answers again, without the model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval score` to the parser."""
    parser.add_argument("source", metavar="DIR", help="folder of a run, or sample logs")
    add_run_id(parser)
    parser.add_argument("--tasks", "-t", nargs="+", metavar="TASK", help="score only these tasks")
    parser.add_argument(
        "--filter",
        nargs="+",
        metavar="NAME",
        help="filter pipelines to use: names of the task's own, or new ones as YAML text or a file",
    )
    parser.add_argument(
        "--metrics",
        nargs="+",
        metavar="NAME",
        help="report only these metrics, which must suit every task; see --tasks",
    )
    add_include_path(parser)
    add_data_dir(parser)
    add_uncertainty(parser)
    add_decontaminate(parser)
    parser.add_argument(
        "--output_path",
        "-o",
        metavar="PATH",
        help="also write the results, to this folder or .json file",
    )
    parser.add_argument(
        "--log_samples", "-s", action="store_true", help="also write every prompt, answer and score"
    )
    add_samples_format(parser)
    add_code_options(parser)
    add_verbosity(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Scores every run found; returns 0, or 1 if some runs or sample logs could not be scored.

    Prints one table per run, and writes the results if `--output_path` is given. A run that raises
    `DataError`, such as an interrupted one, is reported and skipped; if all do, the first error is
    raised. Other errors end the command.
    """
    from lm_eval.contamination.findings import read_findings
    from lm_eval.errors import ConfigError, DataError, EvalError
    from lm_eval.rescore import find_sources, rescore
    from lm_eval.results.files import check_writable
    from lm_eval.stored_requests import Changes

    if arguments.log_samples and not arguments.output_path:
        raise ConfigError("--log_samples needs --output_path: the folder to write to.")
    output = arguments.output_path
    if output is not None:
        output = Path(output).absolute()
        check_writable(output)
    settings = {
        name: getattr(arguments, name)
        for name in (
            *("bootstrap_iters", "confidence", "cluster", "data_dir", "decontaminate"),
            "require_isolation",
        )
        if getattr(arguments, name) is not None
    }
    settings["log_samples"] = arguments.log_samples
    if arguments.confirm_run_unsafe_code:
        settings["confirm_run_unsafe_code"] = True
    folders = include_paths(arguments.include_path) or []
    changes = Changes(
        tasks=names_in(arguments.tasks),
        filters=None if arguments.filter is None else _filters(arguments.filter),
        metrics=names_in(arguments.metrics),
        include_path=folders,
        settings=settings,
    )
    if arguments.decontaminate is not None:
        read_findings(arguments.decontaminate)  # raises before any of the runs is scored
    sources = find_sources(arguments.source, changes, arguments.run)
    unscored: list[EvalError] = []
    incomplete = False  # whether a sample log could not be scored
    for source in sources:
        if len(sources) > 1 and source.run is not None:
            print(f"run {source.run.describe()}")
        try:
            run, results = rescore(source)
        except DataError as error:  # such as an interrupted run; continue with the others
            if len(sources) == 1:
                raise
            unscored.append(error)
            print(printable(f"lm-eval: not scored: {error}"), file=sys.stderr)
            continue
        _report(run, results, output, arguments.samples_format or "jsonl")
        incomplete = incomplete or "not_scored" in results.get("scored_from", {})
    if len(unscored) == len(sources):
        raise DataError(f"{arguments.source}: none of the {len(sources)} runs could be scored.")
    return 1 if unscored or incomplete else 0


def _filters(given: list[str]) -> list[Any]:
    """Returns the filter pipelines given with `--filter`: names, or pipelines as in a task file.

    A value is the path of a YAML or JSON file, YAML text, or a list of names with commas between. A
    mapping with the key `filter_list` stands for that list. Raises `ConfigError` if a file or text
    is not valid YAML.
    """
    import yaml

    from lm_eval.config.functions import resolve_functions
    from lm_eval.config.yaml_file import load_yaml_file
    from lm_eval.errors import ConfigError
    from lm_eval.filters import absolute_paths

    found: list[Any] = []
    for text in given:
        folder: Path | None = None
        if Path(text).suffix in (".yaml", ".yml", ".json"):
            folder = Path(text).absolute().parent
            file = load_yaml_file(Path(text).absolute())
            written: Any = resolve_functions(file.values, file.root)
        elif "{" in text or "\n" in text:
            try:
                written = yaml.safe_load(text)
            except yaml.YAMLError as error:
                raise ConfigError(f"--filter: {text!r} is not valid YAML: {error}.") from error
        else:
            found += [name for name in text.split(",") if name]
            continue
        if isinstance(written, dict):
            written = written.get("filter_list", written)
        pipelines = written if isinstance(written, list) else [written]
        found += absolute_paths(pipelines, folder)
    return found


def _report(run: RunConfig, results: EvalResults, output: Path | None, samples_format: str) -> None:
    """Prints the table of results, and writes the files to `output` unless it is None.

    Removes `samples` from `results`; they are written to sample logs in `samples_format`.
    """
    from lm_eval.results.files import save
    from lm_eval.results.provenance import model_name
    from lm_eval.results.table import heading, make_tables

    samples = results.pop("samples", None)
    print(heading(results))
    print(make_tables(results))
    if output is not None:
        written = save(results, output, model_name(run), samples, samples_format)
        print(printable(f"lm-eval: results written to {written}"), file=sys.stderr)
