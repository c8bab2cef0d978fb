"""From scoring requests to scores: which tokens are read, and which scorer gets them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.usage import Usage
from lm_eval.errors import ModelError
from lm_eval.models.conventions import Window, fit_window, task_of
from lm_eval.models.huggingface.naming import NotANumberError, named
from lm_eval.models.huggingface.scoring import Numbered, Scorer

PORTION = 1 << 20
FIRST_PORTION = 1 << 16
"""Letters that are encoded at once, ahead of the device: few at first, so that it can begin."""

NumberedWindow = tuple[int, Window]
"""The number of a request, and the tokens of its context and continuation."""


@dataclass(frozen=True)
class ReadingLimits:
    """How much a model can read, and what is cut from a request that is longer."""

    max_length: int
    causal: bool
    truncation_side: str

    def exceeded_by(self, context: list[int], continuation: list[int]) -> bool:
        """Whether a request loses some of its tokens."""
        if not self.causal:
            return max(len(context), len(continuation)) > self.max_length
        return len(context) + len(continuation) > self.max_length + 1

    def fit(self, context: list[int], continuation: list[int]) -> Window:
        """Returns what is read and what its last positions predict."""
        longest = self.max_length
        if not self.causal:
            return context[-longest:], continuation[-longest:]
        if self.truncation_side == "right":
            context = context[: max(1, longest + 1 - len(continuation))]
        return fit_window(context, continuation, longest)

    def fit_all(self, windows: Iterable[NumberedWindow]) -> dict[int, Window]:
        """Returns fitted windows by number; those that read the same tokens share one list."""
        if not self.causal:
            return {number: self.fit(*window) for number, window in windows}
        read: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        fitted = {}
        for number, (context, continuation) in windows:
            key = id(context), tuple(continuation[:-1])
            if key in read:
                fitted[number] = read[key], continuation[-len(read[key]) :]
            else:
                fitted[number] = self.fit(context, continuation)
                read[key] = fitted[number][0]
        return fitted


def score_windows(
    portions: Iterable[Iterable[NumberedWindow]],
    limits: ReadingLimits,
    tree: Scorer | None,
    plain: Scorer,
    longest: int | None,
    usage: Usage,
) -> Iterator[Numbered]:
    """Yields the number of a window and its score, as batches are finished.

    The plain scorer gets what the tree does not take: windows longer than `longest`, and those
    whose score was NaN. In a tree one request's NaN reaches its neighbours, because 0 times NaN is
    NaN; scored by itself, each shows whose it was.
    """
    longest = longest or limits.max_length
    waiting: dict[int, Window] = {}
    others: dict[int, Window] = {}
    tokens = 0

    def shared() -> Iterator[dict[int, Window]]:
        nonlocal tokens
        for portion in portions:
            fitted = limits.fit_all(portion)
            tokens += sum(len(read) for read, _ in fitted.values())
            long = [n for n, (read, _) in fitted.items() if tree is None or len(read) > longest]
            others.update((n, fitted.pop(n)) for n in long)
            waiting.update(fitted)
            yield fitted

    for number, score in tree.score(shared()) if tree is not None else _exhaust(shared()):
        window = waiting.pop(number)
        if math.isnan(score[0]):
            others[number] = window
        else:
            yield number, score
    fitting = {n: window for n, window in others.items() if len(window[0]) <= longest}
    beyond = {n: window for n, window in others.items() if n not in fitting}
    for number, score in plain.score([beyond, fitting]):
        if math.isnan(score[0]):
            raise NotANumberError(number)
        yield number, score
    computed = plain.computed + (tree.computed if tree is not None else 0)
    usage.read(tokens, computed)


def encoded_ahead(
    requests: list[Instance],
    encode: Callable[[list[tuple[str, str]]], list[Window]],
    limits: ReadingLimits,
    usage: Usage,
) -> Iterator[list[NumberedWindow]]:
    """Yields encoded requests in portions; encodes the next one while the device works.

    Portions are cut in the order of the texts, so that requests with a common prefix stay together.
    """
    texts = [request.args for request in requests]

    def encode_portion(numbers: list[int]) -> list[NumberedWindow]:
        return list(zip(numbers, encode([texts[i] for i in numbers]), strict=True))

    portions = list(in_portions(texts))
    if not portions:
        return
    with ThreadPoolExecutor(1) as ahead:
        following: Future[list[NumberedWindow]] | None = ahead.submit(encode_portion, portions[0])
        for portion in [*portions[1:], None]:
            assert following is not None
            found = following.result()
            following = ahead.submit(encode_portion, portion) if portion is not None else None
            check_windows(requests, found, limits, usage)
            yield found


def check_windows(
    requests: list[Instance],
    windows: Iterable[NumberedWindow],
    limits: ReadingLimits,
    usage: Usage,
) -> None:
    """Refuses answers without tokens; counts requests that will be truncated."""
    for i, window in windows:
        if not window[1]:
            raise ModelError(
                f"{named(requests[i])}: the answer {requests[i].args[1]!r} becomes no tokens "
                "behind its context, so it has no probability; check doc_to_choice and "
                "doc_to_target."
            )
        if limits.exceeded_by(*window):
            usage.truncated[task_of(requests[i])] += 1


def in_portions(texts: Sequence[tuple[str, str]]) -> Iterator[list[int]]:
    """Yields numbers of texts in the order of their contexts, in portions that encode quickly."""
    behind: dict[str, list[int]] = {}
    for i, (context, _) in enumerate(texts):
        behind.setdefault(context, []).append(i)
    portion: list[int] = []
    size, most = 0, FIRST_PORTION
    for context in sorted(behind):
        if size > most:
            yield portion
            portion, size, most = [], 0, min(2 * most, PORTION)
        numbers = sorted(behind[context], key=lambda i: texts[i][1])
        size += len(context) + sum(len(texts[i][1]) for i in numbers)
        portion += numbers
    if portion:
        yield portion


def _exhaust(portions: Iterable[Any]) -> Iterator[Numbered]:
    """Iterates over all portions and yields nothing."""
    for _ in portions:
        yield from ()
