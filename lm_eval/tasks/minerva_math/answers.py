"""Minerva's way with MATH: normalise the final answer, and ask sympy whether two are equal."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import threading
from collections.abc import Iterator
from typing import Any

from lm_eval.errors import ConfigError
from lm_eval.tasks.hendrycks_math.answers import boxed

try:
    import math_verify
    import sympy
    from sympy.parsing.latex import parse_latex
except ImportError as error:
    raise ConfigError(
        "minerva_math compares answers with sympy, math-verify and antlr4-python3-runtime 4.11, "
        f"of which one is not installed ({error}): pip install 'lm_eval[math]'."
    ) from error

logger = logging.getLogger(__name__)

PATIENCE = 5  # seconds that two answers may take to compare
NO_ANSWER = "[invalidanswer]"
_FINAL = re.compile(r"Final Answer: The final answer is(.*?). I hope it is correct.")

# Lists of appendix D of Lewkowycz et al. (2022).
SUBSTITUTED = (
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
#: In the order of the list; words are looked for outside commands, so that `\left` keeps its `ft`.
REMOVED = (
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
REWRITTEN = tuple(
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


def final_answer(text: str) -> str:
    """What the model says in the closing sentence it was shown."""
    found = _FINAL.search(text + "I hope it is correct.")
    return found[1].strip() if found else NO_ANSWER


def normalise(answer: str) -> str:
    answer = answer.split("=")[-1]
    for word in filter(str.isalpha, REMOVED):
        answer = re.sub(rf"(?<!\\)\b{word}\b", "", answer)
    for before, after in SUBSTITUTED:
        answer = answer.replace(before, after)
    for part in REMOVED:
        answer = _without_word(answer, part) if part.isalpha() else answer.replace(part, "")
    for pattern, into in REWRITTEN:
        answer = pattern.sub(into, answer)
    answer = answer.replace("$", "")
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+", answer):  # 100,000, but not the pair 0,1
        answer = answer.replace(",", "")
    return answer


def _without_word(answer: str, word: str) -> str:
    parts = re.split(r"(\\[a-zA-Z]+)", answer)
    return "".join(
        part if number % 2 else part.replace(word, "") for number, part in enumerate(parts)
    )


@contextlib.contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """Give up after a while, where the system can (signals reach the main thread alone)."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def equal(first: str, second: str, patience: int = PATIENCE) -> bool:
    """Whether the difference is zero. What cannot be read is not equal."""
    try:
        with _at_most(patience):
            return bool(sympy.simplify(parse_latex(first) - parse_latex(second)) == 0)
    except ImportError:
        raise
    except Exception as error:  # sympy's parser and solver raise what they like
        logger.debug("cannot compare %s and %s: %s", first, second, error)
        return False


def same(first: str, second: str) -> bool:
    return bool(first and first == second) or equal(first, second)


def gold_answer(doc: dict[str, Any]) -> str:
    """Of an example the whole solution, of a question the answer."""
    if "few_shot" in doc:
        return str(doc["solution"])
    return normalise(boxed(doc["solution"]) or "")


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, int]:
    answer = results[0]
    verified = math_verify.verify(
        gold=math_verify.parse(doc["solution"]), target=math_verify.parse(answer)
    )
    return {
        "exact_match": int(same(normalise(final_answer(answer)), gold_answer(doc))),
        "math_verify": int(verified),
    }
