"""The command line: one module per subcommand, and the function `main`.

The module of a subcommand has the text `HELP`, `add_arguments(parser)`, which adds its options, and
`execute(arguments)`, which runs it and returns the exit code. It imports heavy packages only in
`execute`, so that `--help` is fast.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from lm_eval._version import __version__
from lm_eval.cli import (
    check_model,
    compare,
    contamination,
    doctor,
    fetch,
    ls,
    new,
    packs,
    reproduce,
    resume,
    run,
    score,
    show,
    validate,
)
from lm_eval.errors import EvalError, WhichRunError, suggestion
from lm_eval.logs import setup_logging

COMMANDS = {
    "run": run,
    "resume": resume,
    "score": score,
    "reproduce": reproduce,
    "compare": compare,
    "ls": ls,
    "list": ls,
    "show": show,
    "validate": validate,
    "check-model": check_model,
    "doctor": doctor,
    "new": new,
    "contamination": contamination,
    "fetch": fetch,
    "packs": packs,
}

_EPILOG = """\
examples:
  lm-eval run --model demo --tasks demo            the embedded model on the embedded benchmark
  lm-eval ls tasks                                 every task, group and tag
  lm-eval show demo_choice --num_fewshot 2         the exact prompts of a document
  lm-eval resume out                               resume an interrupted run
  lm-eval score out --filter majority              score stored answers with another filter
  lm-eval compare out_a out_b                      is one model better, and by how much
  lm-eval new task my_task                         write a small task to start from
  lm-eval check-model my_model.py:MyModel          check a model class
  lm-eval validate --tasks my_task --include_path my_task

If the first argument is an option, the command is `run`: lm-eval --model demo --tasks demo.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line with the arguments `argv` and returns the exit code.

    `argv` defaults to `sys.argv[1:]`. The exit code is the one that the command returns (0 for
    success), 2 after an error, and 130 after an interrupt. With `--debug`, an error is raised
    instead. `SystemExit` is raised for invalid options (with code 2), `--help` and `--version`.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0].startswith("-") and words[0] not in ("-h", "--help", "--version"):
        words.insert(0, "run")
    parser = _parser(words[0] if words else None)
    arguments = parser.parse_args(words)
    if arguments.command is None:
        parser.print_help()
        return 0
    setup_logging(getattr(arguments, "verbosity", None))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show ↑ shows ? instead
    try:
        with _progress_bars_only_on_terminals():
            code: int = COMMANDS[arguments.command].execute(arguments)
        if sys.stdout is not None:  # None if the descriptor was closed (`>&-`)
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of the pipe was closed, for example `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as stop:
        print(" ".join(["lm-eval: interrupted.", *map(str, stop.args)]), file=sys.stderr)
        return 130
    except SystemExit as stop:  # a command returns its exit code; only third-party code exits
        if arguments.debug:
            raise
        print(
            f"lm-eval: error: code that was run by the command ended the program (SystemExit: "
            f"{stop}). Run again with --debug to see where.",
            file=sys.stderr,
        )
        return 2
    except Exception as error:
        if arguments.debug:
            raise
        print(f"lm-eval: error: {_message(error)}", file=sys.stderr)
        return 2


@contextmanager
def _progress_bars_only_on_terminals() -> Iterator[None]:
    """Disables the progress bars of libraries inside the block if stderr is not a terminal.

    Sets the environment variable `TQDM_DISABLE`, unless the user has set it.
    """
    name = "TQDM_DISABLE"
    if sys.stderr is None or sys.stderr.isatty() or name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name, None)


class _Parser(argparse.ArgumentParser):
    """An argument parser that prints errors on one line and suggests similar names."""

    subparser: _Parser | None = None
    """The parser of the subcommand that was given."""

    def error(self, message: str) -> NoReturn:
        """Ends the program with exit code 2; prints `message`, and a hint if there is one."""
        parser = self if self.subparser is None else self.subparser
        if hint := parser._hint(message):
            message = f"{message}.{hint}"
        self.exit(2, f"lm-eval: error: {message} (`{parser.prog} --help` lists the options)\n")

    def _hint(self, message: str) -> str:
        """Returns a sentence that suggests names for the mistyped one in argparse's `message`.

        Empty if no name is similar, or the message is about something else.
        """
        if found := re.match(r"unrecognized arguments: (--?[^\s=]+)", message):
            options = [name for action in self._actions for name in action.option_strings]
            return suggestion(found[1], [name for name in options if name.startswith("--")])
        if found := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            return suggestion(found[1], re.findall(r"[\w-]+", found[2]))
        return ""


def _parser(command: str | None) -> _Parser:
    """Returns the argument parser.

    To save time, only the subcommand named `command` gets its options; none does if it is None.
    """
    parser = _Parser(
        prog="lm-eval",
        description="Evaluate any language model on any benchmark, reproducibly.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"lm-eval {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, module in COMMANDS.items():
        if name == "list":
            continue
        aliases = ["list"] if name == "ls" else []
        sub = commands.add_parser(
            name,
            aliases=aliases,
            help=module.HELP,
            description=module.HELP,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if command in (name, *aliases):
            parser.subparser = sub
            module.add_arguments(sub)
            sub.add_argument(
                "--debug",
                action="store_true",
                default=False,
                help="print the traceback of an error",
            )
    return parser


def _message(error: Exception) -> str:
    """Returns the text to print for an error, on one line.

    For an `EvalError`, returns its message; that of a `WhichRunError` keeps its line breaks. For
    other errors, adds the type and a hint to use `--debug`; an error about a file names it.
    """
    whole = " ".join(str(argument) for argument in error.args)
    if isinstance(error, WhichRunError):
        return whole  # a list, one run per line
    text = " ".join(whole.split())
    if isinstance(error, EvalError):
        return text
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return f"{type(error).__name__}: {text} (run again with --debug to see the traceback)"
