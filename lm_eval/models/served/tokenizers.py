"""The tokenizers that only served models have: tiktoken, and the server's own."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.planned.tokenizers import TiktokenTokenizer, TokenCoder
from lm_eval.models.served.client import Client
from lm_eval.models.served.dialects.base import field_of
from lm_eval.models.served.exchange import Exchange


class RemoteTokenizer:
    """The tokenizer of the server itself.

    Works with vLLM, SGLang and llama-server (`/tokenize`, `/detokenize`) and with llama-cpp-python
    (`/extras/tokenize`), which differ in the names of fields. Texts are sent concurrently, and
    every text only once.
    """

    object = None

    def __init__(
        self,
        client: Client,
        root: str,
        model: str,
        bos: str | None = None,
        eos: str | None = None,
        folder: str = "",
    ) -> None:
        """Takes the address of the server, and what is known about its special tokens.

        Args:
            client: sends the requests.
            root: the root of the server.
            model: the name of the model on the server.
            bos: the beginning-of-text token as text; None if the server does not tell.
            eos: the end-of-text token as text; None if the server does not tell.
            folder: the path before `/tokenize`: "" or "/extras".
        """
        self.name = f"{root}{folder}/tokenize"
        self._client, self._model, self._folder = client, model, root + folder
        self._known: dict[tuple[str, bool | None], list[int]] = {}
        self.eos_text, self._bos_text = eos, bos
        self._always_adds_bos = folder == "/extras"
        self.bos_id = self._bos_of_empty_text() if self._always_adds_bos else self._single(bos)
        self.eos_id = self._single(eos)

    def _bos_of_empty_text(self) -> int | None:
        """Returns the token that the server adds to every text; None if it adds none."""
        tokens = self._tokenized({"": self._exchange("", None)}).get(("", None))
        return tokens[0] if tokens else None

    def _single(self, text: str | None) -> int | None:
        ids = [] if not text else self.encode([text], special=False)[0]
        return ids[0] if len(ids) == 1 else None

    def encode(self, texts: Sequence[str], special: bool | None = None) -> list[list[int]]:
        missing = dict.fromkeys(t for t in texts if t and (t, special) not in self._known)
        self._known |= self._tokenized({text: self._exchange(text, special) for text in missing})
        found = [self._known.get((text, special), []) for text in texts]
        if self._always_adds_bos and special is False:
            return [ids[1:] if ids[:1] == [self.bos_id] else list(ids) for ids in found]
        return [list(ids) for ids in found]

    def _tokenized(
        self, exchanges: Mapping[str, Exchange]
    ) -> dict[tuple[str, bool | None], list[int]]:
        found = {}
        with self._client.stream(exchanges.values()) as stream:
            for batch in stream:
                for exchange, tokens in batch:
                    if not isinstance(tokens, list):
                        raise ModelError(f"{self.name}: a text was not tokenized: {tokens.reason}")
                    found[exchange.tag] = tokens
        return found

    def _exchange(self, text: str, special: bool | None) -> Exchange:
        begun = bool(self._bos_text) and text.startswith(str(self._bos_text))
        adds = not begun and special is not False
        body = {
            "model": self._model,
            "prompt": text,
            "content": text,
            "input": text,
            "add_special_tokens": adds,
            "add_special": adds,
        }
        return Exchange(
            self.name,
            lambda: body,
            lambda reply: [int(token) for token in field_of(reply, "tokens")],
            tag=(text, special),
        )

    def decode(self, tokens: Sequence[int]) -> str:
        body = {"model": self._model, "tokens": list(tokens), "skip_special_tokens": False}
        text = self._client.ask(Exchange(f"{self._folder}/detokenize", lambda: body, _detokenized))
        if not isinstance(text, str):
            raise ModelError(f"{self._folder}/detokenize: tokens were not decoded: {text.reason}")
        return text


def _detokenized(reply: Any) -> str:
    """Returns the text in a reply of `/detokenize`; the name of the field depends on the server."""
    for name in ("prompt", "text", "content"):
        if isinstance(reply, dict) and isinstance(reply.get(name), str):
            return str(reply[name])
    return str(field_of(reply, "prompt"))


def load_tiktoken(name: str) -> TokenCoder:
    """Returns OpenAI's tokenizer for a model; raises `ConfigError` if there is none."""
    if importlib.util.find_spec("tiktoken") is None:
        raise ConfigError(
            "tokenizer_backend=tiktoken needs the package tiktoken, which is not installed: "
            "pip install tiktoken."
        )
    try:
        return TiktokenTokenizer(name)
    except KeyError as error:
        raise ConfigError(
            f"tiktoken has no tokenizer for the model {name!r}. Pass tokenizer=NAME of the model "
            "on the hub and tokenizer_backend=huggingface."
        ) from error
