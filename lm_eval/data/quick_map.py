"""A faster `Dataset.map` for the `process_docs` functions of tasks.

Most `process_docs` functions consist of one `dataset.map(function)`. The library reads, formats and
writes each document separately, which takes longer than the function itself; a plain loop gives the
same rows ten times faster. Calls that are not that simple are passed to the library.
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
    """A `datasets.Dataset` whose `map(function)` is a plain loop if all columns are plain."""

    def map(self, function: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        """Returns the mapped dataset, with the same rows as `datasets.Dataset.map`.

        Calls with further arguments, and results that a loop cannot reproduce, use the library.
        """
        random_states = random.getstate(), np.random.get_state()
        table = None if function is None or args or kwargs else self._map_in_loop(function)
        if table is None:
            # The function runs again, and must get the same random numbers as the first time.
            random.setstate(random_states[0])
            np.random.set_state(random_states[1])
            return super().map(function, *args, **kwargs)
        # A random fingerprint: hashing the rows would take longer than mapping them.
        return quick(
            datasets.Dataset(InMemoryTable(table), fingerprint=generate_random_fingerprint())
        )

    def _map_in_loop(self, function: Callable[..., Any]) -> Any:
        """Returns the mapped rows as an Arrow table; None if the library must map them.

        It must if the dataset is empty or has a format, if values have types that the library
        converts, if the function does not always return a mapping, if rows have different columns,
        or if the function changes the type of a column.
        """
        if not len(self) or self.format["type"] is not None or not is_plain(self.data.schema):
            return None
        rows = []
        whole = self.data.table if self._indices is None else self.with_format("arrow")[:]
        for row in whole.to_pylist():
            new = function(row)
            if not isinstance(new, Mapping):
                return None
            rows.append({**row, **new})
        columns = rows[0].keys()
        if any(row.keys() != columns for row in rows):
            return None
        try:
            mapped_table = pyarrow.Table.from_pylist(rows)
        except (pyarrow.ArrowException, TypeError, ValueError):
            return None
        if not is_plain(mapped_table.schema):
            return None
        # The library converts the new values of an existing column to its old type, and drops
        # columns that the function removed from the document.
        kept = (
            _keeps_type(mapped_table.schema.field(name).type, self.data.schema.field(name).type)
            for name in self.column_names
            if name in columns
        )
        return mapped_table if all(kept) else None


def _keeps_type(new: Any, before: Any) -> bool:
    """Returns whether `datasets` keeps mapped values of type `new` in a column of type `before`.

    Otherwise it would convert them. Both are Arrow types; the widths of integers do not matter.
    """
    from pyarrow import types

    if types.is_integer(new) and types.is_integer(before):
        return True
    lists = (types.is_list, types.is_large_list)
    if any(test(new) for test in lists) and any(test(before) for test in lists):
        return _keeps_type(new.value_type, before.value_type)
    if types.is_struct(new) and types.is_struct(before):
        names = [new.field(i).name for i in range(new.num_fields)]
        return names == [before.field(i).name for i in range(before.num_fields)] and all(
            _keeps_type(new.field(name).type, before.field(name).type) for name in names
        )
    texts = (types.is_string, types.is_large_string)
    if any(test(new) for test in texts) and any(test(before) for test in texts):
        return True
    return bool(new == before)


def quick(dataset: Any) -> Any:
    """Returns a copy of `dataset` with the faster `map`; the rows are shared.

    Anything but a plain `datasets.Dataset` is returned as it is.
    """
    if type(dataset) is not datasets.Dataset:
        return dataset
    new = QuickDataset.__new__(QuickDataset)
    new.__dict__.update(dataset.__dict__)
    return new
