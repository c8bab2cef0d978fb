"""`Dataset.map` as task folders use it, without the library's cost for each document.

Most `process_docs` functions are one `dataset.map(function)`. The library reads, formats and writes
each document by itself, which costs more than the function; a plain loop gives the same rows ten
times sooner. Whatever is not that simple goes to the library.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import datasets
import numpy as np
import pyarrow
from datasets.fingerprint import generate_random_fingerprint
from datasets.table import InMemoryTable

from lm_eval.data.plain_tables import is_plain


class QuickDataset(datasets.Dataset):  # type: ignore[misc]
    """A real `Dataset` whose `map` of one function over plain columns is a loop."""

    def map(self, function: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        drawn = random.getstate(), np.random.get_state()
        table = None if function is None or args or kwargs else self._loop(function)
        if table is None:
            # The function runs anew, and must draw what it would have drawn.
            random.setstate(drawn[0])
            np.random.set_state(drawn[1])
            return super().map(function, *args, **kwargs)
        # A fingerprint of its own: hashing the rows would cost more than making them.
        return quick(
            datasets.Dataset(InMemoryTable(table), fingerprint=generate_random_fingerprint())
        )

    def _loop(self, function: Callable[..., Any]) -> Any:
        """The mapped rows as a table; None where only the library knows what they are."""
        if not len(self) or self.format["type"] is not None or not is_plain(self.data.schema):
            return None
        rows = []
        whole = self.data.table if self._indices is None else self.with_format("arrow")[:]
        for row in whole.to_pylist():
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
        if not is_plain(made_table.schema):
            return None
        # A column that was there before keeps its type: the library turns new values into it. One
        # that the function has taken out of the document is gone.
        kept = (
            _alike(made_table.schema.field(name).type, self.data.schema.field(name).type)
            for name in self.column_names
            if name in columns
        )
        return made_table if all(kept) else None


def _alike(made: Any, before: Any) -> bool:
    """Whether values of one type are left alone where the other was."""
    from pyarrow import types

    if types.is_integer(made) and types.is_integer(before):
        return True
    lists = (types.is_list, types.is_large_list)
    if any(test(made) for test in lists) and any(test(before) for test in lists):
        return _alike(made.value_type, before.value_type)
    if types.is_struct(made) and types.is_struct(before):
        names = [made.field(i).name for i in range(made.num_fields)]
        return names == [before.field(i).name for i in range(before.num_fields)] and all(
            _alike(made.field(name).type, before.field(name).type) for name in names
        )
    texts = (types.is_string, types.is_large_string)
    if any(test(made) for test in texts) and any(test(before) for test in texts):
        return True
    return bool(made == before)


def quick(dataset: Any) -> Any:
    """Returns the same rows with the quick `map`; the data set given stays as it is."""
    if type(dataset) is not datasets.Dataset:
        return dataset
    made = QuickDataset.__new__(QuickDataset)
    made.__dict__.update(dataset.__dict__)
    return made
