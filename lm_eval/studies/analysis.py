"""What a study shows: the distribution of scores, what varies them, and how models' ranks move."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from lm_eval.stats.intervals import Interval, normal_interval
from lm_eval.stats.ranks import kendall_tau, ranks
from lm_eval.stats.variance_split import VarianceSplit, split_variance
from lm_eval.studies.grid import Setting
from lm_eval.studies.study import Score, Study

QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Distribution:
    """The scores of one model on one task under all settings.

    Attributes:
        model: the label of the model.
        task: the name of the task.
        metric: the metric and its filter pipeline.
        settings: the number of settings.
        mean: the mean score.
        deviation: the standard deviation of the scores; nan for a single setting.
        quantiles: the `QUANTILES` of the scores.
        lowest: the setting with the lowest score.
        highest: the setting with the highest score.
        variances: what documents, prompts and seeds contribute to the variance of a score.
    """

    model: str
    task: str
    metric: str
    settings: int
    mean: float
    deviation: float
    quantiles: Sequence[float]
    lowest: Setting
    highest: Setting
    variances: VarianceSplit


@dataclass(frozen=True)
class Cell:
    """The scores of a model on a task with one value of what is varied, such as one format.

    Attributes:
        mean: the mean over all settings with this value.
        interval: its confidence interval for other documents; None if no standard error is known.
        settings: the number of settings.
    """

    mean: float
    interval: Interval | None
    settings: int


@dataclass(frozen=True)
class Ranking:
    """How the order of models on a task depends on the setting.

    Attributes:
        task: the name of the task.
        settings: the number of settings.
        mean_tau: the mean of Kendall's τ over all pairs of settings; nan if it is not defined.
        lowest_tau: the smallest one.
        least_alike: the two settings with the smallest one; None if τ is not defined.
        rank_ranges: for each model its best and its worst rank.
        winners: how often each model is the best, ties included.
    """

    task: str
    settings: int
    mean_tau: float
    lowest_tau: float
    least_alike: tuple[Setting, Setting] | None
    rank_ranges: dict[str, tuple[int, int]]
    winners: dict[str, int]


def distributions(study: Study) -> list[Distribution]:
    """Returns the distribution of scores of each task and model."""
    return [
        _distribution(own)
        for task in study.tasks
        for model in study.models
        if (own := study.of(task, model))
    ]


def _distribution(scores: Sequence[Score]) -> Distribution:
    values = [score.value for score in scores]
    cells: dict[object, list[float]] = {}
    for score in scores:
        cells.setdefault(score.setting.cell, []).append(score.value)
    by_value = sorted(scores, key=lambda score: score.value)
    return Distribution(
        scores[0].model,
        scores[0].task,
        scores[0].metric,
        len(values),
        float(np.mean(values)),
        float(np.std(values, ddof=1)) if len(values) > 1 else math.nan,
        [float(q) for q in np.quantile(values, QUANTILES)],
        by_value[0].setting,
        by_value[-1].setting,
        split_variance(list(cells.values()), [score.stderr for score in scores]),
    )


#: What a study can vary besides seeds: the name of a column, and how to read it from a setting.
FACTORS: dict[str, Callable[[Setting], str]] = {
    "format": lambda setting: setting.format,
    "prompt": lambda setting: setting.prompt,
    "rotation": lambda setting: str(setting.rotation),
    "num_fewshot": lambda s: "default" if s.num_fewshot is None else str(s.num_fewshot),
}


def varied_factors(study: Study) -> dict[str, list[str]]:
    """Returns the `FACTORS` that have several values in a study, with these values."""
    found = {}
    for factor, read in FACTORS.items():
        values = list(dict.fromkeys(read(score.setting) for score in study.scores))
        if len(values) > 1:
            found[factor] = values
    return found


def cell(study: Study, task: str, model: str, factor: str, value: str) -> Cell | None:
    """Returns the scores with one value of a factor; None if there are none.

    The interval is that of a score with the mean square of the standard errors: the settings share
    their documents, so that their mean is hardly more certain than each.
    """
    own = [s for s in study.of(task, model) if FACTORS[factor](s.setting) == value]
    if not own:
        return None
    mean = float(np.mean([score.value for score in own]))
    documents = split_variance([], [score.stderr for score in own]).documents
    interval = None if math.isnan(documents) else normal_interval(mean, math.sqrt(documents), 0.95)
    return Cell(mean, interval, len(own))


def ranking(study: Study, task: str) -> Ranking | None:
    """Returns how the order of models depends on the setting; None for fewer than two models."""
    scores = study.of(task)
    settings = list(dict.fromkeys(score.setting for score in scores))
    values = {(score.setting, score.model): score.value for score in scores}
    if len(study.models) < 2:
        return None
    higher = scores[0].higher_is_better is not False
    rows = {s: [values[s, model] for model in study.models] for s in settings}
    places = {setting: ranks(row, higher) for setting, row in rows.items()}
    taus = [(kendall_tau(rows[a], rows[b]), (a, b)) for a, b in combinations(settings, 2)]
    known = [(tau, pair) for tau, pair in taus if not math.isnan(tau)]
    lowest = min(known, key=lambda one: one[0], default=None)
    columns = dict(zip(study.models, zip(*places.values(), strict=True), strict=True))
    return Ranking(
        task,
        len(settings),
        float(np.mean([tau for tau, _ in known])) if known else math.nan,
        lowest[0] if lowest else math.nan,
        lowest[1] if lowest else None,
        {model: (min(column), max(column)) for model, column in columns.items()},
        {model: column.count(1) for model, column in columns.items()},
    )
