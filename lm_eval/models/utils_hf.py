"""Torch helpers for subclasses of the published `HFLM` that implement their own loops."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lm_eval.models.huggingface.loading import read_dtype as get_dtype
from lm_eval.models.huggingface.loading import set_pad_token
from lm_eval.models.huggingface.memory import free_unused_memory as clear_torch_cache
from lm_eval.models.huggingface.stopping import StopStrings

__all__ = [
    "MultiTokenEOSCriteria",
    "clear_torch_cache",
    "configure_pad_token",
    "get_dtype",
    "pad_and_concat",
    "stop_sequences_criteria",
]


def configure_pad_token(tokenizer: Any, model_config: Any = None) -> Any:
    """Sets a padding token on the tokenizer if it has none, and returns the same tokenizer.

    It is the unknown token, or else the end-of-text token, or else the `pad_token_id` of
    `model_config`, or 0.
    """
    set_pad_token(tokenizer, model_config)
    return tokenizer


def pad_and_concat(max_length: int, tensors: list[Tensor], padding_side: str = "right") -> Tensor:
    """Returns a tensor of shape (len(tensors), max_length), each row padded with zeros.

    `tensors` are token sequences of shape (T) or (1, T), at least one, each of at most `max_length`
    tokens. `padding_side` is "left" or "right"; any other value raises `ValueError`.
    """
    if padding_side not in ("left", "right"):
        raise ValueError(f"padding_side must be 'left' or 'right', not {padding_side!r}")
    whole = tensors[0].new_zeros((len(tensors), max_length))
    for row, tensor in zip(whole, tensors, strict=True):
        tokens = tensor.reshape(-1)
        start = max_length - len(tokens) if padding_side == "left" else 0
        row[start : start + len(tokens)] = tokens
    return whole


def stop_sequences_criteria(
    tokenizer: Any, stop_sequences: list[str], initial_decoder_input_length: int, batch_size: int
) -> list[StopStrings]:
    """Returns a list with one stopping criterion for transformers' `generate`.

    It ends each row as soon as its generated text contains one of `stop_sequences`.
    `initial_decoder_input_length` is the length of the prompt in tokens; `batch_size` is not used.
    """
    return [StopStrings(tokenizer, stop_sequences, initial_decoder_input_length)]


class MultiTokenEOSCriteria(StopStrings):
    """Stopping criterion for a single stop string; see `stop_sequences_criteria`."""

    def __init__(
        self, sequence: str, tokenizer: Any, initial_decoder_input_length: int, batch_size: int
    ) -> None:
        super().__init__(tokenizer, [sequence], initial_decoder_input_length)
