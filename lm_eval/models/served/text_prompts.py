"""Prompts that are sent as text: cutting them to the context length, and what to do if they are
refused as too long."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from lm_eval.models.planned.tokenizers import TokenCoder

#: What servers say about a prompt that does not fit: vLLM, SGLang, llama.cpp, TGI, OpenAI and
#: those that copy it, Anthropic.
_TOO_LONG = re.compile(
    r"context[ _](length|window|size)|max_model_len|too long|too many (input )?tokens|"
    r"exceed\w* (the |its )?(model'?s? )?(available |maximum )?(context|input|token)|"
    r"longer than the model|maximum (input|prompt|sequence) length|reduce the length",
    re.IGNORECASE,
)

Encode = Callable[[Sequence[str]], list[list[int]]]


def end_of_text(
    text: str, tokens: Sequence[int], room: int, coder: TokenCoder, encode: Encode
) -> str:
    """Returns the end of a text that has at most `room` tokens.

    The result is part of the text itself, not of decoded tokens, which may differ from it.

    Args:
        text: the text, which has more tokens.
        tokens: its tokens.
        room: the maximum number of tokens.
        coder: decodes tokens.
        encode: returns the tokens of texts, as the server reads them: with a beginning-of-text
            token, if there is one.
    """
    wanted = room
    while wanted > 0:
        length = len(coder.decode(tokens[-wanted:]))
        end = text[max(0, len(text) - length) :]
        # The end alone may have more tokens: it gets a beginning-of-text token of its own, and its
        # first token is read differently without what was before.
        excess = len(encode([end])[0]) - room
        if excess <= 0:
            return end
        wanted -= excess
    return ""


def says_too_long(reason: str) -> bool:
    """Returns whether `reason`, the text of a failure, says that the prompt is too long."""
    refused = re.match(r"status (400|413|422|500)\b", reason)  # 500: llama-cpp-python
    return refused is not None and _TOO_LONG.search(reason) is not None


def too_long_remedy(is_chat: bool, has_tokenizer: bool) -> str:
    """Returns what to do about prompts that are too long, for the end of a message.

    That depends on whether they are chats, and on whether we know the model's tokenizer.
    """
    if is_chat:
        return (
            "the messages of a chat are not cut; use fewer examples (--num_fewshot) or shorter "
            "answers (--gen_kwargs max_gen_toks=N)"
        )
    if has_tokenizer:
        return "pass max_length=N, the context length of the server, so that prompts are cut to it"
    return (
        "prompts are not cut, because the tokenizer is not known; pass tokenizer=NAME of the model "
        "and max_length=N, the context length of the server"
    )
