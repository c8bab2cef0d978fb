"""Models of the Hugging Face kind: any causal or encoder-decoder model transformers can load."""

from __future__ import annotations

from lm_eval.models.huggingface.model import HFLM

__all__ = ["HFLM"]
