"""The few-shot samplers, by the path that task folders know."""

from __future__ import annotations

from lm_eval.prompts.fewshot import SAMPLER_REGISTRY, ContextSampler, FirstNSampler, get_sampler

__all__ = ["SAMPLER_REGISTRY", "ContextSampler", "FirstNSampler", "get_sampler"]
