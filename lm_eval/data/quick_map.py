"""`Dataset.map` as task folders use it, without the library's cost for each document.

Most `process_docs` functions are one `dataset.map(function)`. The library reads, formats and writes
each document by itself, which costs more than the function; a plain loop gives the same rows ten
times sooner. Whatever is not that simple goes to the library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import datasets
import pyarrow
from datasets.table import InMemoryTable

from lm_eval.data.parquet import is_plain


class QuickDataset(datasets.Dataset):  # type: ignore[misc]
    """A real `Dataset` whose `map` of one function over plain columns is a loop."""

    def map(self, function: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        table = None if function is None or args or kwargs else self._loop(function)
        if table is None:
            return super().map(function, *args, **kwargs)
        return quick(datasets.Dataset(InMemoryTable(table)))

    def _loop(self, function: Callable[..., Any]) -> Any:
        """The mapped rows as a table; None where only the library knows what they are."""
        if not len(self) or self.format["type"] is not None or not is_plain(self.data.schema):
            return None
        rows = []
        for row in self.with_format("arrow")[:].to_pylist():
            made = function(row)
            if not isinstance(made, Mapping):
                return None
            rows.append({**row, **made})
        columns = rows[0].keys()
        if any(row.keys() != columns for row in rows):
            return None
        try:
            made_table = pyarrow.Table.from_pylist(rows)
        except (pyarrow.ArrowException, TypeError, ValueError):
            return None
        return made_table if is_plain(made_table.schema) else None


def quick(dataset: Any) -> Any:
    """The same data set with the quick `map`."""
    if type(dataset) is datasets.Dataset:
        dataset.__class__ = QuickDataset
    return dataset
