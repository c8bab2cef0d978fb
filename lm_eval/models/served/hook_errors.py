"""Tells mistakes in the methods of third-party classes from replies that cannot be read."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from lm_eval.errors import EvalError, ModelError, as_original_type, describe_cause
from lm_eval.models.served.exchange import BadReplyError

#: How much of a reply is shown.
MAX_SHOWN = 300
#: Errors of code that reads a reply which is built otherwise than it expects.
_OF_CODE = (KeyError, IndexError, TypeError, AttributeError)
#: Why an error ends the run, for the end of a message.
_NEVER_WORKED = (
    " It has never succeeded in this run, so the run ends: correct the method, or what it expects "
    "of the server."
)


def accepted(function: Callable[..., Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those keyword arguments that a function accepts; all if it takes `**kwargs`."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(keywords)
    return {name: value for name, value in keywords.items() if name in parameters}


class HookGuard:
    """Calls the hooks of a model class, and decides what an error in them means.

    An error while a body is built is always a mistake in the class, and ends the run. While a reply
    is read it may be the server's fault. It is taken for a mistake in the class if the method has
    never succeeded in this run and the reply does not report an error itself; otherwise the request
    is sent again, as after any reply that cannot be read.
    """

    def __init__(self, owner: object, hide: Callable[[str], str]) -> None:
        """Takes the model, whose class the messages name, and a function that hides its keys."""
        self._owner, self._hide = type(owner).__name__, hide
        self._worked: set[str] = set()

    def build(self, hook: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Returns what a hook that builds a request returns; raises `ModelError` if it fails."""
        try:
            return hook(*arguments, **keywords)
        except (EvalError, NotImplementedError):
            raise
        except Exception as error:  # third-party code
            raise self._mistake(_name(hook), error) from error

    def read(self, hook: Callable[..., Any], check: Callable[[Any], Any], **keywords: Any) -> Any:
        """Returns what `check` makes of what a hook reads from a reply.

        Args:
            hook: `parse_generations` or `parse_logprobs`.
            check: returns the result of the hook as it is needed. Raises `BadReplyError` if
                something is missing in the reply, and `TypeError` or `ValueError` if the result is
                of the wrong kind.
            keywords: the arguments of the hook, as far as it accepts them; `outputs` is the reply.

        Raises:
            ModelError: for a mistake in the class.
            BadReplyError: if the request is worth sending again.
        """
        name = _name(hook)
        try:
            found = check(hook(**accepted(hook, keywords)))
        except (EvalError, NotImplementedError, BadReplyError):
            raise
        except Exception as error:  # third-party code
            shown = self._shown(keywords.get("outputs"))
            if name in self._worked or _reports_error(keywords.get("outputs")):
                reason = f"{name} failed: {type(error).__name__}: {error}; the reply begins {shown}"
                raise BadReplyError(reason) from error
            more = f"{_NEVER_WORKED} The reply begins: {shown}"
            raise self._mistake(name, error, more) from error
        self._worked.add(name)
        return found

    def called(self, name: str, error: Exception | None = None) -> None:
        """Takes note of a call of the hook `name`, which sends requests, and of its error.

        `error` is None if the call succeeded. Raises `ModelError` if the error is a mistake in the
        class: one that code makes while it reads a reply, before any call has succeeded.
        """
        if error is None:
            self._worked.add(name)
            return
        is_of_code = isinstance(error, _OF_CODE) and not isinstance(error, EvalError)
        if is_of_code and name not in self._worked:
            raise self._mistake(name, error, _NEVER_WORKED) from error

    def _mistake(self, name: str, error: Exception, more: str = "") -> EvalError:
        message = f"{self._owner}.{name} failed: {describe_cause(error)}.{more}"
        return as_original_type(ModelError(self._hide(message)), error)

    def _shown(self, reply: Any) -> str:
        """Returns the beginning of a reply."""
        text = self._hide(json.dumps(reply, ensure_ascii=False, default=str))
        return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _name(hook: Callable[..., Any]) -> str:
    return str(getattr(hook, "__name__", "a method"))


def _reports_error(reply: Any) -> bool:
    """Returns whether a reply with a success status reports an error: `{"error": …}`."""
    return isinstance(reply, Mapping) and bool(reply.get("error"))
