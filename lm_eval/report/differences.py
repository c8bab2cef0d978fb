"""The paired differences between the runs of a report, as `lm-eval compare` computes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lm_eval.comparison.compare import compare
from lm_eval.errors import EvalError
from lm_eval.report.inputs import ReportRun


def paired_differences(
    runs: Sequence[ReportRun], include_path: Sequence[str] = ()
) -> tuple[dict[str, Any] | None, list[str]]:
    """Returns the differences of each run to the first one, and notes about what is missing.

    The differences are None if there is a single run or the runs cannot be compared. Runs whose
    settings differ are compared all the same; the rows say what differs.
    """
    if len(runs) < 2:
        return None, []
    try:
        found = compare(*(run.comparable for run in runs), force=True, include_path=include_path)
    except EvalError as error:
        reason = " ".join(str(error).split())
        return None, [f"There are no paired differences: {reason}"]
    places = {run.label: place for place, run in enumerate(found.runs)}
    rows = []
    for row in found.rows:
        difference = row.difference
        rows.append(
            {
                "first": places[row.first],
                "second": places[row.second],
                "name": row.name,
                "metric": row.metric,
                "filter": row.filter,
                "group": row.group,
                "higher": row.higher_is_better,
                "value": _finite(difference.value),
                "low": _finite(difference.interval[0]),
                "high": _finite(difference.interval[1]),
                "p": _finite(difference.p_value),
                "holm": _finite(row.p_holm),
                "n": difference.documents,
                "wins": [difference.first_wins, difference.second_wins],
                "better": None if row.better is None else places[row.better],
                "unequal": list(row.unequal),
                "detectable": _finite(row.detectable),
            }
        )
    return {"confidence": found.confidence, "rows": rows}, []


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
