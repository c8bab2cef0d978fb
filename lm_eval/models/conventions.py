"""How text becomes tokens to score, the same for every backend.

Scores are comparable between models only if all split context from continuation, cut over-long
text and stop generation in one and the same way. These are the published conventions as small
functions over strings and lists.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lm_eval.api.instance import Instance
from lm_eval.api.model import move_spaces, split_pair
from lm_eval.config.generation import LENGTH_NAMES
from lm_eval.defaults import DEFAULT_OTHER_SEED
from lm_eval.errors import ConfigError, ModelError

__all__ = [
    "Generation",
    "TextScores",
    "Window",
    "answered_before",
    "cut_at_stop",
    "drawing_seed",
    "fit_window",
    "get_rolling_token_windows",
    "keep_end",
    "make_disjoint_window",
    "move_spaces",
    "read_generation",
    "rolling_windows",
    "room_before",
    "split_pair",
    "stream",
    "task_of",
]

Window = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Generation:
    """How one answer is to be generated."""

    until: tuple[str, ...] = ()
    max_gen_toks: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    @property
    def sampled(self) -> bool:
        """Whether the answer is drawn; otherwise the likeliest token is taken each time."""
        return self.temperature > 0.0


def fit_window(context: list[int], continuation: list[int], max_length: int) -> Window:
    """What the model reads and the tokens it is to predict, one for each of the last positions.

    The last token is predicted and never read. Text that does not fit loses its beginning.
    """
    read = (context + continuation)[-(max_length + 1) : -1]
    return read, continuation[-len(read) :] if continuation else []


def get_rolling_token_windows(
    token_list: list[int], prefix_token: int, max_seq_len: int, context_len: int = 1
) -> Iterator[Window]:
    """Cut a text into windows `(read, predicted)` that predict every token once.

    The first window is conditioned on the prefix token alone. Each later one repeats at least
    `context_len` tokens; the last predicts what is left and is given as much context as fits.
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
    """A window's context alone, and what it predicts."""
    read, predicted = pair
    return read[: len(read) - len(predicted) + 1], predicted


def rolling_windows(
    tokens: list[int], prefix: int, max_length: int, stride: int | None = None
) -> list[Window]:
    """A text's windows of context and continuation, without overlap but for the token before.

    With a stride, each window after the first predicts that many tokens and no more, and so
    conditions every one of them on at least `max_length - stride` tokens before it.
    """
    context = 1 if stride is None else max_length - stride + 1
    windows = get_rolling_token_windows(tokens, prefix, max_length, context)
    return [make_disjoint_window(window) for window in windows]


class TextScores:
    """Adds up the scores of texts from those of their windows, in whatever order these come."""

    def __init__(self, owner: Sequence[int], texts: int) -> None:
        """`owner` tells for each window the number of its text."""
        self.of = [0.0] * texts
        """Each text's score, once it is whole; a text without windows scores nothing."""
        self._owner = owner
        self._left = Counter(owner)
        self._parts: dict[int, dict[int, float]] = defaultdict(dict)

    def add(self, window: int, score: float) -> int | None:
        """Take a window's score; gives the number of the text that is whole by it."""
        text = self._owner[window]
        parts = self._parts[text]
        parts[window] = score
        if len(parts) < self._left[text]:
            return None
        # In the order of the text, so that the sum is the same whatever came first.
        self.of[text] = sum(parts[n] for n in sorted(parts))
        del self._parts[text]
        return text


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """Cut a text at the first occurrence of any stop string."""
    found = [place for stop in stops if stop and (place := text.find(stop)) >= 0]
    return text[: min(found)] if found else text


def read_generation(settings: Mapping[str, Any], max_gen_toks: int) -> Generation:
    """Read a request's generation settings, with every published name for the length.

    An answer is greedy when `do_sample` is false or when nothing asks for sampling; `do_sample`
    alone samples at temperature 1.
    """
    until = settings.get("until") or ()
    until = (until,) if isinstance(until, str) else until
    if not isinstance(until, (list, tuple)) or not all(isinstance(stop, str) for stop in until):
        raise ConfigError(f"until must be a text or a list of texts, not {settings['until']!r}.")
    length = next((settings[n] for n in LENGTH_NAMES if settings.get(n) is not None), max_gen_toks)
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
    """The name of a request's task; people also ask with objects that have nothing but `args`."""
    return str(getattr(request, "task_name", None))


def keep_end(tokens: list[int], room: int) -> list[int]:
    """Shorten a context to the end that fits."""
    return tokens[-room:] if room > 0 else []


def room_before(settings: Generation, max_length: int, request: Instance) -> int:
    """How many tokens of context leave room for the answer."""
    room = max_length - settings.max_gen_toks
    if room < 1:
        raise ModelError(
            f"task {task_of(request)!r}: max_gen_toks={settings.max_gen_toks} leaves no room for "
            f"a context: the model reads at most {max_length} tokens. Ask for shorter answers: "
            "--gen_kwargs max_gen_toks=…"
        )
    return room


def answered_before(asking: Sequence[Instance]) -> int:
    """How many repeats of a prompt have answers already, in a store: the first ones.

    Each repeat is drawn with random numbers of its own, so those that are left must not begin again
    with the first ones'.
    """
    here = Counter(map(id, asking))
    every = {id(request): request for request in asking}
    return sum(max(0, (getattr(r, "repeats", None) or 1) - here[key]) for key, r in every.items())


def drawing_seed(lm: Any) -> int:
    """Where a model's random numbers begin: as it was told, or else the run."""
    given: tuple[int | None, ...] = (lm.seed, lm.run_context.seed, DEFAULT_OTHER_SEED)
    return next(int(seed) for seed in given if seed is not None)


def stream(seed: int, text: str, settings: Generation, repeat: int) -> np.random.Generator:
    """The random numbers of one sampled answer, the same whatever else is asked."""
    asked = repr((seed, text, settings, repeat)).encode()
    digest = hashlib.blake2b(asked, digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))
