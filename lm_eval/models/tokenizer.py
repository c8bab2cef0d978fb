"""Loads a tokenizer without its model, to show the tokens and prompts that the model would get."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from lm_eval.api.model import choose_template
from lm_eval.errors import ModelError
from lm_eval.extras import install_command
from lm_eval.models.conventions import Window, move_spaces, split_pair

logger = logging.getLogger(__name__)


class Tokenizer:
    """A tokenizer from a folder or the hub, by its `name`.

    It is loaded with transformers if that is installed. Otherwise the `tokenizer.json` of a folder
    is read, which gives token ids but no chat templates. Raises `ModelError` if loading fails.
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
                f"the tokenizer {name} could not be loaded ({reason.rstrip('.')}). Pass a "
                "folder with a tokenizer.json or, if transformers is installed, the name of a "
                "model on the hub."
            ) from error

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text, with the special tokens that the tokenizer adds.

        With transformers, none are added if the text already starts with the beginning-of-text
        token.
        """
        if self._plain is not None:
            return list(self._plain.encode(text).ids)
        begun = bool(self._full.bos_token) and text.startswith(self._full.bos_token)
        return list(self._full.encode(text, add_special_tokens=not begun))

    def encode_pair(self, context: str, continuation: str) -> Window:
        """Returns the tokens of context and continuation, encoded together and then split.

        Spaces at the end of the context are moved to the continuation first. An empty context
        becomes one token: beginning or end of text, or -1 if the tokenizer has neither.
        """
        context, continuation = move_spaces(context, continuation)
        whole = self.encode(context + continuation)
        return split_pair(whole, self.encode(context) if context else [], self._prefix)

    @property
    def _prefix(self) -> int:
        """The token used as context where the context is empty; -1 if it is not known."""
        if self._full is None:
            return -1
        bos, eos = self._full.bos_token_id, self._full.eos_token_id
        return next((int(token) for token in (bos, eos) if token is not None), -1)

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Returns the text of each token; "(prefix)" for an unknown prefix token (-1)."""
        decode = (self._full or self._plain).decode
        keep = {"skip_special_tokens": False}
        return ["(prefix)" if token < 0 else str(decode([token], **keep)) for token in tokens]

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Returns the chat as a prompt string, as `LM.apply_chat_template` does.

        Raises `ModelError` if transformers is not installed, the tokenizer has no chat template, or
        the template fails.
        """
        if self._full is None:
            raise ModelError(
                "chat templates need the package transformers, which is not installed: "
                f"{install_command('hf')}."
            )
        if not self._full.chat_template:
            raise ModelError(
                f"the tokenizer {self.name} has no chat template; run without "
                "--apply_chat_template."
            )
        named = {} if self._chat_template is None else {"chat_template": self._chat_template}
        return apply_chat_template(self._full, chat_history, add_generation_prompt, **named)

    def choose_template(self, chosen: bool | str) -> None:
        """Selects the chat template named `chosen`; True and False leave the default.

        Raises `ModelError` if the tokenizer has several templates and none has this name. Does
        nothing without transformers.
        """
        if isinstance(chosen, str) and self._full is not None:
            self._chat_template = choose_template(self._full.chat_template, chosen)


def apply_chat_template(
    tokenizer: Any,
    chat_history: Sequence[Mapping[str, str]],
    add_generation_prompt: bool = True,
    **settings: Any,
) -> str:
    """Returns the chat as a prompt string, formatted with the chat template of `tokenizer`.

    If the template does not accept system messages, they are left out, with a warning.

    Args:
        tokenizer: a transformers tokenizer.
        chat_history: the messages, with "role" and "content".
        add_generation_prompt: whether the prompt ends with the header of a new assistant message.
            If False, the last message is left open, so that the model continues it.
        settings: further arguments for `tokenizer.apply_chat_template`.

    Raises `ModelError` if the template fails.
    """
    from jinja2.exceptions import TemplateError

    def render(turns: list[Mapping[str, str]]) -> str:
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
        return render(list(chat_history))
    except TemplateError as error:
        without_system = [turn for turn in chat_history if turn["role"] != "system"]
        if len(without_system) == len(chat_history):
            raise _template_error(error) from error
        try:
            text = render(without_system)
        except Exception as other:  # templates are code that can raise anything
            raise _template_error(other) from other
        _warn_once("The chat template does not accept system messages; they are left out.")
        return text
    except Exception as error:  # templates are code that can raise anything
        raise _template_error(error) from error


@cache
def compile_chat_template(source: str) -> Any:
    """Returns a chat template as an object with a method `render`, without transformers.

    Its environment is that of transformers: JSON is written without HTML escapes, templates may
    call `raise_exception` and `strftime_now`, and they cannot run other code.
    """
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **settings: json.dumps(
        value, **{"ensure_ascii": False, **settings}
    )
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(source)


def _template_error(error: Exception) -> ModelError:
    return ModelError(
        f"the chat template failed for this chat: {type(error).__name__}: {error}. "
        "Choose another template with --apply_chat_template NAME, or run without this option."
    )


@cache
def _warn_once(message: str) -> None:
    """Logs a warning the first time that it is called with this message."""
    logger.warning(message)
