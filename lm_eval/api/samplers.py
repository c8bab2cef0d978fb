"""Re-exports the few-shot samplers for task code that imports them from here."""

from __future__ import annotations

from lm_eval.api.registry import get_sampler, register_sampler
from lm_eval.prompts.fewshot import SAMPLER_REGISTRY, ContextSampler, FirstNSampler

__all__ = [
    "SAMPLER_REGISTRY",
    "ContextSampler",
    "FirstNSampler",
    "get_sampler",
    "register_sampler",
]
