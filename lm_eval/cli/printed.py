"""What the command line prints of a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lm_eval.config.run import RunConfig
from lm_eval.results.schema import EvalResults
from lm_eval.results.serialise import handle_non_serializable
from lm_eval.results.table import heading, make_tables
from lm_eval.runs.observer import RunObserver


class Printed(RunObserver):
    """Prints the table before the files are written, and afterwards where they are."""

    def scored(self, run: RunConfig, results: EvalResults) -> None:
        if run.show_config:
            rest = {key: value for key, value in results.items() if key != "samples"}
            print(json.dumps(rest, indent=2, default=handle_non_serializable, ensure_ascii=False))
        print(
            f"{run.model} ({run.model_args}), gen_kwargs: ({run.gen_kwargs}), limit: {run.limit}, "
            f"num_fewshot: {run.num_fewshot}, batch_size: {run.batch_size}"
        )
        print(heading(results))
        print(make_tables(results))

    def saved(self, run: RunConfig, results: EvalResults, path: Path | None) -> None:
        if path is not None:
            print(f"lm-eval: results written to {path}", file=sys.stderr)
