"""What generation settings are called, so that misspelt ones are found before a model is loaded.

A backend hands on whatever it does not know itself, so any name may be right somewhere. But one
that is nearly, and not quite, a known one would be ignored, or stop a run hours later: it is
refused where a user types it, and warned of where a task file has it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from lm_eval.errors import suggestion

#: Of ours, of transformers, of vLLM and of the usual servers.
NAMES = (
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
LENGTH_NAMES = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""What the greatest length of an answer is called; of several the first counts."""
ALIKE = 0.85
"""How much like a known name one must be to count as misspelt."""


def misspelt(names: Iterable[str]) -> str:
    """What to say of the first name that is misspelt, or nothing."""
    for name in names:
        if name not in NAMES and (
            close := difflib.get_close_matches(str(name), NAMES, n=1, cutoff=ALIKE)
        ):
            return f"there is no generation setting {name!r}.{suggestion(name, close)}"
    return ""
