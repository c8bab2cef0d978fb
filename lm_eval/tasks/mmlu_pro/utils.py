"""Selects the documents of each category of MMLU-Pro: the dataset has them all in one table.

Contains the functions of the published module of this name. The prompts of our task files are
templates; the functions that make them are for code that imports them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

choices = list("ABCDEFGHIJ")
_STEPS = "Let's think step by step."


def process_docs(dataset: Any, subject: str) -> Any:
    """Returns the documents of a category."""
    return dataset.filter(lambda doc: doc["category"] == subject)


def _of(subject: str) -> Callable[[Any], Any]:
    """Returns a function that keeps the documents of a category."""

    def keep(dataset: Any) -> Any:
        return process_docs(dataset, subject)

    return keep


process_biology = _of("biology")
process_business = _of("business")
process_chemistry = _of("chemistry")
process_computer_science = _of("computer science")
process_economics = _of("economics")
process_engineering = _of("engineering")
process_health = _of("health")
process_history = _of("history")
process_law = _of("law")
process_math = _of("math")
process_other = _of("other")
process_philosophy = _of("philosophy")
process_physics = _of("physics")
process_psychology = _of("psychology")


def format_cot_example(example: dict[str, Any], including_answer: bool = True) -> str:
    """Returns a question with its options, and the reasoning if `including_answer`.

    Without it, the text ends with the invitation to think step by step.
    """
    options = "".join(
        f"{letter}. {option.strip()}\n"
        for letter, option in zip(choices, example["options"], strict=False)
    )
    if including_answer:
        answer = example["cot_content"].replace(f"A: {_STEPS}", f"Answer: {_STEPS}") + "\n\n"
    else:
        answer = f"Answer: {_STEPS}"
    return f"Question:\n{example['question']}\nOptions:\n{options}{answer}"


def format_cot_target(example: dict[str, Any], including_answer: bool = True) -> str:
    """Returns the reasoning of an example, without its opening; `including_answer` is ignored."""
    return str(example["cot_content"].replace(f"A: {_STEPS} ", ""))


doc_to_text = partial(format_cot_example, including_answer=False)
fewshot_to_text = partial(format_cot_example, including_answer=False)
fewshot_to_target = partial(format_cot_target, including_answer=True)
