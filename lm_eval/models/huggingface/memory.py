"""How much is run at once: a token budget that shrinks when memory runs out."""

from __future__ import annotations

import gc
import logging

import torch

logger = logging.getLogger(__name__)

TOKENS = {"cpu": 2048, "cuda": 24576, "other": 4096}
"""Tokens a forward pass is given. On a GPU fewer leave it waiting for launches."""
LOGIT_BYTES = {"cpu": 32 << 20, "cuda": 512 << 20, "other": 128 << 20}
"""Most memory for next-token scores (float32) at once; a processor works best inside its cache."""


class Budget:
    """Tokens run at once. Halved when memory runs out; never raised again."""

    def __init__(self, device: torch.device) -> None:
        self.tokens = TOKENS.get(device.type, TOKENS["other"])
        self.logit_bytes = LOGIT_BYTES.get(device.type, LOGIT_BYTES["other"])

    def halve(self) -> None:
        self.tokens = max(1, self.tokens // 2)
        self.logit_bytes = max(1 << 20, self.logit_bytes // 2)
        logger.warning("Memory ran out; going on with at most %d tokens at once.", self.tokens)
        release()


def release() -> None:
    """Give memory that nothing uses back to the device."""
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
