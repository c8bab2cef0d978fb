"""How messages look, and which are shown."""

from __future__ import annotations

import logging
import os

from lm_eval.launch import launched_count, launched_rank


def setup_logging(verbosity: str | int | None = None) -> None:
    """Show messages from this level on, on stderr, a line each; `LMEVAL_LOG_LEVEL` else, or INFO.

    Scripts that call `simple_evaluate` may want this; the command line does it by itself. Of
    several processes each signs with its number, and all but the first keep to warnings.
    """
    level = verbosity or os.environ.get("LMEVAL_LOG_LEVEL") or "INFO"
    handler = logging.StreamHandler()
    name = f"lm-eval[{launched_rank()}]" if launched_count() > 1 else "lm-eval"
    handler.setFormatter(logging.Formatter(f"{name}: %(message)s"))
    logger = logging.getLogger("lm_eval")
    logger.handlers = [handler]
    logger.propagate = False
    try:
        logger.setLevel(level.upper() if isinstance(level, str) else level)
    except ValueError:
        logger.setLevel(logging.INFO)
        logger.warning("unknown verbosity %r; INFO is used.", level)
    if launched_rank() > 0:
        logger.setLevel(max(logger.level, logging.WARNING))
