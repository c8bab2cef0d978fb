"""vLLM: prompt log-probabilities with ranks, and log-probabilities of chosen next tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.models.planned.jobs import Score, Window
from lm_eval.models.served.dialects.base import field_of, in_order
from lm_eval.models.served.dialects.completions import Completions
from lm_eval.models.served.exchange import BadReplyError


class VLLM(Completions):
    """A vLLM server.

    `prompt_logprobs` makes the server compute the whole prompt, without its prefix cache. The
    log-probabilities of chosen next tokens (`logprob_token_ids`) use the cache, so that is how
    continuations of one token are scored.
    """

    name = "vLLM"
    scores = True
    scores_next_tokens = True
    #: The maximum length of `logprob_token_ids`.
    max_next_tokens = 128

    def score_payload(self, windows: Sequence[Window]) -> dict[str, Any]:
        prompts = [list(window.tokens) for window in windows]
        return {
            "model": self.model,
            "prompt": prompts if len(prompts) > 1 else prompts[0],
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": 0,  # of the prompt's own tokens only, each with its rank
        }

    def read_score(self, reply: Any, windows: Sequence[Window]) -> list[Score]:
        choices = in_order(field_of(reply, "choices"), len(windows))
        return [
            _score(choice.get("prompt_logprobs"), window)
            for choice, window in zip(choices, windows, strict=True)
        ]

    def next_payload(
        self, contexts: Sequence[Sequence[int]], tokens: Sequence[int]
    ) -> dict[str, Any]:
        prompts = [list(context) for context in contexts]
        return {
            "model": self.model,
            "prompt": prompts if len(prompts) > 1 else prompts[0],
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": 1,  # required, although its number is ignored
            "logprob_token_ids": list(tokens),
            "return_tokens_as_token_ids": True,  # else tokens of the same text would collide
        }

    def read_next(self, reply: Any, contexts: int, tokens: Sequence[int]) -> list[dict[int, Score]]:
        choices = in_order(field_of(reply, "choices"), contexts)
        return [_next_scores(choice, tokens) for choice in choices]


def _score(positions: Any, window: Window) -> Score:
    """Returns (log-likelihood, is_greedy) of a window's continuation.

    `positions` is the reply's `prompt_logprobs`. Raises `BadReplyError` if it lacks a token.
    """
    if not isinstance(positions, Sequence) or len(positions) != len(window.tokens):
        raise BadReplyError("the reply has no prompt_logprobs for every token of the prompt")
    total, greedy = 0.0, True
    for token, position in zip(
        window.tokens[window.start :], positions[window.start :], strict=True
    ):
        entry = position.get(str(token)) if isinstance(position, Mapping) else None
        if entry is None:
            raise BadReplyError(f"prompt_logprobs of the reply lack the token {token}")
        total += float(entry["logprob"])
        greedy = greedy and entry["rank"] == 1
    return total, greedy


def _next_scores(choice: Mapping[str, Any], tokens: Sequence[int]) -> dict[int, Score]:
    """Returns (log-probability, is_greedy) of each of these next tokens, by token.

    The generated token is the greedy one. Raises `BadReplyError` if a token is missing.
    """
    logprobs = field_of(choice, "logprobs")
    generated = field_of(logprobs, "tokens")[0]
    values = field_of(logprobs, "top_logprobs")[0]
    found = {}
    for token in tokens:
        name = f"token_id:{token}"
        if name not in values:
            raise BadReplyError(f"the reply has no log-probability of the token {token}")
        found[token] = (float(values[name]), name == generated)
    return found
