"""Final answers in LaTeX, normalized as in the Minerva paper and compared by sympy.

The rules are those of appendix D of Lewkowycz et al. (2022), the names those of the published
harness. Only `is_symbolically_equiv` needs sympy.
"""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import threading
from collections.abc import Iterator
from typing import Any

from lm_eval.errors import ConfigError

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5  # for the comparison of two answers
NO_ANSWER = "[invalidanswer]"
_FINAL = re.compile(r"Final Answer: The final answer is(.*?). I hope it is correct.")

SUBSTITUTIONS = (
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    ("\\$", ""),
    ("\\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (",\\text{and}", ","),
    ("\\text{and}", ","),
    ("\\text{m}", "\\text{}"),
)
#: Removed in this order. Words inside LaTeX commands stay, so that `\left` keeps its `ft`.
REMOVED_EXPRESSIONS = (
    *["square", "ways", "integers", "dollars", "mph", "inches", "ft", "hours", "km", "units"],
    "\\ldots",
    *[
        "sue",
        "points",
        "feet",
        "minutes",
        "digits",
        "cents",
        "degrees",
        "cm",
        "gm",
        "pounds",
        "meters",
        "meals",
        "edges",
    ],
    *["students", "childrentickets", "multiples"],
    "\\text{s}",
    "\\text{.}",
    "\\text{\ns}",
    "\\text{}^2",
    "\\text{}^3",
    "\\text{\n}",
    "\\text{}",
    "\\mathrm{th}",
    "^\\circ",
    "^{\\circ}",
    "\\;",
    ",\\!",
    "{,}",
    '"',
    "\\dots",
)
REGEX_SUBSTITUTIONS = tuple(
    (re.compile(pattern), into)
    for pattern, into in (
        (r"(.*?)(\$)(.*?)(\$)(.*)", r"$\3$"),
        (r"(\\text\{)(.*?)(\})", r"\2"),
        (r"(\\textbf\{)(.*?)(\})", r"\2"),
        (r"(\\overline\{)(.*?)(\})", r"\2"),
        (r"(\\boxed\{)(.*)(\})", r"\2"),
        (r"(frac)([^{])(.)", r"frac{\2}{\3}"),
        (r"(sqrt)(\[[^\]]*\])(\w)", r"\1\2{\3}"),
        (r"(sqrt)(?!\[)([^{])", r"sqrt{\2}"),
    )
)


def require_math() -> tuple[Any, Any]:
    """Returns the modules `sympy` and `math_verify`.

    Raises `ConfigError` if one of them, or the LaTeX parser that sympy needs, is not installed.
    """
    try:
        import math_verify
        import sympy
        import sympy.parsing.latex
    except ImportError as error:
        raise ConfigError(
            "comparing answers in LaTeX, as minerva_math and leaderboard_math do, needs sympy, "
            "math-verify and antlr4-python3-runtime 4.11, and one of them is not installed "
            f"({error}). Install them with: pip install -e '.[math]' in the checkout of lm_eval."
        ) from error
    return sympy, math_verify


def get_unnormalized_answer(text: str) -> str:
    """Returns the answer in the closing sentence ("The final answer is …"), or `NO_ANSWER`."""
    found = _FINAL.search(text + "I hope it is correct.")
    return found[1].strip() if found else NO_ANSWER


def normalize_final_answer(final_answer: str) -> str:
    """Returns one spelling for LaTeX answers that mean the same, by Minerva's rules."""
    answer = final_answer.split("=")[-1]
    for word in filter(str.isalpha, REMOVED_EXPRESSIONS):
        answer = re.sub(rf"(?<!\\)\b{word}\b", "", answer)
    for before, after in SUBSTITUTIONS:
        answer = answer.replace(before, after)
    for part in REMOVED_EXPRESSIONS:
        answer = _without_word(answer, part) if part.isalpha() else answer.replace(part, "")
    for pattern, into in REGEX_SUBSTITUTIONS:
        answer = pattern.sub(into, answer)
    answer = answer.replace("$", "")
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+", answer):  # 100,000, but not the pair 0,1
        answer = answer.replace(",", "")
    return answer


def _without_word(answer: str, word: str) -> str:
    """Removes `word` from `answer`, except inside LaTeX commands."""
    parts = re.split(r"(\\[a-zA-Z]+)", answer)
    return "".join(
        part if number % 2 else part.replace(word, "") for number, part in enumerate(parts)
    )


@contextlib.contextmanager
def time_limit(seconds: int = 1, error_message: str = "Timeout") -> Iterator[None]:
    """Context manager that raises `TimeoutError` with `error_message` in the body after `seconds`.

    Without effect outside the main thread, which alone receives signals, and on Windows.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(*_: Any) -> None:
        raise TimeoutError(error_message)

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def symbolically_equal(first: str, second: str, timeout: int = TIMEOUT_SECONDS) -> bool:
    """Returns whether sympy simplifies the difference of two LaTeX answers to zero.

    False if an answer cannot be parsed or the comparison takes longer than `timeout` seconds.
    Raises `ConfigError` if sympy or its LaTeX parser is not installed.
    """
    sympy, _ = require_math()
    parse_latex = sympy.parsing.latex.parse_latex
    try:
        with time_limit(timeout):
            return bool(sympy.simplify(parse_latex(first) - parse_latex(second)) == 0)
    except ImportError:
        raise
    except Exception as error:  # sympy's parser and solver raise many kinds of errors
        logger.debug("Cannot compare the answers %s and %s: %s", first, second, error)
        return False


def is_symbolically_equiv(x1: str, x2: str) -> bool:
    """Returns whether two normalized answers are equal as text (and not empty), or by sympy."""
    return bool(isinstance(x1, str) and x1 and x1 == x2) or symbolically_equal(x1, x2)
