"""The arguments of served models that are numbers: which values they may have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lm_eval.errors import ConfigError


@dataclass(frozen=True)
class Number:
    """The values that an argument may have.

    Attributes:
        meaning: what is expected, for messages.
        whole: whether it must be a whole number.
        minimum: the smallest value; None for none.
        above: whether it must be larger than the minimum.
        word: a text that may be given instead, or that may begin it; "" for none.
        optional: whether it may be None.
    """

    meaning: str
    whole: bool = True
    minimum: float | None = 0
    above: bool = False
    word: str = ""
    optional: bool = False

    def read(self, name: str, value: Any) -> float | str | None:
        """Returns a value as a number, the word, or None; raises `ConfigError` naming the argument.

        Numbers may be given as text.
        """
        if value is None and self.optional:
            return None
        if self.word and str(value).startswith(self.word):
            return str(value)
        number = None if isinstance(value, bool) else _number(value)
        if number is not None and self._allows(number):
            return int(number) if self.whole else number
        raise ConfigError(f"{name} must be {self.meaning}, not {value!r}.")

    def _allows(self, number: float) -> bool:
        if not math.isfinite(number) or (self.whole and number != int(number)):
            return False
        if self.minimum is None:
            return True
        return number > self.minimum if self.above else number >= self.minimum


_PRICE = Number("the price of a million tokens, a number of at least 0", False, optional=True)
_SECONDS = Number("a number of seconds above 0", whole=False, above=True)
_TOKENS = Number("a number of tokens, at least 1", minimum=1)
#: The arguments that are numbers.
NUMBERS: dict[str, Number] = {
    "num_concurrent": Number("a number of requests, at least 1", minimum=1, optional=True),
    "max_retries": Number("a number of attempts, at least 0", optional=True),
    "max_gen_toks": _TOKENS,
    "max_tokens_to_sample": _TOKENS,
    "batch_size": Number("a number of prompts, at least 1, or 'auto'", minimum=1, word="auto"),
    "seed": Number("a whole number", minimum=None, optional=True),
    "max_length": Number("a number of tokens, at least 2", minimum=2, optional=True),
    "thinking_budget": Number("an integer of at least 1", minimum=1, optional=True),
    "custom_prefix_token_id": Number("the id of a token, a number of at least 0", optional=True),
    "timeout": _SECONDS,
    "deadline": _SECONDS,
    "max_images": Number("a number of images, at least 0"),
    "price_in": _PRICE,
    "price_out": _PRICE,
    "temperature": Number("a number of at least 0", whole=False),
}


def check_numbers(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of the arguments that are numbers, as numbers.

    Raises `ConfigError` for one that is not, or is too small.
    """
    return {
        name: NUMBERS[name].read(name, value)
        for name, value in arguments.items()
        if name in NUMBERS
    }


def _number(value: Any) -> float | None:
    """Returns a value as a number, exactly if it is a whole one; None if it is none."""
    for kind in (int, float):
        try:
            found = kind(value)
        except (TypeError, ValueError, OverflowError):
            continue
        if kind is float or isinstance(value, (int, str)):
            return found
    return None
