"""What is kept of the shards that were scanned: a few numbers, and the first places of units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import xxhash
from numpy.typing import NDArray

from lm_eval.contamination.corpus import CorpusPath, Shard
from lm_eval.contamination.finding_types import BrokenPlace, Corpus, CorpusFile
from lm_eval.contamination.merge import corpus_fingerprint
from lm_eval.contamination.places import Places
from lm_eval.contamination.report import Origin
from lm_eval.contamination.shard_scan import ShardResult

_DIGEST = 16  # bytes of the fingerprint of a shard


class ScannedShards:
    """The results of shards, in little memory. Shards are identified by their number."""

    def __init__(self, shards: Sequence[Shard], units: int) -> None:
        self._shards = shards
        self.places = Places(units)
        #: Which shards were scanned.
        self.done: NDArray[np.bool_] = np.zeros(len(shards), dtype=bool)
        self._size, self._records, self._numbers, self._first_byte = np.zeros(
            (4, len(shards)), dtype=np.int64
        )  # as in `ShardResult`
        self._first_of_file: NDArray[np.int32] = np.zeros(len(shards), dtype=np.int32)
        for number in range(1, len(shards)):
            same = shards[number].path is shards[number - 1].path
            self._first_of_file[number] = self._first_of_file[number - 1] if same else number
        self._digests = np.zeros((len(shards), _DIGEST), dtype=np.uint8)
        self._broken: dict[int, list[tuple[str, int, str, int]]] = {}

    def add(self, shard: int, result: ShardResult) -> None:
        """Adds the result of a shard."""
        self.done[shard] = True
        self._size[shard], self._records[shard] = result.size, result.records
        self._numbers[shard], self._first_byte[shard] = result.numbers, result.first_byte
        self._digests[shard] = np.frombuffer(bytes.fromhex(result.fingerprint), dtype=np.uint8)
        if result.broken:
            self._broken[shard] = result.broken
        self.places.add(shard, result.hits)

    def origin(self, shard: int) -> Origin:
        """Returns where a shard is in the corpus; all shards before it must have been added."""
        records = int(self._numbers[self._first_of_file[shard] : shard].sum())
        name = self._shards[shard].path.name
        return Origin(name, records, int(self._first_byte[shard]))

    def corpus(self, files: Sequence[CorpusPath]) -> Corpus:
        """Returns the description of the corpus; all shards must have been added."""
        described: list[CorpusFile] = []
        broken: list[BrokenPlace] = []
        end = 0
        for file in files:
            begin = end
            while end < len(self._shards) and self._shards[end].path is file:
                end += 1
            described.append(
                CorpusFile(
                    file.name,
                    int(self._size[begin:end].sum()),
                    int(self._records[begin:end].sum()),
                    self._fingerprint(begin, end),
                )
            )
            broken += self._broken_places(file.name, begin, end)
        return Corpus(corpus_fingerprint(described), tuple(described), tuple(broken))

    def _fingerprint(self, begin: int, end: int) -> str:
        whole = self._digests[begin:end].tobytes().hex()
        return whole if end == begin + 1 else xxhash.xxh3_128(whole.encode()).hexdigest()

    def _broken_places(self, name: str, begin: int, end: int) -> Iterator[BrokenPlace]:
        """Yields the first broken place of each kind in a file, and how many of it there are."""
        first: dict[str, tuple[int, str]] = {}
        counts: dict[str, int] = {}
        before = np.cumsum(self._numbers[begin:end]) - self._numbers[begin:end]
        for shard in range(begin, end):
            for kind, number, error, count in self._broken.get(shard, ()):
                first.setdefault(kind, (int(before[shard - begin]) + number, error))
                counts[kind] = counts.get(kind, 0) + count
        for kind, (number, error) in first.items():
            # Lines are counted from 1, as editors do.
            place = f"{kind} {number + 1 if kind == 'line' else number}"
            yield BrokenPlace(name, place, error, counts[kind])
