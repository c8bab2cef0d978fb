"""Answers while they are generated: the tokens so far, and what ends an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lm_eval.models.conventions import cut_at_stop

Decode = Callable[[list[int]], str]
DecodeMany = Callable[[list[list[int]]], list[str]]


@dataclass(frozen=True)
class StopConditions:
    """What ends an answer: certain tokens, or certain strings in its text."""

    tokens: frozenset[int]
    stops: tuple[str, ...]

    def truncate(self, tokens: list[int]) -> list[int]:
        """Returns the tokens before the first that ends the answer, or is negative (padding)."""
        if self.tokens.isdisjoint(tokens) and min(tokens, default=0) >= 0:
            return tokens[:]
        ends = (n for n, token in enumerate(tokens) if token in self.tokens or token < 0)
        return tokens[: next(ends, len(tokens))]

    def occurs_in(self, text: str) -> bool:
        """Returns whether a text contains a stop string."""
        return any(stop in text for stop in self.stops)

    @property
    def tail_length(self) -> int:
        """How many of the last tokens are decoded to find a stop string that was just completed."""
        return max((len(stop.encode()) for stop in self.stops), default=0) + 4


class PartialAnswers:
    """The tokens generated so far, and which answers are unfinished."""

    def __init__(
        self, decode: Decode, stop_conditions: StopConditions, count: int, max_tokens: int
    ) -> None:
        """`count` is the number of answers, `max_tokens` the maximum number of tokens of each."""
        self.decode = decode
        self.stop_conditions = stop_conditions
        self.written = np.zeros((count, max_tokens), dtype=np.int64)
        self.length = 0
        self.unfinished = list(range(count))

    def add(self, tokens: Any) -> list[tuple[int, str]]:
        """Adds new tokens (unfinished answers × steps); returns the answers that they finish.

        Each is returned as its index and its text, cut at the first stop string.
        """
        old, self.length = self.length, self.length + tokens.shape[1]
        self.written[self.unfinished, old : self.length] = tokens
        final = self.length == self.written.shape[1]
        tails = self._decode(
            [
                self.written[i, max(0, old - self.stop_conditions.tail_length) : self.length]
                for i in self.unfinished
            ]
        )
        finished = []
        for i, new, tail in zip(self.unfinished, tokens.tolist(), tails, strict=True):
            ended = any(token in self.stop_conditions.tokens for token in new)
            if ended or final or any(stop in tail for stop in self.stop_conditions.stops):
                text = self.text(i)
                if (
                    ended
                    or final
                    or len(cut := cut_at_stop(text, self.stop_conditions.stops)) < len(text)
                ):
                    finished.append((i, text if ended or final else cut))
        done = {i for i, _ in finished}
        self.unfinished = [i for i in self.unfinished if i not in done]
        return [(i, cut_at_stop(text, self.stop_conditions.stops)) for i, text in finished]

    def drop(self, answers: list[int]) -> None:
        """Counts answers as finished, given their indices; finished ones are ignored."""
        self.unfinished = [i for i in self.unfinished if i not in answers]

    def tokens(self, i: int) -> list[int]:
        """Returns the tokens of answer `i` before the one that ended it; all if none ended it."""
        return self.stop_conditions.truncate(self.written[i, : self.length].tolist())

    def text(self, i: int) -> str:
        """Returns the text of `tokens(i)`; it may contain a stop string."""
        return self.decode(self.tokens(i))

    def _decode(self, rows: list[Any]) -> list[str]:
        """Returns the text of each row of tokens, or empty strings if there are no stop strings."""
        if not self.stop_conditions.stops:
            return [""] * len(rows)
        return [self.decode(row.tolist()) for row in rows]


class GrowingAnswer:
    """The tokens of one answer, which grows independently of others."""

    def __init__(self, decode: Decode, stop_conditions: StopConditions, max_tokens: int) -> None:
        self._decode = decode
        self._stop_conditions = stop_conditions
        self._max_tokens = max_tokens
        self._written: list[int] = []
        self._has_end = False
        """Whether a token that ends the answer is among those written."""

    def add(self, tokens: list[int]) -> bool:
        """Adds new tokens; returns whether the answer is ended.

        Tokens after the end are dropped.
        """
        ended = self.extend(tokens)
        if not self._stop_conditions.stops:
            return ended
        if not self._occurs_in(self.tail(len(tokens))):
            return ended
        return self.end_at_stop(len(tokens)) or ended

    def extend(self, tokens: list[int]) -> bool:
        """Adds new tokens; returns whether a token or the maximum number ends the answer.

        Tokens beyond the maximum number are dropped. Stop strings are left to the caller, who can
        search the tails of many answers at once (`tail`, `end_at_stop`).
        """
        self._written += tokens[: self.room]
        has_end = not self._stop_conditions.tokens.isdisjoint(tokens)
        self._has_end = self._has_end or has_end
        return has_end or not self.room

    @property
    def room(self) -> int:
        """How many more tokens the answer may have."""
        return self._max_tokens - len(self._written)

    def tail(self, new: int) -> list[int]:
        """Returns the last tokens, in which a stop string may be completed by the `new` last."""
        return self._written[-(new + self._stop_conditions.tail_length) :]

    def end_at_stop(self, new: int) -> bool:
        """Returns whether the text contains a stop string; if so, drops the tokens after it.

        The text without its `new` last tokens must not contain one. Tokens after one that ends the
        answer do not count.
        """
        tokens = self.tokens
        if not self._occurs_in(tokens):
            return False
        old = max(0, len(self._written) - new)
        first = max(0, old - self._stop_conditions.tail_length)
        for count in range(old + 1, len(tokens)):
            # The tail may begin in the middle of a character, and then look different.
            if self._occurs_in(tokens[first:count]) and self._occurs_in(tokens[:count]):
                tokens = tokens[:count]
                break
        self._written = tokens
        return True

    def _occurs_in(self, tokens: list[int]) -> bool:
        """Returns whether the text of some tokens contains a stop string."""
        return self._stop_conditions.occurs_in(self._decode(tokens))

    @property
    def tokens(self) -> list[int]:
        """The tokens before the one that ended the answer; all if none ended it."""
        return self._stop_conditions.truncate(self._written) if self._has_end else self._written[:]


def special_tokens(tokenizer: Any) -> dict[str, int]:
    """Returns the indices of the tokens that are left out of decoded text, by their text.

    It is empty for a tokenizer that does not list its added tokens.
    """
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return {str(token): int(n) for n, token in added.items() if getattr(token, "special", False)}
