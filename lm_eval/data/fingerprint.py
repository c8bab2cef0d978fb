"""Describes a task's data for the results file: its source, and a hash of its rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lm_eval.data.row_hash import hash_table, hash_values
from lm_eval.data.rows import Rows, TableRows
from lm_eval.data.splits import Origin


def describe(dataset: Any, origin: Origin | None, used: Iterable[str]) -> dict[str, Any]:
    """Returns a task's entry under `datasets` in the results file.

    Args:
        dataset: the splits by name.
        origin: the source of the data; None if a function of the task created it.
        used: the names of the splits that the run used. The others are left out.

    Returns:
        `source`, `path`, `name` and `revision` of the data, and `splits`: for each split the number
        of `rows` and their `fingerprint`.
    """
    described: dict[str, Any] = {
        "source": origin.source if origin else "function",
        "path": origin.path if origin else None,
        "name": origin.name if origin else None,
        "revision": origin.revision if origin else None,
    }
    described["splits"] = {
        split: {"rows": len(dataset[split]), "fingerprint": fingerprint(dataset[split])}
        for split in used
    }
    return described


def fingerprint(split: Any) -> str:
    """Returns a SHA-256 hash (64 hexadecimal digits) of the rows of a split.

    It is the same for the same rows in a table and in a list of dictionaries.
    """
    if isinstance(split, TableRows):
        return split.row_hash()
    if not isinstance(split, Rows) and hasattr(split, "with_format"):
        return hash_table(split.with_format("arrow")[:])  # `datasets.Dataset`, or part of one
    return hash_values(list(split))


def describe_documents(docs: Any, origin: Origin | None) -> dict[str, Any]:
    """Returns a task's entry under `datasets` in the results file, for a task class in Python.

    Like `describe`, but its splits are not known, so its evaluation documents `docs` are described
    as one split, `documents`. `splits` is empty if they cannot be hashed, such as custom objects.
    """
    known = isinstance(docs, (Rows, TableRows)) or hasattr(docs, "with_format")
    if isinstance(docs, list):  # custom objects may have a different repr each time
        known = all(isinstance(doc, (dict, str)) for doc in docs)
    return describe({"documents": docs}, origin, ["documents"] if known else [])
