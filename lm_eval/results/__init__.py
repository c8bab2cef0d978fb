"""Aggregates scores into results, formats them as tables, and writes and reads results files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval._lazy import lazy_exports

if TYPE_CHECKING:
    from lm_eval.results.stored_results import StoredResults as StoredResults
    from lm_eval.results.stored_results import load as load

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "StoredResults": "lm_eval.results.stored_results",
        "load": "lm_eval.results.stored_results",
    },
)
__all__ = ["StoredResults", "load"]
