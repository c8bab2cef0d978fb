"""Counts for the plots of one task and run: calibration, margins, lengths of answers, flags."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from typing import Any

from lm_eval.report.documents import LENGTH_STOPPED, NO_ANSWER, TRUNCATED, Answered

#: The number of bins of confidence, each as wide as the others.
CONFIDENCE_BINS = 10
#: The width of a bin of margins in nats, and the number of bins; the last has all larger margins.
MARGIN_WIDTH, MARGIN_BINS = 0.5, 25
#: Bins of lengths: the k-th begins at `LENGTH_BASE ** k` characters; the first also has empty ones.
LENGTH_BASE, LENGTH_BINS = math.sqrt(2), 48

Status = str
"""`1` right, `0` wrong, `p` between both, `-` not known."""


def status_of(value: Any) -> Status:
    """Returns whether a document was answered correctly, judging by the value of a metric."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if not isinstance(value, (int, float)) or not 0 <= value <= 1:
        return "-"
    return "1" if value == 1 else "0" if value == 0 else "p"


def judging_keys(found: Iterable[Answered], lower_is_better: Container[str] = ()) -> list[str]:
    """Returns the `metric,filter` keys that tell right from wrong: all values are from 0 to 1.

    The metrics in `lower_is_better` do not count: their 1 is not the best value.
    """
    sound: dict[str, bool] = {}
    for one in found:
        for key, value in one.values.items():
            status = status_of(value)
            if status == "-":
                sound[key] = False
            elif sound.get(key, True):
                sound[key] = True
    return [
        key
        for key, is_sound in sound.items()
        if is_sound and key.partition(",")[0] not in lower_is_better
    ]


def distribution(found: Sequence[Answered], key: str | None) -> dict[str, Any]:
    """Returns the counts of one task and run; `key` is the metric that tells right from wrong.

    Without `key`, all documents count as neither. Fields that have no documents are left out.
    """
    calibration = [[0, 0.0, 0.0] for _ in range(CONFIDENCE_BINS)]
    margins = [[0] * MARGIN_BINS for _ in range(3)]
    lengths = [[0] * LENGTH_BINS for _ in range(3)]
    flags = {NO_ANSWER: 0, LENGTH_STOPPED: 0, TRUNCATED: 0}
    for one in found:
        status = "-" if key is None else status_of(one.values.get(key))
        row = {"1": 0, "0": 1, "p": 1}.get(status, 2)
        for flag in flags:
            flags[flag] += bool(one.flags & flag)
        confidence, margin, length = one.confidence, one.margin, one.length
        if confidence is not None and status in "10":
            place = calibration[min(int(confidence * CONFIDENCE_BINS), CONFIDENCE_BINS - 1)]
            place[0] += 1
            place[1] += confidence
            place[2] += status == "1"
        if margin is not None:
            margins[row][min(int(margin / MARGIN_WIDTH), MARGIN_BINS - 1)] += 1
        if length is not None:
            place_of = int(math.log(max(length, 1), LENGTH_BASE) + 1e-9)
            lengths[row][min(place_of, LENGTH_BINS - 1)] += 1
    content: dict[str, Any] = {
        "documents": len(found),
        "requests": sum(len(one.choices) or len(one.answers) or 1 for one in found),
        "flags": [flags[NO_ANSWER], flags[LENGTH_STOPPED], flags[TRUNCATED]],
    }
    if any(count for count, *_ in calibration):
        content["calibration"] = [[n, round(c, 6), r] for n, c, r in calibration]
    if any(map(any, margins)):
        content["margins"] = margins
    if any(map(any, lengths)):
        content["lengths"] = lengths
    return content
