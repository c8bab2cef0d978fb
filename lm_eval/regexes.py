"""Applies regular expressions of task files within a time limit.

A pattern such as `(a+)+$` takes exponential time on some texts, and Python cannot interrupt it.
Patterns that cannot take long are applied directly. Others are applied in a second process, which
is ended when the time is up.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lm_eval.errors import DataError

try:
    from re import _parser as sre_parse  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_parse

if TYPE_CHECKING:
    import subprocess

#: How long one application of a pattern may take, in seconds.
SECONDS = 5.0
#: Estimated steps of a pattern that is applied directly. They take about as many nanoseconds.
_DIRECT_STEPS = 10**9
#: The length of a text on which a pattern with nested repeats is applied directly.
_DIRECT_LENGTH = 16

_WORKER = """
import json, re, sys
try:
    import signal
    alarm = signal.alarm
except (ImportError, AttributeError):
    alarm = int
for line in sys.stdin:
    kind, pattern, flags, text, *more = json.loads(line)
    alarm(60)  # ends this process if the one that started it was killed
    try:
        compiled = re.compile(pattern, flags)
        if kind == "findall":
            answer = {"found": compiled.findall(text)}
        else:
            answer = {"found": compiled.sub(more[0], text, more[1])}
    except Exception as error:
        answer = {"error": str(error)}
    alarm(0)
    print(json.dumps(answer), flush=True)
"""


def findall(pattern: re.Pattern[str], text: str) -> list[Any]:
    """Returns what `pattern.findall(text)` does; raises `DataError` if that takes too long."""
    if _is_quick(pattern, len(text)):
        return pattern.findall(text)
    found = _worker.ask(pattern, text, "findall")
    return [tuple(match) if isinstance(match, list) else match for match in found]


def sub(pattern: re.Pattern[str], replacement: str, text: str, count: int = 0) -> str:
    """Returns what `pattern.sub(replacement, text, count)` does.

    Raises `DataError` if that takes too long, and `re.error` if `replacement` is invalid.
    """
    if _is_quick(pattern, len(text)):
        return pattern.sub(replacement, text, count=count)
    return str(_worker.ask(pattern, text, "sub", replacement, count))


def _is_quick(pattern: re.Pattern[str], length: int) -> bool:
    """Returns whether a pattern certainly takes little time on any text of this length."""
    if length <= _DIRECT_LENGTH:
        return True
    degree = _degree(pattern)
    return degree is not None and length ** (degree + 1) <= _DIRECT_STEPS


@lru_cache(maxsize=1024)
def _degree(pattern: re.Pattern[str]) -> int | None:
    """Returns how many repeats of any length follow each other at most in `pattern`.

    The time on a text is at most about its length to the power of this number plus 1. None if a
    repeat contains another repeat or alternatives, so that the time may be exponential.
    """
    try:
        return _degree_of(sre_parse.parse(pattern.pattern, pattern.flags), repeated=False)
    except (RecursionError, re.error):
        return None


_REPEATS = tuple(
    getattr(sre_parse, name)
    for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
    if hasattr(sre_parse, name)
)
#: The most copies of a bounded repeat that count as one step.
_FEW = 8


def _degree_of(items: Any, repeated: bool) -> int | None:
    """Returns the degree of a parsed pattern, see `_degree`; `repeated` if it is inside a repeat.

    `items` is what the parser of `re` returns: a sequence of operators and their arguments.
    """
    total = 0
    for operator, argument in items:
        degree: int | None = 0
        if operator in _REPEATS:
            low, high, inside = argument
            if repeated and low != high:
                return None
            long = high > _FEW
            degree = _degree_of(inside, repeated or high > 1)
            if degree is not None and long:
                degree += 1
        elif operator is sre_parse.BRANCH:
            if repeated:
                return None
            degrees = [_degree_of(branch, repeated) for branch in argument[1]]
            degree = None if None in degrees else max((d or 0 for d in degrees), default=0)
        elif operator is sre_parse.GROUPREF:
            degree = 1
        else:
            degree = _degree_inside(argument, repeated)
        if degree is None:
            return None
        total += degree
    return total


def _degree_inside(argument: Any, repeated: bool) -> int | None:
    """Returns the degree of the patterns among the arguments of an operator, such as a group."""
    if isinstance(argument, sre_parse.SubPattern):
        return _degree_of(argument, repeated)
    if not isinstance(argument, tuple):
        return 0
    degrees = [_degree_inside(part, repeated) for part in argument]
    return None if None in degrees else sum(d or 0 for d in degrees)


class _Worker:
    """A process that applies patterns; it is started when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def ask(self, pattern: re.Pattern[str], text: str, kind: str, *more: Any) -> Any:
        """Returns the result of applying `pattern` to `text`.

        `kind` is "findall" or "sub"; for the latter, `more` are the replacement and the number of
        matches to replace. Raises `DataError` if it takes more than `SECONDS`, and `re.error` if
        the pattern fails.
        """
        line = json.dumps([kind, pattern.pattern, pattern.flags, text, *more])
        with self._lock:
            process = self._started()
            timer = threading.Timer(SECONDS, process.kill)
            timer.start()
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(f"{line}\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            except OSError:
                answer = ""
            finally:
                timer.cancel()
            if not answer:
                self._end()
                raise DataError(
                    f"the regular expression {pattern.pattern!r} takes more than {SECONDS:g} "
                    f"seconds on a text of {len(text)} characters. Write it without repeats "
                    "inside of repeats, or after each other."
                )
        found = json.loads(answer)
        if "error" in found:
            raise re.error(found["error"])
        return found["found"]

    def _started(self) -> subprocess.Popen[str]:
        """Returns the helper process; starts it unless this process, not its parent, has done so.

        Raises `DataError` if it cannot be started.
        """
        import atexit
        import subprocess

        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            words = [sys.executable, "-I", "-S", "-c", _WORKER]
            try:
                self._process = subprocess.Popen(
                    words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    encoding="utf-8",
                )
            except OSError as error:
                raise DataError(
                    f"a process for regular expressions cannot be started ({error.strerror}). "
                    "Write the patterns of the task without nested repeats."
                ) from error
            self._owner = os.getpid()
            atexit.register(self._end)
        return self._process

    def _end(self) -> None:
        """Ends the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


_worker = _Worker()
