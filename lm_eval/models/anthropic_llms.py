"""Models behind Anthropic's APIs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from lm_eval.api.instance import Instance
from lm_eval.api.registry import register_model
from lm_eval.models.openai_completions import (
    LocalCompletionsAPI,
    check_messages,
    listed,
    no_loglikelihood,
)
from lm_eval.models.served.argument_checks import check_key
from lm_eval.models.served.model import ServedLM
from lm_eval.models.served.numbers import check_numbers

#: The version of the API that requests and replies are written for.
ANTHROPIC_VERSION = "2023-06-01"
_NO_SCORES = "Anthropic's API returns no log-probabilities, so that no text can be scored."


@register_model("anthropic-completions")
class AnthropicLM(ServedLM):
    """A model behind Anthropic's older completions API.

    Args:
        batch_size: without effect: a request has one prompt.
        model: the name of the model.
        max_tokens_to_sample: the maximum length of an answer, if the request does not set it.
        temperature: used if the request does not set it.
        kwargs: arguments of `ServedBase`; all others are sent with each request (`top_p`, `top_k`).
    """

    kind: ClassVar[str] = "anthropic-completions"
    default_base_url: ClassVar[str | None] = "https://api.anthropic.com/v1/complete"
    default_tokenizer_backend: ClassVar[str] = "none"
    key_variable: ClassVar[str] = "ANTHROPIC_API_KEY"
    key_is_required: ClassVar[bool] = True

    def __init__(
        self,
        batch_size: int | str = 1,
        model: str = "claude-2.0",
        max_tokens_to_sample: int = 256,
        temperature: float = 0,
        **kwargs: Any,
    ) -> None:
        known = ServedLM.__init__.__annotations__
        kwargs.pop("device", None)
        kwargs.pop("max_batch_size", None)
        own = {"max_tokens_to_sample": max_tokens_to_sample, "temperature": temperature}
        numbers = check_numbers(own)
        super().__init__(
            model=model,
            max_gen_toks=numbers["max_tokens_to_sample"],
            **{name: value for name, value in kwargs.items() if name in known},
        )
        self.temperature = numbers["temperature"]
        self.max_tokens_to_sample = numbers["max_tokens_to_sample"]
        self.kwargs = {name: value for name, value in kwargs.items() if name not in known}

    @classmethod
    def check_before_loading(
        cls, arguments: Mapping[str, Any], chat_template: bool | str = False
    ) -> None:
        super().check_before_loading(arguments, chat_template)
        check_key(cls, arguments)

    @property
    def header(self) -> dict[str, str]:
        """The HTTP headers of every request."""
        return anthropic_header(self._header, self.api_key)

    def _generation_jobs(self, requests: Sequence[Instance]) -> Iterator[Any]:
        for job in super()._generation_jobs(requests):
            sampling = replace(job.sampling, others={**self.kwargs, **job.sampling.others})
            if "temperature" not in requests[job.requests[0]].args[1]:
                sampling = replace(sampling, temperature=float(self.temperature))
            yield replace(job, sampling=sampling)

    def cannot_measure(self, request_type: str) -> str | None:
        if request_type == "generate_until":
            return super().cannot_measure(request_type)
        return _NO_SCORES

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        raise no_loglikelihood(_NO_SCORES)

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        raise no_loglikelihood(_NO_SCORES)


@register_model("anthropic-chat", "anthropic-chat-completions")
class AnthropicChat(LocalCompletionsAPI):
    """A model behind Anthropic's messages API. It needs `--apply_chat_template`."""

    kind: ClassVar[str] = "anthropic-messages"
    default_base_url: ClassVar[str | None] = "https://api.anthropic.com/v1/messages"
    key_variable: ClassVar[str] = "ANTHROPIC_API_KEY"
    key_is_required: ClassVar[bool] = True
    request_path: ClassVar[str] = "/v1/messages"

    def __init__(
        self,
        base_url: str | None = "https://api.anthropic.com/v1/messages",
        tokenizer_backend: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(base_url=base_url, tokenizer_backend=tokenizer_backend, **kwargs)
        self._batch_size = 1
        self.anthropic_version = ANTHROPIC_VERSION

    @cached_property
    def header(self) -> dict[str, str]:
        """The HTTP headers of every request."""
        return anthropic_header(self._header, self.api_key, self.anthropic_version)

    def _create_payload(  # type: ignore[override]
        self,
        messages: Any,
        generate: bool = True,
        gen_kwargs: dict[str, Any] | None = None,
        eos: str | None = "\n\nHuman:",
        **kwargs: Any,
    ) -> dict[str, Any]:
        check_messages(messages)
        chat = list(messages)
        system = chat.pop(0)["content"] if chat and chat[0].get("role") == "system" else None
        length, temperature, stop, others = self._read_settings(gen_kwargs, eos, "\n\nHuman:")
        # The API refuses stop strings that consist of white space.
        stops = [one for one in stop if one and one.strip()]
        payload = {
            "messages": [_content_parts(message) for message in chat],
            "model": self.model,
            "max_tokens": length,
            "temperature": temperature,
            "stop_sequences": stops or ["\n\nHuman:"],
            **others,
        }
        return {**payload, "system": system} if system else payload

    def parse_generations(self, outputs: Any, **kwargs: Any) -> list[Any]:  # type: ignore[override]
        return [
            "".join(str(block.get("text") or "") for block in reply["content"])
            for reply in listed(outputs)
        ]

    def tok_encode(self, string: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns the text in a list: the server tokenizes messages."""
        return [string]

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        raise no_loglikelihood(_NO_SCORES)

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[float]:
        raise no_loglikelihood(_NO_SCORES)


def anthropic_header(
    given: Mapping[str, str] | None, key: str, version: str = ANTHROPIC_VERSION
) -> dict[str, str]:
    """Returns the headers of a request: those that the user gave, else key and API version."""
    return {"x-api-key": key, "anthropic-version": version} if given is None else dict(given)


def _content_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a message whose content is a list of parts: a text becomes the only part."""
    content = message["content"]
    if isinstance(content, list):
        return {"role": message["role"], "content": content}
    kind = message.get("type", "text")
    return {"role": message["role"], "content": [{"type": kind, kind: content}]}
