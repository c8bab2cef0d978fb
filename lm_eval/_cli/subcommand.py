"""`SubCommand`: a command of `lm_eval.cli` as an object whose methods can be replaced."""

from __future__ import annotations

from argparse import Namespace, _SubParsersAction

from lm_eval.cli import COMMANDS, Parser, add_command, add_debug


class SubCommand:
    """A command of the command line: adds its parser, and runs it.

    Scripts replace `_add_args`, which adds options to `self._parser`, and the static method
    `_execute`, which gets the parsed arguments. `name` is the command in `lm_eval.cli.COMMANDS`.
    """

    name: str = ""

    def __init__(self, subparsers: _SubParsersAction[Parser], name: str = "") -> None:
        self.name = name or self.name
        self._parser = add_command(subparsers, self.name)
        self._add_args()
        add_debug(self._parser)
        self._parser.set_defaults(func=self._execute)

    @classmethod
    def create(cls, subparsers: _SubParsersAction[Parser]) -> SubCommand:
        """Adds the command to a parser and returns it."""
        return cls(subparsers)

    def _add_args(self) -> None:
        COMMANDS[self.name].add_arguments(self._parser)

    @staticmethod
    def _execute(args: Namespace) -> int:
        code: int = COMMANDS[args.command].execute(args)
        return code
