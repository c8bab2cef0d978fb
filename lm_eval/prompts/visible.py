"""Makes invisible characters of a prompt visible, for `lm-eval show`."""

from __future__ import annotations

import re
import unicodedata

LINE_END, TAB, SPACE = "↵", "⇥", "·"
#: Spaces that are easily overlooked: those at the start or end of a line, and several in a row.
_UNSEEN_SPACES = re.compile(r"^ +| +$|  +", re.MULTILINE)
#: Initials of the Unicode categories of characters without a glyph: "C" (control, format,
#: unassigned …) and "Z" (separators).
_WITHOUT_GLYPH = ("C", "Z")


def visible(text: str) -> str:
    """Returns `text` with visible marks in place of characters that cannot be seen.

    Spaces become `·` at the start or end of a line and where there are several in a row; other
    single spaces stay. Tabs become `⇥`, and other characters without a glyph their code, as in
    `‹U+200B›`. Every line break is preceded by `↵`.
    """
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
