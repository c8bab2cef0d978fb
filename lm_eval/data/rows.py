"""The documents of one split as dictionaries, without the overhead of `datasets.Dataset`."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from lm_eval.data.plain_tables import is_plain
from lm_eval.data.row_hash import hash_table
from lm_eval.errors import DataError

Doc = dict[str, Any]

#: Number of rows that are converted to dictionaries at a time when a table is iterated.
_ROWS_PER_CHUNK = 1024


class _DatasetLike(Sequence[Doc]):
    """Documents with the attributes of a `datasets.Dataset`.

    Attributes that this class does not have, such as `filter` or `shuffle`, are looked up in a
    `datasets.Dataset` that is built on first use.
    """

    column_names: list[str]
    dataset: Any = None
    """The documents as a `datasets.Dataset`; None until it is needed."""

    @abc.abstractmethod
    def build_dataset(self) -> Any:
        """Returns a new `datasets.Dataset` with these documents."""

    def get_dataset(self) -> Any:
        """Returns the `datasets.Dataset` with these documents; it is built on the first call."""
        if self.dataset is None:
            self.dataset = self.build_dataset()
        return self.dataset

    @property
    def features(self) -> dict[str, None]:
        """A dictionary with the column names as keys, for code that reads `Dataset.features`."""
        return dict.fromkeys(self.column_names)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        import datasets

        if not hasattr(datasets.Dataset, name):
            raise AttributeError(
                f"neither {type(self).__name__} nor datasets.Dataset has the attribute {name!r}."
            )
        return getattr(as_dataset(self), name)


class Rows(_DatasetLike):
    """Documents in a list. All get the same columns; missing values are None."""

    def __init__(self, rows: Sequence[Doc]) -> None:
        columns = dict.fromkeys(key for row in rows for key in row)
        self.column_names = list(columns)
        self._rows = [{name: row.get(name) for name in columns} for row in rows]

    def build_dataset(self) -> Any:
        """Returns a new `datasets.Dataset` with these documents, in memory."""
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


class TableRows(_DatasetLike):
    """The rows of an Arrow table, converted to dictionaries when they are accessed.

    Only for tables with plain values (`plain_tables.is_plain`), for which `datasets` would return
    the same dictionaries. `dataset` is the `datasets.Dataset` of the table, if there is one.
    """

    def __init__(self, table: Any, dataset: Any = None) -> None:
        self.table = table
        self.dataset = dataset
        self.column_names = list(table.column_names)
        self._row_hash: str | None = None

    def row_hash(self) -> str:
        """Returns a SHA-256 hash of the rows; it is computed on the first call."""
        if self._row_hash is None:
            self._row_hash = hash_table(self.table)
        return self._row_hash

    def build_dataset(self) -> Any:
        """Returns a new `datasets.Dataset` with the rows of the table, in memory."""
        return to_dataset(self.table, self.row_hash())

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
            raise IndexError(f"there is no document {index}: the split has {len(self)} documents")
        row: Doc = self.table.slice(number, 1).to_pylist()[0]
        return row

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Doc]:
        for batch in self.table.to_batches(max_chunksize=_ROWS_PER_CHUNK):
            yield from batch.to_pylist()


def to_dataset(table: Any, row_hash: str | None = None) -> Any:
    """Returns an Arrow table as a `datasets.Dataset` in memory.

    Its fingerprint is the first 16 digits of the hash of its rows (`hash_table`), which is computed
    unless it is given.
    """
    import datasets
    from datasets.table import InMemoryTable

    row_hash = row_hash or hash_table(table)
    return datasets.Dataset(InMemoryTable(table), fingerprint=row_hash[:16])


def as_dataset(split: Any) -> Any:
    """Returns a split as a `datasets.Dataset`, which `process_docs` functions expect.

    Anything but `Rows` and `TableRows` is returned as it is.
    """
    return split.get_dataset() if isinstance(split, _DatasetLike) else split


def without_dataset_overhead(split: Any) -> Any:
    """Returns a `datasets.Dataset` as `TableRows`, whose rows are faster to access.

    It is returned as it is if `datasets` would convert values or if it has a format, and so is
    anything that is not a `Dataset`.
    """
    if isinstance(split, _DatasetLike) or not hasattr(split, "with_format"):
        return split
    shown = split.format
    if shown["type"] is not None or list(shown["columns"]) != split.column_names:
        return split
    if not is_plain(split.features.arrow_schema):
        return split
    return TableRows(split.with_format("arrow")[:], split)


def process_split(split: Any, process: Callable[..., Any] | None) -> Any:
    """Returns the documents of a split after `process`, the task's `process_docs` function or None.

    The function gets a `datasets.Dataset`. Its result, or the split without a function, is
    converted to `TableRows` if that changes no values.
    """
    if process is None:
        return without_dataset_overhead(split)
    from lm_eval.data.library import progress_bars_only_on_terminal
    from lm_eval.data.quick_map import quick

    with progress_bars_only_on_terminal():
        return without_dataset_overhead(process(quick(as_dataset(split))))


def as_dataset_dict(splits: Mapping[str, Any]) -> Any:
    """Returns the splits as a `datasets.DatasetDict`, for task classes written in Python."""
    import datasets

    return datasets.DatasetDict({name: as_dataset(splits[name]) for name in splits})


def columns_of(docs: Any) -> list[str]:
    """Returns the column names of a split: of its features, or else of its first document.

    Empty if there are no documents or they are not dictionaries.
    """
    features = getattr(docs, "features", None)
    if features is not None:
        return list(features)
    first = next(iter(docs), None)
    return list(first) if isinstance(first, dict) else []


def missing_file_error(named: object, searched: Sequence[Path] = ()) -> DataError:
    """Returns the `DataError` for a missing data file, called `named` by the task.

    The message lists the folders `searched`, if there are any.
    """
    looked = f" Searched: {', '.join(map(str, searched))}." if searched else ""
    return DataError(f"there is no data file {named}.{looked}")
