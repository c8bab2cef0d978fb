"""Conventions shared by all models: splitting tokens, truncating prompts, stopping generation.

Scores of different models are comparable only if all models split context from continuation,
truncate long text and stop generation in the same way. These functions implement the conventions
of the published harness on strings and lists of tokens.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lm_eval.api.instance import Instance
from lm_eval.api.model import move_spaces, split_pair
from lm_eval.config.generation import MAX_LENGTH_NAMES
from lm_eval.defaults import DEFAULT_OTHER_SEED
from lm_eval.errors import ConfigError, ModelError

__all__ = [
    "Generation",
    "TextScores",
    "Window",
    "answer_rng",
    "count_stored_repeats",
    "cut_at_stop",
    "fit_window",
    "get_rolling_token_windows",
    "keep_end",
    "make_disjoint_window",
    "max_context_tokens",
    "move_spaces",
    "read_generation",
    "repeat_numbers",
    "rolling_windows",
    "sampling_seed",
    "split_pair",
    "task_of",
    "warn_truncated",
]

logger = logging.getLogger(__name__)

Window = tuple[list[int], list[int]]
"""The tokens that a model reads (or the context), and the tokens that it predicts."""


@dataclass(frozen=True)
class Generation:
    """The generation settings of one request.

    `until` are the stop strings and `max_gen_toks` is the maximum number of tokens. Temperature 0
    means greedy decoding; `top_k` 0 and `top_p` 1 do not restrict sampling.
    """

    until: tuple[str, ...] = ()
    max_gen_toks: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    @property
    def sampled(self) -> bool:
        """Whether tokens are sampled; otherwise decoding is greedy."""
        return self.temperature > 0.0


def fit_window(context: list[int], continuation: list[int], max_length: int) -> Window:
    """Returns the tokens that the model reads, and the continuation tokens that it predicts.

    The model reads everything but the last token of the continuation, and at most `max_length`
    tokens: the beginning of longer text is cut off. The predicted tokens belong to the last
    positions read, one each: all tokens of the continuation, or its last `max_length` if it is
    longer.
    """
    read = (context + continuation)[-(max_length + 1) : -1]
    return read, continuation[-len(read) :] if continuation else []


def get_rolling_token_windows(
    token_list: list[int], prefix_token: int, max_seq_len: int, context_len: int = 1
) -> Iterator[Window]:
    """Yields windows `(tokens read, tokens predicted)` that together predict every token once.

    The first window reads `prefix_token` before its text. Every later window repeats at least
    `context_len` tokens of the text before it as context. The last window predicts the remaining
    tokens and reads as much context as fits. An empty text has no windows.

    Args:
        token_list: the tokens of the text.
        prefix_token: the token read before the first token of the text.
        max_seq_len: the maximum number of tokens that a window reads.
        context_len: the minimum number of context tokens of every window except the first.
    """
    first = token_list[:max_seq_len]
    if first:
        yield [prefix_token, *first[:-1]], first
    start = len(first)
    while start < len(token_list):
        end = min(start + max_seq_len - context_len + 1, len(token_list))
        yield token_list[end - max_seq_len - 1 : end - 1], token_list[start:end]
        start = end


def make_disjoint_window(pair: Window) -> Window:
    """Returns `(context, predicted)` for a window `(read, predicted)`.

    The tokens read overlap with those predicted; the context is the part before the first predicted
    token.
    """
    read, predicted = pair
    return read[: len(read) - len(predicted) + 1], predicted


def rolling_windows(
    tokens: list[int], prefix: int, max_length: int, stride: int | None = None
) -> list[Window]:
    """Returns the windows `(context, continuation)` that together predict every token of a text.

    Each token is predicted once. An empty text has no windows.

    Args:
        tokens: the tokens of the text.
        prefix: the token read before the first token of the text.
        max_length: the maximum number of tokens that a window reads.
        stride: how many tokens each window after the first predicts. Every one of them is then
            conditioned on at least `max_length - stride` tokens. None for as many as possible.
    """
    context = 1 if stride is None else max_length - stride + 1
    windows = get_rolling_token_windows(tokens, prefix, max_length, context)
    return [make_disjoint_window(window) for window in windows]


class TextScores:
    """Sums the scores of texts from the scores of their windows, which may come in any order."""

    def __init__(self, owner: Sequence[int], texts: int) -> None:
        """Prepares for `texts` texts; `owner` gives for each window the index of its text."""
        self.of = [0.0] * texts
        """The score of each text, 0 until its windows are complete or if it has no windows."""
        self._owner = owner
        self._left = Counter(owner)
        self._parts: dict[int, dict[int, float]] = defaultdict(dict)

    def add(self, window: int, score: float) -> int | None:
        """Adds the score of a window, given its index; returns the index of its text if complete.

        Returns None while other windows of the text are missing.
        """
        text = self._owner[window]
        parts = self._parts[text]
        parts[window] = score
        if len(parts) < self._left[text]:
            return None
        # Summed in the order of the text: floating-point sums depend on the order.
        self.of[text] = sum(parts[n] for n in sorted(parts))
        del self._parts[text]
        return text


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """Returns the text up to the first occurrence of any stop string, which is not included.

    Returns the whole text if none occurs. Empty stop strings are ignored.
    """
    found = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
    return text[: min(found)] if found else text


def read_generation(settings: Mapping[str, Any], max_gen_toks: int) -> Generation:
    """Returns the generation settings of a request in typed form.

    Decoding is greedy if `do_sample` is False, if the temperature is 0, or if neither is set.
    `do_sample=True` without a temperature samples at temperature 1.

    Args:
        settings: the settings as the task gives them. The maximum length may have any of the names
            `max_gen_toks`, `max_new_tokens`, `max_tokens`, `max_completion_tokens`.
        max_gen_toks: the maximum length if `settings` does not contain one.

    Raises `ConfigError` if `until` is not a string or a list of strings, and `ValueError` or
    `TypeError` if a length, temperature, `top_k` or `top_p` is not a number.
    """
    until = settings.get("until") or ()
    until = (until,) if isinstance(until, str) else until
    if not isinstance(until, (list, tuple)) or not all(isinstance(stop, str) for stop in until):
        raise ConfigError(
            "generation settings: until must be a string or a list of strings, not "
            f"{settings['until']!r}."
        )
    length = next(
        (settings[n] for n in MAX_LENGTH_NAMES if settings.get(n) is not None), max_gen_toks
    )
    temperature = settings.get("temperature")
    do_sample = settings.get("do_sample")
    if temperature is None:
        temperature = 1.0 if do_sample else 0.0
    top_p = settings.get("top_p")
    return Generation(
        until=tuple(until),
        max_gen_toks=int(length),
        temperature=0.0 if do_sample is False else float(temperature),
        top_k=max(0, int(settings.get("top_k") or 0)),
        top_p=1.0 if top_p is None else float(top_p),
    )


def task_of(request: Instance) -> str:
    """Returns the name of a request's task; "None" for request objects that have only `args`."""
    return str(getattr(request, "task_name", None))


