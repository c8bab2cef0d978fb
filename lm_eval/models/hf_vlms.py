"""A stand-in for the published class of multimodal transformers models."""

from __future__ import annotations

from lm_eval.models.unavailable import UnavailableModel

__all__ = ["DEFAULT_IMAGE_PLACEHOLDER", "HFMultimodalLM"]

DEFAULT_IMAGE_PLACEHOLDER = "<image>"


class HFMultimodalLM(UnavailableModel):
    """Stand-in for the published `hf-multimodal` model; creating one raises `ModelError`."""

    MODEL = "hf-multimodal"
