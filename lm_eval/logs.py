"""How messages look, and which are shown."""

from __future__ import annotations

import logging
import os


def setup_logging(verbosity: str | int | None = None) -> None:
    """Show messages from this level on, on stderr, a line each; `LMEVAL_LOG_LEVEL` else, or INFO.

    Scripts that call `simple_evaluate` may want this; the command line does it by itself.
    """
    level = verbosity or os.environ.get("LMEVAL_LOG_LEVEL") or "INFO"
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("lm-eval: %(message)s"))
    logger = logging.getLogger("lm_eval")
    logger.handlers = [handler]
    logger.propagate = False
    try:
        logger.setLevel(level.upper() if isinstance(level, str) else level)
    except ValueError:
        logger.setLevel(logging.INFO)
        logger.warning("unknown verbosity %r; INFO is used.", level)
