"""Results of the tasks that are finished, while the model is still at work on others.

Requests of all tasks are put to the model together, in an order of its own; which task is finished
shows in the store, as the answers come. Its numbers go to a file of the run's folder then. They are
made from copies, and again at the end: what is being asked is never touched.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from lm_eval.api.context import RunContext
from lm_eval.api.task import Task
from lm_eval.engine.keys import request_keys
from lm_eval.engine.repeats import grouped, repeated
from lm_eval.engine.store import MISSING, AnswerStore
from lm_eval.results.assemble import assemble
from lm_eval.results.schema import Summary
from lm_eval.results.summarise import UncertaintyConfig, summarise
from lm_eval.runs.run import Run
from lm_eval.scoring import TaskScores, score

logger = logging.getLogger(__name__)

#: Seconds that a run must have lasted; a shorter one has its results soon enough.
AT_LEAST = 1.0
#: The most of a run's time that may go into this.
SHARE = 0.02


class Interim:
    """Writes the rows of every task whose answers are all stored; `note` is told of each answer."""

    def __init__(
        self,
        place: Run,
        store: AnswerStore,
        tasks: Mapping[str, Task],
        numbers: Mapping[str, Sequence[int]],
        uncertainty: UncertaintyConfig,
        context: RunContext,
    ) -> None:
        self._write, self._seed = place.write_partial, place.settings.seed.of_model
        self._tasks, self._numbers, self._store = tasks, numbers, store
        self._uncertainty, self._think_end_token = uncertainty, context.think_end_token
        self._keys: dict[str, list[bytes | None]] = {}
        #: By key the tasks that wait for it, and by task for how many it waits.
        self._waiting: dict[bytes | None, list[str]] = {}
        self._left: dict[str, int] = {}
        self._finished: list[str] = []
        self._results: dict[str, Any] = {}
        self._begun, self._spent = time.monotonic(), 0.0

    def note(self, keys: Sequence[bytes]) -> None:
        """Answers to these have come."""
        lasted = time.monotonic() - self._begun
        if lasted < AT_LEAST or len(self._tasks) < 2:
            return
        if not self._keys:
            self._look_around()
        for key in keys:
            for name in self._waiting.pop(key, ()):
                self._left[name] -= 1
                if not self._left[name]:
                    self._finished.append(name)
        # Where all are finished, the results themselves are about to be made.
        if self._finished and any(self._left.values()) and self._spent <= SHARE * lasted:
            start = time.monotonic()
            self._score_finished()
            self._spent += time.monotonic() - start

    def _look_around(self) -> None:
        """What each task still waits for: of a run that is soon over, nobody asks."""
        for name, task in self._tasks.items():
            keys = self._keys[name] = request_keys(repeated(task.instances), self._seed)
            answers = zip(keys, self._store.find(keys), strict=True)
            missing = {key for key, given in answers if given is MISSING}
            self._left[name] = len(missing)
            for key in missing:
                self._waiting.setdefault(key, []).append(name)
        self._finished = [name for name, left in self._left.items() if not left]

    def _score_finished(self) -> None:
        finished, self._finished = self._finished, []
        for name in finished:
            try:
                self._add(summarise({name: self._scored(name)}, {}, self._uncertainty, False))
            except Exception as error:  # it will be told at the end, when nothing is lost by it
                logger.warning("%s Whatever is left is asked first.", error)
        try:
            if self._results:
                self._write(assemble(cast("Summary", self._results)))
        except OSError as error:
            logger.warning("no results of the tasks that are finished by now: %s", error)

    def _add(self, results: Mapping[str, Any]) -> None:
        """One task's rows to those of the others; its requests need not be kept for that."""
        for key, value in results.items():
            if isinstance(value, dict):
                self._results.setdefault(key, {}).update(value)
            else:
                self._results[key] = value

    def _scored(self, name: str) -> TaskScores:
        task = self._tasks[name]
        answers = grouped(task.instances, self._store.find(self._keys[name]))
        answered = []
        for request, given in zip(task.instances, answers, strict=True):
            copied = copy.copy(request)
            copied.resps, copied.filtered_resps = given, {}
            answered.append(copied)
        scored = task.with_requests(answered)
        return score(scored, self._numbers.get(name), self._think_end_token)
