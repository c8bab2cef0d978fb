"""MMLU-Pro's questions by category: the data set keeps them in one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _about(category: str) -> Callable[[Any], Any]:
    def keep(dataset: Any) -> Any:
        return dataset.filter(lambda doc: doc["category"] == category)

    return keep


biology = _about("biology")
business = _about("business")
chemistry = _about("chemistry")
computer_science = _about("computer science")
economics = _about("economics")
engineering = _about("engineering")
health = _about("health")
history = _about("history")
law = _about("law")
math = _about("math")
other = _about("other")
philosophy = _about("philosophy")
physics = _about("physics")
psychology = _about("psychology")
