"""Stand-ins for the program's objects, in the process of its tests.

A stand-in passes calls, attributes, items and iteration on to the program, and returns what comes
back, rebuilt from plain types. Comparisons are never passed on: a stand-in equals only itself, has
no order and contains nothing, so that no object of the program takes part in the decision.
"""

from __future__ import annotations

import builtins
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from lm_eval.sandbox.channel import Channel, ChannelClosedError
from lm_eval.sandbox.values import MalformedError, Reader, ValueRefusedError, Writer, is_builtin

#: Calls of the tests' functions by the program, inside calls of the program by its tests.
_CALLBACK_DEPTH = 50


class SessionBrokenError(BaseException):
    """The program can no longer be asked: `outcome` says why. Tests cannot catch it by accident."""

    def __init__(self, outcome: str, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail


class Session:
    """The tests' side of a channel to a program.

    Args:
        channel: the pipes to the program.
        limit: the most bytes that a request may have.
    """

    def __init__(self, channel: Channel, limit: int) -> None:
        self._channel = channel
        self._stand_ins: dict[int, Any] = {}
        self._functions: list[Callable[..., Any]] = []
        self._writer = Writer(self, limit)
        self._reader = Reader(self)
        self._depth = 0
        #: The error after which no test can pass, even if the tests have caught it.
        self.broken: SessionBrokenError | None = None

    def describe(self, value: Any) -> tuple[Any, ...]:
        if type(value) is Remote:
            return ("object", object.__getattribute__(value, "_number"))
        if isinstance(value, type):
            number = vars(value).get("_number_in_program")
            if number is not None:
                return ("object", number)
            if is_builtin(value):
                return ("builtin", value.__name__)
        if callable(value):
            self._functions.append(value)
            return ("function", len(self._functions) - 1)
        if isinstance(value, Iterator):
            return ("iterator", list(value))
        raise ValueRefusedError(f"tests cannot pass {type(value).__name__} objects to a program")

    def resolve(self, description: tuple[Any, ...]) -> Any:
        kind, which = description[0], description[1]
        if kind == "builtin" and isinstance(getattr(builtins, str(which), None), type):
            return getattr(builtins, which)
        if kind == "module":
            return ProgramModule(str(which))
        if kind not in ("object", "exception") or type(which) is not int:
            raise MalformedError("an unknown kind of object")
        if which not in self._stand_ins:
            if kind == "object":
                self._stand_ins[which] = Remote(self, which, str(description[2]))
            else:
                self._stand_ins[which] = _local_exception(which, *description[2:])
        return self._stand_ins[which]

    def request(self, operation: str, *args: Any) -> Any:
        """Returns what the program answers; raises what it raises."""
        if self.broken:
            raise self.broken
        try:
            self._channel.send(self._writer.write((operation, args)))
            kind, value, more = self._answer()
        except (ChannelClosedError, MalformedError, TypeError) as error:
            raise self._break("died", f"the program's process: {error}") from None
        if kind == "raised":
            raise self._exception(value, more)
        if kind == "refused":
            raise self._break("refused", f"the program returned a value that is {value}")
        if kind != "value":
            raise self._break("died", "the program's process: an unknown kind of answer")
        if operation == "call" and value is None and more is not None:
            update(args[1], more)
        return value

    def _answer(self) -> tuple[str, Any, Any]:
        """Returns the next answer that is not a call of one of the tests' functions."""
        while True:
            answer = self._reader.read(self._channel.receive())
            if type(answer) is not tuple or len(answer) != 3 or type(answer[0]) is not str:
                raise MalformedError("not an answer")
            if answer[0] != "function":
                return answer
            self._depth += 1
            if self._depth > _CALLBACK_DEPTH:
                raise MalformedError("calls nested too deeply")
            self._channel.send(self._writer.write(self._called(answer[1], answer[2])))
            self._depth -= 1

    def _called(self, which: Any, arguments: Any) -> tuple[Any, ...]:
        if type(which) is not int or not 0 <= which < len(self._functions):
            raise MalformedError("an unknown function")
        args, kwargs = arguments
        try:
            return ("value", self._functions[which](*args, **kwargs), None)
        except Exception as error:
            kind = next(base for base in type(error).__mro__ if base.__module__ == "builtins")
            return ("raised", kind, (str(error),))

    def _exception(self, kind: Any, arguments: Any) -> BaseException:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            return self._break("died", "the program's process: raised what is no exception")
        try:
            return kind(*arguments)
        except (
            TypeError,
            ValueError,
        ):  # an exception with a signature of its own, such as UnicodeDecodeError
            made = Exception.__new__(kind) if issubclass(kind, Exception) else None
            return made or RuntimeError(kind.__name__)

    def _break(self, outcome: str, detail: str) -> SessionBrokenError:
        self.broken = SessionBrokenError(outcome, detail)
        return self.broken


class ProgramModule:
    """Says that a name of the program is bound to a module; the tests get their own copy."""

    def __init__(self, name: str) -> None:
        self.name = name


class Remote:
    """Stands for one object of the program: a function, a class, an instance, an iterator."""

    __slots__ = ("_kind", "_number", "_session")

    _session: Session
    _number: int
    _kind: str

    def __init__(self, session: Session, number: int, kind: str) -> None:
        object.__setattr__(self, "_session", session)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_kind", kind)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._session.request("call", self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__name__":
            raise AttributeError(name)  # protocols that are not passed on
        return self._session.request("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._session.request("setattr", self, name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._session.request("getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._session.request("setitem", self, key, value)

    def __iter__(self) -> Any:
        return self._session.request("iter", self)

    def __next__(self) -> Any:
        return self._session.request("next", self)

    def __len__(self) -> int:
        return int(self._session.request("len", self))

    def __bool__(self) -> bool:
        return self._session.request("bool", self) is True

    def __str__(self) -> str:
        return str(self._session.request("str", self))

    def __repr__(self) -> str:
        return f"<{self._kind} of the program>"

    def __contains__(self, value: Any) -> bool:
        return any(item is value or item == value for item in self)


def _local_exception(number: int, name: Any, base: Any) -> type:
    if not (isinstance(base, type) and issubclass(base, BaseException)):
        raise MalformedError("an exception without a base")
    return type(str(name), (base,), {"_number_in_program": number})


def update(before: Any, after: Any) -> None:
    """Makes mutable arguments of a call equal to what the program has made of them, in place."""
    if type(before) is not type(after):
        return
    if isinstance(before, tuple) and len(before) == len(after):
        for old, new in zip(before, after, strict=True):
            update(old, new)
    elif isinstance(before, (list, deque)):
        kept = list(before)
        for index, new in enumerate(after):
            old = kept[index] if index < len(kept) else None
            if isinstance(old, (list, deque, dict, set, bytearray)) and type(old) is type(new):
                update(old, new)
                after[index] = old
        before.clear()
        before.extend(after)
    elif isinstance(before, (dict, set)):
        before.clear()
        before.update(after)
    elif isinstance(before, bytearray):
        before[:] = after
