"""`HarnessCLI`: the command line as a published class, which scripts extend.

Scripts replace `Run._add_args` to add options, and `Run._execute` to read them, and then call
`lm_eval.__main__.cli_evaluate`. The commands themselves are in `lm_eval.cli`.
"""

from __future__ import annotations

import sys
from argparse import Namespace

from lm_eval._cli.ls import List
from lm_eval._cli.run import Run
from lm_eval._cli.subcommand import SubCommand
from lm_eval._cli.validate import Validate
from lm_eval.cli import COMMANDS, new_parser, run_command, with_command
from lm_eval.errors import ConfigError

__all__ = ["HarnessCLI", "List", "Run", "Validate"]


class HarnessCLI:
    """The command line in two steps: reads `sys.argv`, and runs the command."""

    def __init__(self) -> None:
        self._parser, self._subparsers = new_parser()
        self._parser.set_defaults(func=lambda args: self._parser.print_help())
        classes: dict[str, type[SubCommand]] = {"run": Run, "ls": List, "validate": Validate}
        for name in COMMANDS:
            if name != "list":  # another name of `ls`
                classes.get(name, SubCommand)(self._subparsers, name)

    def parse_args(self) -> Namespace:
        """Returns the arguments in `sys.argv`; without a command, that is `run`.

        Prints errors and exits, as `argparse` does.
        """
        words = with_command(sys.argv[1:])
        self._parser.explain_by(self._subparsers.choices.get(words[0]) if words else None)
        args = self._parser.parse_args(words)
        try:
            return Run.completed(args) if args.command == Run.name else args
        except ConfigError as error:
            self._parser.error(str(error))

    def execute(self, args: Namespace) -> None:
        """Runs the command, and exits with its exit code if that is not 0."""
        if code := run_command(args.func, args):
            sys.exit(code)
