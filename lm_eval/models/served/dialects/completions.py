"""OpenAI's completions API, and the servers that follow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.api.instance import Completion
from lm_eval.models.planned.jobs import Prompt, Sampling, Score, Window, groups
from lm_eval.models.served.dialects.base import Dialect, field_of, in_order
from lm_eval.models.served.exchange import BadReplyError, RefusedError


class Completions(Dialect):
    """A server that generates, and returns no log-probabilities of prompts."""

    name = "completions without log-probabilities of the prompt"
    max_stops: int | None = 4  # of OpenAI, and of vLLM

    def generate_payload(self, prompts: Sequence[Prompt], sampling: Sampling) -> dict[str, Any]:
        payload = {
            "model": self.model,
            "prompt": self._prompts(prompts),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            **sampling.others,
        }
        if stops := self.stops(sampling):
            payload["stop"] = stops
        if sampling.seed is not None:
            payload["seed"] = sampling.seed
        if sampling.samples > 1:
            payload["n"] = sampling.samples
        return self.parameters.apply(payload)

    def _prompts(self, prompts: Sequence[Prompt]) -> Any:
        """Returns the field `prompt`: token ids or text; a list of them if there are several."""
        as_tokens = self.accepts_tokens and prompts[0].tokens is not None
        forms = [list(p.tokens or ()) if as_tokens else p.text for p in prompts]
        return forms[0] if len(forms) == 1 else forms

    def read_generated(self, reply: Any, prompts: int, samples: int) -> list[list[Completion]]:
        choices = in_order(field_of(reply, "choices"), prompts * samples)
        return groups([self._completion(choice) for choice in choices], samples)

    def _completion(self, choice: Mapping[str, Any]) -> Completion:
        if choice.get("finish_reason") == "content_filter":
            raise RefusedError("the server's content filter blocked the answer")
        text = field_of(choice, "text")
        if text is not None and not isinstance(text, str):
            raise BadReplyError(f"the reply's text is {type(text).__name__}, not a string")
        return Completion(text or "", finish_reason=choice.get("finish_reason"))


class EchoTokens(Completions):
    """A server that returns the log-probabilities of a prompt given as token ids (`echo`)."""

    name = "completions with echo"
    scores = True

    def score_payload(self, windows: Sequence[Window]) -> dict[str, Any]:
        prompts = [list(window.tokens) for window in windows]
        return {
            "model": self.model,
            "prompt": prompts if len(prompts) > 1 else prompts[0],
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": 1,
            "echo": True,
        }

    def read_score(self, reply: Any, windows: Sequence[Window]) -> list[Score]:
        choices = in_order(field_of(reply, "choices"), len(windows))
        return [
            sum_scores(choice, window.start, len(window.tokens))
            for choice, window in zip(choices, windows, strict=True)
        ]


class Echo:
    """The arrays of an echoed prompt: for each token its log-probability and the best one there."""

    def __init__(self, logprobs: Sequence[float | None], best: Sequence[float | None]) -> None:
        self.logprobs, self.best = logprobs, best


def echoed(choice: Mapping[str, Any]) -> Echo:
    """Returns the log-probabilities of a choice, prompt and generated tokens together.

    `choice` is an item of the reply's `choices`. Raises `BadReplyError` if it has none.
    """
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, Mapping) or not isinstance(logprobs.get("token_logprobs"), list):
        raise BadReplyError("the reply has no log-probabilities (logprobs.token_logprobs)")
    values: list[float | None] = logprobs["token_logprobs"]
    tops = logprobs.get("top_logprobs") or [None] * len(values)
    best = [max(top.values()) if top else None for top in tops]
    return Echo(values, best)


def score_of(echo: Echo, start: int, end: int) -> Score:
    """Returns (log-likelihood, is_greedy) of the tokens from `start` to before `end`.

    The first is the sum of their log-probabilities; the second is True if for each no other token
    is more likely. Raises `BadReplyError` if one of them is missing.
    """
    total, greedy = 0.0, True
    for position in range(start, end):
        value = echo.logprobs[position] if 0 <= position < len(echo.logprobs) else None
        if value is None:
            raise BadReplyError(f"the reply has no log-probability of token {position}")
        total += value
        best = echo.best[position]
        if best is None:
            raise BadReplyError(f"the reply has no most likely token at position {position}")
        greedy = greedy and value >= best
    return total, greedy


def sum_scores(choice: Mapping[str, Any], start: int, end: int) -> Score:
    """Returns (log-likelihood, is_greedy) of the tokens from `start` to the end of a prompt.

    `choice` is an item of the reply's `choices`, and `end` the number of tokens of the prompt.
    Raises `BadReplyError` if log-probabilities are missing.
    """
    echo = echoed(choice)
    if len(echo.logprobs) < end:
        raise BadReplyError(
            f"the server's reply has only {len(echo.logprobs)} log-probabilities for a prompt of "
            f"{end} tokens; it must return one per token"
        )
    return score_of(echo, start, end)
