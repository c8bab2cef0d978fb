"""Reads the samples that an export converts, and checks that they are whole."""

from __future__ import annotations

from typing import Any

from lm_eval.errors import DataError, OutputError
from lm_eval.results.stored_results import StoredResults

#: The fields of a sample that exports read, besides `arguments`. Versions of the published harness
#: differ in the others.
_FIELDS = ("doc_id", "target", "resps", "filtered_resps")


def logged_samples(stored: StoredResults, task: str) -> list[dict[str, Any]]:
    """Returns the samples of a task; none for a group, and without a sample log.

    Raises `DataError` if the log cannot be read, or a sample lacks a field that exports need.
    """
    if task not in stored.tasks:
        return []
    try:
        samples = stored.read_samples(task)
    except OutputError:  # made without --log_samples, or the logs were not copied with the results
        return []
    for number, sample in enumerate(samples, start=1):
        if wrong := _wrong_field(sample):
            raise DataError(
                f"{stored.file}: sample {number} in the log of task {task!r} has no usable "
                f"`{wrong}`, so it cannot be exported. Export the log as lm_eval wrote it, or move "
                "the logs away to export the scores alone."
            )
    return samples


def _wrong_field(sample: dict[str, Any]) -> str | None:
    """Returns the first field that is missing or of another type; None if there is none."""
    for name in _FIELDS:
        if name not in sample:
            return name
    for name in ("resps", "filtered_resps"):
        if not isinstance(sample[name], (list, tuple)):
            return name
    requests = sample["arguments"]  # a list of lists: `read_samples` makes it one
    return None if requests and all(requests) else "arguments"
