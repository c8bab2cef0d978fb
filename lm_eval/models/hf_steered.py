"""A stand-in for the published class of steered transformers models."""

from __future__ import annotations

from lm_eval.models.unavailable import UnavailableModel, unavailable_function

__all__ = ["SteeredModel", "steer"]


class SteeredModel(UnavailableModel):
    """Stand-in for the published `steered` model; creating one raises `ModelError`."""

    MODEL = "steered"


steer = unavailable_function("steer", "steered")
