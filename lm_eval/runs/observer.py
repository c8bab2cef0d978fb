"""How reports, trackers and viewers attach to a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lm_eval.config.run import RunConfig
    from lm_eval.results.schema import EvalResults


class RunObserver:
    """Is called at the stages of a run; override what you need, the rest does nothing.

    Pass observers to `evaluator.run_evaluation(run, observers=[...])`. They are called in order, in
    the process that collects the answers. An exception in `opened` or `scored` ends the run.

    Example::

        class Note(RunObserver):
            def saved(self, run, results, path):
                print(f"{len(results['results'])} rows in {path}")
    """

    def opened(self, run: RunConfig) -> None:
        """The run's folder is held, and nothing has been loaded yet."""

    def scored(self, run: RunConfig, results: EvalResults) -> None:
        """The results are there, and not written yet; `samples` is among them if logged."""

    def saved(self, run: RunConfig, results: EvalResults, path: Path | None) -> None:
        """The results are written to `path`; None for a run that writes none."""
