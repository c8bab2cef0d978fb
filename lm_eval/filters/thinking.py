"""Part what a model thought from what it concluded, before anything is looked for in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.filter import Filter
from lm_eval.api.instance import Instance
from lm_eval.api.registry import register_filter
from lm_eval.errors import ConfigError

#: The tags that `think_tags: true` stands for.
COMMON_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
)


@dataclass(frozen=True)
class Thinking:
    """How thinking is marked: by the token that ends it, by pairs of tags around it, or by both."""

    end_token: str | None = None
    tags: Sequence[tuple[str, str]] = field(default=())

    @classmethod
    def parse(cls, end_token: Any, tags: Any) -> Thinking | None:
        """From a task file's `think_end_token` and `think_tags`; None where neither is set.

        A backend that knows its end token as a number has cut the text already.
        """
        if tags is True:
            pairs: Sequence[Any] = COMMON_TAGS
        elif isinstance(tags, (list, tuple)) and len(tags) == 2 and isinstance(tags[0], str):
            pairs = [tags]
        else:
            pairs = tags or ()
        wrong = ConfigError(
            f"think_tags must be true, a pair of tags or a list of pairs, not {tags!r}."
        )
        if not isinstance(pairs, (list, tuple)):
            raise wrong
        for pair in pairs:
            texts = isinstance(pair, (list, tuple)) and all(isinstance(t, str) and t for t in pair)
            if not texts or len(pair) != 2:
                raise wrong
        end = end_token if isinstance(end_token, str) and end_token else None
        if end is None and not pairs:
            return None
        return cls(end, tuple((opening, closing) for opening, closing in pairs))

    def part(self, answer: Any) -> tuple[str, Any]:
        """`(thinking, the rest)` of one answer.

        What stands before the last end token is thinking. An opening tag that is never closed
        means the answer was cut off in thought: nothing was concluded. Text without marks, and
        anything that is not text, is left as it is.
        """
        if not isinstance(answer, str):
            return "", answer
        thoughts: list[str] = []
        rest = answer
        if self.end_token is not None and self.end_token in rest:
            thought, _, rest = rest.rpartition(self.end_token)
            thoughts.append(thought)
            rest = rest.lstrip()
        for opening, closing in self.tags:
            found = re.compile(
                rf"{re.escape(opening)}(.*?)(?:{re.escape(closing)}|\Z)\s*", re.DOTALL
            )
            thoughts += found.findall(rest)
            rest = found.sub("", rest)
        return "\n".join(thought.strip() for thought in thoughts), rest

    def cut(self, instances: Iterable[Instance]) -> None:
        """Part every generated answer; the raw answers stay as they were given."""
        for instance in instances:
            if instance.request_type == "generate_until":
                parted = [self.part(answer) for answer in instance.resps]
                instance.set_thinking([thought for thought, _ in parted], [r for _, r in parted])


@register_filter("remove_thinking")
class ThinkingFilter(Filter):
    """The same as a step, for a pipeline that is to judge the conclusion beside one that is not."""

    def __init__(self, think_end_token: str | None = None, think_tags: Any = None) -> None:
        super().__init__()
        given = None if think_end_token or think_tags else True
        self.thinking = Thinking.parse(think_end_token, think_tags or given)

    def apply(self, resps: Any, docs: Any) -> list[list[Any]]:
        part = self.thinking.part if self.thinking else lambda answer: ("", answer)
        return [[part(answer)[1] for answer in answers] for answers in resps]
