"""From scoring requests to scores: which tokens are read, and by which way they are scored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from lm_eval.api.instance import Instance
from lm_eval.errors import ModelError
from lm_eval.models.conventions import Window, fit_window, task_of
from lm_eval.models.huggingface.naming import NotANumberError, named
from lm_eval.models.huggingface.scoring import Numbered

if TYPE_CHECKING:
    from lm_eval.models.huggingface.model import HFLM

PORTION = 1 << 20
FIRST_PORTION = 1 << 16
"""Letters that are encoded at once, ahead of the device: few first, so that it can begin."""


class Continuations:
    """Scores continuations of contexts with a model."""

    def __init__(self, lm: HFLM) -> None:
        self.lm = lm

    def score(self, requests: list[Instance]) -> Iterator[Numbered]:
        """Yields the number of a request and its score, as batches are finished."""
        try:
            yield from self.score_windows(self._encoded_ahead(requests))
        except NotANumberError as error:
            raise error.of(requests[error.number]) from error

    def score_windows(self, portions: Iterable[Iterable[tuple[int, Window]]]) -> Iterator[Numbered]:
        """Score windows of context and continuation, each with its number.

        Whatever the tree does not take goes the plain way afterwards: windows longer than can be
        shared, and those whose score was no number. In a tree one request's NaN reaches its
        neighbours, since nothing times NaN is NaN; by itself each shows whose it was.
        """
        tree, plain = self.lm.tree_scorer(), self.lm.plain_scorer()
        longest = self.lm.ways.longest or self.lm.max_length
        waiting: dict[int, Window] = {}
        others: dict[int, Window] = {}
        tokens = 0

        def shared() -> Iterator[dict[int, Window]]:
            nonlocal tokens
            for portion in portions:
                fitted = self.fit_all(portion)
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
        self.lm.run_context.usage.read(tokens, computed)

    # -- what is read ----------------------------------------------------------------------------

    def _encoded_ahead(self, requests: list[Instance]) -> Iterator[list[tuple[int, Window]]]:
        """Encode requests in portions, the next one while the device works on this one.

        Portions are cut in the order of the texts, so that what is shared stays together.
        """
        lm = self.lm
        texts = [request.args for request in requests]
        prefix, causal = lm.prefix_token_id, lm.backend == "causal"

        def encode(numbers: list[int]) -> list[tuple[int, Window]]:
            pairs = [texts[i] for i in numbers]
            windows = lm.text_encoder.encode_pairs(pairs, prefix, causal=causal)
            return list(zip(numbers, windows, strict=True))

        portions = list(in_portions(texts))
        if not portions:
            return
        with ThreadPoolExecutor(1) as ahead:
            following: Future[list[tuple[int, Window]]] | None = ahead.submit(encode, portions[0])
            for portion in [*portions[1:], None]:
                assert following is not None
                found = following.result()
                following = ahead.submit(encode, portion) if portion is not None else None
                self.look_over(requests, found)
                yield found

    def look_over(self, requests: list[Instance], windows: Iterable[tuple[int, Window]]) -> None:
        """Refuse answers without tokens; count requests that will lose some of theirs."""
        for i, window in windows:
            if not window[1]:
                raise ModelError(
                    f"{named(requests[i])}: the answer {requests[i].args[1]!r} becomes no tokens "
                    "behind its context, so it has no probability; check doc_to_choice and "
                    "doc_to_target."
                )
            if self._too_long(*window):
                self.lm.run_context.usage.truncated[task_of(requests[i])] += 1

    def _too_long(self, context: list[int], continuation: list[int]) -> bool:
        longest = self.lm.max_length
        if self.lm.backend != "causal":
            return max(len(context), len(continuation)) > longest
        return len(context) + len(continuation) > longest + 1

    def fit_all(self, windows: Iterable[tuple[int, Window]]) -> dict[int, Window]:
        """Fit numbered windows; those that read alike share what they read."""
        if self.lm.backend != "causal":
            return {number: self._fit(*window) for number, window in windows}
        read: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        fitted = {}
        for number, (context, continuation) in windows:
            key = id(context), tuple(continuation[:-1])
            if key in read:
                fitted[number] = read[key], continuation[-len(read[key]) :]
            else:
                fitted[number] = self._fit(context, continuation)
                read[key] = fitted[number][0]
        return fitted

    def _fit(self, context: list[int], continuation: list[int]) -> Window:
        """What is read and what its last positions predict, cut to what the model can read."""
        longest = self.lm.max_length
        if self.lm.backend != "causal":
            return context[-longest:], continuation[-longest:]
        if self.lm.truncation_side == "right":
            context = context[: max(1, longest + 1 - len(continuation))]
        return fit_window(context, continuation, longest)


def in_portions(texts: Sequence[tuple[str, str]]) -> Iterator[list[int]]:
    """Numbers of texts in the order of their contexts, cut into portions that encode quickly."""
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
    """Ask for all portions, and answer nothing."""
    for _ in portions:
        yield from ()
