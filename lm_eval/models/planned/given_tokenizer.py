"""Wraps tokenizer objects that were made elsewhere: by third-party model classes, or by users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.models.planned.tokenizers import (
    TiktokenTokenizer,
    TokenCoder,
    TransformersTokenizer,
)


class _GivenTransformersTokenizer(TransformersTokenizer):
    """A transformers tokenizer that was loaded elsewhere."""

    def __init__(self, tokenizer: Any) -> None:
        self.name = str(getattr(tokenizer, "name_or_path", ""))
        self.object = tokenizer
        self.bos_id, self.eos_id = tokenizer.bos_token_id, tokenizer.eos_token_id
        self.eos_text = tokenizer.eos_token


class _GivenTiktokenTokenizer(TiktokenTokenizer):
    """A tiktoken encoding that was loaded elsewhere."""

    def __init__(self, encoding: Any) -> None:
        self.name = str(getattr(encoding, "name", ""))
        self.object = encoding
        self.eos_id = int(encoding.eot_token)
        self.eos_text = str(encoding.decode([self.eos_id]))


class _CustomTokenizer:
    """An object of a third-party class with methods `encode` and `decode`."""

    def __init__(self, tokenizer: Any) -> None:
        self.name = type(tokenizer).__name__
        self.object = tokenizer
        self.bos_id: int | None = getattr(tokenizer, "bos_token_id", None)
        self.eos_id: int | None = getattr(tokenizer, "eos_token_id", None)
        self.eos_text: str | None = getattr(tokenizer, "eos_token", None)

    def encode(self, texts: Sequence[str], special: bool | None = None) -> list[list[int]]:
        codes = (self.object.encode(text) for text in texts)
        # The package tokenizers returns an object with `ids`.
        return [[int(token) for token in getattr(code, "ids", code)] for code in codes]

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.object.decode(list(tokens)))


def wrap_tokenizer(tokenizer: Any) -> TokenCoder:
    """Returns a tokenizer object of transformers, tiktoken or another class as `TokenCoder`.

    An object with an attribute `served`, such as our `RemoteTokenizer`, already contains one.
    """
    served: TokenCoder | None = getattr(tokenizer, "served", None)
    if served is not None:
        return served
    if hasattr(tokenizer, "convert_tokens_to_ids") and callable(tokenizer):
        return _GivenTransformersTokenizer(tokenizer)
    if hasattr(tokenizer, "encode_batch") and hasattr(tokenizer, "eot_token"):
        return _GivenTiktokenTokenizer(tokenizer)
    return _CustomTokenizer(tokenizer)
