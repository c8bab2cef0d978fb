"""Text with everything in it to be seen: spaces that matter, line ends, marks without a glyph."""

from __future__ import annotations

import re
import unicodedata

LINE_END, TAB, SPACE = "↵", "⇥", "·"
#: Spaces that a reader would overlook: at the edges of a line, and more than one.
_UNSEEN_SPACES = re.compile(r"^ +| +$|  +", re.MULTILINE)
#: Categories of characters without a glyph: control, format, separators, unassigned …
_WITHOUT_GLYPH = ("C", "Z")


def visible(text: str) -> str:
    """The text, one line a line, with marks where something is that cannot be seen."""
    marked = _UNSEEN_SPACES.sub(lambda found: SPACE * len(found[0]), text)
    return "".join(map(_mark, marked))


def _mark(character: str) -> str:
    if character == "\n":
        return f"{LINE_END}\n"
    if character == "\t":
        return TAB
    if character == " " or unicodedata.category(character)[0] not in _WITHOUT_GLYPH:
        return character
    return f"‹U+{ord(character):04X}›"
