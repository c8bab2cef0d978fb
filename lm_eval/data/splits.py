"""The splits of one data set, each read when it is first asked for, and where they came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

Source = Literal["hub", "mirror", "files", "saved"]


@dataclass(frozen=True)
class Origin:
    """Where the rows came from, as a results file tells it."""

    source: Source
    path: str
    name: str | None = None
    #: The commit of the data set, where the hub or the mirror knows it.
    revision: str | None = None


class Splits(MutableMapping[str, Any]):
    """Splits by name. A large training split costs nothing until examples are drawn from it."""

    def __init__(self, origin: Origin, readers: Mapping[str, Callable[[], Any]]) -> None:
        self.origin = origin
        self._readers = dict(readers)
        self._read: dict[str, Any] = {}

    @classmethod
    def of(cls, origin: Origin, splits: Mapping[Any, Any]) -> Splits:
        """Splits that are there already."""
        return cls(origin, {str(name): partial(splits.__getitem__, name) for name in splits})

    def __getitem__(self, split: str) -> Any:
        if split not in self._read:
            self._read[split] = self._readers[split]()
        return self._read[split]

    def __setitem__(self, split: str, rows: Any) -> None:
        """Put other rows in the place of a split, as people do who look at a few documents."""
        self._readers[split] = partial({split: rows}.__getitem__, split)
        self._read.pop(split, None)

    def __delitem__(self, split: str) -> None:
        del self._readers[split]
        self._read.pop(split, None)

    def __contains__(self, split: object) -> bool:
        return split in self._readers  # without reading it

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)
