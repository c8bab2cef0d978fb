"""Loads datasets: from the Hugging Face Hub, a mirror of it, local files or a saved dataset."""

from __future__ import annotations

from lm_eval.data.fingerprint import describe
from lm_eval.data.load import load_splits
from lm_eval.data.mirror import mirror_at
from lm_eval.data.rows import (
    Rows,
    TableRows,
    as_dataset,
    as_dataset_dict,
    columns_of,
    process_split,
)
from lm_eval.data.splits import Origin, Splits

__all__ = [
    "Origin",
    "Rows",
    "Splits",
    "TableRows",
    "as_dataset",
    "as_dataset_dict",
    "columns_of",
    "describe",
    "load_splits",
    "mirror_at",
    "process_split",
]
