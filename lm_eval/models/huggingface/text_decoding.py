"""Tokens → text, of many answers at once."""

from __future__ import annotations

import logging
from typing import Any

from lm_eval.models.partial_answers import Decode, DecodeMany, special_tokens

logger = logging.getLogger(__name__)

PROBES = (
    " Tom has 3 apples , doesn 't he ? I ca n't say ! Mira 's , we 're , they 've . I 'm off . ",
    "\n\n  über  日本語 🙂\tdef f( x ) :\n    return x\n",
    "",
)
"""Texts that show what a tokenizer does to decoded texts, such as removing spaces before commas."""
MAX_SPECIAL_TOKENS = 64
"""At most so many special tokens are put between the texts of a probe."""


def one_by_one(decode: Decode) -> DecodeMany:
    """Returns a function that decodes rows of tokens one after another."""
    return lambda rows: [decode(row) for row in rows]


def fast_decoder(tokenizer: Any, decode: Decode) -> DecodeMany:
    """Returns a function from rows of tokens to their texts, without special tokens.

    It uses the tokenizer's Rust core, which decodes in parallel, if that gives the same texts as
    `decode` on probes. Otherwise it uses `decode`, which returns the text of one row.
    """
    core: Any = getattr(tokenizer, "backend_tokenizer", None)
    if not hasattr(core, "decode_batch"):
        return one_by_one(decode)

    def decode_batch(rows: list[list[int]]) -> list[str]:
        return list(core.decode_batch(rows, skip_special_tokens=True))

    try:
        rows = [list(tokenizer.encode(text, add_special_tokens=False)) for text in PROBES]
        special = list(special_tokens(tokenizer).values())[:MAX_SPECIAL_TOKENS]
        rows += [[*rows[0], token, *rows[0]] for token in special]
        rows += [rows[0][first:] for first in range(len(rows[0]))]
        same = decode_batch(rows) == one_by_one(decode)(rows)
    except Exception as error:  # tokenizers raises plain `Exception`
        logger.info("Answers are decoded one by one, not at once, which is slower: %s", error)
        return one_by_one(decode)
    return decode_batch if same else one_by_one(decode)
