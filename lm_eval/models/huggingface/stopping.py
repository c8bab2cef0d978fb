"""Settings and callbacks for `generate` of transformers: when it stops, and when it raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria

from lm_eval.models.huggingface.request_errors import NaNScoresError


def complete_generation_settings(
    gen_kwargs: Mapping[str, Any], model_defaults: Any, tokenizer: Any
) -> dict[str, Any]:
    """Returns a request's settings, completed for `generate` of transformers.

    It adds the padding token, the end-of-text token if the model has none, and the tokenizer if
    there are stop strings. Each prompt gets exactly one answer. A temperature of 0 or None is
    removed; decoding is then greedy, unless `do_sample` is set.

    Args:
        gen_kwargs: the generation settings of the request.
        model_defaults: the model's `generation_config`, or None.
        tokenizer: the model's tokenizer.
    """
    settings = {"pad_token_id": tokenizer.pad_token_id, "use_cache": True, **gen_kwargs}
    if not settings.get("temperature"):
        settings.pop("temperature", None)
        settings.setdefault("do_sample", False)
    if getattr(model_defaults, "eos_token_id", None) is None:
        settings.setdefault("eos_token_id", tokenizer.eos_token_id)
    if settings.get("stop_strings") or getattr(model_defaults, "stop_strings", None):
        settings["tokenizer"] = tokenizer
    if getattr(model_defaults, "num_return_sequences", None) not in (None, 1):
        settings["num_return_sequences"] = 1
    return settings


class StopStrings(StoppingCriteria):  # type: ignore[misc]
    """A stopping criterion: a row is finished when its generated text contains a stop string.

    The generated text begins at the token with the index `start`.
    """

    def __init__(self, tokenizer: Any, stops: list[str], start: int) -> None:
        self.tokenizer = tokenizer
        self.stops = [stop for stop in stops if stop]
        self.start = start
        self.tail_length = max((len(stop.encode()) for stop in self.stops), default=0) + 4

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        tails = input_ids[:, max(self.start, input_ids.shape[1] - self.tail_length) :]
        texts = self.tokenizer.batch_decode(tails) if self.stops and tails.shape[1] else []
        done = [any(stop in text for stop in self.stops) for text in texts] or [False] * len(tails)
        return torch.tensor(done, device=input_ids.device)


class RaiseOnNaN(LogitsProcessor):  # type: ignore[misc]
    """A logits processor that raises `NaNScoresError` if logits are NaN; it changes no logits."""

    def __init__(self, prompts: int) -> None:
        """`prompts` is the number of prompts. With beam search, each has several rows of logits."""
        self.prompts = prompts

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        has_nan = scores.isnan().any(dim=-1)
        if bool(has_nan.any()):
            raise NaNScoresError(int(has_nan.int().argmax()) * self.prompts // len(scores))
        return scores
