"""Documents of one split as plain dictionaries, without the weight of a table library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

Doc = dict[str, Any]


class Rows(Sequence[Doc]):
    """A list of documents that all have the same columns; what a row lacks is None."""

    def __init__(self, rows: Sequence[Doc]) -> None:
        columns = dict.fromkeys(key for row in rows for key in row)
        self.column_names = list(columns)
        self._rows = [{name: row.get(name) for name in columns} for row in rows]

    @property
    def features(self) -> dict[str, None]:
        """The column names, as keys: what code written for `datasets.Dataset` looks for."""
        return dict.fromkeys(self.column_names)

    @overload
    def __getitem__(self, index: int) -> Doc: ...
    @overload
    def __getitem__(self, index: slice) -> list[Doc]: ...
    def __getitem__(self, index: int | slice) -> Doc | list[Doc]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Doc]:
        return iter(self._rows)


def as_dataset(split: Any) -> Any:
    """A real `datasets.Dataset`, which is what a task folder's `process_docs` is written for."""
    if not isinstance(split, Rows):
        return split
    import datasets

    return datasets.Dataset.from_list(list(split))


def columns_of(docs: Any) -> list[str]:
    """The column names of a split, whatever holds it."""
    features = getattr(docs, "features", None)
    if features is not None:
        return list(features)
    first = next(iter(docs), None)
    return list(first) if isinstance(first, dict) else []
