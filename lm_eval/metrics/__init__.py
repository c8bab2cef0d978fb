"""Metrics: from filtered answers to one score per document, and from these to one number per task.

A metric computes a value per answer, a reduction combines the values of repeated answers to one
document, and an aggregation combines the values of all documents. Importing this package registers
the built-in ones.
"""

from __future__ import annotations

from lm_eval.metrics import aggregations, classification, functions, reductions, translation

__all__ = ["aggregations", "classification", "functions", "reductions", "translation"]
