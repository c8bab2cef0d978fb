"""Divides a prompt into segments, so that few-shot examples and earlier turns can be folded.

The pieces joined are the exact prompt. A sample log does not say where the examples end, so that
is found by the delimiter of the task and by the texts of the document. A wrong guess folds too much
or too little, and changes nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: Texts of a document that are shorter than this may be in a prompt by chance.
_SHORTEST_TEXT = 8


@dataclass(frozen=True)
class Segment:
    """A piece of a prompt: few-shot examples, a turn of a chat, or the question."""

    text: str
    role: str = ""
    folded: bool = False

    def to_json(self) -> list[Any]:
        """Returns `[text, role, folded]`, without empty values at the end."""
        return (
            [self.text, self.role, 1]
            if self.folded
            else [self.text, self.role][: 1 + bool(self.role)]
        )


def prompt_segments(prompt: str, doc: Any, config: Mapping[str, Any]) -> list[Segment]:
    """Returns the segments of a prompt.

    Args:
        prompt: the prompt, or a chat as a JSON list of messages.
        doc: the document.
        config: the configuration of the task; `num_fewshot` and `fewshot_delimiter` are used.
    """
    if turns := _turns(prompt):
        last = max(i for i, (role, _) in enumerate(turns) if role == "user" or i == 0)
        return [Segment(text, role, i < last) for i, (role, text) in enumerate(turns)]
    shots = config.get("num_fewshot")
    if not isinstance(shots, int) or shots < 1:
        return [Segment(prompt)]
    end = _end_of_examples(prompt, doc, shots, config.get("fewshot_delimiter"))
    if not 0 < end < len(prompt):
        return [Segment(prompt)]
    return [Segment(prompt[:end], "examples", True), Segment(prompt[end:])]


def _turns(prompt: str) -> list[tuple[str, str]]:
    """Returns the messages of a chat as `(role, text)`; empty if the prompt is not a chat."""
    if not prompt.startswith("[{"):
        return []
    try:
        messages = json.loads(prompt)
    except (ValueError, RecursionError):
        return []
    turns = []
    for message in messages:
        if not isinstance(message, dict) or "role" not in message:
            return []
        content = message.get("content")
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        turns.append((str(message["role"]), text))
    return turns


def _end_of_examples(prompt: str, doc: Any, shots: int, given: Any) -> int:
    """Returns the position in a prompt at which the question begins; 0 if it is not found."""
    delimiter = given if isinstance(given, str) and given else "\n\n"
    starts = [prompt.rfind(text) for text in _texts(doc)]
    starts = [start for start in starts if start > 0]
    if starts:
        # The last place where the question can begin: the first of its texts.
        found = prompt.rfind(delimiter, 0, min(starts) + 1)
        if found >= 0:
            return found + len(delimiter)
        return prompt.rfind("\n", 0, min(starts)) + 1
    parts = prompt.split(delimiter)
    if len(parts) < shots + 1:
        return 0
    each = max(len(parts) // (shots + 1), 1)
    return len(prompt) - len(delimiter.join(parts[-each:]))


def _texts(doc: Any) -> Iterator[str]:
    """Yields the texts of a document that are long enough to be recognized in a prompt."""
    for value in doc.values() if isinstance(doc, Mapping) else ():
        if isinstance(value, str) and len(value) >= _SHORTEST_TEXT:
            yield value.strip()
