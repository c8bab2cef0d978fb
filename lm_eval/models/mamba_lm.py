"""A stand-in for the published class of `mamba_ssm` models."""

from __future__ import annotations

from lm_eval.models.unavailable import UnavailableModel

__all__ = ["MambaLMWrapper"]


class MambaLMWrapper(UnavailableModel):
    """Stand-in for the published `mamba_ssm` model; creating one raises `ModelError`."""

    MODEL = "mamba_ssm"
