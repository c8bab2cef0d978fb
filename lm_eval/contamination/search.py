"""What a scan searches for: the documents of tasks, and their index."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lm_eval.api.task import Task
from lm_eval.contamination.finding_types import DocumentFinding, SearchedTask
from lm_eval.contamination.index import Index, Layout, Query, build_index
from lm_eval.contamination.places import Places
from lm_eval.contamination.queries import describe_task, queries_of
from lm_eval.contamination.report import Origin, Report
from lm_eval.engine.progress import stage
from lm_eval.results.samples import document_hash

logger = logging.getLogger(__name__)

_DIGEST = 32  # bytes of SHA-256


@dataclass(frozen=True)
class Search:
    """The index of the documents of tasks, and what the findings say about these documents.

    It holds neither the tasks nor their rows, so that their memory is free during a scan.
    """

    searched: dict[str, SearchedTask]
    digests: Mapping[str, bytes]
    """The hashes of each task's documents, one after the other."""
    index: Index
    layout: Layout

    @classmethod
    def of(cls, tasks: Mapping[str, Task], ngram: int) -> Search:
        """Returns the search for all evaluated documents of the tasks."""
        started = time.perf_counter()
        queries: list[Query] = []
        searched: dict[str, SearchedTask] = {}
        digests: dict[str, bytes] = {}
        with stage("Indexing documents"):
            for name, task in sorted(tasks.items()):
                of_task = list(queries_of(task))
                searched[name] = describe_task(task, of_task, ngram)
                digests[name] = b"".join(bytes.fromhex(document_hash(d)) for d in task.eval_docs)
                queries += of_task
            index, layout = build_index(queries, ngram)
        logger.info(
            "%d tasks, %d documents: %d different n-grams and short documents indexed in %.1f s; "
            "the index takes %.0f MB",
            len(tasks),
            len(queries),
            index.units,
            time.perf_counter() - started,
            index.nbytes / 1e6,
        )
        return cls(searched, digests, index, layout)

    def mapped(self, folder: Path) -> Search:
        """Returns the search with an index in files, whose memory other processes can share."""
        return replace(self, index=self.index.mapped(folder))

    def documents(
        self, places: Places, origin_of: Callable[[int], Origin], threshold: float
    ) -> dict[str, dict[int, DocumentFinding]]:
        """Returns the findings of documents, by task and number."""
        report = Report(self.index, self.layout, places, origin_of)
        documents: dict[str, dict[int, DocumentFinding]] = {name: {} for name in self.searched}
        for document in report.documents(threshold, self._hash_of):
            documents[document.task][document.doc_id] = document
        return documents

    def _hash_of(self, task: str, doc_id: int) -> str:
        return self.digests[task][doc_id * _DIGEST : (doc_id + 1) * _DIGEST].hex()
