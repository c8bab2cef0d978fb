"""The messages of a chat, which a prompt contains as JSON."""

from __future__ import annotations

import json
from typing import Any


class JsonChatStr(str):
    """The messages of a chat as JSON text. The published harness has a class of this name."""

    def __new__(cls, prompt: str = "") -> JsonChatStr:
        return super().__new__(cls, prompt)

    @property
    def prompt(self) -> str:
        """The JSON text."""
        return str(self)


def read_messages(text: str) -> list[dict[str, Any]]:
    """Returns the chat messages in a prompt, each with the keys `role` and `content` alone.

    The prompt is a JSON list of messages; a missing key is None, and other keys are dropped. Any
    other text becomes one message of the role `user`.
    """
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    is_chat = isinstance(found, list) and all(isinstance(m, dict) for m in found)
    messages = found if is_chat and found else [{"role": "user", "content": text}]
    return [{"role": m.get("role"), "content": m.get("content")} for m in messages]
