"""The filter `NameHere`."""

import re
from collections.abc import Iterable
from typing import Any

from lm_eval.api.filter import Filter, NotFound


class NameHere(Filter):
    """Keeps the last number of each answer."""

    def __init__(self, fallback: str = "[no number]") -> None:
        """The keys that the task file sets beside `function` arrive here as arguments."""
        super().__init__()
        self.fallback = fallback

    def apply(self, resps: Iterable[Iterable[str]], docs: Iterable[dict[str, Any]]) -> list[Any]:
        """Returns the filtered answers, in the order and shape of `resps`.

        Args:
            resps: for each document, the list of the model's answers (one per repeat).
            docs: the documents, in the same order.
        """
        return [[self._last_number(answer) for answer in answers] for answers in resps]

    def _last_number(self, answer: str) -> str:
        numbers = re.findall(r"-?\d+", answer)
        # Answers without a number are counted in the results, in the column "No answer".
        return numbers[-1] if numbers else NotFound(self.fallback)
