"""What a scan searches for: the documents of tasks, and their index."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lm_eval.api.task import Task
from lm_eval.contamination.finding_types import DocumentFinding, SearchedTask
from lm_eval.contamination.index import Index, Layout, Query, build_index
from lm_eval.contamination.places import Places
from lm_eval.contamination.queries import describe_task, queries_of
from lm_eval.contamination.report import Origin, Report
from lm_eval.data import mirror_at
from lm_eval.engine.progress import stage
from lm_eval.results.samples import document_hash
from lm_eval.tasks.manager import TaskManager

logger = logging.getLogger(__name__)

_DIGEST = 32  # bytes of SHA-256
#: The file with what is not an array of the index.
_REST = "search.pickle"


@dataclass(frozen=True)
class TaskSelection:
    """The tasks whose documents are searched for, and where they are found."""

    names: tuple[str, ...]
    """As in `TaskManager.load`."""
    include_path: tuple[str, ...] = ()
    data_dir: str | None = None
    """A mirror of the datasets; None for the hub."""

    def load(self) -> dict[str, Task]:
        """Returns the tasks by name."""
        with mirror_at(self.data_dir):
            manager = TaskManager(include_path=list(self.include_path))
            return dict(manager.load(list(self.names))["tasks"])


@dataclass(frozen=True)
class Documents:
    """The documents of tasks, without the tasks and their rows."""

    queries: list[Query]
    searched: dict[str, SearchedTask]
    digests: dict[str, bytes]
    """The hashes of each task's documents, one after the other."""

    @classmethod
    def of(cls, tasks: Mapping[str, Task], ngram: int) -> Documents:
        """Returns the evaluated documents of the tasks."""
        documents = cls([], {}, {})
        for name, task in sorted(tasks.items()):
            queries = list(queries_of(task))
            documents.queries.extend(queries)
            documents.searched[name] = describe_task(task, queries, ngram)
            documents.digests[name] = b"".join(
                bytes.fromhex(document_hash(doc)) for doc in task.eval_docs
            )
        return documents


@dataclass(frozen=True)
class Search:
    """The index of the documents of tasks, and what the findings say about these documents."""

    searched: dict[str, SearchedTask]
    digests: dict[str, bytes]
    """As in `Documents`."""
    index: Index
    layout: Layout

    @classmethod
    def of(cls, load_tasks: Callable[[], Mapping[str, Task]], ngram: int) -> Search:
        """Returns the search for all evaluated documents of the tasks.

        The memory of the tasks that `load_tasks` returns is free when their documents are read.
        """
        tasks = load_tasks()
        started, count = time.perf_counter(), len(tasks)
        with stage("Indexing documents"):
            documents = Documents.of(tasks, ngram)
            del tasks
            index, layout = build_index(documents.queries, ngram)
        logger.info(
            "%d tasks, %d documents: %d different n-grams and short documents indexed in %.1f s; "
            "the index takes %.0f MB",
            count,
            layout.documents,
            index.units,
            time.perf_counter() - started,
            index.nbytes / 1e6,
        )
        return cls(documents.searched, documents.digests, index, layout)

    def save(self, folder: Path) -> None:
        """Writes the search to files, for `load`."""
        self.index.save(folder)
        rest = (self.index.settings, self.searched, self.digests, self.layout)
        (folder / _REST).write_bytes(pickle.dumps(rest, pickle.HIGHEST_PROTOCOL))

    @classmethod
    def load(cls, folder: Path) -> Search:
        """Returns the search in `folder`; other processes that load it share its memory."""
        settings, searched, digests, layout = pickle.loads((folder / _REST).read_bytes())
        return cls(searched, digests, Index.load(folder, settings), layout)

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
