"""Scores continuations: encodes the requests, truncates them and chooses the scorer for each."""

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
from lm_eval.models.huggingface.request_errors import NaNScoresError, describe_request
from lm_eval.models.huggingface.scoring import NumberedScore, Scorer

MAX_PORTION_CHARS = 1 << 20
FIRST_PORTION_CHARS = 1 << 16
"""How many characters are encoded at once, ahead of the device. The first portion is small so that
the device can start soon."""

NumberedWindow = tuple[int, Window]
"""The index of a request, and the tokens of its context and continuation."""


@dataclass(frozen=True)
class InputLimits:
    """How many tokens a model can read, and which are cut from a longer request."""

    max_length: int
    causal: bool
    truncation_side: str

    def exceeded_by(self, context: list[int], continuation: list[int]) -> bool:
        """Returns whether a request is too long and will be truncated.

        A causal model does not read the last token of the continuation, so context and continuation
        may have `max_length + 1` tokens together. For an encoder-decoder model, the limit is
        `max_length` for each of them.
        """
        if not self.causal:
            return max(len(context), len(continuation)) > self.max_length
        return len(context) + len(continuation) > self.max_length + 1

    def fit(self, context: list[int], continuation: list[int]) -> Window:
        """Returns the tokens to read, and the tokens that their last positions predict.

        A request that is too long is truncated: the beginning is cut off or, with `truncation_side`
        "right", the end of the context. For an encoder-decoder model, the two are the last
        `max_length` tokens of the context and those of the continuation.
        """
        longest = self.max_length
        if not self.causal:
            return context[-longest:], continuation[-longest:]
        if self.truncation_side == "right":
            context = context[: max(1, longest + 1 - len(continuation))]
        return fit_window(context, continuation, longest)

    def fit_all(self, windows: Iterable[NumberedWindow]) -> dict[int, Window]:
        """Returns the result of `fit` for each window, by request index.

        Windows that read the same tokens share one list.
        """
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
    limits: InputLimits,
    tree: Scorer | None,
    plain: Scorer,
    max_shared: int | None,
    usage: Usage,
) -> Iterator[NumberedScore]:
    """Yields the index of each window and its score, as soon as a batch is finished.

    A score is `(log-probability, is_greedy)`. The tree scorer shares prefixes. The plain scorer
    gets the windows that are longer than `max_shared`, and those whose score was NaN. In a tree,
    one request's NaN spreads to its neighbors (because 0 · NaN = NaN). Scored again separately,
    only the request that causes it is NaN.

    Args:
        portions: windows `(index, (context tokens, continuation tokens))`, in portions that are
            requested one by one.
        limits: how windows are truncated.
        tree: the scorer that shares prefixes; None if that is not exact on the model.
        plain: the scorer that computes each request in full.
        max_shared: the maximum number of tokens of a window for the tree scorer, or None for no
            limit.
        usage: counts the tokens.

    Raises:
        NaNScoresError: if a window's score is NaN.
    """
    max_shared = max_shared or limits.max_length
    waiting: dict[int, Window] = {}
    others: dict[int, Window] = {}
    tokens = 0

    def shared_windows() -> Iterator[dict[int, Window]]:
        nonlocal tokens
        for portion in portions:
            fitted = limits.fit_all(portion)
            tokens += sum(len(read) for read, _ in fitted.values())
            long = [n for n, (read, _) in fitted.items() if tree is None or len(read) > max_shared]
            others.update((n, fitted.pop(n)) for n in long)
            waiting.update(fitted)
            yield fitted

    for number, score in (
        tree.score(shared_windows()) if tree is not None else _exhaust(shared_windows())
    ):
        window = waiting.pop(number)
        if math.isnan(score[0]):
            others[number] = window
        else:
            yield number, score
    fitting = {n: window for n, window in others.items() if len(window[0]) <= max_shared}
    beyond = {n: window for n, window in others.items() if n not in fitting}
    for number, score in plain.score([beyond, fitting]):
        if math.isnan(score[0]):
            raise NaNScoresError(number)
        yield number, score
    computed = plain.computed + (tree.computed if tree is not None else 0)
    usage.count_prompt(tokens, computed)


def encode_ahead(
    requests: list[Instance],
    encode: Callable[[list[tuple[str, str]]], list[Window]],
    limits: InputLimits,
    usage: Usage,
) -> Iterator[list[NumberedWindow]]:
    """Yields lists of encoded requests, and encodes the next list in a thread meanwhile.

    An encoded request is `(index in requests, (context tokens, continuation tokens))`. The lists
    follow the order of the texts, so that requests with a common prefix are in the same one. Counts
    requests that `limits` will truncate in `usage`. Raises `ModelError` for a continuation without
    tokens. `encode` returns the tokens of some pairs of context and continuation.
    """
    texts = [request.args for request in requests]

    def encode_portion(numbers: list[int]) -> list[NumberedWindow]:
        return list(zip(numbers, encode([texts[i] for i in numbers]), strict=True))

    portions = list(sorted_portions(texts))
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
    limits: InputLimits,
    usage: Usage,
) -> None:
    """Raises `ModelError` if a continuation has no tokens.

    Counts requests that will be truncated in `usage`, by task.
    """
    for i, window in windows:
        if not window[1]:
            raise ModelError(
                f"{describe_request(requests[i])}: the continuation {requests[i].args[1]!r} has no "
                "tokens after its context, so it cannot be scored. Check doc_to_choice and "
                "doc_to_target in the task."
            )
        if limits.exceeded_by(*window):
            usage.truncated[task_of(requests[i])] += 1


def sorted_portions(texts: Sequence[tuple[str, str]]) -> Iterator[list[int]]:
    """Yields lists of indices into `texts`, sorted by context and then by continuation.

    `texts` are pairs of context and continuation. Pairs with the same context are in the same list.
    A list ends once its texts exceed a number of characters, which starts at `FIRST_PORTION_CHARS`
    and doubles up to `MAX_PORTION_CHARS`. No list is empty.
    """
    by_context: dict[str, list[int]] = {}
    for i, (context, _) in enumerate(texts):
        by_context.setdefault(context, []).append(i)
    portion: list[int] = []
    size, limit = 0, FIRST_PORTION_CHARS
    for context in sorted(by_context):
        if size > limit:
            yield portion
            portion, size, limit = [], 0, min(2 * limit, MAX_PORTION_CHARS)
        numbers = sorted(by_context[context], key=lambda i: texts[i][1])
        size += len(context) + sum(len(texts[i][1]) for i in numbers)
        portion += numbers
    if portion:
        yield portion


def _exhaust(portions: Iterable[Any]) -> Iterator[NumberedScore]:
    """Iterates over all portions and yields nothing."""
    for _ in portions:
        yield from ()
