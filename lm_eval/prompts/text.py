"""Text clean-up functions that task folders import from `lm_eval.utils`."""

from __future__ import annotations

import re

#: Texts with the spaces that a tokenized corpus adds, and without them.
_JOINED = ((" n't", "n't"), (" )", ")"), ("( ", "("), ('" ', '"'), (' "', '"'))


def general_detokenize(string: str) -> str:
    """Returns `string` without the spaces that tokenized corpora put around punctuation.

    Spaces are removed before `n't`, `)`, `'`, `.` and `,`, after `(`, and on both sides of `"`.
    """
    for apart, together in _JOINED:
        string = string.replace(apart, together)
    return re.sub(r" (['.,])", r"\1", string)
