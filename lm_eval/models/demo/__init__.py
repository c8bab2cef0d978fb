"""The embedded demo model, so that a first evaluation needs no download and no accelerator."""

from __future__ import annotations

from lm_eval.models.demo.model import DemoLM

__all__ = ["DemoLM"]
