"""Configures the log messages of the package: level, format and destination."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, TextIO

from lm_eval.launch import launched_count, launched_rank
from lm_eval.printable import printable
from lm_eval.redaction import hide_in_text

if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[TextIO]
else:  # not subscriptable before Python 3.11
    _StreamHandler = logging.StreamHandler


class _CurrentStderrHandler(_StreamHandler):
    """A handler that looks up `sys.stderr` for each message: notebooks and tests replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class _SafeFormatter(logging.Formatter):
    """A formatter that hides secrets, and whose messages cannot control a terminal.

    They may quote texts of strangers.
    """

    def format(self, record: logging.LogRecord) -> str:
        return printable(hide_in_text(super().format(record)))


def setup_logging(verbosity: str | int | None = None) -> None:
    """Shows the log messages of this package on stderr, from the level `verbosity` on.

    The default level is that of the environment variable `LMEVAL_LOG_LEVEL`, else INFO. An unknown
    level is replaced by INFO with a warning. The command line calls this; scripts that call
    `simple_evaluate` may call it too, and a second call replaces the first. Messages are no longer
    passed to the root logger. If several processes were launched together, each adds its rank to
    its messages, and all but the first show only warnings and errors.
    """
    level = verbosity or os.environ.get("LMEVAL_LOG_LEVEL") or "INFO"
    handler = _CurrentStderrHandler()
    name = f"lm-eval[{launched_rank()}]" if launched_count() > 1 else "lm-eval"
    handler.setFormatter(_SafeFormatter(f"{name}: %(message)s"))
    logger = logging.getLogger("lm_eval")
    others = [other for other in logger.handlers if not isinstance(other, _CurrentStderrHandler)]
    logger.handlers = [*others, handler]
    logger.propagate = False
    try:
        logger.setLevel(level.upper() if isinstance(level, str) else level)
    except ValueError:
        logger.setLevel(logging.INFO)
        logger.warning(
            "unknown verbosity %r; INFO is used. Levels are DEBUG, INFO, WARNING and ERROR.", level
        )
    if launched_rank() > 0:
        logger.setLevel(max(logger.level, logging.WARNING))
