"""A model whose answers you write yourself: for tests of tasks, filters and metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM


class ScriptedLM(LM):
    """Answers each request by calling your functions with its arguments.

    >>> lm = ScriptedLM(generate=lambda context, settings: "42")

    A kind of request you gave no function for is an error, so a test fails where it should.
    `asked` keeps every request in the order it came.
    """

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
        self.asked: list[Instance] = []

    def _answer(self, kind: str, requests: list[Instance]) -> list[Any]:
        function = self._functions[kind]
        if function is None:
            raise NotImplementedError(f"this ScriptedLM was given nothing to say to {kind}")
        self.asked += requests
        return [function(*request.args) for request in requests]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return self._answer("loglikelihood", requests)

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        return self._answer("loglikelihood_rolling", requests)

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return self._answer("generate_until", requests)
