"""Small repairs of text that task folders ask for by name."""

from __future__ import annotations

import re

_JOINED = ((" n't", "n't"), (" )", ")"), ("( ", "("), ('" ', '"'), (' "', '"'))


def general_detokenize(string: str) -> str:
    """Take out the spaces that tokenised corpora put around punctuation."""
    for apart, together in _JOINED:
        string = string.replace(apart, together)
    return re.sub(r" (['.,])", r"\1", string)
