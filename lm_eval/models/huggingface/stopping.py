"""What transformers is told where it generates by itself: when to stop, and when to give up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria

from lm_eval.models.huggingface.naming import NotANumberError


def whole_settings(asked: Mapping[str, Any], usual: Any, tokenizer: Any) -> dict[str, Any]:
    """A request's settings, with what transformers needs beside them and the model's own
    (`usual`), so that each prompt gets one answer that ends.
    """
    settings = {"pad_token_id": tokenizer.pad_token_id, "use_cache": True, **asked}
    if not settings.get("temperature"):
        settings.pop("temperature", None)
        settings.setdefault("do_sample", False)
    if getattr(usual, "eos_token_id", None) is None:
        settings.setdefault("eos_token_id", tokenizer.eos_token_id)
    if settings.get("stop_strings") or getattr(usual, "stop_strings", None):
        settings["tokenizer"] = tokenizer
    if getattr(usual, "num_return_sequences", None) not in (None, 1):
        settings["num_return_sequences"] = 1
    return settings


class StopStrings(StoppingCriteria):  # type: ignore[misc]
    """Tells rows whose text behind the prompt holds a stop string that they are finished."""

    def __init__(self, tokenizer: Any, stops: list[str], start: int) -> None:
        self.tokenizer = tokenizer
        self.stops = [stop for stop in stops if stop]
        self.start = start
        self.reach = max((len(stop.encode()) for stop in self.stops), default=0) + 4

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        tails = input_ids[:, max(self.start, input_ids.shape[1] - self.reach) :]
        texts = self.tokenizer.batch_decode(tails) if self.stops and tails.shape[1] else []
        done = [any(stop in text for stop in self.stops) for text in texts] or [False] * len(tails)
        return torch.tensor(done, device=input_ids.device)


class NumbersOnly(LogitsProcessor):  # type: ignore[misc]
    """Ends generation where scores are not numbers: what is chosen by them means nothing."""

    def __init__(self, rows: int) -> None:
        """`rows` of the prompt; with beams each has several of scores."""
        self.rows = rows

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        broken = scores.isnan().any(dim=-1)
        if bool(broken.any()):
            raise NotANumberError(int(broken.int().argmax()) * self.rows // len(scores))
        return scores
