"""Documents of one split as plain dictionaries, without the weight of a table library."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from lm_eval.data.plain_tables import is_plain
from lm_eval.data.row_hash import hash_table
from lm_eval.errors import DataError

Doc = dict[str, Any]

#: Rows turned into dictionaries at a time, when a table is walked through.
_STRIDE = 1024


class _LikeDataset(Sequence[Doc]):
    """Documents that become a `datasets.Dataset` where somebody asks for what only that can do."""

    column_names: list[str]
    dataset: Any = None
    """The same as a `datasets.Dataset`, once it was asked for."""

    @abc.abstractmethod
    def make_dataset(self) -> Any: ...

    def keep_dataset(self) -> Any:
        """Returns the `datasets.Dataset`, made on the first call and kept."""
        if self.dataset is None:
            self.dataset = self.make_dataset()
        return self.dataset

    @property
    def features(self) -> dict[str, None]:
        """The column names, as keys: what code written for `datasets.Dataset` looks for."""
        return dict.fromkeys(self.column_names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        import datasets

        if not hasattr(datasets.Dataset, name):
            raise AttributeError(f"documents have no {name!r}, nor has datasets.Dataset.")
        return getattr(as_dataset(self), name)


class Rows(_LikeDataset):
    """A list of documents that all have the same columns; what a row lacks is None."""

    def __init__(self, rows: Sequence[Doc]) -> None:
        columns = dict.fromkeys(key for row in rows for key in row)
        self.column_names = list(columns)
        self._rows = [{name: row.get(name) for name in columns} for row in rows]

    def make_dataset(self) -> Any:
        import datasets

        return datasets.Dataset.from_list(self._rows)

    @overload
    def __getitem__(self, index: int) -> Doc: ...
    @overload
    def __getitem__(self, index: slice) -> list[Doc]: ...
    @overload
    def __getitem__(self, index: str) -> list[Any]: ...
    def __getitem__(self, index: int | slice | str) -> Doc | list[Any]:
        if isinstance(index, str):
            return [row[index] for row in self._rows]
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Doc]:
        return iter(self._rows)


class TableRows(_LikeDataset):
    """The rows of an Arrow table, made into dictionaries when they are looked at.

    Only for tables of plain values, where the dictionaries are those `datasets` would give
    (`plain_tables.is_plain`). `dataset` is the library's own view of them, where there is one.
    """

    def __init__(self, table: Any, dataset: Any = None) -> None:
        self.table = table
        self.dataset = dataset
        self.column_names = list(table.column_names)

    def make_dataset(self) -> Any:
        return to_dataset(self.table)

    @overload
    def __getitem__(self, index: int) -> Doc: ...
    @overload
    def __getitem__(self, index: slice) -> list[Doc]: ...
    @overload
    def __getitem__(self, index: str) -> list[Any]: ...
    def __getitem__(self, index: int | slice | str) -> Doc | list[Any]:
        if isinstance(index, str):
            column: list[Any] = self.table.column(index).to_pylist()
            return column
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"document {index} of {len(self)}")
        row: Doc = self.table.slice(number, 1).to_pylist()[0]
        return row

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Doc]:
        for batch in self.table.to_batches(max_chunksize=_STRIDE):
            yield from batch.to_pylist()


def to_dataset(table: Any) -> Any:
    """Returns a `datasets.Dataset` in memory; its fingerprint is the hash of its rows."""
    import datasets
    from datasets.table import InMemoryTable

    return datasets.Dataset(InMemoryTable(table), fingerprint=hash_table(table)[:16])


def as_dataset(split: Any) -> Any:
    """A real `datasets.Dataset`, which is what a task folder's `process_docs` is written for."""
    return split.keep_dataset() if isinstance(split, _LikeDataset) else split


def without_library(split: Any) -> Any:
    """The same rows without the library's cost for each, where it would not change their values."""
    if isinstance(split, _LikeDataset) or not hasattr(split, "with_format"):
        return split
    shown = split.format
    if shown["type"] is not None or list(shown["columns"]) != split.column_names:
        return split
    if not is_plain(split.features.arrow_schema):
        return split
    return TableRows(split.with_format("arrow")[:], split)


def process_split(split: Any, process: Callable[..., Any] | None) -> Any:
    """A split after a task folder's `process_docs`, which is given a real `datasets.Dataset`."""
    if process is None:
        return without_library(split)
    from lm_eval.data.library import quiet_in_a_pipe
    from lm_eval.data.quick_map import quick

    with quiet_in_a_pipe():
        return without_library(process(quick(as_dataset(split))))


def as_dataset_dict(splits: Mapping[str, Any]) -> Any:
    """A real `datasets.DatasetDict`, for tasks written in Python: they may do anything with it."""
    import datasets

    return datasets.DatasetDict({name: as_dataset(splits[name]) for name in splits})


def columns_of(docs: Any) -> list[str]:
    """The column names of a split, whatever holds it."""
    features = getattr(docs, "features", None)
    if features is not None:
        return list(features)
    first = next(iter(docs), None)
    return list(first) if isinstance(first, dict) else []


def no_file(named: object, searched: Sequence[Path] = ()) -> DataError:
    """Returns the error about a missing data file, with the folders that were searched for it."""
    looked = f" Searched: {', '.join(map(str, searched))}." if searched else ""
    return DataError(f"there is no data file {named}.{looked}")
