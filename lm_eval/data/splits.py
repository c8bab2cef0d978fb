"""The splits of one dataset, each read on first access, and the source of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

Source = Literal["hub", "mirror", "files", "saved"]


@dataclass(frozen=True)
class Origin:
    """The source of a dataset, as written to the results file."""

    source: Source
    #: The name of the dataset on the hub, a folder, or a file format.
    path: str
    #: The configuration of the dataset.
    name: str | None = None
    #: The commit of the dataset, if the hub or the mirror knows it.
    revision: str | None = None


class Splits(MutableMapping[str, Any]):
    """The splits of a dataset by name. Each is read on first access and then kept.

    Args:
        origin: the source of the data.
        readers: for each split, a function that reads it.
    """

    def __init__(self, origin: Origin, readers: Mapping[str, Callable[[], Any]]) -> None:
        self.origin = origin
        self._readers = dict(readers)
        self._read: dict[str, Any] = {}

    @classmethod
    def of(cls, origin: Origin, splits: Mapping[Any, Any]) -> Splits:
        """Returns a `Splits` of splits that are already loaded."""
        return cls(origin, {str(name): partial(splits.__getitem__, name) for name in splits})

    def __getitem__(self, split: str) -> Any:
        if split not in self._read:
            self._read[split] = self._readers[split]()
        return self._read[split]

    def __setitem__(self, split: str, rows: Any) -> None:
        """Replaces the rows of a split, for example to evaluate only a few documents."""
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
