"""OpenAI's chat API, and the servers that follow it. No log-likelihoods can be measured with it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.api.instance import Completion
from lm_eval.models.planned.jobs import Message, Prompt, Sampling, groups
from lm_eval.models.served.dialects.base import Dialect, field_of, in_order
from lm_eval.models.served.exchange import BadReplyError, RefusedError
from lm_eval.models.served.retry import error_message
from lm_eval.models.served.transport import Reply

logger = logging.getLogger(__name__)


class Chat(Dialect):
    """A server with OpenAI's chat API.

    Attributes:
        length_name: the name of the parameter for the maximum length.
        continues_messages: whether the server accepts `continue_final_message`, which makes it
            continue the last message of a chat (vLLM, SGLang).
    """

    name = "chat completions"
    path = "/v1/chat/completions"
    max_stops: int | None = 4
    is_chat = True

    def __init__(
        self,
        model: str,
        length_name: str = "max_tokens",
        continues_messages: bool = False,
        **features: Any,
    ) -> None:
        super().__init__(model, **{**features, "accepts_tokens": False, "accepts_lists": False})
        self.length_name = length_name
        self.continues_messages = continues_messages
        self._folds_prefill = False

    def generate_payload(self, prompts: Sequence[Prompt], sampling: Sampling) -> dict[str, Any]:
        messages = self._messages(prompts[0])
        payload: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            self.length_name: sampling.max_tokens,
            "temperature": sampling.temperature,
            **sampling.others,
        }
        if stops := self.stops(sampling):
            payload["stop"] = stops
        if sampling.seed is not None:
            payload["seed"] = sampling.seed
        if sampling.samples > 1:
            payload["n"] = sampling.samples
        if self.continues_messages and messages[-1].get("role") == "assistant":
            payload |= {"continue_final_message": True, "add_generation_prompt": False}
        return self.parameters.apply(payload)

    def _messages(self, prompt: Prompt) -> list[Message]:
        messages = list(prompt.messages or [{"role": "user", "content": prompt.text}])
        return fold_prefill(messages) if self._folds_prefill else messages

    def adapt(self, reply: Reply) -> bool:
        if self.parameters.learn(reply):
            return True
        message = error_message(reply).lower()
        about_prefill = "prefill" in message or "end with a user" in message
        if reply.status == 400 and about_prefill and not self._folds_prefill:
            self._folds_prefill = True
            logger.warning(
                "The server does not continue an assistant message (%s). The beginning of the "
                "answer that the task gives (gen_prefix) is put at the end of the question.",
                error_message(reply),
            )
            return True
        return False

    def read_generated(self, reply: Any, prompts: int, samples: int) -> list[list[Completion]]:
        choices = in_order(field_of(reply, "choices"), prompts * samples)
        return groups([_completion(choice) for choice in choices], samples)


def _completion(choice: Mapping[str, Any]) -> Completion:
    """Returns an answer; reasoning is read from `reasoning` or `reasoning_content`.

    `choice` is an item of the reply's `choices`. Raises `RefusedError` if the model or a content
    filter refused to answer, and `BadReplyError` if the content is not text.
    """
    reason = choice.get("finish_reason")
    message = field_of(choice, "message") or {}
    if reason == "content_filter":
        raise RefusedError("the server's content filter blocked the answer")
    content = message.get("content")
    if isinstance(content, list):  # parts, of which some are not text
        content = "".join(str(part.get("text") or "") for part in content)
    if content is not None and not isinstance(content, str):
        raise BadReplyError(f"the reply's content is {type(content).__name__}, not a string")
    if not content and message.get("refusal"):
        raise RefusedError(f"the model refused to answer: {message['refusal']}")
    thoughts = message.get("reasoning") or message.get("reasoning_content")
    return Completion(content or "", str(thoughts) if thoughts else None, reason)


def fold_prefill(messages: Sequence[Message]) -> list[Message]:
    """Returns a chat that does not end with a message of the assistant.

    The text of such a message is appended to the message before it, after a line break.
    """
    if len(messages) < 2 or messages[-1].get("role") != "assistant":
        return list(messages)
    before, last = messages[-2], messages[-1]
    return [*messages[:-2], {**before, "content": f"{before['content']}\n{last['content']}"}]
