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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from lm_eval._version import __version__
from lm_eval.cli import (
    check_model,
    compare,
    contamination,
    doctor,
    duel,
    export,
    fetch,
    ls,
    merge,
    new,
    packs,
    report,
    reproduce,
    resume,
    run,
    score,
    show,
    study,
    sweep,
    validate,
    view,
)
from lm_eval.cli.streams import lasting_streams, say
from lm_eval.errors import (
    EvalError,
    ForeignRunError,
    WhichRunError,
    describe_cause,
    raise_interrupt,
    suggestion,
)
from lm_eval.logs import setup_logging
from lm_eval.printable import printable, printable_stdout
from lm_eval.redaction import hide_in_text, redacting_excepthook

COMMANDS = {
    "run": run,
    "resume": resume,
    "score": score,
    "merge": merge,
    "reproduce": reproduce,
    "compare": compare,
    "duel": duel,
    "study": study,
    "sweep": sweep,
    "report": report,
    "view": view,
    "export": export,
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

#: The number of characters of an error message that are printed.
_LONGEST_MESSAGE = 4000

_EPILOG = """\
examples:
  lm-eval run --model demo --tasks demo            the embedded model on the embedded benchmark
  lm-eval ls tasks                                 every task, group and tag
  lm-eval show demo_choice --num_fewshot 2         the exact prompts of a document
  lm-eval resume out                               resume an interrupted run
  lm-eval score out --filter majority              score stored answers with another filter
  lm-eval compare out_a out_b                      is one model better, and by how much
  lm-eval report out -o report.html                scores, plots and samples in one HTML file
  lm-eval view out                                 the same in the browser, with live progress
  lm-eval duel MODEL_A MODEL_B --tasks gsm8k       ask both only until that is known
  lm-eval study --model demo --tasks demo_choice --formats mcqa,cloze
  lm-eval sweep sweep.yaml                         models × tasks × settings from one file
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
    words = with_command(sys.argv[1:] if argv is None else argv)
    parser = _parser(words[0] if words else None)
    arguments = parser.parse_args(words)
    if arguments.command is None:
        parser.print_help()
        return 0
    return run_command(COMMANDS[arguments.command].execute, arguments)


def with_command(words: Sequence[str]) -> list[str]:
    """Returns the words of a command line; `run` is added if the first one is an option."""
    if words and words[0].startswith("-") and words[0] not in ("-h", "--help", "--version"):
        return ["run", *words]
    return list(words)


def run_command(execute: Callable[[argparse.Namespace], Any], arguments: argparse.Namespace) -> int:
    """Calls `execute` with the arguments of a command line and returns the exit code; see `main`.

    Prints errors on one line. An `execute` that returns nothing has succeeded.
    """
    debug = getattr(arguments, "debug", False)
    if debug and sys.excepthook is sys.__excepthook__:
        sys.excepthook = redacting_excepthook  # prints the error that is raised below
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show ↑ shows ? instead
    try:
        setup_logging(getattr(arguments, "verbosity", None))
        with (
            _progress_bars_only_on_terminals(),
            lasting_streams() as streams,
            printable_stdout(sys.stdout),
        ):
            code: int = execute(arguments) or 0
        return streams.exit_code(code)
    except BaseException as error:
        return _report(error, debug)


def _report(error: BaseException, debug: bool) -> int:
    """Prints why a command ended, and returns its exit code; with `debug`, raises the error.

    A command returns its exit code, so that `SystemExit` comes only from code of tasks and models.
    """
    try:
        raise_interrupt(error)
    except KeyboardInterrupt as stop:
        say(printable(" ".join(["lm-eval: interrupted.", *map(str, stop.args)])))
        return 130
    if debug:
        raise error
    if isinstance(error, Exception):
        text = _message(error)
    else:
        text = (
            "code that was run by the command ended the program "
            f"({describe_cause(error)}). Run again with --debug to see where."
        )
    say(f"lm-eval: error: {printable(hide_in_text(text))}")
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


class Parser(argparse.ArgumentParser):
    """An argument parser that prints errors on one line and suggests similar names."""

    _subparser: Parser | None = None

    def explain_by(self, subparser: Parser | None) -> None:
        """Lets error messages refer to the options of a subcommand, the one that was given."""
        self._subparser = subparser

    def error(self, message: str) -> NoReturn:
        """Ends the program with exit code 2; prints `message`, and a hint if there is one."""
        parser = self._subparser or self
        if hint := parser._hint(message):
            message = f"{message}.{hint}"
        message = printable(hide_in_text(message))
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


def _parser(command: str | None) -> Parser:
    """Returns the argument parser.

    To save time, only the subcommand named `command` gets its options; none does if it is None.
    """
    parser, commands = new_parser()
    for name, module in COMMANDS.items():
        if name != "list":
            sub = add_command(commands, name)
            if command == name or (command, name) == ("list", "ls"):
                parser.explain_by(sub)
                module.add_arguments(sub)
                add_debug(sub)
    return parser


def new_parser() -> tuple[Parser, argparse._SubParsersAction[Parser]]:
    """Returns an argument parser without commands, and the action that commands are added to."""
    parser = Parser(
        prog="lm-eval",
        description="Evaluate any language model on any benchmark, reproducibly.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"lm-eval {__version__}")
    return parser, parser.add_subparsers(dest="command", metavar="COMMAND")


def add_command(commands: argparse._SubParsersAction[Parser], name: str) -> Parser:
    """Adds the parser of a command of `COMMANDS`, without options, and returns it."""
    text = COMMANDS[name].HELP
    return commands.add_parser(
        name,
        aliases=["list"] if name == "ls" else [],
        help=text,
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_debug(parser: Parser) -> None:
    """Adds the option that all commands have, after a command's own options."""
    parser.add_argument(
        "--debug", action="store_true", default=False, help="print the traceback of an error"
    )


def _shortened(text: str) -> str:
    """Returns a name for a message: without control characters, and cut off if it is long."""
    shown = "".join(one if one.isprintable() else "?" for one in text)
    return shown if len(shown) <= 200 else f"{shown[:200]}…"


def _message(error: Exception) -> str:
    """Returns the text to print for an error, on one line.

    For an `EvalError`, returns its message; that of a `WhichRunError` or `ForeignRunError` keeps
    its line breaks. For an error about a file, names it. For other errors, adds the type and a hint
    to use `--debug`.
    """
    whole = " ".join(str(argument) for argument in error.args)
    if isinstance(error, (WhichRunError, ForeignRunError)):
        return whole  # a list, one item per line
    text = " ".join(whole.split())
    if len(text) > _LONGEST_MESSAGE:  # a value of a file may have any length
        half = _LONGEST_MESSAGE // 2
        text = f"{text[:half]} … {text[-half:]}"
    if isinstance(error, EvalError):
        return text.replace("\0", "\\0")
    if isinstance(error, OSError) and error.filename is not None:
        return f"{_shortened(str(error.filename))}: {error.strerror}. Check this path."
    if isinstance(error, ValueError) and "embedded null" in text:
        return "a name or a path contains a NUL character. Remove it."
    if isinstance(error, RecursionError):
        return "a value or a file is nested too deeply to be read. Give one with fewer levels."
    return f"{type(error).__name__}: {text} (run again with --debug to see the traceback)"
