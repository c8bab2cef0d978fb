"""A window: what classes derived from the published `HFLM` import for loops of their own."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lm_eval.models.huggingface.loading import read_dtype as get_dtype
from lm_eval.models.huggingface.loading import set_pad_token
from lm_eval.models.huggingface.memory import release as clear_torch_cache
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
    """The tokenizer, with some token to fill rows up with."""
    set_pad_token(tokenizer, model_config)
    return tokenizer


def pad_and_concat(max_length: int, tensors: list[Tensor], padding_side: str = "right") -> Tensor:
    """Rows of tokens, (T) or (1, T), filled up with zeros on one side to (B, max_length)."""
    if padding_side not in ("left", "right"):
        raise ValueError(f"padding_side is 'left' or 'right', not {padding_side!r}")
    whole = tensors[0].new_zeros((len(tensors), max_length))
    for row, tensor in zip(whole, tensors, strict=True):
        tokens = tensor.reshape(-1)
        start = max_length - len(tokens) if padding_side == "left" else 0
        row[start : start + len(tokens)] = tokens
    return whole


def stop_sequences_criteria(
    tokenizer: Any, stop_sequences: list[str], initial_decoder_input_length: int, batch_size: int
) -> list[StopStrings]:
    """What ends transformers' generation once a row's text holds a stop string."""
    return [StopStrings(tokenizer, stop_sequences, initial_decoder_input_length)]


class MultiTokenEOSCriteria(StopStrings):
    """The same for one stop string."""

    def __init__(
        self, sequence: str, tokenizer: Any, initial_decoder_input_length: int, batch_size: int
    ) -> None:
        super().__init__(tokenizer, [sequence], initial_decoder_input_length)
