"""What a results file says of a task's data: where it came from, and a hash of its rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lm_eval.data.row_hash import hash_table, hash_values
from lm_eval.data.rows import Rows, TableRows
from lm_eval.data.splits import Origin


def describe(dataset: Any, origin: Origin | None, used: Iterable[str]) -> dict[str, Any]:
    """What a results file says of a task's data: source, revision, and the rows of each split.

    Splits that nothing was taken from are left out: they played no part.
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
    """64 hexadecimal digits that stand for the rows of a split."""
    if isinstance(split, TableRows):
        return hash_table(split.table)
    if not isinstance(split, Rows) and hasattr(split, "with_format"):
        return hash_table(split.with_format("arrow")[:])  # `datasets.Dataset`, or part of one
    return hash_values(list(split))


def describe_documents(docs: Any, origin: Origin | None) -> dict[str, Any]:
    """For a task written in Python, whose splits are its own affair: the documents it gives."""
    known = isinstance(docs, (Rows, TableRows)) or hasattr(docs, "with_format")
    if isinstance(docs, list):  # objects of its own may look different each time
        known = all(isinstance(doc, (dict, str)) for doc in docs)
    return describe({"documents": docs}, origin, ["documents"] if known else [])
