"""Limits on what is computed at once, and the reaction to running out of memory."""

from __future__ import annotations

import gc
import logging
from typing import Any

import torch

logger = logging.getLogger(__name__)

DEFAULT_TOKENS = {"cpu": 2048, "cuda": 24576, "other": 4096}
"""Default number of tokens per forward pass, by device type. With fewer, a GPU is idle between
kernel launches."""
MAX_LOGIT_BYTES = {"cpu": 32 << 20, "cuda": 512 << 20, "other": 128 << 20}
"""Maximum memory for float32 logits at once, by device type. On a CPU they should fit into its
cache."""
MAX_CACHE_BYTES = 1 << 30
"""Maximum memory for the key-value cache of unfinished answers, except on CUDA."""
MAX_ANSWERS_PER_BATCH = {"cpu": 64, "cuda": 512, "other": 64}
"""Maximum number of answers that are generated at once, by device type."""


class TokenBudget:
    """The maximum number of tokens per forward pass, and the maximum memory for logits.

    Both are halved when memory runs out, and never increased again.
    """

    def __init__(self, device: torch.device, tokens: int | None = None) -> None:
        """`tokens` is the initial number of tokens; None for the default of the device."""
        self.tokens = (
            DEFAULT_TOKENS.get(device.type, DEFAULT_TOKENS["other"]) if tokens is None else tokens
        )
        self.logit_bytes = MAX_LOGIT_BYTES.get(device.type, MAX_LOGIT_BYTES["other"])

    def halve(self) -> None:
        """Halves both limits, logs a warning and frees unused memory.

        The limits do not fall below one token and 1 MiB.
        """
        self.tokens = max(1, self.tokens // 2)
        self.logit_bytes = max(1 << 20, self.logit_bytes // 2)
        logger.warning(
            "Memory ran out. The run continues with at most %d tokens per batch.", self.tokens
        )
        free_unused_memory()


def max_answers_in_memory(
    config: Any, device: torch.device, dtype: torch.dtype, length: int
) -> int:
    """Returns how many answers can be generated at once with their key-value cache in memory.

    The cache may take a quarter of the free memory on CUDA, and 1 GiB elsewhere. The result is at
    least 1 and at most `MAX_ANSWERS_PER_BATCH`.

    Args:
        config: the configuration of the language model.
        device: where the model runs.
        dtype: the dtype of keys and values.
        length: the number of tokens of prompt and answer together.
    """
    memory = MAX_CACHE_BYTES
    if device.type == "cuda":
        memory = torch.cuda.mem_get_info(device)[0] // 4
    fitting: int = memory // (cache_bytes_per_token(config, dtype) * length)
    return max(1, min(fitting, max_answers_at_once(device)))


def max_answers_at_once(device: torch.device) -> int:
    """Returns how many answers are generated at once at most, whatever memory allows."""
    return MAX_ANSWERS_PER_BATCH.get(device.type, MAX_ANSWERS_PER_BATCH["other"])


def cache_bytes_per_token(config: Any, dtype: torch.dtype) -> int:
    """Returns the memory that keys and values of one token take in all layers, in bytes."""
    heads = getattr(config, "num_attention_heads", 1) or 1
    width = getattr(config, "head_dim", None) or getattr(config, "hidden_size", 1 << 12) // heads
    heads_stored = 2 * layers_stored(config) * (getattr(config, "num_key_value_heads", 0) or heads)
    return int(heads_stored * width * dtype.itemsize)


def layers_stored(config: Any) -> int:
    """Returns the number of layers that store keys and values; 32 if the model does not tell."""
    return getattr(config, "num_hidden_layers", None) or 1 << 5


def free_memory(device: torch.device) -> int:
    """Returns the free memory of a CUDA device, in bytes; elsewhere `MAX_CACHE_BYTES`.

    Memory that torch holds in reserve counts as free.
    """
    if device.type != "cuda":
        return MAX_CACHE_BYTES
    reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + reserved)


def free_unused_memory() -> None:
    """Collects garbage and returns unused memory to the CUDA driver."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error means that the device or the machine has run out of memory."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (
        "out of memory" in text or "can't allocate memory" in text
    )
