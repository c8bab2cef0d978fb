"""Formats the result of a duel as text and as JSON."""

from __future__ import annotations

import json
import math

from lm_eval.duels.decisions import Decision, Outcome
from lm_eval.duels.duel import Duel
from lm_eval.markdown import table

POOLED = "all documents"
HEADERS = ["Tasks", "Metric", "A", "B", "A better by", "interval", "asked", "of", "share"]


def as_text(duel: Duel) -> str:
    """Returns a table with one row per decision, and a sentence about each."""
    rows = [*duel.tasks, *([duel.pooled] if duel.pooled is not None else [])]
    level = f"{1 - duel.alpha:.4g}"
    parts = [
        f"A: {duel.labels[0]}\nB: {duel.labels[1]}\n",
        table(HEADERS, [_cells(row) for row in rows], HEADERS[2:]),
        "".join(f"{sentence(row, duel)}\n" for row in rows),
        f"Documents asked: {duel.asked:,} of {duel.documents:,} "
        f"({duel.asked / duel.documents:.0%}).\n"
        f"Intervals of the level {level} and decisions with an error probability of at most "
        f"{duel.alpha:g} each,\nhowever often one looks. They are about all documents of the task, "
        "not about others like them.\n",
    ]
    if duel.pooled is not None:
        parts.append(
            f"“{POOLED}”: every document of every task counts the same, whatever its task.\n"
        )
    return "\n".join(parts)


def as_json(duel: Duel) -> str:
    """Returns the duel as a JSON object."""
    content = {
        "models": list(duel.labels),
        "alpha": duel.alpha,
        "documents": duel.documents,
        "asked": duel.asked,
        "tasks": [_record(decision, duel) for decision in duel.tasks],
        "pooled": None if duel.pooled is None else _record(duel.pooled, duel),
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def progress(duel: Duel) -> str:
    """Returns one line about a duel in progress."""
    shown = duel.pooled or duel.tasks[0]
    low, high = shown.interval
    left = sum(decision.outcome is Outcome.OPEN for decision in duel.tasks)
    undecided = f", {left} of {len(duel.tasks)} tasks undecided" if len(duel.tasks) > 1 else ""
    return (
        f"duel: {duel.asked:,} of {duel.documents:,} documents, {duel.labels[0]} is better by "
        f"{100 * low:+.1f} to {100 * high:+.1f} points{undecided}"
    )


def sentence(decision: Decision, duel: Duel) -> str:
    """Returns the verdict of a decision in words that a reader can quote."""
    what = decision.name or POOLED
    if decision.metric is not None:
        what += f", {decision.metric}"
        what += "" if decision.filter in (None, "none") else f" ({decision.filter})"
    low, high = decision.interval
    level = f"{1 - duel.alpha:.4g}"
    if decision.outcome is Outcome.EQUAL:
        return (
            f"{what}: undecided. All {decision.documents:,} documents were asked, and the "
            "difference is exactly zero."
        )
    if decision.outcome is Outcome.OPEN:
        return (
            f"{what}: undecided after {decision.asked:,} of {decision.documents:,} documents. "
            f"{duel.labels[0]} is better by {_points(low)} to {_points(high)} points ({level})."
        )
    other = duel.labels[1] if decision.better == duel.labels[0] else duel.labels[0]
    if decision.outcome is Outcome.COMPLETE:
        return (
            f"{what}: {decision.better} scores better than {other} by "
            f"{100 * abs(decision.advantage):.2g} points on all {decision.documents:,} documents; "
            "no part of them settled it. Whether it would on other documents like these: "
            "lm-eval compare."
        )
    near, far = sorted((abs(low), abs(high)))
    return (
        f"{what}: {decision.better} is better than {other}, by {100 * near:.2g} to "
        f"{100 * far:.2g} points ({level}), settled after {decision.asked:,} of "
        f"{decision.documents:,} documents ({decision.asked / decision.documents:.0%})."
    )


def _record(decision: Decision, duel: Duel) -> dict[str, object]:
    record = {**decision.record(), "verdict": sentence(decision, duel)}
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in record.items()}


def _cells(decision: Decision) -> list[str]:
    low, high = decision.interval
    return [
        decision.name or f"= {POOLED}",
        decision.metric or "",
        _score(decision.first),
        _score(decision.second),
        _points(decision.advantage) if decision.asked else "",
        f"{_points(low)} … {_points(high)}",
        f"{decision.asked:,}",
        f"{decision.documents:,}",
        f"{decision.asked / decision.documents:.0%}",
    ]


def _score(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.4f}"


def _points(share: float) -> str:
    """Returns a difference of shares in points, with its sign."""
    return f"{100 * share:+.2f}"
