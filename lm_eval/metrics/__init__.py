"""Clean answers become scores: per document, then aggregated over documents."""

from __future__ import annotations

from lm_eval.metrics import aggregations, classification, functions, reductions, translation

__all__ = ["aggregations", "classification", "functions", "reductions", "translation"]
