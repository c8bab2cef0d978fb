"""The `hf` model: any causal or encoder-decoder model that transformers can load.

Names are imported on first use. Importing `HFLM` here at once would make modules that `HFLM` needs,
such as `lm_eval.models.utils_hf`, fail with a circular import when they are imported first.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lm_eval._lazy import lazy_exports

if TYPE_CHECKING:
    from lm_eval.api.model import TemplateLM as TemplateLM
    from lm_eval.api.registry import register_model as register_model
    from lm_eval.models.context_length import resolve_max_length as resolve_max_length
    from lm_eval.models.huggingface.model import HFLM as HFLM
    from lm_eval.models.utils import Collator as Collator
    from lm_eval.models.utils import handle_stop_sequences as handle_stop_sequences
    from lm_eval.models.utils import has_bos_prefix as has_bos_prefix
    from lm_eval.models.utils import normalize_gen_kwargs as normalize_gen_kwargs
    from lm_eval.models.utils import postprocess_generated_text as postprocess_generated_text
    from lm_eval.models.utils_hf import clear_torch_cache as clear_torch_cache
    from lm_eval.models.utils_hf import configure_pad_token as configure_pad_token
    from lm_eval.models.utils_hf import get_dtype as get_dtype
    from lm_eval.models.utils_hf import pad_and_concat as pad_and_concat
    from lm_eval.models.utils_hf import stop_sequences_criteria as stop_sequences_criteria

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "HFLM": "lm_eval.models.huggingface.model",
        "Collator": "lm_eval.models.utils",
        "TemplateLM": "lm_eval.api.model",
        "clear_torch_cache": "lm_eval.models.utils_hf",
        "configure_pad_token": "lm_eval.models.utils_hf",
        "get_dtype": "lm_eval.models.utils_hf",
        "handle_stop_sequences": "lm_eval.models.utils",
        "has_bos_prefix": "lm_eval.models.utils",
        "normalize_gen_kwargs": "lm_eval.models.utils",
        "pad_and_concat": "lm_eval.models.utils_hf",
        "postprocess_generated_text": "lm_eval.models.utils",
        "register_model": "lm_eval.api.registry",
        "resolve_max_length": "lm_eval.models.context_length",
        "stop_sequences_criteria": "lm_eval.models.utils_hf",
    },
)

__all__ = [
    "HFLM",
    "Collator",
    "TemplateLM",
    "clear_torch_cache",
    "configure_pad_token",
    "eval_logger",
    "get_dtype",
    "handle_stop_sequences",
    "has_bos_prefix",
    "normalize_gen_kwargs",
    "pad_and_concat",
    "postprocess_generated_text",
    "register_model",
    "resolve_max_length",
    "stop_sequences_criteria",
]

# Published subclasses import `eval_logger` from this module.
eval_logger = logging.getLogger(__name__)
