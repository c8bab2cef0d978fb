"""Models of the Hugging Face kind: any causal or encoder-decoder model transformers can load."""

from __future__ import annotations

import logging

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface.model import HFLM

__all__ = ["HFLM", "TemplateLM", "eval_logger", "register_model"]

# Subclasses import these from here too.
eval_logger = logging.getLogger(__name__)
