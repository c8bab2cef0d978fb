"""Anthropic's messages API, and its older completions API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lm_eval.api.instance import Completion
from lm_eval.models.planned.jobs import Prompt, Sampling
from lm_eval.models.served.dialects.base import Dialect, TokenCount, field_of
from lm_eval.models.served.dialects.chat import Chat
from lm_eval.models.served.exchange import BadReplyError, RefusedError

#: Reasons why an answer ended, in the words of OpenAI.
_FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length"}


class AnthropicMessages(Chat):
    """Anthropic's messages API. System messages are a parameter of their own."""

    name = "Anthropic messages"
    path = "/v1/messages"
    max_stops = None

    def generate_payload(self, prompts: Sequence[Prompt], sampling: Sampling) -> dict[str, Any]:
        messages = self._messages(prompts[0])
        system = [str(m["content"]) for m in messages if m.get("role") == "system"]
        others = dict(sampling.others)
        payload: dict[str, Any] = {
            "model": self.model,
            "messages": [m for m in messages if m.get("role") != "system"],
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            **others,
        }
        if system:
            payload["system"] = "\n".join(system)
        # The API refuses stop strings that consist of white space.
        if stops := [stop for stop in self.stops(sampling) if stop.strip()]:
            payload["stop_sequences"] = stops
        return self.parameters.apply(payload)

    def read_generated(self, reply: Any, prompts: int, samples: int) -> list[list[Completion]]:
        blocks = field_of(reply, "content")
        if not isinstance(blocks, list):
            raise BadReplyError("the reply's field content is not a list")
        reason = reply.get("stop_reason")
        if reason == "refusal":
            raise RefusedError("the model refused to answer")
        text = "".join(str(b.get("text") or "") for b in blocks if b.get("type") == "text")
        thoughts = [str(b.get("thinking") or "") for b in blocks if b.get("type") == "thinking"]
        reasoning = "\n".join(filter(None, thoughts)) or None
        return [[Completion(text, reasoning, _FINISH.get(reason, reason))]]

    def usage(self, reply: Any) -> TokenCount:
        counted = super().usage(reply)
        if counted.prompt + counted.cached + counted.answer == 0:
            return counted
        # `input_tokens` are those that were neither read from the cache nor written to it.
        written = reply["usage"].get("cache_creation_input_tokens") or 0
        return replace(counted, prompt=counted.prompt + counted.cached + written)


class AnthropicCompletions(Dialect):
    """Anthropic's older completions API, whose prompt is a dialog as text."""

    name = "Anthropic completions"
    path = "/v1/complete"

    def generate_payload(self, prompts: Sequence[Prompt], sampling: Sampling) -> dict[str, Any]:
        payload = {
            "model": self.model,
            "prompt": f"\n\nHuman: {prompts[0].text}\n\nAssistant:",
            "max_tokens_to_sample": sampling.max_tokens,
            "temperature": sampling.temperature,
            "stop_sequences": ["\n\nHuman:", *self.stops(sampling)],
            **sampling.others,
        }
        return self.parameters.apply(payload)

    def read_generated(self, reply: Any, prompts: int, samples: int) -> list[list[Completion]]:
        text, reason = str(field_of(reply, "completion")), reply.get("stop_reason")
        return [[Completion(text, None, _FINISH.get(reason, reason))]]
