"""A tokenizer without its model, to show the tokens and prompts that a model would get."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lm_eval.api.model import choose_template
from lm_eval.errors import ModelError
from lm_eval.models.conventions import Window, move_spaces, split_pair

logger = logging.getLogger(__name__)


class Tokenizer:
    """A tokenizer from a folder or the hub.

    transformers reads every kind and knows chat templates; without it a folder's `tokenizer.json`
    is read, which is enough for token numbers.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._full: Any = None
        self._plain: Any = None
        self._chat_template: str | None = None
        folder = Path(name).expanduser()
        try:
            if importlib.util.find_spec("transformers"):
                os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # no advice about torch
                from transformers import AutoTokenizer

                self._full = AutoTokenizer.from_pretrained(str(folder) if folder.exists() else name)
            else:
                from tokenizers import Tokenizer as PlainTokenizer

                self._plain = PlainTokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the Rust code of tokenizers raises plain `Exception`
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ModelError(
                f"there is no tokenizer {name}: {reason} Give a folder that holds one "
                "(tokenizer.json), or a name on the hub."
            ) from error

    def encode(self, text: str) -> list[int]:
        """Token numbers with the tokenizer's own special tokens, and never two at the start."""
        if self._plain is not None:
            return list(self._plain.encode(text).ids)
        begun = bool(self._full.bos_token) and text.startswith(self._full.bos_token)
        return list(self._full.encode(text, add_special_tokens=not begun))

    def encode_pair(self, context: str, continuation: str) -> Window:
        """Context and continuation as a model scores them: encoded together, then split."""
        context, continuation = move_spaces(context, continuation)
        whole = self.encode(context + continuation)
        return split_pair(whole, self.encode(context) if context else [], self._prefix)

    @property
    def _prefix(self) -> int:
        """What a continuation without a context follows."""
        if self._full is None:
            return -1
        bos, eos = self._full.bos_token_id, self._full.eos_token_id
        return next((int(token) for token in (bos, eos) if token is not None), -1)

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Each token's own text."""
        decode = (self._full or self._plain).decode
        keep = {"skip_special_tokens": False}
        return ["(prefix)" if token < 0 else str(decode([token], **keep)) for token in tokens]

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        if self._full is None:
            raise ModelError(
                "chat templates are read by transformers, which is not installed: "
                "pip install 'lm_eval[hf]'."
            )
        if not self._full.chat_template:
            raise ModelError(f"the tokenizer {self.name} has no chat template.")
        named = {} if self._chat_template is None else {"chat_template": self._chat_template}
        return apply_chat_template(self._full, chat_history, add_generation_prompt, **named)

    def choose_template(self, chosen: bool | str) -> None:
        """Selects one of several templates by name."""
        if isinstance(chosen, str) and self._full is not None:
            self._chat_template = choose_template(self._full.chat_template, chosen)


def apply_chat_template(
    tokenizer: Any,
    chat_history: Sequence[Mapping[str, str]],
    add_generation_prompt: bool = True,
    **settings: Any,
) -> str:
    """Returns the chat as text; a template that refuses a system turn gets the chat without it."""
    from jinja2.exceptions import TemplateError

    def write(turns: list[Mapping[str, str]]) -> str:
        return str(
            tokenizer.apply_chat_template(
                turns,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
                **settings,
            )
        )

    try:
        return write(list(chat_history))
    except TemplateError as error:
        spoken = [turn for turn in chat_history if turn["role"] != "system"]
        if len(spoken) == len(chat_history):
            raise _unwritten(error) from error
        try:
            text = write(spoken)
        except Exception as other:  # as below
            raise _unwritten(other) from other
        _say_once("the chat template refuses a system turn; it is left out.")
        return text
    except Exception as error:  # templates are code that can raise anything
        raise _unwritten(error) from error


def _unwritten(error: Exception) -> ModelError:
    return ModelError(
        f"the chat template cannot write this chat: {type(error).__name__}: {error}. "
        "Name another with --apply_chat_template NAME, or run without."
    )


@cache
def _say_once(message: str) -> None:
    logger.warning(message)
