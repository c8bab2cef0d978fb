"""Scans a corpus for the documents of tasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lm_eval._version import __version__
from lm_eval.contamination.build_process import search_from_process
from lm_eval.contamination.corpus import STANDARD_INPUT, Shard, find_files, shards_of
from lm_eval.contamination.finding_types import Findings, Header
from lm_eval.contamination.findings import write_findings
from lm_eval.contamination.index import MIN_WORDS
from lm_eval.contamination.journal import Journal, check_output, discard, partial_folder
from lm_eval.contamination.readers import ReadOptions
from lm_eval.contamination.scanned import ScannedShards
from lm_eval.contamination.search import Search, TaskSelection
from lm_eval.contamination.words import NORMALIZATION
from lm_eval.contamination.workers import available_cores, scan_shards
from lm_eval.engine.progress import progress
from lm_eval.errors import ConfigError, OutputError

logger = logging.getLogger(__name__)

#: The number of words of an n-gram in the published definition.
DEFAULT_NGRAM = 13
_MEGABYTE = 1_000_000
#: A process is started only for this many bytes: starting it takes about a second.
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


def scan(
    tasks: TaskSelection,
    corpus: Sequence[str],
    output: Path,
    options: ScanOptions,
    fresh: bool = False,
) -> Findings:
    """Scans a corpus for the evaluated documents of tasks, writes the findings, and returns them.

    A scan that was interrupted goes on where it was: shards that are finished are not read again.

    Args:
        tasks: the tasks.
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
    check_output(output)
    files = find_files(corpus, options.format, own=(output, partial_folder(output)))
    if output.exists() and not fresh and not partial_folder(output).is_dir():
        raise OutputError(f"{output} exists. Give another --output, or pass --fresh to replace it.")
    if fresh:
        discard(output)
    shards = shards_of(files)
    journal = Journal(output)
    try:
        if _is_large(shards):
            search = search_from_process(tasks, options.ngram, journal.index_folder)
        else:
            search = Search.of(tasks.load, options.ngram)
        journal.begin({"tasks": search.index.fingerprint, "field": options.field})
        scanned = ScannedShards(shards, search.index.units)
        left = _shards_left(shards, scanned, journal)
        if left:
            _scan_shards(search, left, options, scanned, journal)
        found = Findings(
            Header(
                ngram=options.ngram,
                normalization=NORMALIZATION,
                threshold=options.threshold,
                min_words=MIN_WORDS,
                corpus=scanned.corpus(files),
                tasks=search.searched,
                lm_eval_version=__version__,
            ),
            search.documents(scanned.places, scanned.origin, options.threshold),
        )
        write_findings(output, found)
    except BaseException:
        journal.close()
        raise
    journal.remove()
    return found


def _is_large(shards: Sequence[Shard]) -> bool:
    """Returns whether a scan is worth a process for its index; its memory is then free again."""
    is_stream = any(shard.path.name == STANDARD_INPUT for shard in shards)
    return is_stream or sum(shard.size for shard in shards) >= _PER_WORKER


def _shards_left(
    shards: Sequence[Shard], scanned: ScannedShards, journal: Journal
) -> list[tuple[int, Shard]]:
    """Adds the results in the journal; returns the other shards with their numbers."""
    numbers: dict[str, int] = {}
    for key, result in journal.results():
        if not numbers:
            numbers = {shard.key: number for number, shard in enumerate(shards)}
        # The standard input cannot be read again, so what is there now is something else.
        if key in numbers and shards[numbers[key]].path.name != STANDARD_INPUT:
            scanned.add(numbers[key], result)
    left = [(number, shard) for number, shard in enumerate(shards) if not scanned.done[number]]
    if len(left) < len(shards):
        logger.info("%d of %d shards were scanned before.", len(shards) - len(left), len(shards))
    return left


def _scan_shards(
    search: Search,
    left: Sequence[tuple[int, Shard]],
    options: ScanOptions,
    scanned: ScannedShards,
    journal: Journal,
) -> None:
    """Scans shards, and adds their results."""
    started, total = time.perf_counter(), sum(shard.size for _, shard in left)
    workers = min(options.workers or available_cores(), 1 + total // _PER_WORKER, len(left))
    reading = ReadOptions(options.field, overlap=options.ngram - 1)
    done = text = 0
    with progress(max(1, total // _MEGABYTE), "Scanning", "megabyte") as bar:

        def read(count: int) -> None:
            nonlocal done
            bar.update((done + count) // _MEGABYTE - done // _MEGABYTE)
            done += count

        for number, shard, result in scan_shards(
            search.index, left, reading, workers, journal.index_folder, read
        ):
            journal.add(shard.key, result)
            scanned.add(number, result)
            text += result.size
    seconds = time.perf_counter() - started
    logger.info(
        "%.1f MB of text in %d shards scanned in %.1f s (%.1f MB/s)",
        text / _MEGABYTE,
        len(left),
        seconds,
        text / _MEGABYTE / max(seconds, 1e-9),
    )
