"""Converts between text and token ids with transformers, tokenizers or tiktoken."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from lm_eval.errors import ModelError


class TokenCoder(Protocol):
    """Converts between text and the token ids of a model.

    Attributes:
        name: for messages and results.
        object: the tokenizer object of the library, or None.
        bos_id: the id of the beginning-of-text token; None if there is none.
        eos_id: the id of the end-of-text token; None if it is not known.
        eos_text: the end-of-text token as text; None if it is not known.
    """

    name: str
    object: Any
    bos_id: int | None
    eos_id: int | None
    eos_text: str | None

    def encode(self, texts: Sequence[str], special: bool | None = None) -> list[list[int]]:
        """Returns the token ids of each text.

        Args:
            texts: the texts.
            special: whether to add special tokens such as beginning-of-text; None for what the
                tokenizer does by default. None are added to a text that begins with one.
        """

    def decode(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens, special tokens included."""


class TransformersTokenizer:
    """A tokenizer from a folder or the hub, loaded with transformers."""

    def __init__(self, name: str, **settings: Any) -> None:
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # no advice about torch
        from transformers import AutoTokenizer

        self.name = name
        self.object = AutoTokenizer.from_pretrained(name, **settings)
        self.bos_id, self.eos_id = self.object.bos_token_id, self.object.eos_token_id
        self.eos_text = self.object.eos_token

    def encode(self, texts: Sequence[str], special: bool | None = None) -> list[list[int]]:
        bos = self.object.bos_token
        begun = [bool(bos) and text.startswith(bos) for text in texts]
        # Not verbose: texts that are too long are cut, and counted, by the caller.
        quiet = {"return_attention_mask": False, "verbose": False}
        settings = quiet if special is None else {**quiet, "add_special_tokens": special}
        found: dict[str, list[int]] = {}
        for without in (False, True):
            some = list(
                dict.fromkeys(t for t, has in zip(texts, begun, strict=True) if has is without)
            )
            if some:
                given = {**quiet, "add_special_tokens": False} if without else settings
                ids = self.object(some, **given)["input_ids"]
                found.update(zip(some, ids, strict=True))
        return [list(found[text]) for text in texts]

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.object.decode(list(tokens)))


class PlainTokenizer:
    """The `tokenizer.json` of a folder or the hub, read without transformers."""

    def __init__(self, name: str) -> None:
        from tokenizers import Tokenizer

        folder = Path(name).expanduser()
        file = folder / "tokenizer.json"
        self.name = name
        self.object = (
            Tokenizer.from_file(str(file)) if folder.exists() else Tokenizer.from_pretrained(name)
        )
        settings = _read_json(folder / "tokenizer_config.json")
        self._bos = _token_text(settings.get("bos_token"))
        self.eos_text = _token_text(settings.get("eos_token"))
        self.bos_id, self.eos_id = (
            None if text is None else self.object.token_to_id(text)
            for text in (self._bos, self.eos_text)
        )

    def encode(self, texts: Sequence[str], special: bool | None = None) -> list[list[int]]:
        distinct = list(dict.fromkeys(texts))
        found: dict[str, list[int]] = {}
        for add in (True, False):
            some = [text for text in distinct if self._adds(text, special) is add]
            coded = self.object.encode_batch(some, add_special_tokens=add)
            found.update((text, list(code.ids)) for text, code in zip(some, coded, strict=True))
        return [list(found[text]) for text in texts]

    def _adds(self, text: str, special: bool | None) -> bool:
        begun = bool(self._bos) and text.startswith(str(self._bos))
        return not begun and special is not False

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.object.decode(list(tokens), skip_special_tokens=False))


class TiktokenTokenizer:
    """OpenAI's tokenizer for a model, from the package tiktoken."""

    bos_id: int | None = None

    def __init__(self, name: str) -> None:
        import tiktoken

        self.name = name
        self.object = tiktoken.encoding_for_model(name)
        self.eos_id: int | None = int(self.object.eot_token)
        self.eos_text: str | None = str(self.object.decode([self.eos_id]))

    def encode(self, texts: Sequence[str], special: bool | None = None) -> list[list[int]]:
        return [list(ids) for ids in self.object.encode_batch(list(texts), disallowed_special=())]

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self.object.decode(list(tokens)))


def load_tokenizer(name: str, **settings: Any) -> TokenCoder:
    """Returns the tokenizer of a folder or a model on the hub.

    Uses transformers if it is installed, otherwise the file `tokenizer.json`. `settings` are passed
    to transformers. Raises `ModelError` if it cannot be loaded.
    """
    folder = Path(name).expanduser()
    location = str(folder) if folder.exists() else name
    try:
        if importlib.util.find_spec("transformers") is not None:
            return TransformersTokenizer(location, **settings)
        return PlainTokenizer(location)
    except Exception as error:  # the Rust code of tokenizers raises plain `Exception`
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"the tokenizer {name} could not be loaded: {reason} Pass tokenizer=FOLDER or "
            "tokenizer=NAME of the model on the hub."
        ) from error


def _read_json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _token_text(token: Any) -> str | None:
    """Returns the text of a special token, which a configuration writes as text or as an object.

    None if the configuration has none.
    """
    return token.get("content") if isinstance(token, dict) else token
