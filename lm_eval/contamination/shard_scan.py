"""Scans one shard, and the result of that as JSON for the journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lm_eval.contamination.corpus import Shard
from lm_eval.contamination.index import Index
from lm_eval.contamination.matcher import Hits, Matcher
from lm_eval.contamination.readers import ReadOptions, ShardReader


@dataclass(frozen=True)
class ShardResult:
    """What a shard contains, and what was found in it."""

    size: int
    records: int
    numbers: int
    first_byte: int
    fingerprint: str
    broken: list[tuple[str, int, str, int]]
    """(kind of place, its number in the shard, error, how many such errors)."""
    hits: Hits

    def to_json(self) -> dict[str, Any]:
        """Returns the result as values for JSON."""
        return {**vars(self), "hits": vars(self.hits)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> ShardResult:
        """Returns a result from the values of `to_json`.

        Raises `KeyError` or `TypeError` if they have other keys.
        """
        hits = dict(values["hits"])
        hits["passages"] = [tuple(passage) for passage in hits["passages"]]
        broken = [tuple(place) for place in values["broken"]]
        return cls(**{**values, "broken": broken, "hits": Hits(**hits)})


def scan_shard(
    index: Index, shard: Shard, options: ReadOptions, progress: Callable[[int], object]
) -> ShardResult:
    """Reads a shard, a file of the corpus or a range of one, and returns what was found in it.

    That is the units of `index` (n-grams and short documents) that it contains, with the number of
    records, and the places that could not be read. `progress` is
    called with the number of bytes read since its last call, compressed ones if the file is
    compressed; in total they are `shard.size`.
    """
    reader, matcher = ShardReader(shard, options), Matcher(index)
    reported = 0
    for _ in matcher.feed(reader.pieces()):
        position = min(reader.position, shard.size)
        if position > reported:
            progress(position - reported)
            reported = position
    progress(shard.size - reported)
    return ShardResult(
        size=reader.size,
        records=reader.records,
        numbers=reader.numbers,
        first_byte=reader.first_byte,
        fingerprint=reader.fingerprint,
        broken=_counted(reader.broken),
        hits=matcher.hits,
    )


def _counted(broken: list[tuple[str, int, str]]) -> list[tuple[str, int, str, int]]:
    """Returns (kind, number, error, count) of the first broken place of each kind.

    `broken` has (kind, number, error) of all; `count` is how many of them have the kind.
    """
    first: dict[str, tuple[str, int, str, int]] = {}
    for kind, number, error in broken:
        before = first.setdefault(kind, (kind, number, error, 0))
        first[kind] = (*before[:3], before[3] + 1)
    return list(first.values())
