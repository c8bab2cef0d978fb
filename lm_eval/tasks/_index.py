"""Re-exports the parts of the index of tasks, under the published module name."""

from __future__ import annotations

from lm_eval.tasks.index import Entry, Kind

__all__ = ["Entry", "Kind"]
