"""Models behind OpenAI's completions and chat APIs: servers that follow them, OpenAI, and Azure."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from functools import cached_property
from operator import itemgetter
from typing import Any, ClassVar
from urllib.parse import urlsplit

from lm_eval.api.instance import Instance
from lm_eval.api.registry import register_model
from lm_eval.errors import ConfigError, ModelError, as_original_type
from lm_eval.models.api_models import TemplateAPI
from lm_eval.models.utils import handle_stop_sequences, postprocess_generated_text

logger = logging.getLogger(__name__)

#: Names of OpenAI's reasoning models, which take no stop strings and only their own temperature.
_REASONING_MODEL = re.compile(r"(^|/)(o\d|gpt-5)")
#: The maximum number of stop strings that chat APIs accept.
_MAX_STOPS = 4


def listed(outputs: Any) -> list[Any]:
    """Returns a list of replies as it is, and a single reply in a list."""
    return outputs if isinstance(outputs, list) else [outputs]


def no_loglikelihood(message: str) -> ModelError:
    """Returns a `ModelError` that is a `NotImplementedError`, too, as in the published classes."""
    error = as_original_type(ModelError(message), NotImplementedError(message))
    assert isinstance(error, ModelError)
    return error


@register_model("local-completions")
class LocalCompletionsAPI(TemplateAPI):
    """A model on a server with OpenAI's completions API: vLLM, llama.cpp, TGI and others."""

    MULTIMODAL = False
    key_variable: ClassVar[str] = "OPENAI_API_KEY"
    request_path: ClassVar[str] = "/v1/completions"

    def __init__(
        self,
        base_url: str | None = None,
        tokenizer_backend: str | None = "auto",
        verify_certificate: bool = True,
        ca_cert_path: str | None = None,
        auth_token: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            base_url=base_url,
            tokenizer_backend=tokenizer_backend,
            verify_certificate=verify_certificate,
            ca_cert_path=ca_cert_path,
            auth_token=auth_token,
            **kwargs,
        )

    def _create_payload(
        self,
        messages: Any,
        generate: bool = False,
        gen_kwargs: dict[str, Any] | None = None,
        seed: int = 1234,
        eos: str | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        if not generate:
            return {
                "model": self.model,
                "prompt": messages,
                "temperature": 0,
                "max_tokens": 1,
                "logprobs": 1,
                "seed": seed,
                "echo": True,
            }
        length, temperature, stop, others = self._read_settings(gen_kwargs, eos)
        return {
            "prompt": messages,
            "model": self.model,
            "max_tokens": length,
            "temperature": temperature,
            "stop": stop,
            "seed": seed,
            **others,
        }

    def _read_settings(
        self, gen_kwargs: Mapping[str, Any] | None, eos: str | None, until: Any = None
    ) -> tuple[Any, Any, list[str], dict[str, Any]]:
        """Returns maximum length, temperature, stop strings, and the remaining settings.

        `until` are the stop strings if `gen_kwargs` contains none.
        """
        others = dict(gen_kwargs or {})
        others.pop("do_sample", None)
        default = others.pop("max_gen_toks", self._max_gen_toks)
        length = others.pop("max_tokens", default)
        temperature = others.pop("temperature", 0)
        stop = handle_stop_sequences(others.pop("until", until), eos)
        return length, temperature, stop, others

    @staticmethod
    def parse_logprobs(
        outputs: Any,
        tokens: list[list[int]] | None = None,
        ctxlens: list[int] | None = None,
        **kwargs: Any,
    ) -> list[tuple[float, bool]]:
        found = []
        for reply in listed(outputs):
            choices = sorted(reply["choices"], key=itemgetter("index"))
            for choice, start in zip(choices, ctxlens or (), strict=False):
                if start < 1:
                    raise ValueError("the context must have at least one token")
                # The last token was generated, and is not part of the prompt.
                values = choice["logprobs"]["token_logprobs"][start:-1]
                tops = choice["logprobs"]["top_logprobs"][start:-1]
                greedy = all(
                    value == max(top.values()) for value, top in zip(values, tops, strict=False)
                )
                found.append((sum(values), greedy))
        return found

    @staticmethod
    def parse_generations(outputs: Any, **kwargs: Any) -> list[Any]:
        found = []
        for reply in listed(outputs):
            answers = {choice["index"]: choice["text"] for choice in reply["choices"]}
            found += [answers.get(index) for index in range(len(reply["choices"]))]
        return found


@register_model("local-chat-completions")
class LocalChatCompletion(LocalCompletionsAPI):
    """A model on a server with OpenAI's chat API. It needs `--apply_chat_template`."""

    MULTIMODAL = True
    kind: ClassVar[str] = "chat"
    request_path: ClassVar[str] = "/v1/chat/completions"

    def __init__(
        self,
        base_url: str | None = None,
        tokenizer_backend: str | None = None,
        tokenized_requests: bool | None = None,
        think_end_token: str | None = None,
        verify_certificate: bool = True,
        ca_cert_path: str | None = None,
        auth_token: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            base_url=base_url,
            tokenizer_backend=tokenizer_backend,
            tokenized_requests=tokenized_requests,
            think_end_token=think_end_token,
            verify_certificate=verify_certificate,
            ca_cert_path=ca_cert_path,
            auth_token=auth_token,
            **kwargs,
        )
        if self._batch_size > 1:
            logger.warning("A chat API takes one prompt per request; batch_size is ignored.")
            self._batch_size = 1

    def _create_payload(
        self,
        messages: Any,
        generate: bool = False,
        gen_kwargs: dict[str, Any] | None = None,
        seed: int = 1234,
        eos: str | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        check_messages(messages)
        length, temperature, stop, others = self._read_settings(gen_kwargs, eos)
        return {
            "messages": messages,
            "model": self.model,
            "max_tokens": length,
            "temperature": temperature,
            "stop": stop[:_MAX_STOPS],
            "seed": seed,
            **others,
        }

    def parse_generations(self, outputs: Any = None, **kwargs: Any) -> list[Any]:  # type: ignore[override]
        """Returns the answers in a reply or a list of replies, without thinking text.

        May be called on the class with the outputs alone: it was a static method in older versions
        of the published harness, and scripts that replace it call it that way.
        """
        end = self.think_end_token if isinstance(self, LocalChatCompletion) else None
        found: list[Any] = []
        for reply in listed(outputs if isinstance(self, LocalChatCompletion) else self):
            try:
                contents = {c["index"]: c["message"]["content"] for c in reply["choices"]}
                texts = [contents.get(index) for index in range(len(reply["choices"]))]
            except (KeyError, TypeError) as error:  # Azure's content filter leaves fields out
                logger.warning("A reply has no answer (%r); the answer is empty.", error)
                texts = [""]
            found += [
                text if text is None else postprocess_generated_text(text, None, end)
                for text in texts
            ]
        return found

    def tok_encode(self, string: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns the text unchanged: the server tokenizes messages."""
        return string

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        raise no_loglikelihood(
            "Loglikelihood is not supported by chat APIs, which return no log-probabilities of a "
            "given text. Use a completions API (--model local-completions)."
        )

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[float]:
        raise no_loglikelihood(
            "Rolling loglikelihood is not supported by chat APIs, which return no "
            "log-probabilities of a given text. Use a completions API (--model local-completions)."
        )


def check_messages(messages: Any) -> None:
    """Raises `ConfigError` if a prompt is not a list of messages."""
    if not isinstance(messages, list) or not all(isinstance(m, Mapping) for m in messages):
        raise ConfigError(
            "a chat API takes messages, not text: add --apply_chat_template, so that prompts are "
            "sent as a chat."
        )


@register_model("openai-completions")
class OpenAICompletionsAPI(LocalCompletionsAPI):
    """A model behind OpenAI's completions API, such as babbage-002."""

    default_base_url: ClassVar[str | None] = "https://api.openai.com/v1/completions"
    key_is_required: ClassVar[bool] = True

    def __init__(
        self,
        base_url: str | None = "https://api.openai.com/v1/completions",
        tokenizer_backend: str | None = "tiktoken",
        **kwargs: Any,
    ) -> None:
        super().__init__(base_url=base_url, tokenizer_backend=tokenizer_backend, **kwargs)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return ""


@register_model("openai-chat-completions")
class OpenAIChatCompletion(LocalChatCompletion):
    """A model behind OpenAI's chat API."""

    default_base_url: ClassVar[str | None] = "https://api.openai.com/v1/chat/completions"
    key_is_required: ClassVar[bool] = True
    dialect_settings: ClassVar[Mapping[str, Any]] = {"length_name": "max_completion_tokens"}

    def __init__(
        self,
        base_url: str | None = "https://api.openai.com/v1/chat/completions",
        tokenizer_backend: str | None = None,
        tokenized_requests: bool | None = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            base_url=base_url,
            tokenizer_backend=tokenizer_backend,
            tokenized_requests=tokenized_requests,
            **kwargs,
        )

    def _create_payload(
        self,
        messages: Any,
        generate: bool = False,
        gen_kwargs: dict[str, Any] | None = None,
        seed: int = 1234,
        eos: str | None = "<|endoftext|>",
        **kwargs: Any,
    ) -> dict[str, Any]:
        check_messages(messages)
        length, temperature, stop, others = self._read_settings(gen_kwargs, eos, "<|endoftext|>")
        payload = {
            "messages": messages,
            "model": self.model,
            "max_completion_tokens": length,
            "temperature": temperature,
            "stop": stop[:_MAX_STOPS],
            "seed": seed,
            **others,
        }
        if _REASONING_MODEL.search(str(self.model)):
            del payload["stop"]
            payload["temperature"] = 1
        return payload


@register_model("azure-openai-chat-completions")
class AzureOpenaiChatCompletionsLM(OpenAIChatCompletion):
    """A model that is deployed on Azure OpenAI.

    Args:
        model: the name of the deployment; by default `AZURE_OPENAI_DEPLOYMENT_NAME` of the
            environment.
        base_url: the endpoint of the resource, `https://NAME.openai.azure.com`; by default
            `AZURE_OPENAI_ENDPOINT`. A full address with `/openai/` is used as it is.
        api_version: by default `AZURE_OPENAI_API_VERSION`, else 2025-03-01-preview.
        truncate: without effect.
        kwargs: the arguments of `ServedBase`.
    """

    default_base_url: ClassVar[str | None] = None
    key_variable: ClassVar[str] = "AZURE_OPENAI_API_KEY"

    def __init__(
        self,
        model: str | None = None,
        base_url: str | None = None,
        api_version: str | None = None,
        truncate: bool = False,
        **kwargs: Any,
    ) -> None:
        model = model or kwargs.pop("pretrained", None) or _azure_deployment()
        super().__init__(
            base_url=_azure_address(model, base_url, api_version),
            model=model,
            truncate=truncate,
            **kwargs,
        )

    @classmethod
    def check_before_loading(
        cls, arguments: Mapping[str, Any], chat_template: bool | str = False
    ) -> None:
        model = arguments.get("model") or arguments.get("pretrained") or _azure_deployment()
        address = _azure_address(model, arguments.get("base_url"), arguments.get("api_version"))
        super().check_before_loading(
            {**arguments, "model": model, "base_url": address}, chat_template
        )

    @cached_property
    def header(self) -> dict[str, str]:
        """The HTTP headers of every request: the key as `api-key`."""
        return dict(self._header) if self._header is not None else {"api-key": self.api_key}


def _azure_deployment() -> str:
    name = os.environ.get("AZURE_OPENAI_DEPLOYMENT_NAME")
    if not name:
        raise ConfigError(
            "the name of the deployment is missing: pass --model_args model=NAME, or set the "
            "environment variable AZURE_OPENAI_DEPLOYMENT_NAME."
        )
    return name


def _azure_address(model: str, base_url: str | None, api_version: str | None) -> str:
    """Returns the address of a deployment; `base_url` as it is if it contains `/openai/`.

    `model` is the name of the deployment. If they are None, `base_url` and `api_version` are read
    from the environment; raises `ConfigError` if there is no address.
    """
    base_url = base_url or os.environ.get("AZURE_OPENAI_ENDPOINT")
    if not base_url:
        raise ConfigError(
            "the address of the Azure resource is missing: pass --model_args "
            "base_url=https://NAME.openai.azure.com, or set the environment variable "
            "AZURE_OPENAI_ENDPOINT."
        )
    if "/openai/" in urlsplit(base_url).path:
        return base_url
    version = api_version or os.environ.get("AZURE_OPENAI_API_VERSION") or "2025-03-01-preview"
    root = base_url.rstrip("/")
    return f"{root}/openai/deployments/{model}/chat/completions?api-version={version}"
