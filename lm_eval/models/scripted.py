"""A model whose answers come from functions that you pass, for tests of tasks and metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM


class ScriptedLM(LM):
    """Answers each request by calling your functions with its arguments.

    >>> lm = ScriptedLM(generate=lambda context, settings: "42")

    The three functions answer the three types of requests; they are called with the request's
    arguments. A request of a type without a function raises `NotImplementedError`. The attribute
    `requests` is the list of all requests received so far, in order.
    """

    stand_in = True

    def __init__(
        self,
        *,
        loglikelihood: Callable[[str, str], tuple[float, bool]] | None = None,
        rolling: Callable[[str], float] | None = None,
        generate: Callable[[str, dict[str, Any]], str] | None = None,
    ) -> None:
        super().__init__()
        self._functions: dict[str, Callable[..., Any] | None] = {
            "loglikelihood": loglikelihood,
            "loglikelihood_rolling": rolling,
            "generate_until": generate,
        }
        self.requests: list[Instance] = []

    @property
    def asked(self) -> list[Instance]:
        """The former name of `requests`."""
        return self.requests

    def _answer(self, kind: str, requests: list[Instance]) -> list[Any]:
        """Returns one answer per request; `kind` is the request type.

        Raises `NotImplementedError` if there is no function for this type.
        """
        function = self._functions[kind]
        if function is None:
            raise NotImplementedError(
                f"this ScriptedLM has no function for {kind} requests; pass one to its constructor "
                "(loglikelihood=…, rolling=… or generate=…)"
            )
        self.requests += requests
        return [function(*request.args) for request in requests]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return self._answer("loglikelihood", requests)

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        return self._answer("loglikelihood_rolling", requests)

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return self._answer("generate_until", requests)
