"""Final answers in LaTeX, as in MATH: found in a solution, and compared as text.

The rules are those of the MATH paper (Hendrycks et al., 2021), the names those of the published
harness.
"""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)

#: Replacements for spelling differences that do not change the meaning, applied in this order.
_REPLACED = (
    ("\n", ""),
    ("\\!", ""),
    ("\\\\", "\\"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    ("\\left", ""),
    ("\\right", ""),
    ("^{\\circ}", ""),
    ("^\\circ", ""),
    ("\\$", ""),
)
_BOX, _OPEN_BOX, _FRAMED = "\\boxed ", "\\boxed{", "\\fbox"
_FRACTION, _ROOT, _UNIT = "\\frac", "\\sqrt", "\\text{ "


class AnswerFormatError(ValueError, AssertionError, IndexError):
    """An answer that a function cannot handle.

    The published functions raise `AssertionError`, `IndexError` or `ValueError` in these cases.
    """


# -- boxes ------------------------------------------------------------------------------------


def last_boxed_only_string(string: str) -> str | None:
    r"""Returns the last box of a solution, such as `\boxed{1}`, with its command.

    None if there is no box (`\boxed` or `\fbox`), or if its braces are not balanced. A box without
    braces (`\boxed 1`) ends before the next dollar sign.
    """
    if _BOX in string:
        return _BOX + string.split(_BOX)[-1].split("$")[0]
    start = string.rfind("\\boxed")
    if start < 0:
        start = string.rfind(_FRAMED)
    if start < 0:
        return None
    depth = 0
    for place in range(start, len(string)):
        depth += {"{": 1, "}": -1}.get(string[place], 0)
        if depth == 0 and string[place] == "}":
            return string[start : place + 1]
    return None


def remove_boxed(s: str) -> str:
    r"""Returns the content of a box that `last_boxed_only_string` returned.

    Raises `AnswerFormatError`, which is an `AssertionError`, if `s` is anything else. That includes
    `\fbox`; `last_boxed` handles it.
    """
    if _BOX in s:
        left, right = _BOX, ""
    else:
        left, right = _OPEN_BOX, "}"
    if not (s.startswith(left) and s.endswith(right)):
        raise AnswerFormatError(f"this is not a box: {s!r}")
    return s[len(left) : len(s) - len(right)]


def last_boxed(solution: str) -> str | None:
    r"""Returns the content of the last box of a solution (`\boxed` or `\fbox`).

    None if there is no box, or if its braces are not balanced.
    """
    box = last_boxed_only_string(solution)
    if box is None:
        return None
    if box.startswith(_BOX):
        return box[len(_BOX) :]
    return box[box.index("{") + 1 : -1]


# -- comparison -------------------------------------------------------------------------------


def is_equiv(str1: str | None, str2: str | None, verbose: bool = False) -> bool:
    """Returns whether two LaTeX answers are equal after `strip_string`.

    If one of them cannot be normalized, they are compared as they are. None equals only None.
    `verbose` logs the normalized answers.
    """
    if str1 is None or str2 is None:
        if str1 is str2:
            logger.warning("is_equiv: both answers are None; they count as equal.")
        return str1 is str2
    try:
        first, second = strip_string(str1), strip_string(str2)
    except (ValueError, AttributeError, TypeError):  # the latter two: not a string
        return bool(str1 == str2)
    if verbose:
        logger.info("is_equiv compares %s and %s", first, second)
    return first == second


def strip_string(string: str) -> str:
    """Returns one spelling for LaTeX answers that mean the same.

    Raises `ValueError` if the text has two units, a fraction or root without arguments, or one
    slash between parts that are not integers.
    """
    for before, after in _REPLACED:
        string = string.replace(before, after)
    string = remove_right_units(string)
    string = string.replace("\\%", "").replace(" .", " 0.").replace("{.", "{0.")
    if not string:
        return string
    if string.startswith("."):
        string = "0" + string
    sides = string.split("=")
    if len(sides) == 2 and len(sides[0]) <= 2:  # "x = 5"
        string = sides[1]
    string = fix_fracs(fix_sqrt(string).replace(" ", ""))
    if string == "0.5":
        string = "\\frac{1}{2}"
    return fix_a_slash_b(string)


def remove_right_units(string: str) -> str:
    r"""Returns the text before a unit, `\text{ …`; raises `AnswerFormatError` if there are two."""
    text, *units = string.split(_UNIT)
    if len(units) > 1:
        raise AnswerFormatError(f"the answer has more than one unit: {string!r}")
    return text


def fix_sqrt(string: str) -> str:
    r"""Returns the text with braces around the arguments of all roots: `\sqrt3` → `\sqrt{3}`.

    Raises `AnswerFormatError` if a root has no argument.
    """
    fixed, *rest = string.split(_ROOT)
    for part in rest:
        if not part:
            raise AnswerFormatError(f"a root has no argument: {string!r}")
        fixed += _ROOT + (part if part[0] == "{" else f"{{{part[0]}}}{part[1:]}")
    return fixed


def fix_fracs(string: str) -> str:
    r"""Returns the text with braces around the arguments of all fractions: `\frac12`, `\frac1{2}`.

    A text with a fraction that has only one argument is returned unchanged. Raises
    `AnswerFormatError` if a fraction has none.
    """
    fixed, *rest = string.split(_FRACTION)
    for part in rest:
        if not part:
            raise AnswerFormatError(f"a fraction has no arguments: {string!r}")
        if part[0] != "{":
            if len(part) == 1:
                return string
            denominator = part[1:] if part[1] == "{" else f"{{{part[1]}}}{part[2:]}"
            part = f"{{{part[0]}}}{denominator}"
        fixed += _FRACTION + part
    return fixed


def fix_a_slash_b(string: str) -> str:
    r"""Returns `\frac{1}{2}` for `1/2`, and a text that is not a ratio unchanged.

    Raises `ValueError` if the text has one slash and an integer is not on both sides.
    """
    parts = string.split("/")
    if len(parts) != 2:
        return string
    numerator, denominator = int(parts[0]), int(parts[1])
    if string != f"{numerator}/{denominator}":  # such as "+1/2"
        return string
    return f"\\frac{{{numerator}}}{{{denominator}}}"
