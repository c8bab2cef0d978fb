"""Which documents of the tasks in a run are contaminated, and whether findings fit the tasks."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval.contamination.findings import Findings
from lm_eval.errors import DataError, with_location

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskContamination:
    """What was found of the documents of one task. Numbers are indices in the evaluated split."""

    contaminated: frozenset[int]
    """The numbers of the contaminated documents."""
    overlaps: Mapping[int, float]
    """The share of n-grams found, by the number of the document; documents without any are not
    listed."""
    hashes: Mapping[int, str]
    """The hashes of the same documents, as in sample logs."""


@dataclass(frozen=True)
class Decontamination:
    """The contaminated documents of the tasks in a run."""

    source: dict[str, Any]
    """The findings that were used, as the results describe them."""
    tasks: Mapping[str, TaskContamination]
    """The tasks of the run that the findings cover."""


def choose_documents(
    path: str | Path, findings: Findings, tasks: Mapping[str, Any]
) -> Decontamination:
    """Returns which documents of `tasks` are contaminated, by the findings in the file `path`.

    Logs a warning for each task with `should_decontaminate: true` that the findings do not cover.
    Raises `DataError` if they cover none of the tasks, or if they are of other rows or another
    version of a task.
    """
    covered: dict[str, TaskContamination] = {}
    for name, task in tasks.items():
        if findings.covers(name):
            try:
                check_rows(findings, name, task)
            except DataError as error:
                raise with_location(error, path) from error
            listed = findings.of_task(name)
            covered[name] = TaskContamination(
                frozenset(findings.contaminated(name)),
                {number: document.with_answer.overlap for number, document in listed.items()},
                {number: document.doc_hash for number, document in listed.items()},
            )
        elif task.should_decontaminate():
            logger.warning(
                "task %s: sets should_decontaminate, but %s does not cover it, so it gets no clean "
                "scores. Scan the corpus for it with `lm-eval contamination scan`.",
                name,
                path,
            )
    if not covered:
        raise DataError(
            f"{path}: the findings cover none of the tasks of this run ({_some(tasks)}), only "
            f"{_some(findings.header.tasks)}. Scan the corpus for these tasks with `lm-eval "
            "contamination scan`, or pass other findings."
        )
    return Decontamination(_describe(path, findings), covered)


def _some(names: Mapping[str, Any]) -> str:
    shown = ", ".join(sorted(names)[:5])
    return f"{shown}, …" if len(names) > 5 else shown or "no task"


def _describe(path: str | Path, findings: Findings) -> dict[str, Any]:
    header = findings.header
    return {
        "findings": str(path),
        "fingerprint": hashlib.sha256(Path(path).read_bytes()).hexdigest(),
        "ngram": header.ngram,
        "threshold": header.threshold,
        "corpus": header.corpus.fingerprint,
    }


def check_rows(findings: Findings, name: str, task: Any) -> None:
    """Raises `DataError` if findings are of another version of a task, or of other rows.

    Also raises if they do not cover it. Rows are compared by their fingerprint and number; if the
    fingerprint is not known, as for documents from a sample log, only the version is compared.

    Args:
        findings: the findings.
        name: the name of the task.
        task: the task (`lm_eval.api.task.Task`).
    """
    searched = findings.searched(name)
    remedy = f"Scan the corpus again for it: `lm-eval contamination scan … --tasks {name}`."
    if searched.version != task.VERSION:
        raise DataError(
            f"the findings are of version {searched.version} of task {name!r}, whose version is "
            f"now {task.VERSION}. {remedy}"
        )
    fingerprint = rows_fingerprint(task)
    if fingerprint is None or searched.fingerprint is None:
        return
    if fingerprint != searched.fingerprint:
        raise DataError(
            f"the findings are of other rows than task {name!r} has now (fingerprint "
            f"{searched.fingerprint[:12]}, now {fingerprint[:12]}). Use the data that was searched "
            f"for. Otherwise: {remedy}"
        )
    if searched.documents != len(task.eval_docs):
        raise DataError(
            f"the findings are of {searched.documents} documents of task {name!r}, which now has "
            f"{len(task.eval_docs)}. {remedy}"
        )


def rows_fingerprint(task: Any) -> str | None:
    """Returns the fingerprint of the rows that a task evaluates, as in results files.

    None if it is not known: the documents come from a sample log, or are custom objects.
    """
    splits = task.describe_data().get("splits", {})
    names = (task.get_config("test_split"), task.get_config("validation_split"), "documents")
    found: str | None = next((splits[n]["fingerprint"] for n in names if n in splits), None)
    return found
