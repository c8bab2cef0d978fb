"""Servers that return the log-probabilities of a prompt given as text, such as llama-cpp-python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.models.planned.jobs import Prompt, Sampling, Score, Window
from lm_eval.models.served.dialects.base import field_of, in_order
from lm_eval.models.served.dialects.completions import Completions, Echo, echoed, score_of
from lm_eval.models.served.exchange import RefusedError


class EchoText(Completions):
    """A server that returns the log-probabilities of a prompt given as text (`echo`).

    The server tokenizes the prompt, and may put a beginning-of-text token before it. Some servers
    (llama-cpp-python) leave that token out of the reply, and give no value for the one after it.

    Attributes:
        scores_first_token: whether the token after the beginning-of-text token has a value.
        dropped: by how many the tokens of the reply are fewer than those that the server counts in
            the prompt (`usage`); None if it is not known.
        differences: by how many the tokens of the reply may differ from those of the tokenizer.
    """

    name = "completions with echo of text"
    scores = True

    def __init__(
        self,
        model: str,
        scores_first_token: bool = False,
        dropped: int | None = None,
        differences: Sequence[int] = (-1, 0, 1),
        **features: Any,
    ) -> None:
        super().__init__(model, **{**features, "accepts_tokens": False, "accepts_lists": False})
        self.scores_first_token = scores_first_token
        self.dropped, self.differences = dropped, differences

    def score_payload(self, windows: Sequence[Window]) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": windows[0].text,
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": 1,
            "echo": True,
        }

    def read_score(self, reply: Any, windows: Sequence[Window]) -> list[Score]:
        window = windows[0]
        echo, found = echoed_prompt(reply, self.dropped)
        added = found - len(window.tokens)
        if added not in self.differences:
            raise RefusedError(
                f"the server reads the text as {found} tokens, the tokenizer as "
                f"{len(window.tokens)}; pass tokenizer=NAME of the tokenizer of the model"
            )
        return [score_of(echo, window.start + added, found)]


def echoed_prompt(reply: Any, dropped: int | None = None) -> tuple[Echo, int]:
    """Returns the log-probabilities in a reply, and how many of them, the first, are the prompt's.

    Those of the generated tokens follow; Together's API has a field for each. The number is that of
    all tokens less the generated ones; or, since some servers count an end-of-text token that they
    do not return, the server's count of prompt tokens less `dropped`, unless that is None.
    """
    (choice,) = in_order(field_of(reply, "choices"), 1)
    apart = reply.get("prompt")
    if isinstance(apart, list) and apart and isinstance(apart[0], Mapping):
        echo = echoed(apart[0])
        return echo, len(echo.logprobs)
    echo, usage = echoed(choice), field_of(reply, "usage")
    if dropped is not None and isinstance(usage.get("prompt_tokens"), int):
        return echo, usage["prompt_tokens"] - dropped
    return echo, len(echo.logprobs) - int(usage.get("completion_tokens", 1))


class LlamaCppPython(EchoText):
    """The server of llama-cpp-python, whose defaults change what is generated."""

    name = "llama-cpp-python"
    max_stops = None
    #: Without these, the server penalizes repetitions and restricts sampling.
    _NEUTRAL = (("repeat_penalty", 1.0), ("top_k", 0), ("top_p", 1.0), ("min_p", 0.0))

    def generate_payload(self, prompts: Sequence[Prompt], sampling: Sampling) -> dict[str, Any]:
        return {**dict(self._NEUTRAL), **super().generate_payload(prompts, sampling)}
