"""Helpers for model classes; classes written for the published harness import them from here."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from lm_eval._lazy import lazy_exports
from lm_eval.config.generation import MAX_LENGTH_NAMES
from lm_eval.defaults import DEFAULT_MAX_LENGTH
from lm_eval.errors import ConfigError
from lm_eval.models.batching import Collator, Grouper, Reorderer, chunks, undistribute
from lm_eval.models.context_length import resolve_max_length
from lm_eval.models.conventions import cut_at_stop, read_generation
from lm_eval.models.retrying import retry_on_specific_exceptions

if TYPE_CHECKING:
    from lm_eval.models.utils_hf import clear_torch_cache as clear_torch_cache
    from lm_eval.models.utils_hf import configure_pad_token as configure_pad_token
    from lm_eval.models.utils_hf import get_dtype as get_dtype
    from lm_eval.models.utils_hf import pad_and_concat as pad_and_concat
    from lm_eval.models.utils_hf import stop_sequences_criteria as stop_sequences_criteria

# Imported on first use, because they need torch.
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "clear_torch_cache": "lm_eval.models.utils_hf",
        "configure_pad_token": "lm_eval.models.utils_hf",
        "get_dtype": "lm_eval.models.utils_hf",
        "pad_and_concat": "lm_eval.models.utils_hf",
        "stop_sequences_criteria": "lm_eval.models.utils_hf",
    },
)

__all__ = [
    "DEFAULT_MAX_LENGTH",
    "Collator",
    "Grouper",
    "Reorderer",
    "chunks",
    "handle_stop_sequences",
    "has_bos_prefix",
    "maybe_truncate",
    "normalize_gen_kwargs",
    "postprocess_generated_text",
    "resolve_max_length",
    "retry_on_specific_exceptions",
    "truncate_tokens",
    "undistribute",
]

eval_logger = logging.getLogger(__name__)

Side = Literal["left", "middle", "right"]


def has_bos_prefix(sequence: str, bos_str: str | Iterable[str] | None = None) -> bool:
    """Returns whether `sequence` begins with `bos_str` (a string or several); False if None."""
    return bos_str is not None and sequence.startswith(
        bos_str if isinstance(bos_str, str) else tuple(bos_str)
    )


def _add_special_kwargs(
    add_special_tokens: bool | None, add_bos: bool | None = None
) -> dict[str, bool]:
    """Returns `{"add_special_tokens": …}` with the first argument that is not None.

    Returns `{}` if both are None, which leaves the decision to the tokenizer.
    """
    decided = add_bos if add_special_tokens is None else add_special_tokens
    return {} if decided is None else {"add_special_tokens": decided}


def handle_stop_sequences(until: str | list[str] | None, eos: str | None) -> list[str]:
    """Returns the stop strings `until` as a list, with the end-of-text string `eos` added.

    `eos` is not added if it is None or already in the list. None for `until` counts as empty.
    """
    stops = [until] if isinstance(until, str) else list(until or [])
    return stops if eos is None or eos in stops else [*stops, eos]


def normalize_gen_kwargs(
    gen_kwargs: Mapping[str, Any], default_max_gen_toks: int = 256
) -> dict[str, Any]:
    """Returns a copy of generation settings with normalized names and values.

    `until` is a list. The maximum length is `max_gen_toks`, or `default_max_gen_toks` if none is
    set. `do_sample` is always set: if it is not given, it is whether the temperature is above 0. If
    it is given as False, the temperature becomes 0.0. Otherwise `temperature` is as given, also if
    that is not at all, or if it contradicts `do_sample: true`. Other settings are passed through.
    Raises `ConfigError` if `until` is not a string or a list of strings.
    """
    read = read_generation(gen_kwargs, default_max_gen_toks)
    settings = {
        name: copy.deepcopy(value)
        for name, value in gen_kwargs.items()
        if name not in MAX_LENGTH_NAMES
    }
    do_sample = settings.get("do_sample")
    if do_sample is None:
        settings["do_sample"] = read.sampled
    elif do_sample is False:
        settings["temperature"] = 0.0
    return {**settings, "until": list(read.until), "max_gen_toks": read.max_gen_toks}


def truncate_tokens(tokens: list[int], max_length: int, side: Side = "left") -> list[int]:
    """Returns at most `max_length` tokens, none if that is negative; those at `side` are removed.

    "middle" keeps the first half and the last half, of which the last is longer by one token if
    `max_length` is odd. Raises `ConfigError` for another `side`.
    """
    if side not in ("left", "middle", "right"):
        raise ConfigError(f"side must be 'left', 'middle' or 'right', not {side!r}.")
    max_length = max(max_length, 0)
    if len(tokens) <= max_length:
        return tokens
    if side == "right":
        return tokens[:max_length]
    kept = 0 if side == "left" else max_length // 2
    return tokens[:kept] + tokens[len(tokens) - (max_length - kept) :]


def maybe_truncate(
    tokens: list[int],
    max_gen_toks: int,
    max_model_len: int,
    min_gen_toks: int = 1,
    side: Side = "left",
    shrink_gen_toks: bool = False,
    verbose: bool = True,
) -> tuple[list[int], int]:
    """Returns a context and the maximum length of its answer, made to fit the model together.

    Args:
        tokens: the tokens of the context.
        max_gen_toks: the maximum length of the answer.
        max_model_len: the context length of the model, for context and answer.
        min_gen_toks: with `shrink_gen_toks`, the room that the answer keeps.
        side: where the context is cut; see `truncate_tokens`.
        shrink_gen_toks: whether to shorten the answer before the context is cut.
        verbose: whether to log a warning if something is shortened.

    Raises `ConfigError` if `shrink_gen_toks` is set and `min_gen_toks` leaves no room for any
    context.
    """
    room = max_model_len - len(tokens)
    if max_gen_toks <= room:
        return tokens, max_gen_toks
    length = max_gen_toks
    if shrink_gen_toks:
        length = max(room, min_gen_toks)
        if room < min_gen_toks and max_model_len <= min_gen_toks:
            raise ConfigError(
                f"a context length of {max_model_len} tokens leaves no room for a context before "
                f"an answer of {min_gen_toks} tokens. Lower min_gen_toks."
            )
    kept = truncate_tokens(tokens, max_model_len - length, side)
    if verbose:
        eval_logger.warning(
            "A context of %d tokens and an answer of up to %d exceed the context length of %d: "
            "%d tokens of the context are removed (%s), and the answer gets up to %d.",
            len(tokens),
            max_gen_toks,
            max_model_len,
            len(tokens) - len(kept),
            side,
            length,
        )
    return kept, length


def postprocess_generated_text(
    generation: str, stop: str | Sequence[str] | None, think_end_token: str | None
) -> str:
    """Returns the generated text after the last `think_end_token`, up to the first stop string.

    With a `think_end_token`, whitespace at the beginning is removed; a text without the token is
    otherwise kept whole. None keeps all text. `stop` may be a string, a list or None.
    """
    text = generation.split(think_end_token)[-1].lstrip() if think_end_token else generation
    return cut_at_stop(text, [stop] if isinstance(stop, str) else stop or [])
