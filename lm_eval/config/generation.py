"""The known names of generation settings, and the detection of misspelled ones.

Backends pass unknown settings on to their libraries, so an unknown name may be valid. A name that
is very similar to a known one is probably a typing error, though, and would be ignored or fail
hours later. On the command line it is an error; in a task file it causes a warning.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from lm_eval.errors import suggestion

#: The settings of this package, of transformers, of vLLM and of common inference servers.
KNOWN_SETTINGS = (
    "until", "stop", "stop_strings", "stop_sequences", "stop_token_ids",
    "include_stop_str_in_output", "stop_sequence", "stop_tokens", "stopSequences",
    "max_gen_toks", "max_gen_tokens", "max_new_tokens", "max_tokens", "max_completion_tokens",
    "max_length", "maxTokens", "min_length", "min_new_tokens", "min_tokens", "max_time",
    "ignore_eos", "truncation", "do_sample", "temperature", "top_k", "top_p", "min_p", "top_h",
    "typical_p", "typical", "epsilon_cutoff", "eta_cutoff", "seed", "n", "best_of",
    "num_return_sequences", "num_beams", "num_beam_groups", "early_stopping", "length_penalty",
    "diversity_penalty", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "presencePenalty", "frequencyPenalty", "encoder_repetition_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "penalty_alpha", "guidance_scale", "bad_words",
    "bad_words_ids", "force_words_ids", "suppress_tokens", "begin_suppress_tokens",
    "sequence_bias", "renormalize_logits", "remove_invalid_values", "use_cache", "use_kv_cache",
    "logit_bias", "logprobs", "prompt_logprobs", "skip_special_tokens",
    "spaces_between_special_tokens", "pad_token", "pad_token_id", "bos_token_id", "eos_token",
    "eos_token_id", "eos_token_ids", "reasoning_effort", "response_format", "think_end_token",
    "enable_thinking", "chat_template_kwargs", "extra_body",
)  # fmt: skip
MAX_LENGTH_NAMES = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""The names of the maximum length of an answer in tokens; if several are set, the first is used."""
SIMILARITY_CUTOFF = 0.85
"""The similarity to a known name, from 0 to 1, from which an unknown name counts as misspelled."""


#: The numbers that a setting may be: a description, the smallest and the largest.
_RANGES = {
    "temperature": ("a number of at least 0", 0.0, math.inf),
    "top_p": ("a number above 0 and at most 1", 5e-324, 1.0),
    "min_p": ("a number from 0 to 1", 0.0, 1.0),
    "typical_p": ("a number above 0 and at most 1", 5e-324, 1.0),
    "repetition_penalty": ("a number above 0", 5e-324, math.inf),
}
#: The same for integers. A `top_k` of 0 or -1 means that all tokens may be drawn.
_INTEGER_RANGES = {
    "top_k": ("an integer of at least 1 (0 or -1 for all tokens)", -1, math.inf),
    "num_beams": ("an integer of at least 1", 1, math.inf),
    "n": ("an integer of at least 1", 1, math.inf),
    **dict.fromkeys(MAX_LENGTH_NAMES, ("an integer of at least 0", 0, math.inf)),
}


def find_meaningless(settings: Mapping[str, Any]) -> str:
    """Returns a message about the first setting whose value means nothing; empty if there is none.

    These are numbers out of range, NaN, infinities, and anything that is no number. A value of None
    is not set.
    """
    for ranges, is_valid in ((_RANGES, _is_finite), (_INTEGER_RANGES, _is_integer)):
        for name, (expected, smallest, largest) in ranges.items():
            value = settings.get(name)
            if value is None or (is_valid(value) and smallest <= value <= largest):
                continue
            return f"{name} is {value!r}; it must be {expected}."
    return ""


def read_sampled(settings: Mapping[str, Any]) -> bool:
    """Returns whether answers with these settings are sampled; otherwise they are greedy.

    `do_sample` decides if it is False. Otherwise the temperature does; without one, `do_sample`.
    """
    if settings.get("do_sample") is False:
        return False
    temperature = settings.get("temperature")
    return bool(settings.get("do_sample")) if temperature is None else float(temperature) > 0


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _is_integer(value: Any) -> bool:
    return _is_finite(value) and not isinstance(value, bool) and value == int(value)


def find_misspelled(names: Iterable[str]) -> str:
    """Returns a message about the first of `names` that is misspelled; empty if none is.

    A name counts as misspelled if it is not known but very similar to a known one. Other unknown
    names are not reported.
    """
    for name in names:
        if name not in KNOWN_SETTINGS and (
            close := difflib.get_close_matches(
                str(name), KNOWN_SETTINGS, n=1, cutoff=SIMILARITY_CUTOFF
            )
        ):
            return f"unknown generation setting {name!r}.{suggestion(name, close)}"
    return ""
