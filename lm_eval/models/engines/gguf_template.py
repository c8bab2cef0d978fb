"""The chat templates in a GGUF file, applied in the same way as transformers applies them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.models.tokenizer import compile_chat_template

_KEY = "tokenizer.chat_template"
#: Marks the end of the last message; put there before the template is applied.
_MARK = "CONTINUE_FINAL_MESSAGE_TAG "


class GGUFTemplates:
    """The chat templates in the metadata of a GGUF file.

    Has what `lm_eval.models.tokenizer.apply_chat_template` uses of a transformers tokenizer.

    Attributes:
        chat_template: the template, a dictionary of templates by name, or None.
    """

    def __init__(self, metadata: Mapping[str, str], bos: str, eos: str) -> None:
        """Takes the metadata of the file, and the text of two tokens; "" if there is none."""
        named = {
            name.removeprefix(f"{_KEY}."): template
            for name, template in metadata.items()
            if name.startswith(f"{_KEY}.")
        }
        default = metadata.get(_KEY) or None
        self.chat_template: Any = default
        if named:
            self.chat_template = named if default is None else {"default": default, **named}
        self._tokens = {"bos_token": bos, "eos_token": eos}

    def apply_chat_template(
        self,
        chat: Sequence[Mapping[str, Any]],
        chat_template: str | None = None,
        tokenize: bool = False,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **settings: Any,
    ) -> str:
        """Returns a chat as a prompt.

        Args:
            chat: the messages.
            chat_template: the template; by default that of the file.
            tokenize: accepted as in transformers; the result is always text.
            add_generation_prompt: whether the prompt ends with the header of a new message.
            continue_final_message: whether it ends with the content of the last message.
            settings: further variables of the template.
        """
        source = chat_template or self.chat_template
        if isinstance(source, Mapping):
            source = source.get("default") or next(iter(source.values()))
        turns = [dict(turn) for turn in chat]
        if continue_final_message:
            turns[-1]["content"] = str(turns[-1]["content"]) + _MARK
        text = str(
            compile_chat_template(str(source)).render(
                messages=turns,
                add_generation_prompt=add_generation_prompt,
                **self._tokens,
                **settings,
            )
        )
        if not continue_final_message:
            return text
        place = text.rindex(_MARK.strip())
        # A template that removes spaces at the end of a message has removed that of the mark.
        is_kept = text[place:].startswith(_MARK)
        return text[:place] if is_kept else text[:place].rstrip()
