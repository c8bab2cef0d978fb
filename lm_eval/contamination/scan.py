"""Scans a corpus for the documents of tasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from lm_eval._version import __version__
from lm_eval.api.task import Task
from lm_eval.contamination.corpus import STANDARD_INPUT, CorpusPath, Shard, find_files, shards_of
from lm_eval.contamination.finding_types import (
    BrokenPlace,
    Corpus,
    CorpusFile,
    DocumentFinding,
    Findings,
    Header,
    SearchedTask,
)
from lm_eval.contamination.findings import write_findings
from lm_eval.contamination.index import MIN_WORDS, Index, Layout, Query, build_index
from lm_eval.contamination.journal import Journal, discard, partial_folder
from lm_eval.contamination.merge import corpus_fingerprint
from lm_eval.contamination.queries import describe_task, queries_of
from lm_eval.contamination.readers import ReadOptions
from lm_eval.contamination.report import FoundIn, Report
from lm_eval.contamination.shard_scan import ShardResult
from lm_eval.contamination.words import NORMALIZATION
from lm_eval.contamination.workers import available_cores, scan_shards
from lm_eval.engine.progress import progress, stage
from lm_eval.errors import ConfigError, OutputError
from lm_eval.results.samples import document_hash

logger = logging.getLogger(__name__)

#: The number of words of an n-gram in the published definition.
DEFAULT_NGRAM = 13
_MEGABYTE = 1_000_000
#: A further process is started only for this many bytes: starting it takes about a second.
_PER_WORKER = 16 * _MEGABYTE


@dataclass(frozen=True)
class ScanOptions:
    """The settings of a scan."""

    ngram: int = DEFAULT_NGRAM
    threshold: float = 0.0
    field: str = "text"
    format: str | None = None
    workers: int | None = None
    """The number of processes; None for one per core."""

    def check(self) -> None:
        """Raises `ConfigError` if a setting is not possible."""
        if self.ngram < 1:
            raise ConfigError(f"--ngram must be at least 1, not {self.ngram}.")
        if not 0 <= self.threshold <= 1:
            raise ConfigError(f"--threshold must be between 0 and 1, not {self.threshold}.")
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"--workers must be at least 1, not {self.workers}.")


@dataclass(frozen=True)
class Search:
    """What is searched for: the documents of tasks, and their index."""

    tasks: Mapping[str, Task]
    searched: dict[str, SearchedTask]
    index: Index
    layout: Layout

    @classmethod
    def of(cls, tasks: Mapping[str, Task], ngram: int) -> Search:
        """Builds the index of all evaluated documents of the tasks, with n-grams of `ngram` words.

        Raises `DataError` if the texts of a document cannot be computed.
        """
        started = time.perf_counter()
        queries: list[Query] = []
        searched: dict[str, SearchedTask] = {}
        with stage("Indexing documents"):
            for name, task in sorted(tasks.items()):
                of_task = list(queries_of(task))
                searched[name] = describe_task(task, of_task, ngram)
                queries += of_task
            index, layout = build_index(queries, ngram)
        logger.info(
            "%d tasks, %d documents: %d different n-grams and short documents indexed in %.1f s",
            len(tasks),
            len(queries),
            index.units,
            time.perf_counter() - started,
        )
        return cls(tasks, searched, index, layout)

    def documents(
        self, found: Iterable[FoundIn], threshold: float
    ) -> dict[str, dict[int, DocumentFinding]]:
        """Returns the findings of the documents of which something was found, by task and number.

        `found` are the hits of all shards, in the order of the corpus.
        """
        report = Report(self.index, self.layout, found)
        documents: dict[str, dict[int, DocumentFinding]] = {name: {} for name in self.searched}
        docs = {name: task.eval_docs for name, task in self.tasks.items()}
        for document in report.documents(threshold, lambda t, i: document_hash(docs[t][i])):
            documents[document.task][document.doc_id] = document
        return documents


def scan(
    tasks: Mapping[str, Task],
    corpus: Sequence[str],
    output: Path,
    options: ScanOptions,
    fresh: bool = False,
) -> Findings:
    """Scans a corpus for the evaluated documents of tasks, writes the findings, and returns them.

    A scan that was interrupted goes on where it was: shards that are finished are not read again.

    Args:
        tasks: the tasks by name.
        corpus: files, folders, patterns, or `-` for the standard input.
        output: the file for the findings.
        options: the settings of the scan.
        fresh: discard findings and an unfinished scan at `output`.

    Raises:
        DataError: a file of the corpus does not exist, or a document cannot be searched for. Files
            that cannot be read are listed in `Findings.header.corpus.broken` instead.
        OutputError: `output` exists, belongs to another scan, or cannot be written.
        ConfigError: a setting is not possible.
    """
    options.check()
    files = find_files(corpus, options.format)
    if fresh:
        discard(output)
    if output.exists() and not partial_folder(output).is_dir():
        raise OutputError(f"{output} exists. Give another --output, or pass --fresh to replace it.")
    search = Search.of(tasks, options.ngram)
    shards = shards_of(files)
    journal = Journal(output, {"tasks": search.index.fingerprint, "field": options.field})
    try:
        results = dict(_results(search.index, shards, options, journal))
        found = Findings(
            Header(
                ngram=options.ngram,
                normalization=NORMALIZATION,
                threshold=options.threshold,
                min_words=MIN_WORDS,
                corpus=_corpus(files, shards, results),
                tasks=search.searched,
                lm_eval_version=__version__,
            ),
            search.documents(_found_in(shards, results), options.threshold),
        )
        write_findings(output, found)
    except BaseException:
        journal.close()
        raise
    journal.remove()
    return found


def _results(
    index: Index, shards: Sequence[Shard], options: ScanOptions, journal: Journal
) -> Iterator[tuple[Shard, ShardResult]]:
    """Yields each shard with its result: those in the journal, then those that are scanned now.

    The results of the latter are added to the journal.
    """
    left: list[Shard] = []
    for shard in shards:
        result = journal.results.get(shard.key)
        if result is None or shard.path.name == STANDARD_INPUT:
            left.append(shard)
        else:
            yield shard, result
    if len(left) < len(shards):
        logger.info("%d of %d shards were scanned before.", len(shards) - len(left), len(shards))
    if not left:
        return
    started, total = time.perf_counter(), sum(shard.size for shard in left)
    workers = min(options.workers or available_cores(), 1 + total // _PER_WORKER)
    reading = ReadOptions(options.field, overlap=options.ngram - 1)
    folder = journal.folder if workers > 1 and len(left) > 1 else None
    done = text = 0
    with progress(max(1, total // _MEGABYTE), "Scanning", "megabyte") as bar:

        def read(count: int) -> None:
            nonlocal done
            bar.update((done + count) // _MEGABYTE - done // _MEGABYTE)
            done += count

        for shard, result in scan_shards(index, left, reading, workers, folder, read):
            journal.add(shard.key, result)
            text += result.size
            yield shard, result
    seconds = time.perf_counter() - started
    logger.info(
        "%.1f MB of text in %d shards scanned in %.1f s (%.1f MB/s)",
        text / _MEGABYTE,
        len(left),
        seconds,
        text / _MEGABYTE / max(seconds, 1e-9),
    )


def _found_in(shards: Sequence[Shard], results: Mapping[Shard, ShardResult]) -> Iterator[FoundIn]:
    """Yields the hits of all shards, with the numbers that records have in their files."""
    numbers: dict[str, int] = {}
    for shard in shards:
        result, name = results[shard], shard.path.name
        yield FoundIn(name, result.hits, numbers.get(name, 0), result.first_byte)
        numbers[name] = numbers.get(name, 0) + result.numbers


def _corpus(
    files: Sequence[CorpusPath], shards: Sequence[Shard], results: Mapping[Shard, ShardResult]
) -> Corpus:
    """Returns the description of the corpus for the header of the findings.

    It lists the files, with sizes and fingerprints, and the places that could not be read.
    """
    by_file: dict[str, list[ShardResult]] = {file.name: [] for file in files}
    for shard in shards:
        by_file[shard.path.name].append(results[shard])
    described: list[CorpusFile] = []
    broken: list[BrokenPlace] = []
    for file in files:
        of_file = by_file[file.name]
        described.append(
            CorpusFile(
                file.name,
                sum(result.size for result in of_file),
                sum(result.records for result in of_file),
                _fingerprint(of_file),
            )
        )
        broken += _broken(file.name, of_file)
    return Corpus(corpus_fingerprint(described), tuple(described), tuple(broken))


def _fingerprint(results: Sequence[ShardResult]) -> str:
    if len(results) == 1:
        return results[0].fingerprint
    whole = "".join(result.fingerprint for result in results)
    return xxhash.xxh3_128(whole.encode()).hexdigest()


def _broken(name: str, results: Sequence[ShardResult]) -> Iterator[BrokenPlace]:
    """Yields the first broken place of each kind in a file, with the number of all of that kind.

    `results` are those of the shards of the file `name`, in order.
    """
    first: dict[str, tuple[int, str]] = {}
    counts: dict[str, int] = {}
    before = 0
    for result in results:
        for kind, number, error, count in result.broken:
            first.setdefault(kind, (before + number, error))
            counts[kind] = counts.get(kind, 0) + count
        before += result.numbers
    for kind, (number, error) in first.items():
        # Lines are counted from 1, as editors do.
        place = f"{kind} {number + 1 if kind == 'line' else number}"
        yield BrokenPlace(name, place, error, counts[kind])
