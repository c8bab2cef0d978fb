"""llama.cpp's `llama-server`: its native API, `/completion`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.api.instance import Completion
from lm_eval.models.planned.jobs import Prompt, Sampling, Score, groups
from lm_eval.models.served.dialects.base import Dialect, TokenCount, answers_of, field_of
from lm_eval.models.served.exchange import BadReplyError, RefusedError

#: Reasons why an answer ended, in the words of OpenAI.
_FINISH = {"limit": "length", "eos": "stop", "word": "stop"}


class LlamaServer(Dialect):
    """A `llama-server`.

    It returns no log-probabilities of a prompt. With `n_probs` it returns those of the most likely
    next tokens, without an upper limit, so that the whole vocabulary is asked for. Continuations of
    several tokens are scored one token at a time.

    The log-probabilities come with a generated token, and do not come if that token is a part of a
    character. So a token is generated that is not, whatever the model would have generated; the
    log-probabilities are the model's own all the same.
    """

    name = "llama-server"
    path = "/completion"
    scores_next_tokens = True

    def __init__(
        self,
        model: str,
        vocabulary: int | None = None,
        whole_token: int | None = None,
        **features: Any,
    ) -> None:
        """Takes what the probe found out.

        Args:
            model: the name of the model on the server.
            vocabulary: the number of tokens; None if the server does not report it.
            whole_token: a token that consists of whole characters; None if none is known.
            features: the arguments of `Dialect`.
        """
        super().__init__(model, **features)
        self.vocabulary = vocabulary or 1_000_000
        self.whole_token = whole_token

    def generate_payload(self, prompts: Sequence[Prompt], sampling: Sampling) -> dict[str, Any]:
        as_tokens = self.accepts_tokens and prompts[0].tokens is not None
        forms: list[Any] = [list(p.tokens or ()) if as_tokens else p.text for p in prompts]
        payload = {
            "model": self.model,
            "prompt": forms if len(forms) > 1 else forms[0],
            "n_predict": sampling.max_tokens,
            "temperature": sampling.temperature,
            "stop": self.stops(sampling),
            "cache_prompt": True,
            # Without these, the server restricts sampling.
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "repeat_penalty": 1.0,
            **sampling.others,
        }
        if sampling.seed is not None:
            payload["seed"] = sampling.seed
        if sampling.samples > 1:
            payload["n_cmpl"] = sampling.samples
        return self.parameters.apply(payload)

    def read_generated(self, reply: Any, prompts: int, samples: int) -> list[list[Completion]]:
        answers = answers_of(reply, prompts * samples)
        found = [
            Completion(
                str(field_of(answer, "content")),
                finish_reason=_FINISH.get(str(answer.get("stop_type"))),
            )
            for answer in answers
        ]
        return groups(found, samples)

    def usage(self, reply: Any) -> TokenCount:
        # `tokens_cached` is no help: it is the length of prompt and answer in the cache.
        answers = reply if isinstance(reply, list) else [reply]
        prompt, answered, computed = 0, 0, 0
        for answer in answers:
            length = int(answer.get("tokens_evaluated") or 0)
            prompt += length
            answered += int(answer.get("tokens_predicted") or 0)
            computed += int((answer.get("timings") or {}).get("prompt_n", length))
        return TokenCount(prompt, prompt - computed, answered)

    def next_payload(
        self, contexts: Sequence[Sequence[int]], tokens: Sequence[int]
    ) -> dict[str, Any]:
        prompts: list[Any] = [list(context) for context in contexts]
        payload = {
            "model": self.model,
            "prompt": prompts if len(prompts) > 1 else prompts[0],
            "n_predict": 1,
            "temperature": 0,
            "n_probs": self.vocabulary,
            "cache_prompt": True,
            "response_fields": ["completion_probabilities"],
        }
        if self.whole_token is not None:
            payload["logit_bias"] = [[self.whole_token, 1000.0]]
        return payload

    def read_next(self, reply: Any, contexts: int, tokens: Sequence[int]) -> list[dict[int, Score]]:
        return [_next_scores(answer, tokens) for answer in answers_of(reply, contexts)]


def _next_scores(answer: Mapping[str, Any], tokens: Sequence[int]) -> dict[int, Score]:
    positions = answer.get("completion_probabilities")
    if not positions:
        raise RefusedError("the server returned no log-probabilities of the next token")
    entries = field_of(positions[0], "top_logprobs")
    values = {int(entry["id"]): float(entry["logprob"]) for entry in entries}
    best = max(values, key=lambda token: values[token])
    if missing := [token for token in tokens if token not in values]:
        raise BadReplyError(f"the reply has no log-probability of the token {missing[0]}")
    return {token: (values[token], token == best) for token in tokens}
