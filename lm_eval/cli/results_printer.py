"""Prints the results of a run on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lm_eval.config.run import RunConfig
from lm_eval.printable import printable
from lm_eval.redaction import without_secrets
from lm_eval.results.samples import without_samples
from lm_eval.results.schema import EvalResults
from lm_eval.results.serialize import handle_non_serializable
from lm_eval.results.table import heading, make_tables
from lm_eval.results.text_plot import score_plot
from lm_eval.runs.observer import RunObserver


class ResultsPrinter(RunObserver):
    """Prints the table of results, and the path of the results file after it is written."""

    def __init__(self, plot: bool = False) -> None:
        """Takes whether the intervals are also printed as a text plot."""
        self._plot = plot

    def scored(self, run: RunConfig, results: EvalResults) -> None:
        """Prints the settings and the table, and with `--show_config` the results as JSON."""
        if run.show_config:
            rest = without_samples(results)
            print(json.dumps(rest, indent=2, default=handle_non_serializable, ensure_ascii=False))
        print(
            f"{run.model} ({without_secrets(run.model_args)}), "
            f"gen_kwargs: ({without_secrets(run.gen_kwargs)}), "
            f"limit: {run.limit}, num_fewshot: {run.num_fewshot}, "
            f"batch_size: {run.batch_size}"
        )
        print(heading(results))
        print(make_tables(results))
        if self._plot:
            print(score_plot(results))

    def saved(self, run: RunConfig, results: EvalResults, path: Path | None) -> None:
        """Prints the path of the results file to stderr; nothing if `path` is None."""
        if path is not None:
            print(printable(f"lm-eval: results written to {path}"), file=sys.stderr)
