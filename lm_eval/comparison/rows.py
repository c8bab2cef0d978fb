"""The comparison of runs: one row per pair of runs, task or group, metric and filter pipeline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lm_eval.comparison.differences import Difference
from lm_eval.comparison.scored_runs import ScoredRun
from lm_eval.stats.power import documents_needed

#: Metrics whose scores are between 0 and 100.
_UP_TO_100 = ("bleu", "chrf", "ter")


@dataclass(frozen=True)
class Row:
    """The comparison of two runs in one score of a task or group.

    Attributes:
        first: the label of the first run.
        second: the label of the second run.
        name: the name of the task or group.
        metric: the metric.
        filter: the filter pipeline it is computed under.
        higher_is_better: the direction of the metric; None if it is not known.
        difference: the first score minus the second.
        detectable: the smallest true difference that this comparison finds with a probability of
            80 %; nan if it is not known.
        group: whether this is the score of a group.
        p_holm: the p-value corrected for all tasks by Holm's method.
        p_bh: the p-value corrected by the method of Benjamini and Hochberg.
        unequal: what differs between the runs besides the model, if the comparison was forced.
        first_only: how many documents only the first run scored; they are left out.
        second_only: how many documents only the second run scored; they are left out.
        alpha: the significance level: 1 minus the level of the intervals.
    """

    first: str
    second: str
    name: str
    metric: str
    filter: str
    higher_is_better: bool | None
    difference: Difference
    detectable: float
    group: bool = False
    p_holm: float = math.nan
    p_bh: float = math.nan
    unequal: Sequence[str] = ()
    first_only: int = 0
    second_only: int = 0
    alpha: float = 0.05

    @property
    def is_share(self) -> bool:
        """Whether the scores are shares of 1, so that their difference is one of points."""
        scores = self.difference.first, self.difference.second
        return (
            self.metric not in _UP_TO_100
            and self.higher_is_better is not False
            and all(0 <= score <= 1 for score in scores)
        )

    @property
    def significant(self) -> bool:
        """Whether the interval of the difference does not contain 0, and the test agrees."""
        low, high = self.difference.interval
        contains_zero = math.isnan(low) or low <= 0 <= high
        return not contains_zero and self.difference.p_value < self.alpha

    @property
    def better(self) -> str | None:
        """The label of the better run.

        None if the difference is not significant, or it is not known whether higher is better.
        """
        if not self.significant or self.higher_is_better is None:
            return None
        above = self.difference.interval[0] > 0
        return self.first if above == self.higher_is_better else self.second

    def documents_for(self, wanted: float, alpha: float = 0.05) -> int | None:
        """Returns how many documents find a difference of `wanted` with a probability of 80 %.

        None if the standard error of the difference is not known. `alpha` is the level of the test.
        """
        difference = self.difference
        if math.isnan(difference.stderr):
            return None
        variance = difference.stderr**2 * difference.documents
        return documents_needed(wanted, variance, alpha) if variance > 0 else 2


@dataclass(frozen=True)
class Comparison:
    """What `lm-eval compare` prints.

    Attributes:
        runs: the runs, in the order given.
        rows: one per pair of runs, task or group, metric and filter pipeline.
        confidence: the level of the intervals.
        chat_templates: the chat templates by label, if they differ.
    """

    runs: Sequence[ScoredRun]
    rows: Sequence[Row]
    confidence: float
    chat_templates: Mapping[str, str | None] = field(default_factory=dict)

    def row(self, name: str, metric: str | None = None) -> Row:
        """Returns the first row of a task or group, of `metric` if it is given.

        Raises `KeyError` if there is none.
        """
        for row in self.rows:
            if row.name == name and metric in (None, row.metric):
                return row
        raise KeyError(name if metric is None else f"{name}: {metric}")
