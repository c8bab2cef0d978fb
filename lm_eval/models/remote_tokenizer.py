"""`RemoteTokenizer` and `check_remote_tokenizer_support`, with the published signatures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.served import tokenizers
from lm_eval.models.served.client import Client
from lm_eval.models.served.endpoint import Endpoint
from lm_eval.models.served.retry import RetryPolicy
from lm_eval.models.served.transport import (
    BrokenReplyError,
    HttpSettings,
    HttpTransport,
    TimedOutError,
    UnreachableError,
)
from lm_eval.models.tokenizer import compile_chat_template


class RemoteTokenizer:
    """The tokenizer of a server, through its paths `/tokenize` and `/detokenize`.

    Special tokens and the chat template come from `/tokenizer_info`; a server without this path
    (it is optional in vLLM) has none that are known. Raises `ModelError` if the server does not
    tokenize.

    Attributes:
        served: the same tokenizer for model classes; encodes many texts concurrently.
    """

    def __init__(
        self,
        base_url: str,
        timeout: float = 30,
        verify_certificate: bool = True,
        ca_cert_path: str | None = None,
        auth_token: str | None = None,
        max_retries: int = 3,
    ) -> None:
        self.base_url = Endpoint.parse(base_url, "RemoteTokenizer").root
        self.timeout, self.max_retries = timeout, max_retries
        self.cert_config = (
            ca_cert_path if verify_certificate and ca_cert_path else verify_certificate
        )
        self.headers = {"Content-Type": "application/json"}
        if auth_token:
            self.headers["Authorization"] = f"Bearer {auth_token}"
        settings = HttpSettings(self.headers, timeout, verify_certificate, ca_cert_path)
        policy = RetryPolicy(attempts=max_retries, deadline=timeout * max_retries, patience=0.0)
        self._client = Client(
            lambda: HttpTransport(settings), policy, hide=[auth_token] if auth_token else []
        )
        self.served = tokenizers.RemoteTokenizer(
            self._client, self.base_url, "", self.bos_token, self.eos_token
        )
        self.encode("test")

    @cached_property
    def tokenizer_info(self) -> Mapping[str, Any]:
        """What the server tells about its tokenizer; empty if it tells nothing."""
        try:
            reply = self._client.get(f"{self.base_url}/tokenizer_info")
            found = json.loads(reply.body) if reply.ok else {}
        except UnreachableError as error:
            raise ModelError(
                f"no server answers at {self.base_url} ({error}). Start it, or correct base_url."
            ) from None
        except (BrokenReplyError, TimedOutError, ValueError):
            return {}
        return found if isinstance(found, Mapping) else {}

    def _token(self, name: str) -> str | None:
        token = self.tokenizer_info.get(name)
        return token if isinstance(token, str) else None

    @property
    def eos_token(self) -> str | None:
        """The end-of-text token as text; None if it is not known. The same for the others."""
        return self._token("eos_token")

    @property
    def bos_token(self) -> str | None:
        return self._token("bos_token")

    @property
    def pad_token(self) -> str | None:
        return self._token("pad_token")

    @property
    def eos_token_id(self) -> int | None:
        return self.served.eos_id

    @property
    def bos_token_id(self) -> int | None:
        return self.served.bos_id

    @property
    def eot_token(self) -> int | None:
        return self.served.eos_id

    @property
    def chat_template(self) -> str | None:
        """The source of the chat template; None if the server tells none."""
        return self._token("chat_template")

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Returns the token ids of a text."""
        return self.served.encode([text], add_special_tokens)[0]

    def decode(self, tokens: list[int]) -> str:
        """Returns the text of tokens, special tokens included."""
        return self.served.decode(tokens)

    def batch_decode(self, tokens_list: list[list[int]]) -> list[str]:
        """Returns the texts of several lists of tokens."""
        return [self.decode(tokens) for tokens in tokens_list]

    def apply_chat_template(
        self,
        chat_history: list[dict[str, Any]],
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tokenize: bool = False,
        **kwargs: Any,
    ) -> str:
        """Returns a chat as one prompt; raises `ModelError` if the server tells no template.

        Args:
            chat_history: the messages.
            add_generation_prompt: whether the prompt ends with the header of a new message.
            continue_final_message: whether the prompt ends with the content of the last message.
            tokenize: accepted as in transformers; the result is always text.
            kwargs: further variables of the template.
        """
        if not self.chat_template:
            raise ModelError(
                f"the server at {self.base_url} tells no chat template at /tokenizer_info. Pass "
                "tokenizer=NAME, or use a chat API."
            )
        template = compile_chat_template(self.chat_template)
        kwargs = {"bos_token": self.bos_token or "", "eos_token": self.eos_token or "", **kwargs}
        text = str(
            template.render(
                messages=chat_history, add_generation_prompt=add_generation_prompt, **kwargs
            )
        )
        if not continue_final_message:
            return text
        last = str(chat_history[-1]["content"]).strip()
        return text[: text.rindex(last) + len(last)]

    def __call__(
        self, text: str, add_special_tokens: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        return {"input_ids": self.encode(text, add_special_tokens)}


def check_remote_tokenizer_support(
    base_url: str | None,
    timeout: float = 5,
    verify_certificate: bool = True,
    ca_cert_path: str | None = None,
    auth_token: str | None = None,
    max_retries: int = 3,
) -> bool:
    """Returns whether a server has a tokenizer that can be used: it tells its end-of-text token.

    False if `base_url` is None or empty, and if the server does not tokenize. The arguments are
    those of `RemoteTokenizer`.
    """
    if not base_url:
        return False
    try:
        tokenizer = RemoteTokenizer(
            base_url, timeout, verify_certificate, ca_cert_path, auth_token, max_retries
        )
    except (ModelError, ConfigError):
        return False
    return "eos_token" in tokenizer.tokenizer_info
