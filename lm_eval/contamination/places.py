"""Where each unit occurs first in the corpus."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lm_eval.contamination.hashing import Positions
from lm_eval.contamination.matcher import Hits


@dataclass(frozen=True)
class _Kept:
    """The hits of a shard that are the first ones of their units."""

    records: Positions
    words: Positions
    passage_of: Positions
    """The number of each hit's passage in `passages`."""
    passages: list[tuple[int, str]]
    """(offset in the record in bytes, text)."""


class Places:
    """The first place of every unit that was found.

    Shards are numbered in the order of the corpus and may be added in any order: the result is the
    same. What is kept grows with the number of units that were found, not with the corpus.
    """

    def __init__(self, units: int) -> None:
        self._shard_of: NDArray[np.int32] = np.full(units, -1, dtype=np.int32)
        self._hit_of: NDArray[np.int32] = np.zeros(units, dtype=np.int32)
        self._kept: dict[int, _Kept] = {}

    def add(self, shard: int, hits: Hits) -> None:
        """Adds the hits of a shard. Those of units that occur in an earlier shard are dropped."""
        units = np.array(hits.units, dtype=np.int64)
        before = self._shard_of[units]
        first = np.flatnonzero((before < 0) | (before > shard))
        if not len(first):
            return
        self._shard_of[units[first]] = shard
        self._hit_of[units[first]] = np.arange(len(first))
        # A passage belongs to all hits from its first one to that of the next passage.
        begins = [begin for begin, _, _ in hits.passages]
        shown, passage_of = np.unique(
            np.searchsorted(begins, first, side="right") - 1, return_inverse=True
        )
        self._kept[shard] = _Kept(
            np.array(hits.records, dtype=np.int64)[first],
            np.array(hits.words, dtype=np.int64)[first],
            passage_of,
            [hits.passages[number][1:] for number in shown.tolist()],
        )

    def found(self, units: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Returns which of the units were found."""
        found: NDArray[np.bool_] = self._shard_of[units] >= 0
        return found

    def place(self, unit: int) -> tuple[int, int, int]:
        """Returns the shard, the record in the shard and the number of the word of a unit."""
        shard, hit = int(self._shard_of[unit]), int(self._hit_of[unit])
        kept = self._kept[shard]
        return shard, int(kept.records[hit]), int(kept.words[hit])

    def passage(self, unit: int) -> tuple[int, str]:
        """Returns the offset in the record and the text of the passage that shows a unit."""
        kept = self._kept[int(self._shard_of[unit])]
        return kept.passages[int(kept.passage_of[int(self._hit_of[unit])])]
