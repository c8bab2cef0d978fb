"""`python -m lm_eval` is the command line."""

from __future__ import annotations

import sys

from lm_eval.cli import main


def cli_evaluate() -> None:
    """The command line for scripts that register models or tasks of their own before it."""
    if code := main():
        sys.exit(code)


if __name__ == "__main__":
    cli_evaluate()
