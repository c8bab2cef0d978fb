"""How messages look, and which are shown."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, TextIO

from lm_eval.launch import launched_count, launched_rank

if TYPE_CHECKING:
    _StreamHandler = logging.StreamHandler[TextIO]
else:  # not subscriptable before Python 3.11
    _StreamHandler = logging.StreamHandler


class _OnStderr(_StreamHandler):
    """Writes to what is stderr at the time, which notebooks and tests exchange."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def setup_logging(verbosity: str | int | None = None) -> None:
    """Show messages from this level on, on stderr, a line each; `LMEVAL_LOG_LEVEL` else, or INFO.

    Scripts that call `simple_evaluate` may want this; the command line does it by itself. Of
    several processes each signs with its number, and all but the first keep to warnings.
    """
    level = verbosity or os.environ.get("LMEVAL_LOG_LEVEL") or "INFO"
    handler = _OnStderr()
    name = f"lm-eval[{launched_rank()}]" if launched_count() > 1 else "lm-eval"
    handler.setFormatter(logging.Formatter(f"{name}: %(message)s"))
    logger = logging.getLogger("lm_eval")
    others = [other for other in logger.handlers if not isinstance(other, _OnStderr)]
    logger.handlers = [*others, handler]
    logger.propagate = False
    try:
        logger.setLevel(level.upper() if isinstance(level, str) else level)
    except ValueError:
        logger.setLevel(logging.INFO)
        logger.warning("unknown verbosity %r; INFO is used.", level)
    if launched_rank() > 0:
        logger.setLevel(max(logger.level, logging.WARNING))
