"""The process of the tests: runs them against stand-ins for what the program defines."""

from __future__ import annotations

import ast
import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from lm_eval.sandbox.channel import Channel
from lm_eval.sandbox.given_functions import given_functions
from lm_eval.sandbox.remote import ProgramModule, Session, SessionBrokenError
from lm_eval.sandbox.tested_names import names_of

_FILE = "<tests>"
_DETAIL_LENGTH = 300
_THIRD_PARTY = ("numpy", "pandas")


def check(source: str, session: Session, given: str = "") -> tuple[str, str]:
    """Runs tests against a program; returns the outcome and its detail.

    The program passes if the tests run to their end and it could be asked all along. Nothing that
    the program raises can end the tests early and count as passed. Functions of the text `given`
    are called here, not in the program.
    """
    try:
        tree = ast.parse(source, _FILE)
        names = names_of(tree, source)
        code = compile(tree, _FILE, "exec", dont_inherit=True)
        wanted = [*names.wanted, *names.modules]
        found = session.request("start", wanted, names.imports)
        namespace = _namespace(found, wanted, names.modules)
        own = given_functions(given) if given else {}
        namespace |= {name: own[name] for name in namespace.keys() & own.keys()}
        exec(code, namespace)
    except SessionBrokenError as error:
        return error.outcome, error.detail
    except BaseException as error:
        if session.broken:
            return session.broken.outcome, session.broken.detail
        outcome = "out of memory" if isinstance(error, MemoryError) else "failed"
        return outcome, _describe(error, source)
    if session.broken:
        return session.broken.outcome, session.broken.detail
    return "passed", ""


def _namespace(found: Any, wanted: list[str], modules: dict[str, str]) -> dict[str, Any]:
    """Returns what the tests find defined: of the program's names, only those asked for."""
    if type(found) is not dict:
        raise SessionBrokenError("died", "the program's process: no names")
    namespace = {}
    for name in wanted:
        if name not in found:
            continue
        value = found[name]
        module = modules.get(name) or (value.name if isinstance(value, ProgramModule) else None)
        namespace[name] = value if module is None else _import(module)
    return namespace


def _import(name: str) -> Any:
    """Imports a module for the tests that the program has imported, if it is a usual one."""
    top = name.partition(".")[0]
    if top not in sys.stdlib_module_names and top not in _THIRD_PARTY:
        raise ImportError(f"tests cannot use {name}, which only the program imports")
    return importlib.import_module(name)


def _describe(error: BaseException, source: str) -> str:
    """Returns an error in one line: its type, its text and the line of the tests."""
    try:
        text = f"{type(error).__name__}: {error}" if error.args else type(error).__name__
    except ValueError:  # an integer with too many digits
        text = type(error).__name__
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    if line is not None:
        lines = source.splitlines()
        text += f" in: {lines[line - 1].strip()}" if line <= len(lines) else ""
    return " ".join(text.split())[:_DETAIL_LENGTH]


def warm_up() -> None:
    """Does once what every process of tests does at first, so that it is in memory before."""
    session = Session(Channel(-1, -1, 0), 1 << 10)
    check("assert f(1) == 2\n", session)


def main(descriptors: Sequence[int], limit: int) -> None:
    """Runs tests and writes the outcome.

    Args:
        descriptors: to read answers from, to write requests to, of the file with the tests and
            what is given, and to write the verdict to.
        limit: the most bytes that a request or an answer may have.
    """
    incoming, outgoing, tests_file, verdict = descriptors
    with os.fdopen(tests_file, "rb") as file:
        source, given = json.loads(file.read())
    session = Session(Channel(incoming, outgoing, limit + (1 << 20)), limit)
    outcome, detail = check(source, session, given)
    os.write(verdict, json.dumps([outcome, detail]).encode())
