"""The `hf` model: any causal or encoder-decoder model that transformers can load."""

from __future__ import annotations

import logging

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface.model import HFLM
from lm_eval.models.utils import Collator, handle_stop_sequences, normalize_gen_kwargs
from lm_eval.models.utils_hf import (
    clear_torch_cache,
    get_dtype,
    pad_and_concat,
    stop_sequences_criteria,
)

__all__ = [
    "HFLM",
    "Collator",
    "TemplateLM",
    "clear_torch_cache",
    "eval_logger",
    "get_dtype",
    "handle_stop_sequences",
    "normalize_gen_kwargs",
    "pad_and_concat",
    "register_model",
    "stop_sequences_criteria",
]

# Published subclasses import `eval_logger` from this module.
eval_logger = logging.getLogger(__name__)
