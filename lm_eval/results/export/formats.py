"""The formats of `lm-eval export`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from lm_eval.errors import ConfigError
from lm_eval.results.export import csv_table, every_eval_ever, hub_eval_results, published
from lm_eval.results.export.options import ExportOptions
from lm_eval.results.files import write_atomically
from lm_eval.results.stored_results import StoredResults

Export = Callable[[StoredResults, ExportOptions], Iterator[tuple[str, str]]]

FORMATS: dict[str, Export] = {
    "every-eval-ever": every_eval_ever.export,
    "hf-eval-results": hub_eval_results.export,
    "csv": csv_table.export,
    "lm-eval": published.export,
}
"""For each format a function that yields its files: relative path and text."""


def write_export(
    stored: StoredResults, name: str, folder: Path, options: ExportOptions
) -> list[Path]:
    """Writes the files of a format to a folder; returns their paths.

    Raises `ConfigError` if the results have nothing to export in this format.
    """
    written = []
    for path, text in FORMATS[name](stored, options):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, [text])
        written.append(file)
    if not written:
        raise ConfigError(f"{stored.file}: has no scores to export. Check --metrics.")
    return written
