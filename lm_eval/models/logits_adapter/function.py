"""Calls a function from tokens to logits, and finds out how it may be called."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lm_eval.engine.plan import Ints, split_rows_into_batches
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.logits_adapter.logits import (
    as_logits,
    is_half_precision,
    log_probabilities,
    torch_if_imported,
)

logger = logging.getLogger(__name__)

Forward = Callable[[Any], Any]
"""A function from tokens (B, T) to logits (B, T, V), or an object with an attribute `logits`."""

ArrayType = Literal["torch", "numpy"]

TRIAL_TOKENS = 64
"""The maximum number of tokens of the text that the function is tried out with."""
TRIAL_CANDIDATES = 50
"""How many of the most likely tokens are compared at each position."""
TOLERANCE = 2e-3
HALF_PRECISION_TOLERANCE = 0.15
"""By how much a log-probability may differ between two ways of calling the function."""
LOGIT_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31}
"""How much memory the logits of one call may take, by type of device."""
MAX_ROWS = {"cpu": 64, "cuda": 256}
"""How many sequences are passed at once, by type of device."""


@dataclass(frozen=True)
class CallingModes:
    """How the function may be called so that the logits of a text do not change.

    Attributes:
        causal: whether the logits of a text are the same if more tokens follow it.
        batched: whether they are the same beside other, longer texts, with padding at the end.
        vocabulary: the number of tokens that the function returns logits for.
    """

    causal: bool
    batched: bool
    vocabulary: int


class LogitsFunction:
    """A function from tokens to logits, with checks of what it returns."""

    def __init__(
        self,
        forward: Forward,
        *,
        array_type: ArrayType | None,
        device: Any,
        pad_token: int,
        batch_size: int | None,
        max_length: int,
    ) -> None:
        """Takes the function and the arguments of `from_logits` that concern its calls.

        Raises `ConfigError` if `forward` cannot be called, or if `array_type` is unknown or names a
        package that is not there.
        """
        if not callable(forward):
            raise ConfigError(
                f"forward must be a function from tokens to logits, not {type(forward).__name__}."
            )
        if array_type not in (None, "torch", "numpy"):
            raise ConfigError(f"array_type must be 'torch' or 'numpy', not {array_type!r}.")
        if array_type == "torch" and torch_if_imported() is None:
            raise ConfigError("array_type='torch' needs torch: import it before the call.")
        self.forward = forward
        self.array_type = array_type or ("numpy" if torch_if_imported() is None else "torch")
        self.pad_token = pad_token
        self.batch_size = batch_size
        self.max_length = max_length
        self._device = device
        self._modes: CallingModes | None = None

    @property
    def module(self) -> Any:
        """The torch module that the function is, or is a method of; None if it is neither."""
        torch = torch_if_imported()
        if torch is None:
            return None
        owners = (self.forward, getattr(self.forward, "__self__", None))
        return next((one for one in owners if isinstance(one, torch.nn.Module)), None)

    @property
    def device(self) -> Any:
        """Where tokens are put: the given device, else that of the module's weights, else CPU."""
        if self.array_type == "numpy" or self._device is not None:
            return self._device or "cpu"
        weights = () if self.module is None else self.module.parameters()
        return next((weight.device for weight in weights), "cpu")

    def __call__(self, rows: Sequence[Sequence[int]]) -> Any:
        """Returns the logits (B, T, V) of rows of tokens, which are padded at the end.

        Raises `ModelError` if the function returns something else.
        """
        width = max(map(len, rows))
        tokens = np.full((len(rows), width), self.pad_token, dtype=np.int64)
        for number, row in enumerate(rows):
            tokens[number, : len(row)] = row
        with self._without_gradients():
            logits = as_logits(self.forward(self._given(tokens)))
        if len(logits.shape) != 3 or tuple(logits.shape[:2]) != tokens.shape:
            raise ModelError(
                f"forward returned an array of shape {tuple(logits.shape)} for tokens of shape "
                f"{tokens.shape}; it must return the logits of all positions, (batch, length, "
                f"vocabulary): {(*tokens.shape, '…')}."
            )
        return logits

    def _given(self, tokens: Ints) -> Any:
        """Returns tokens as the function gets them."""
        if self.array_type == "numpy":
            return tokens
        return torch_if_imported().from_numpy(tokens).to(self.device)

    @contextlib.contextmanager
    def _without_gradients(self) -> Iterator[None]:
        """Turns off gradients, and dropout of the module, inside the `with` block."""
        torch = torch_if_imported()
        if torch is None:
            yield
            return
        from lm_eval.models.huggingface.model_state import eval_mode

        with torch.no_grad(), eval_mode(self.module):
            yield

    # -- how it may be called ---------------------------------------------------------------------

    def modes(self, text: Sequence[int]) -> CallingModes:
        """Returns how the function may be called; the first call tries it out on `text`.

        Calls it three times with at most `TRIAL_TOKENS` tokens: with the text, with its first half,
        and with both at once. Logs a warning if the answers differ.
        """
        if self._modes is None:
            self._modes = self._tried_out(list(text))
        return self._modes

    def _tried_out(self, text: list[int]) -> CallingModes:
        whole = (text * (8 // len(text) + 1))[: min(TRIAL_TOKENS, self.max_length)]
        alone = self([whole])
        if len(whole) < 2:
            return CallingModes(True, False, int(alone.shape[-1]))
        half = whole[: len(whole) // 2]
        beginning = self([half])
        weights = () if self.module is None else self.module.parameters()
        rough = any(map(is_half_precision, (alone, *weights)))
        tolerance = HALF_PRECISION_TOLERANCE if rough else TOLERANCE

        def same(one: Any, other: Any) -> bool:
            first, second = log_probabilities(one[: len(half)]), log_probabilities(other)
            likely = np.argsort(-second, axis=-1)[:, :TRIAL_CANDIDATES]
            off = np.take_along_axis(np.abs(first - second), likely, axis=-1)
            # Rounding errors of very unlikely tokens are larger.
            allowed = tolerance - 1e-5 * np.take_along_axis(second, likely, axis=-1)
            return bool(np.all(off <= allowed))

        causal, batched = same(alone[0], beginning[0]), False
        reason = "the logits of a text change with the tokens after it, or differ between calls"
        if causal:
            try:
                both = self([whole, half])
                batched = same(both[1, : len(half)], beginning[0]) and same(both[0], beginning[0])
                reason = "the logits of a text change with the other texts of a batch"
            except Exception as error:  # third-party code can raise anything
                reason = f"it fails with two texts ({type(error).__name__}: {error})"
        if not batched:
            logger.warning("forward is called with one text at a time, because %s.", reason)
        return CallingModes(causal, batched, int(alone.shape[-1]))

    def batches(
        self, lengths: Sequence[int], modes: CallingModes, room: int = 0
    ) -> list[tuple[int, int]]:
        """Returns the ranges `(first, last)` of texts that are passed to the function at once.

        Args:
            lengths: the number of tokens of each text, in descending order.
            modes: how the function may be called.
            room: how many tokens may follow each text.
        """
        kind = str(self.device).partition(":")[0]
        fitting = LOGIT_BYTES.get(kind, LOGIT_BYTES["cpu"]) // (4 * modes.vocabulary)
        rows = self.batch_size or MAX_ROWS.get(kind, MAX_ROWS["cpu"])
        if self.batch_size is not None:
            fitting = rows * (max(lengths, default=1) + room)
        return split_rows_into_batches(
            [length + room for length in lengths], fitting, rows if modes.batched else 1
        )
