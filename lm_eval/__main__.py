"""Runs the command line, for `python -m lm_eval`."""

from __future__ import annotations

from lm_eval._cli.harness import HarnessCLI


def cli_evaluate() -> None:
    """Runs the command line, and exits with its exit code if that is not 0.

    Scripts that register custom models or tasks, or replace methods of `HarnessCLI` and `Run`, call
    it afterwards.
    """
    cli = HarnessCLI()
    cli.execute(cli.parse_args())


if __name__ == "__main__":
    cli_evaluate()
