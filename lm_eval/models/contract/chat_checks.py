"""Checks of the chat template."""

from __future__ import annotations

import copy

from lm_eval.api.model import LM
from lm_eval.errors import ModelError
from lm_eval.models.contract.interview import Interview, NotCheckedError, shown

CHAT = [
    {"role": "user", "content": "What is 2 + 3?"},
    {"role": "assistant", "content": "It is 5."},
    {"role": "user", "content": "And 3 + 4?"},
]
OPEN = [*CHAT, {"role": "assistant", "content": "The sum is"}]


def check_chat_template(interview: Interview) -> list[str]:
    """Returns what is wrong with `apply_chat_template` and `tokenizer_name`; [] if nothing."""
    lm = interview.lm
    if type(lm).apply_chat_template is LM.apply_chat_template:
        raise NotCheckedError("the class does not implement apply_chat_template")
    chat = copy.deepcopy(CHAT)
    try:
        prompt = lm.apply_chat_template(chat)
    except (ModelError, NotImplementedError) as error:
        raise NotCheckedError(str(error).splitlines()[0]) from error
    if not isinstance(prompt, str):
        return [f"apply_chat_template returns {shown(prompt)}, not a string."]
    problems = []
    if chat != CHAT:
        problems.append("apply_chat_template changes the messages that it gets.")
    places = [prompt.find(message["content"]) for message in CHAT]
    if -1 in places or places != sorted(places):
        problems.append(
            f"the prompt does not contain the messages in their order: {shown(prompt)}."
        )
    if not interview.is_stand_in:
        problems += _check_open_message(lm)
    try:
        if not isinstance(lm.tokenizer_name, str):
            problems.append(f"tokenizer_name is {shown(lm.tokenizer_name)}, not a string.")
    except NotImplementedError:
        problems.append("tokenizer_name is missing; runs with --apply_chat_template need it.")
    return problems


def _check_open_message(lm: LM) -> list[str]:
    """Returns what is wrong with a prompt that ends in a message of the assistant; [] if nothing.

    That is what `add_generation_prompt=False` asks for.
    """
    prompt = lm.apply_chat_template(copy.deepcopy(OPEN), add_generation_prompt=False)
    if not prompt.rstrip().endswith(OPEN[-1]["content"]):
        return [
            "with add_generation_prompt=False, the prompt must end with the last message, which "
            f"the model continues; it ends {prompt[-60:]!r}."
        ]
    return []
