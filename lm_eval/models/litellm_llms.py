"""Models of many providers, through the package litellm."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar

from lm_eval.api.registry import register_model
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.openai_completions import LocalChatCompletion
from lm_eval.models.served.endpoint import Endpoint
from lm_eval.models.served.hook_calls import HookDialect, reply_to_error
from lm_eval.models.served.transport import Reply, Transport

#: Releases that contained code which sent credentials of the machine to a stranger (March 2026).
_MALICIOUS = {"1.82.7", "1.82.8"}


@register_model("litellm", "litellm-chat", "litellm-chat-completions")
class LiteLLMChatCompletion(LocalChatCompletion):
    """A model of any provider that litellm supports. It needs `--apply_chat_template`.

    The name of the model begins with the provider, as in `anthropic/claude-sonnet-4-5`. litellm
    reads the provider's key from the environment, for example `ANTHROPIC_API_KEY`. Settings that a
    provider does not accept are left out.

    Args:
        base_url: the address of the provider or a proxy; by default what litellm knows.
        kwargs: the arguments of `ServedBase`.
    """

    key_variable: ClassVar[str] = ""
    request_path: ClassVar[str] = ""

    def __init__(
        self,
        base_url: str | None = None,
        tokenizer_backend: str | None = None,
        tokenized_requests: bool | None = None,
        **kwargs: Any,
    ) -> None:
        self._litellm: Any = load_litellm()
        super().__init__(
            base_url=base_url,
            tokenizer_backend=tokenizer_backend,
            tokenized_requests=tokenized_requests,
            **kwargs,
        )

    @classmethod
    def check_before_loading(
        cls, arguments: Mapping[str, Any], chat_template: bool | str = False
    ) -> None:
        address = arguments.get("base_url") or "https://litellm"  # litellm knows the real one
        super().check_before_loading({**arguments, "base_url": address}, chat_template)

    def _parse_endpoint(self, address: str | None) -> Endpoint:
        return Endpoint(address or "litellm", address or "litellm")

    def make_transport(self) -> Transport:
        """Returns what sends the requests: litellm, or an overridden `model_call`."""
        if self.overrides_hooks and isinstance(self.dialect, HookDialect):
            return super().make_transport()
        return LiteLLMTransport(self)

    def call_settings(self) -> dict[str, Any]:
        """Returns arguments of every call of litellm, besides the body of the request."""
        settings: dict[str, Any] = {"drop_params": True, "timeout": self.timeout}
        # The client retries; litellm would do so without waiting.
        settings |= {"num_retries": 0, "max_retries": 0}
        if self.base_url:
            settings["base_url"] = self.base_url
        if self.api_key:
            settings["api_key"] = self.api_key
        if self._header:
            settings["extra_headers"] = dict(self._header)
        return settings

    def _post(self, payload: Any) -> Any:
        return self._litellm.completion(**{**self.call_settings(), **payload}).model_dump()

    async def _apost(self, session: Any, payload: Any) -> Any:
        reply = await self._litellm.acompletion(**{**self.call_settings(), **payload})
        return reply.model_dump()


class LiteLLMTransport:
    """A `Transport` that sends the bodies of requests with litellm."""

    def __init__(self, lm: LiteLLMChatCompletion) -> None:
        self._lm = lm

    async def __aenter__(self) -> LiteLLMTransport:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    async def post(self, url: str, body: bytes, fresh: bool = False) -> Reply:
        try:
            found = await self._lm._apost(None, json.loads(body))
        except Exception as error:  # errors of litellm, and of the libraries that it uses
            return reply_to_error(error)
        return Reply(200, json.dumps(found, default=str).encode())

    async def get(self, url: str) -> Reply:
        return Reply(404, b"")


def load_litellm() -> Any:
    """Returns the package litellm.

    Raises `ConfigError` for a malicious release, and `ModelError` if the package is not installed.
    """
    try:
        version = importlib.metadata.version("litellm")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    if version in _MALICIOUS:
        raise ConfigError(
            f"litellm {version} is a release that stole credentials. Uninstall it, change the keys "
            "and passwords that this machine had access to, and install another version."
        )
    try:
        import litellm  # type: ignore[import-not-found]
    except ModuleNotFoundError as error:
        raise ModelError(
            "the model 'litellm' needs the package litellm, which is not installed: "
            "pip install 'litellm>=1.60,!=1.82.7,!=1.82.8'."
        ) from error
    return litellm