def keep_end(tokens: list[int], room: int) -> list[int]:
    """Returns the last `room` tokens; all if there are fewer, none if `room` is 0 or negative."""
    return tokens[-room:] if room > 0 else []


def max_context_tokens(settings: Generation, max_length: int, request: Instance) -> int:
    """Returns how many tokens the context may have, so that the answer fits after it.

    Raises `ModelError` if there is no room for any, naming the task of `request`.
    """
    room = max_length - settings.max_gen_toks
    if room < 1:
        raise ModelError(
            f"task {task_of(request)!r}: max_gen_toks={settings.max_gen_toks} leaves no room for "
            f"a context: the context length of the model is {max_length} tokens. Request "
            "shorter answers with --gen_kwargs max_gen_toks=…"
        )
    return room


def warn_truncated(
    tasks: Iterable[str],
    truncated: Counter[str],
    before: Counter[str],
    max_length: int,
    cut: str = "beginning",
) -> None:
    """Logs a warning for each of the tasks with requests that were truncated.

    Args:
        tasks: the names of the tasks.
        truncated: the number of truncated requests by task.
        before: the same at an earlier moment; only the difference is reported.
        max_length: the maximum number of tokens of a request.
        cut: the part of the requests that was cut off.
    """
    for task in dict.fromkeys(tasks):
        if count := truncated[task] - before[task]:
            logger.warning(
                "Task %s: %d requests are longer than max_length (%d tokens) and were "
                "truncated: the %s was cut off.",
                task,
                count,
                max_length,
                cut,
            )


def count_stored_repeats(requests: Sequence[Instance]) -> int:
    """Returns how many repeats of a prompt already have stored answers.

    Each repeat is sampled with its own random numbers, so the remaining repeats must be numbered
    from here on, and must not use the random numbers of the stored ones again.

    Args:
        requests: the requests with this prompt that are sent to the model now. A request occurs
            once per repeat that is left.
    """
    here = Counter(map(id, requests))
    every = {id(request): request for request in requests}
    return sum(max(0, (getattr(r, "repeats", None) or 1) - here[key]) for key, r in every.items())


def repeat_numbers(requests: Sequence[Instance]) -> tuple[int, ...]:
    """Returns the number of the repeat, from 0, that each request with a prompt asks for.

    `requests` are those with this prompt that are sent to the model now, as for
    `count_stored_repeats`. The numbers are different, and none has a stored answer.
    """
    numbers = getattr(requests[0], "open_repeats", None)
    alone = all(request is requests[0] for request in requests)
    if alone and numbers is not None and len(numbers) == len(requests):
        return tuple(numbers)
    first = count_stored_repeats(requests)
    return tuple(range(first, first + len(requests)))


def sampling_seed(lm: Any) -> int:
    """Returns the seed for sampled answers: the model's own, else that of the run, else 1234."""
    given: tuple[int | None, ...] = (lm.seed, lm.run_context.seed, DEFAULT_OTHER_SEED)
    return next(int(seed) for seed in given if seed is not None)


def answer_rng(seed: int, text: str, settings: Generation, repeat: int) -> np.random.Generator:
    """Returns the random generator for one sampled answer.

    It is seeded with the arguments alone, so an answer does not depend on the other requests.
    `text` is the prompt, and `repeat` the number of the repeat, counted from 0.
    """
    identity = repr((seed, text, settings, repeat)).encode()
    digest = hashlib.blake2b(identity, digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))
