"""Prompts as a list of messages, which can be written as plain text or as a chat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lm_eval.errors import DataError

ChatTemplate = Callable[..., str]


@dataclass(frozen=True)
class Message:
    """One message of a prompt."""

    #: "system", "user" or "assistant".
    role: str
    content: str
    #: The text that follows the message in a plain-text prompt. Chats do not contain it.
    delimiter: str = ""

    def to_dict(self) -> dict[str, str]:
        """Returns the message as chat templates take it: a dictionary with `role` and `content`."""
        return {"role": self.role, "content": self.content}

    def to_text(self) -> str:
        """Returns the message as part of a plain-text prompt: its content and its delimiter."""
        return self.content + self.delimiter


def join(prefix: str | None, suffix: str | None, delimiter: str = " ") -> str:
    """Returns `prefix` and `suffix` joined by `delimiter`.

    The delimiter is left out if there is whitespace between them already, or if either is empty or
    None.
    """
    if not prefix or not suffix:
        return prefix or suffix or ""
    return prefix + (delimiter if needs_delimiter(prefix, suffix) else "") + suffix


def needs_delimiter(prefix: str, suffix: str) -> bool:
    """Returns whether there is no whitespace between two strings that are to be joined.

    Returns False if `prefix` is empty. `suffix` must not be empty.
    """
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
    """Returns the messages of one document: a user message, and an assistant message if needed.

    Few-shot examples have an answer, which follows the `prefix` in their assistant message. The
    evaluated document has none; if there is a `prefix`, its assistant message contains only the
    prefix, which the model continues.

    Args:
        question: the text of the user message.
        choices: the choices that an integer `answer` refers to.
        answer: a string, an index into `choices`, or a list of correct answers as strings, of which
            the first is shown. None or "" for the evaluated document.
        prefix: the text with which the answer begins (the task's `gen_prefix`).
        target_delimiter: the text between question and answer in a plain-text prompt.
        fewshot_delimiter: the text after the answer in a plain-text prompt.

    Raises:
        DataError: the question or the answer is not a string, or the index is out of range.
    """
    if not isinstance(question, str):
        raise DataError(
            f"doc_to_text must return a string, but returned {question!r} for a document."
        )
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
    """Returns the text of an answer: a string, an index into `choices`, or a list of strings.

    Of a list, the first string is returned. A negative index counts from the end. Raises
    `DataError` if the index is out of range, or if the answer is none of these.
    """
    if choices and isinstance(answer, int):
        if not -len(choices) <= answer < len(choices):
            raise DataError(
                f"doc_to_target returned the index {answer}, but the document has only "
                f"{len(choices)} choices; indices start at 0."
            )
        text: Any = choices[answer]
    else:
        text = answer[0] if isinstance(answer, list) else answer
    if not isinstance(text, str):
        raise DataError(
            "doc_to_target must return a string or the index of a choice, but returned "
            f"{answer!r} for a document."
        )
    return text


def render(messages: Sequence[Message], chat_template: ChatTemplate | None, multiturn: bool) -> str:
    """Returns the prompt as one text.

    Args:
        messages: the messages of the prompt.
        chat_template: the function of the model that turns a list of messages into text. None
            writes a plain-text prompt.
        multiturn: whether few-shot examples are separate messages of the chat. If not, they are
            part of one user message. Without a chat template it has no effect.
    """
    if chat_template is None:
        return "".join(message.to_text() for message in messages)
    if multiturn:
        return chat_template([message.to_dict() for message in messages])
    return chat_template(single_turn(messages))


def single_turn(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Returns a chat in which all few-shot examples and the question are one user message.

    The user message is written like a plain-text prompt. A system message at the beginning and a
    prefilled assistant message at the end remain separate.
    """
    system = [messages[0]] if messages and messages[0].role == "system" else []
    turns = list(messages[len(system) :])
    opening = [turns.pop()] if turns and turns[-1].role == "assistant" else []
    if turns:
        turns[-1] = replace(turns[-1], delimiter="")
    user = Message("user", "".join(turn.to_text() for turn in turns))
    return [message.to_dict() for message in (*system, user, *opening)]
