"""The demo model, which is part of this package: it needs no download and no GPU."""

from __future__ import annotations

from lm_eval.models.demo.model import DemoLM

__all__ = ["DemoLM"]
