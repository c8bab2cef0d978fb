"""Writes results of finished tasks while the model is still answering requests of others.

The requests of all tasks are sent to the model together, and the model answers them in any order. A
task is finished when all its answers are in the store. Its scores are then written to a file in the
run folder. They are computed from copies of the requests, and computed again at the end of the
run.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from lm_eval.api.context import RunContext
from lm_eval.api.task import Task
from lm_eval.code_scoring import is_code_task
from lm_eval.engine.keys import request_keys
from lm_eval.engine.repeats import grouped, repeated
from lm_eval.engine.store import MISSING, AnswerStore
from lm_eval.results.assemble import assemble
from lm_eval.results.schema import Summary
from lm_eval.results.summarize import UncertaintyConfig, summarize
from lm_eval.runs.run import Run
from lm_eval.scoring import TaskScores, score

logger = logging.getLogger(__name__)

#: Interim results are written only after this many seconds; short runs do not need them.
MIN_RUN_SECONDS = 1.0
#: The largest share of the run's time that may be spent on interim results.
MAX_TIME_SHARE = 0.02


class InterimResults:
    """Writes the results of every task whose answers are all stored.

    Pass `on_stored` to `engine.answer.answer`, which calls it whenever answers were stored.

    Args:
        run: the active run, whose folder gets the file and whose seed is part of request keys.
        store: the answer store of the run.
        tasks: the tasks by name, with their requests.
        numbers: for tasks of which only some documents were chosen, their indices.
        uncertainty: settings of standard errors and confidence intervals.
        context: the context of the evaluation.
    """

    def __init__(
        self,
        run: Run,
        store: AnswerStore,
        tasks: Mapping[str, Task],
        numbers: Mapping[str, Sequence[int]],
        uncertainty: UncertaintyConfig,
        context: RunContext,
    ) -> None:
        self._write, self._seed = run.write_partial, run.settings.seed.model_seeds
        self._tasks, self._numbers, self._store = tasks, numbers, store
        self._uncertainty, self._think_end_token = uncertainty, context.think_end_token
        self._only_chosen = run.settings.metrics is not None
        self._keys: dict[str, list[bytes | None]] = {}
        #: For each request key without an answer, the tasks that need it.
        self._waiting: dict[bytes | None, list[str]] = {}
        #: For each task, the number of missing answers.
        self._left: dict[str, int] = {}
        self._finished: list[str] = []
        self._results: dict[str, Any] = {}
        self._begun, self._spent = time.monotonic(), 0.0

    def on_stored(self, keys: Sequence[bytes]) -> None:
        """Takes the keys of requests whose answers were stored; writes results of finished tasks.

        Does nothing in the first `MIN_RUN_SECONDS`, or if there is a single task. Waits with
        writing if it would take more than `MAX_TIME_SHARE` of the time, and leaves it to the run if
        all tasks are finished.
        """
        lasted = time.monotonic() - self._begun
        if lasted < MIN_RUN_SECONDS or len(self._tasks) < 2:
            return
        if not self._keys:
            self._find_missing()
        for key in keys:
            for name in self._waiting.pop(key, ()):
                self._left[name] -= 1
                if not self._left[name]:
                    self._finished.append(name)
        # If all tasks are finished, the final results are computed next.
        if self._finished and any(self._left.values()) and self._spent <= MAX_TIME_SHARE * lasted:
            start = time.monotonic()
            self._score_finished()
            self._spent += time.monotonic() - start

    def _find_missing(self) -> None:
        """Finds out which answers each task still needs, and which tasks are finished.

        Called late, because short runs never need it.
        """
        for name, task in self._tasks.items():
            keys = self._keys[name] = request_keys(repeated(task.instances), self._seed)
            answers = zip(keys, self._store.find(keys), strict=True)
            missing = {key for key, given in answers if given is MISSING}
            self._left[name] = len(missing)
            for key in missing:
                self._waiting.setdefault(key, []).append(name)
        self._finished = [name for name, left in self._left.items() if not left]

    def _score_finished(self) -> None:
        """Scores the tasks in `_finished` and writes all interim results; errors only warn.

        Empties `_finished`, also for tasks whose scoring failed. Code tasks are scored only at the
        end of the run, because their programs would keep the model waiting.
        """
        finished, self._finished = self._finished, []
        for name in (name for name in finished if not is_code_task(self._tasks[name])):
            try:
                self._add(summarize({name: self._scored(name)}, {}, self._uncertainty, False))
            except Exception as error:  # raised again at the end of the run, with all answers saved
                logger.warning(
                    "%s The run continues with the remaining requests; the error is raised at its "
                    "end, and all answers are kept.",
                    error,
                )
        try:
            if self._results:
                self._write(assemble(cast("Summary", self._results)))
        except OSError as error:
            logger.warning(
                "The results of the tasks finished so far could not be written: %s. The run "
                "continues, and writes all results at its end.",
                error,
            )

    def _add(self, results: Mapping[str, Any]) -> None:
        """Merges the results of one task into those of the tasks finished before.

        Dictionaries are merged by key; any other value replaces the earlier one.
        """
        for key, value in results.items():
            if isinstance(value, dict):
                self._results.setdefault(key, {}).update(value)
            else:
                self._results[key] = value

    def _scored(self, name: str) -> TaskScores:
        """Returns the scores of a task, from copies of its requests with the stored answers."""
        task = self._tasks[name]
        answers = grouped(task.instances, self._store.find(self._keys[name]))
        answered = []
        for request, given in zip(task.instances, answers, strict=True):
            copied = copy.copy(request)
            copied.forget_answers()
            copied.set_answers(given)
            answered.append(copied)
        scored = task.with_requests(answered)
        return score(scored, self._numbers.get(name), self._think_end_token, self._only_chosen)
