"""The `RunObserver` interface: callbacks for reports, experiment trackers and viewers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lm_eval.config.run import RunConfig
    from lm_eval.results.schema import EvalResults


class RunObserver:
    """Callbacks at the stages of a run. Override the ones you need; the defaults do nothing.

    Pass observers to `evaluator.run_evaluation(run, observers=[...])` or `lm_eval.resume`. At each
    stage they are called one after the other, in the order of the list, and only in the process of
    rank 0. Each method is called once per run, in the order `opened`, `scored`, `saved`.

    Example::

        class PrintPath(RunObserver):
            def saved(self, run, results, path):
                print(f"{len(results['results'])} rows in {path}")


        run_evaluation(RunConfig(model="demo", tasks=["demo_choice"]), observers=[PrintPath()])
    """

    def opened(self, run: RunConfig) -> None:
        """Called first: the run folder is locked, but no task or model is loaded yet.

        An exception ends the run.

        Args:
            run: the settings of the run.
        """

    def scored(self, run: RunConfig, results: EvalResults) -> None:
        """Called when all scores are computed and the results are written.

        If they could not be written, it is called all the same. An exception ends the run; nothing
        is lost.

        Args:
            run: the settings of the run.
            results: the complete results, as `simple_evaluate` returns them. Contains `samples` if
                the run logs samples.
        """

    def saved(self, run: RunConfig, results: EvalResults, path: Path | None) -> None:
        """Called last: the results are written, and the folder is no longer locked.

        An exception is raised to the caller of the run; nothing is lost.

        Args:
            run: the settings of the run.
            results: the complete results, as for `scored`.
            path: the results file; None if the run has no `output_path`.
        """
