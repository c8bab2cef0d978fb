"""Where documents come from: the hub, or files beside the task."""

from __future__ import annotations

from lm_eval.data.load import load_splits
from lm_eval.data.rows import Rows, as_dataset, columns_of

__all__ = ["Rows", "as_dataset", "columns_of", "load_splits"]
