"""A stand-in for the published class of multimodal vLLM models."""

from __future__ import annotations

from lm_eval.models.unavailable import UnavailableModel

__all__ = ["DEFAULT_IMAGE_PLACEHOLDER", "VLLM_VLM"]

DEFAULT_IMAGE_PLACEHOLDER = "<image>"


class VLLM_VLM(UnavailableModel):  # noqa: N801 (the published name)
    """Stand-in for the published `vllm-vlm` model; creating one raises `ModelError`."""

    MODEL = "vllm-vlm"
