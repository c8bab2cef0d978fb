"""Helpers for model classes; classes written for the published harness import them from here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lm_eval._lazy import lazy_exports
from lm_eval.config.generation import MAX_LENGTH_NAMES
from lm_eval.defaults import DEFAULT_MAX_LENGTH
from lm_eval.models.batching import Collator, Grouper, Reorderer, chunks, undistribute
from lm_eval.models.conventions import cut_at_stop, read_generation

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
    "normalize_gen_kwargs",
    "postprocess_generated_text",
    "undistribute",
]


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
    """Returns generation settings with normalized names and values.

    `until` is a list, the maximum length is `max_gen_toks` (`default_max_gen_toks` if none is set),
    and `do_sample` and `temperature` are set and consistent (see `read_generation`). Other settings
    are passed through. Raises `ConfigError` if `until` is not a string or a list of strings.
    """
    read = read_generation(gen_kwargs, default_max_gen_toks)
    others = {name: value for name, value in gen_kwargs.items() if name not in MAX_LENGTH_NAMES}
    return {
        **others,
        "until": list(read.until),
        "max_gen_toks": read.max_gen_toks,
        "do_sample": read.sampled,
        "temperature": read.temperature,
    }


def postprocess_generated_text(
    generation: str, stop: str | Sequence[str] | None, think_end_token: str | None
) -> str:
    """Returns the generated text after the last `think_end_token`, up to the first stop string.

    With a `think_end_token`, whitespace at the beginning is removed; a text without the token is
    otherwise kept whole. None keeps all text. `stop` may be a string, a list or None.
    """
    text = generation.split(think_end_token)[-1].lstrip() if think_end_token else generation
    return cut_at_stop(text, [stop] if isinstance(stop, str) else stop or [])
