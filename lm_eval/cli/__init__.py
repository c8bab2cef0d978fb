"""The command line: one module a subcommand, errors in one line, nothing heavy at the door."""

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
from lm_eval.cli import fetch, ls, packs, reproduce, resume, run, score, show, validate
from lm_eval.errors import EvalError, WhichRunError, suggestion
from lm_eval.logs import setup_logging

COMMANDS = {
    "run": run,
    "resume": resume,
    "score": score,
    "reproduce": reproduce,
    "ls": ls,
    "list": ls,
    "show": show,
    "validate": validate,
    "fetch": fetch,
    "packs": packs,
}

_EPILOG = """\
examples:
  lm-eval run --model demo --tasks demo            the embedded model on the embedded benchmark
  lm-eval ls tasks                                 every task, group and tag
  lm-eval show demo_choice --num_fewshot 2         what the model will be asked, to the letter
  lm-eval resume out                               go on with a run that was cut off
  lm-eval score out --filter strict                other filters or metrics, without the model
  lm-eval validate --tasks my_task --include_path ./my_tasks

Without a command `run` is meant: lm-eval --model demo --tasks demo.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 if it went well, 2 if what the user gave cannot be used."""
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
        sys.stdout.reconfigure(errors="replace")  # a terminal without arrows gets question marks
    try:
        with _no_bars_in_a_pipe():
            code: int = COMMANDS[arguments.command].execute(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever was reading has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as stop:
        print(" ".join(["lm-eval: interrupted.", *map(str, stop.args)]), file=sys.stderr)
        return 130
    except Exception as error:
        if arguments.debug:
            raise
        print(f"lm-eval: error: {_message(error)}", file=sys.stderr)
        return 2


@contextmanager
def _no_bars_in_a_pipe() -> Iterator[None]:
    """Sets the variable that turns off libraries' progress bars, if stderr is no terminal."""
    name = "TQDM_DISABLE"
    if sys.stderr.isatty() or name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name, None)


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line, like every other error."""

    inner: _Parser | None = None
    """That of the command which is asked for."""

    def error(self, message: str) -> NoReturn:
        teller = self if self.inner is None else self.inner
        if hint := teller._hint(message):
            message = f"{message}.{hint}"
        self.exit(2, f"lm-eval: error: {message} (`{teller.prog} --help` lists the options)\n")

    def _hint(self, message: str) -> str:
        """The names most like one that a complaint is about."""
        if found := re.match(r"unrecognized arguments: (--?[^\s=]+)", message):
            options = [name for action in self._actions for name in action.option_strings]
            return suggestion(found[1], [name for name in options if name.startswith("--")])
        if found := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            return suggestion(found[1], re.findall(r"[\w-]+", found[2]))
        return ""


def _parser(command: str | None) -> _Parser:
    """The parser; only the command that is asked for is furnished with its options."""
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
            parser.inner = sub
            module.add_arguments(sub)
            sub.add_argument(
                "--debug", action="store_true", default=False, help="show an error's traceback"
            )
    return parser


def _message(error: Exception) -> str:
    """Ours speak for themselves; for any other, its type, and how to see where it came from."""
    whole = " ".join(str(argument) for argument in error.args)
    if isinstance(error, WhichRunError):
        return whole  # a list, one run per line
    text = " ".join(whole.split())
    if isinstance(error, EvalError):
        return text
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return f"{type(error).__name__}: {text} (run again with --debug to see where)"
