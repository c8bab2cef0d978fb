"""`process_docs` functions, one per MMLU-Pro category: the dataset has them all in one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _in_category(category: str) -> Callable[[Any], Any]:
    """Returns a function that keeps the documents of `category`."""

    def keep(dataset: Any) -> Any:
        return dataset.filter(lambda doc: doc["category"] == category)

    return keep


biology = _in_category("biology")
business = _in_category("business")
chemistry = _in_category("chemistry")
computer_science = _in_category("computer science")
economics = _in_category("economics")
engineering = _in_category("engineering")
health = _in_category("health")
history = _in_category("history")
law = _in_category("law")
math = _in_category("math")
other = _in_category("other")
philosophy = _in_category("philosophy")
physics = _in_category("physics")
psychology = _in_category("psychology")
