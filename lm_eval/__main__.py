"""Runs the command line, for `python -m lm_eval`."""

from __future__ import annotations

import sys

from lm_eval.cli import main


def cli_evaluate() -> None:
    """Runs the command line, and exits with its exit code if that is not 0.

    Scripts that register custom models or tasks call it afterwards.
    """
    if code := main():
        sys.exit(code)


if __name__ == "__main__":
    cli_evaluate()
