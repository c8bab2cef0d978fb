"""Separates a model's reasoning ("thinking") from its final answer.

Only the final answer is filtered and scored. The reasoning is kept for the sample log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.filter import Filter
from lm_eval.api.instance import Instance
from lm_eval.api.registry import register_filter
from lm_eval.errors import ConfigError

#: The pairs of tags that `think_tags: true` selects.
COMMON_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
)


@dataclass(frozen=True)
class Thinking:
    """How reasoning is marked in an answer: by an end token, by pairs of tags, or by both."""

    #: The text that ends the reasoning, as in `</think>`; None if there is no such text.
    end_token: str | None = None
    #: Pairs of an opening and a closing tag around the reasoning.
    tags: Sequence[tuple[str, str]] = field(default=())

    @classmethod
    def parse(cls, end_token: Any, tags: Any) -> Thinking | None:
        """Returns the marks that a task file sets with `think_end_token` and `think_tags`.

        Returns None if neither is set. An `end_token` that is not a string (the number of a token)
        is ignored, because a model class that is given a number removes the reasoning itself.

        Args:
            end_token: the value of `think_end_token`.
            tags: the value of `think_tags`: true for `COMMON_TAGS`, a pair of tags, or a list of
                pairs.

        Raises:
            ConfigError: `tags` is none of these.
        """
        if tags is True:
            pairs: Sequence[Any] = COMMON_TAGS
        elif isinstance(tags, (list, tuple)) and len(tags) == 2 and isinstance(tags[0], str):
            pairs = [tags]
        else:
            pairs = tags or ()
        invalid = ConfigError(
            f"think_tags must be true, a pair of tags or a list of pairs, not {tags!r}."
        )
        if not isinstance(pairs, (list, tuple)):
            raise invalid
        for pair in pairs:
            texts = isinstance(pair, (list, tuple)) and all(isinstance(t, str) and t for t in pair)
            if not texts or len(pair) != 2:
                raise invalid
        end = end_token if isinstance(end_token, str) and end_token else None
        if end is None and not pairs:
            return None
        return cls(end, tuple((opening, closing) for opening, closing in pairs))

    def split(self, answer: Any) -> tuple[str, Any]:
        """Returns one answer as `(reasoning, rest)`.

        Everything before the last end token is reasoning, and so is everything between an opening
        and a closing tag. If a tag is never closed, the answer was cut off while reasoning, so
        everything after the opening tag is reasoning. An answer without marks, or one that is
        not a string, is returned unchanged, with "" as its reasoning. Several pieces of reasoning
        are joined by line breaks.
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

    def split_instances(self, instances: Iterable[Instance]) -> None:
        """Splits every generated answer of `instances` into reasoning and rest.

        The parts are stored with `Instance.set_thinking`. `Instance.resps` keeps the raw answers.
        Requests of other types than `generate_until` are skipped.
        """
        for instance in instances:
            if instance.request_type == "generate_until":
                split_answers = [self.split(answer) for answer in instance.answers]
                instance.set_thinking(
                    [thought for thought, _ in split_answers], [r for _, r in split_answers]
                )


@register_filter("remove_thinking")
class ThinkingFilter(Filter):
    """Removes the reasoning from each answer, in one filter pipeline only.

    To remove it in all pipelines, set `think_end_token` or `think_tags` in the task file.
    """

    def __init__(self, think_end_token: str | None = None, think_tags: Any = None) -> None:
        """Takes the same values as the task options of these names (see `Thinking.parse`).

        Without either, the common tags (`COMMON_TAGS`) are used. Raises `ConfigError` if
        `think_tags` is invalid.
        """
        super().__init__()
        default_tags = None if think_end_token or think_tags else True
        self.thinking = Thinking.parse(think_end_token, think_tags or default_tags)

    def apply(self, resps: Any, docs: Any) -> list[list[Any]]:
        """Returns a list per request, with each answer without its reasoning."""
        split = self.thinking.split if self.thinking else lambda answer: ("", answer)
        return [[split(answer)[1] for answer in answers] for answers in resps]
