"""Exports scores as a CSV file with one line per score."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict, fields

from lm_eval.results.export.options import ExportOptions
from lm_eval.results.score_rows import ScoreRow
from lm_eval.results.stored_results import StoredResults


def export(stored: StoredResults, options: ExportOptions) -> Iterator[tuple[str, str]]:
    """Yields `scores.csv`: the columns are the model and the fields of `ScoreRow`."""
    text = io.StringIO()
    names = ["model", *(field.name for field in fields(ScoreRow))]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for row in stored.scores():
        if options.metrics is None or row.metric in options.metrics:
            writer.writerow({"model": stored.model, **asdict(row)})
    yield "scores.csv", text.getvalue()
