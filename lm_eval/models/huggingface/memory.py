"""How much is run at once, and what happens when memory runs out."""

from __future__ import annotations

import gc
import logging
from typing import Any

import torch

logger = logging.getLogger(__name__)

TOKENS = {"cpu": 2048, "cuda": 24576, "other": 4096}
"""Tokens a forward pass is given. On a GPU fewer leave it waiting for launches."""
LOGIT_BYTES = {"cpu": 32 << 20, "cuda": 512 << 20, "other": 128 << 20}
"""Most memory for next-token scores (float32) at once; a CPU works best inside its cache."""
ROW_BYTES = 1 << 30
"""Most memory for keys and values of unfinished answers, off a GPU."""
MOST_ROWS = {"cpu": 64, "cuda": 512, "other": 64}
"""Most answers that are generated at once."""


class Budget:
    """The number of tokens run at once. Halved when memory runs out, never raised again."""

    def __init__(self, device: torch.device, tokens: int | None = None) -> None:
        """`tokens` to start with; by default as many as suit the device."""
        self.tokens = TOKENS.get(device.type, TOKENS["other"]) if tokens is None else tokens
        self.logit_bytes = LOGIT_BYTES.get(device.type, LOGIT_BYTES["other"])

    def halve(self) -> None:
        """Halves the budget and frees unused memory."""
        self.tokens = max(1, self.tokens // 2)
        self.logit_bytes = max(1 << 20, self.logit_bytes // 2)
        logger.warning("Memory ran out; going on with at most %d tokens at once.", self.tokens)
        release()


def rows_in_memory(config: Any, device: torch.device, dtype: torch.dtype, length: int) -> int:
    """Returns how many answers of so many tokens fit into memory with their keys and values.

    `config` is that of the language model.
    """
    heads = getattr(config, "num_attention_heads", 1) or 1
    width = getattr(config, "head_dim", None) or getattr(config, "hidden_size", 1 << 12) // heads
    layers = getattr(config, "num_hidden_layers", 1 << 5)
    pairs = 2 * layers * (getattr(config, "num_key_value_heads", 0) or heads)
    memory = ROW_BYTES
    if device.type == "cuda":
        memory = torch.cuda.mem_get_info(device)[0] // 4
    fitting: int = memory // (pairs * width * length * dtype.itemsize)
    return max(1, min(fitting, MOST_ROWS.get(device.type, MOST_ROWS["other"])))


def release() -> None:
    """Gives unused memory back to the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the device or the machine has no memory left."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (
        "out of memory" in text or "can't allocate memory" in text
    )
