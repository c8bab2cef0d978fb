"""The process of a program: runs it, and then calls its functions as its tests ask.

Nothing here is trusted. Whatever a program does to this process, the other side only ever receives
values, as if the program had returned them.
"""

from __future__ import annotations

import builtins
import importlib
import operator
import os
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lm_eval.sandbox.channel import Channel
from lm_eval.sandbox.values import Reader, ValueRefusedError, Writer, is_builtin

#: How many parts a request has; the result of a function of the tests has one more.
_REQUEST = 2


class Objects:
    """The program's objects that its tests refer to, by number."""

    def __init__(self, call_back: Callable[..., Any]) -> None:
        self._kept: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._call_back = call_back

    def describe(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, type) and is_builtin(value):
            return ("builtin", value.__name__)
        if isinstance(value, types.ModuleType):
            return ("module", value.__name__)
        if isinstance(value, type) and issubclass(value, BaseException):
            base = next(base for base in value.__mro__[1:] if issubclass(base, BaseException))
            return ("exception", self._number(value), value.__name__, base)
        return ("object", self._number(value), type(value).__name__)

    def _number(self, value: Any) -> int:
        number = self._numbers.setdefault(id(value), len(self._kept))
        if number == len(self._kept):
            self._kept.append(value)
        return number

    def resolve(self, description: tuple[Any, ...]) -> Any:
        kind, which = description
        if kind == "builtin":
            return getattr(builtins, which)
        if kind == "iterator":
            return iter(which)
        if kind == "function":
            return lambda *args, **kwargs: self._call_back(which, args, kwargs)
        return self._kept[which]


class Guest:
    """Answers the requests of the tests.

    Args:
        channel: the pipes to the tests.
        limit: the most bytes that an answer may have.
    """

    def __init__(self, channel: Channel, limit: int) -> None:
        self._channel = channel
        objects = Objects(self._call_back)
        self._writer = Writer(objects, limit)
        self._reader = Reader(objects)
        self._namespace: dict[str, Any] = {}
        self._code: types.CodeType | None = None
        self._operations: dict[str, Callable[..., Any]] = {
            "start": self._start,
            "call": lambda function, args, kwargs: function(*args, **kwargs),
            "getattr": getattr,
            "setattr": setattr,
            "getitem": operator.getitem,
            "setitem": operator.setitem,
            "bool": bool,
            "iter": iter,
            "len": len,
            "next": next,
            "repr": repr,
            "str": str,
        }

    def load(self, program: str) -> None:
        """Executes the program in an empty namespace, as the published method does."""
        self._code = compile(program, "<program>", "exec", dont_inherit=True)
        exec(self._code, self._namespace)

    def _start(self, names: list[str], imports: list[tuple[str, str, str]]) -> dict[str, Any]:
        """Returns those of the named objects that the program defines.

        Tests and programs share one namespace in the published method, so that a program can use
        what its tests import.
        """
        used = set(_names_used(self._code)) if self._code else set()
        for module, attribute, name in imports:
            if name in used and name not in self._namespace:
                found = importlib.import_module(module)
                self._namespace[name] = getattr(found, attribute) if attribute else found
        return {name: self._namespace[name] for name in names if name in self._namespace}

    def serve(self, failure: BaseException | None) -> None:
        """Answers requests for ever; with `failure`, which loading raised, if there is one."""
        while True:
            request = self._reader.read(self._channel.receive())
            self._channel.send(self._raised(failure) if failure else self._answer(*request))

    def _answer(self, operation: str, args: tuple[Any, ...]) -> bytes:
        try:
            result = self._operations[operation](*args)
            # A function without a result acts through its arguments: they are sent back.
            after = args[1] if operation == "call" and result is None else None
            return self._writer.write(("value", result, after))
        except ValueRefusedError as error:
            return self._writer.write(("refused", str(error), None))
        except BaseException as error:
            return self._raised(error)

    def _raised(self, error: BaseException) -> bytes:
        try:
            return self._writer.write(("raised", type(error), tuple(error.args)))
        except ValueRefusedError:
            return self._writer.write(("raised", type(error), ()))

    def _call_back(self, which: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a function that the tests have passed to the program."""
        self._channel.send(self._writer.write(("function", which, (args, kwargs))))
        while len(message := self._reader.read(self._channel.receive())) == _REQUEST:
            self._channel.send(self._answer(*message))  # that function calls the program in turn
        kind, value, arguments = message
        if kind == "raised":
            raise value(*arguments)
        return value


def _names_used(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_used(constant)


def main(descriptors: Sequence[int], limit: int) -> None:
    """Runs a program, and answers requests until this process is killed.

    Args:
        descriptors: to read requests from, to write answers to, and of the file with the program.
        limit: the most bytes that an answer may have.
    """
    incoming, outgoing, program_file = descriptors
    with os.fdopen(program_file, "rb") as file:
        program = file.read().decode("utf-8", "surrogatepass")
    guest = Guest(Channel(incoming, outgoing, 1 << 40), limit)
    failure: BaseException | None = None
    try:
        guest.load(program)
    except BaseException as error:
        failure = error
    guest.serve(failure)
