"""A prompt as turns: the same pieces written as plain text or as a chat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lm_eval.errors import DataError

ChatTemplate = Callable[..., str]


@dataclass(frozen=True)
class Message:
    """One turn. `delimiter` follows it in plain text and is left out of a chat."""

    role: str
    content: str
    delimiter: str = ""

    def to_dict(self) -> dict[str, str]:
        return {"role": self.role, "content": self.content}

    def to_text(self) -> str:
        return self.content + self.delimiter


def join(prefix: str | None, suffix: str | None, delimiter: str = " ") -> str:
    """Both texts, with the delimiter between them unless there is white space already."""
    if not prefix or not suffix:
        return prefix or suffix or ""
    return prefix + (delimiter if needs_delimiter(prefix, suffix) else "") + suffix


def needs_delimiter(prefix: str, suffix: str) -> bool:
    """Whether two texts would run together."""
    return bool(prefix) and not (prefix[-1].isspace() or suffix[0].isspace())


def question_and_answer(
    question: Any,
    *,
    choices: Sequence[str] | None = None,
    answer: Any = None,
    prefix: str | None = None,
    target_delimiter: str = " ",
    fewshot_delimiter: str = "\n\n",
) -> list[Message]:
    """The turns of one example: the question, and its answer or the start of one.

    `answer` may be text, an index into the choices, or a list of right answers, of which the
    first is shown. Without an answer a `prefix` opens the assistant's turn.
    """
    if not isinstance(question, str):
        raise DataError(f"doc_to_text gave {question!r}, which is not text.")
    answered = answer is not None and answer != ""
    if prefix:
        delimiter = target_delimiter if needs_delimiter(question, prefix) else ""
    else:
        delimiter = target_delimiter if answered else ""
    turns = [Message("user", question, delimiter)]
    if answered:
        text = join(prefix, _answer_text(answer, choices))
        turns.append(Message("assistant", text, fewshot_delimiter))
    elif prefix:
        turns.append(Message("assistant", prefix))
    return turns


def _answer_text(answer: Any, choices: Sequence[str] | None) -> str:
    if choices and isinstance(answer, int):
        if not -len(choices) <= answer < len(choices):
            raise DataError(
                f"the gold answer is number {answer}, but there are {len(choices)} choices."
            )
        text: Any = choices[answer]
    else:
        text = answer[0] if isinstance(answer, list) else answer
    if not isinstance(text, str):
        raise DataError(f"doc_to_target gave {answer!r}, which is neither text nor a choice.")
    return text


def render(messages: Sequence[Message], chat_template: ChatTemplate | None, multiturn: bool) -> str:
    """The prompt: plain text, or whatever the model's chat template makes of the turns."""
    if chat_template is None:
        return "".join(message.to_text() for message in messages)
    if multiturn:
        return chat_template([message.to_dict() for message in messages])
    return chat_template(single_turn(messages))


def single_turn(messages: Sequence[Message]) -> list[dict[str, str]]:
    """All examples and the question folded into one user turn, as plain text would have them."""
    system = [messages[0]] if messages and messages[0].role == "system" else []
    turns = list(messages[len(system) :])
    opening = [turns.pop()] if turns and turns[-1].role == "assistant" else []
    if turns:
        turns[-1] = replace(turns[-1], delimiter="")
    user = Message("user", "".join(turn.to_text() for turn in turns))
    return [message.to_dict() for message in (*system, user, *opening)]
