"""Writes findings files for tests, without a scan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_eval.results.samples import document_hash
from lm_eval.tasks import TaskManager


def plant(
    path: Path,
    found: Mapping[str, Sequence[int]],
    include: Path | None = None,
    header: Mapping[str, Any] | None = None,
    **of_task: Any,
) -> Path:
    """Writes findings of these documents of these tasks, and returns the path.

    Args:
        path: the file to write.
        found: for each task, the numbers of the contaminated documents.
        include: a folder with tasks.
        header: values that replace those of the header.
        of_task: values that replace those of every task in the header.
    """
    tasks = TaskManager(include_path=include).load(list(found))["tasks"]
    first = {
        "kind": "lm-eval contamination findings",
        "format": 1,
        "lm_eval_version": "0.5.0",
        "ngram": 13,
        "normalization": "test",
        "threshold": 0.0,
        "min_words": 1,
        "corpus": {"fingerprint": "corpus", "files": [], "broken": []},
        "tasks": {},
        **(header or {}),
    }
    lines: list[dict[str, Any]] = [first]
    for name, task in tasks.items():
        docs, split = task.eval_docs, task.config.test_split
        first["tasks"][name] = {
            "version": task.VERSION,
            "split": split,
            "documents": len(docs),
            "short_documents": 0,
            "too_short_documents": 0,
            "ngrams": 4 * len(docs),
            "fingerprint": task.describe_data()["splits"][split]["fingerprint"],
            "query_hash": "texts",
            **of_task,
        }
        overlap = {"ngrams": 4, "found": 2, "overlap": 0.5, "longest": 14}
        lines += [
            {
                "task": name,
                "doc_id": number,
                "doc_hash": document_hash(docs[number]),
                "contaminated": True,
                "question": overlap,
                "with_answer": overlap,
                "short": False,
                "runs": [[0, 2]],
                "matches": [],
            }
            for number in found[name]
        ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path
