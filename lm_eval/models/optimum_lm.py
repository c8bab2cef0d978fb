"""A stand-in for the published class of OpenVINO models."""

from __future__ import annotations

from lm_eval.models.unavailable import UnavailableModel

__all__ = ["OptimumLM"]


class OptimumLM(UnavailableModel):
    """Stand-in for the published `openvino` model; creating one raises `ModelError`."""

    MODEL = "openvino"
