"""`lm-eval resume`: resumes an interrupted run with the settings stored in its folder."""

from __future__ import annotations

import argparse

from lm_eval.cli.options import (
    add_consent,
    add_data_dir,
    add_run_id,
    add_verbosity,
    add_workers,
    include_paths,
    workers_of,
)

HELP = "resume an interrupted run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `lm-eval resume` to the parser."""
    parser.add_argument("folder", metavar="DIR", help="the --output_path of the run")
    add_run_id(parser)
    add_data_dir(parser)
    add_consent(parser)
    parser.add_argument(
        "--use_cache", "-c", metavar="FILE", help="the file with stored answers, if there is one"
    )
    add_workers(parser)
    add_verbosity(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Resumes the run and prints its results; returns the exit code, as `lm-eval run` does.

    Raises `OutputError` if the folder contains no run, `WhichRunError` if it contains several and
    `--run` does not choose one, and `ForeignRunError` if it is the run of someone else that needs
    more than the options allow.
    """
    from lm_eval.cli.run import exit_code, observers
    from lm_eval.config.run import RunConfig
    from lm_eval.evaluator import resume

    results = resume(
        arguments.folder,
        run=arguments.run,
        data_dir=arguments.data_dir,
        observers=observers(),
        model=arguments.model,
        model_args=RunConfig(model_args=arguments.model_args).model_args,
        include_path=include_paths(arguments.include_path),
        use_cache=arguments.use_cache,
        trust_remote_code=arguments.trust_remote_code,
        confirm_run_unsafe_code=arguments.confirm_run_unsafe_code,
        executor=workers_of(arguments),
    )
    return exit_code(results)
