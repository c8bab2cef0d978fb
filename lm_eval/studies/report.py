"""Formats a study as text and as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from lm_eval.markdown import table
from lm_eval.studies.analysis import (
    Distribution,
    Ranking,
    cell,
    distributions,
    ranking,
    varied_factors,
)
from lm_eval.studies.study import Study

HEADERS = ["Tasks", "Model", "Metric", "n", "mean", "sd", "min", "25 %", "50 %", "75 %", "max"]
PARTS = ["documents", "prompts", "seeds"]
_STYLES = {"mcqa": "mcqa (MMLU-style)"}


def as_text(study: Study) -> str:
    """Returns the tables of a study, with sentences about what they show."""
    found = distributions(study)
    parts = [
        "Scores over all settings:\n\n" + table(HEADERS, [_cells(d) for d in found], HEADERS[3:]),
        "".join(_extremes(d) for d in found if d.settings > 1),
    ]
    for factor, values in varied_factors(study).items():
        headers = ["Tasks", "Model", *(_STYLES.get(value, value) for value in values)]
        lines = [
            [d.task, d.model, *(_shown(study, d, factor, value) for value in values)] for d in found
        ]
        parts.append(
            f"By {factor}, ± half the 95 % interval:\n\n" + table(headers, lines, headers[2:])
        )
    parts.append(
        "What varies a score: its standard deviation if other documents, another prompt or another "
        "seed\nhad been chosen, and its share of the variance:\n\n"
        + table(["Tasks", "Model", *PARTS], [_variances(d) for d in found], PARTS)
    )
    rankings = [one for task in study.tasks if (one := ranking(study, task)) is not None]
    if rankings:
        parts.append("Ranks of the models:\n\n" + "".join(_ranks(one) for one in rankings))
    return "\n".join(part for part in parts if part)


def as_json(study: Study) -> str:
    """Returns the study as a JSON object."""
    content = {
        "models": list(study.models),
        "scores": [
            {**asdict(score), "setting": {**asdict(score.setting), "name": score.setting.name}}
            for score in study.scores
        ],
        "distributions": [
            {**asdict(d), "lowest": d.lowest.name, "highest": d.highest.name}
            for d in distributions(study)
        ],
        "rankings": [
            {**asdict(one), "least_alike": one.least_alike and [s.name for s in one.least_alike]}
            for task in study.tasks
            if (one := ranking(study, task)) is not None
        ],
    }
    return json.dumps(_finite(content), indent=2, ensure_ascii=False) + "\n"


def _finite(value: Any) -> Any:
    """Returns a JSON value with None in place of nan."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _cells(found: Distribution) -> list[str]:
    numbers = [found.mean, found.deviation, *found.quantiles]
    return [
        found.task,
        found.model,
        found.metric.removesuffix(",none"),
        str(found.settings),
        *(_number(value) for value in numbers),
    ]


def _extremes(found: Distribution) -> str:
    low, high = found.quantiles[0], found.quantiles[-1]
    return (
        f"{found.task}, {found.model}: from {_number(low)} ({found.lowest.name}) to "
        f"{_number(high)} ({found.highest.name}).\n"
    )


def _shown(study: Study, found: Distribution, factor: str, value: str) -> str:
    one = cell(study, found.task, found.model, factor, value)
    if one is None:
        return ""
    if one.interval is None:
        return _number(one.mean)
    return f"{_number(one.mean)} ± {_number((one.interval[1] - one.interval[0]) / 2)}"


def _variances(found: Distribution) -> list[str]:
    split = found.variances
    cells = []
    for variance in (split.documents, split.prompts, split.seeds):
        share = f" ({variance / split.total:.0%})" if split.total > 0 else ""
        cells.append("" if math.isnan(variance) else f"{_number(math.sqrt(variance))}{share}")
    return [found.task, found.model, *cells]


def _ranks(found: Ranking) -> str:
    ranges = ", ".join(
        f"{model} {best}" if best == worst else f"{model} {best} to {worst}"
        for model, (best, worst) in found.rank_ranges.items()
    )
    winners = ", ".join(f"{model} in {count}" for model, count in found.winners.items() if count)
    text = f"{found.task}: {ranges}. Best of {found.settings} settings: {winners}.\n"
    if found.least_alike is not None:
        one, two = found.least_alike
        text += (
            f"  Kendall's τ between settings: {found.mean_tau:.2f} on average, at least "
            f"{found.lowest_tau:.2f} ({one.name} and {two.name}).\n"
        )
    return text


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"
