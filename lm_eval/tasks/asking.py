"""What a model is asked about a document: the arguments of its requests, checked before they go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lm_eval.errors import DataError

if TYPE_CHECKING:
    from lm_eval.tasks.configurable import ConfigurableTask


def target(task: ConfigurableTask, doc: Any) -> str:
    """The text to be scored, where it is one."""
    found = task.doc_to_target(doc)
    if not isinstance(found, str):
        raise DataError(f"doc_to_target gave {found!r}; what is to be scored must be text.")
    return found


def choices(
    task: ConfigurableTask, doc: Any, ctx: Any, apply_chat_template: bool
) -> list[tuple[str, str]]:
    """Context and continuation of every choice; for `acc_mutual_info` each choice alone too."""
    offered = task.doc_to_choice(doc)
    if not offered:
        raise DataError(f"doc_to_choice gave nothing to choose from: {offered!r}.")
    if None in offered:
        raise DataError(f"doc_to_choice gave a choice that is nothing: {offered!r}.")
    _check_gold(task, doc, len(offered))
    delimiter = task.config.target_delimiter
    prefix = task.config.gen_prefix
    if apply_chat_template and (not prefix or prefix[-1].isspace()):
        delimiter = ""
    if task.multiple_input:
        continuation = f"{delimiter}{task.doc_to_target(doc)}"
        pairs = [(context, continuation) for context in ctx]
    else:
        pairs = [(ctx, f"{delimiter}{choice}") for choice in offered]
    if task.scores_metric("acc_mutual_info"):
        pairs += [("", f"{delimiter}{choice}") for choice in offered]
    return pairs


def _check_gold(task: ConfigurableTask, doc: Any, count: int) -> None:
    """Refuse a gold answer that no choice can be, before anything is asked.

    Where nothing is scored, or by the task's own code, the gold answer may be anything.
    """
    if task.config.process_results is not None or task.scores_metric("bypass"):
        return
    field = "doc_to_text" if task.multiple_input else "doc_to_target"
    gold = getattr(task, field)(doc)
    for index in gold if isinstance(gold, list) else [gold]:
        if not isinstance(index, (int, str)) and not hasattr(index, "__index__"):
            raise DataError(
                f"the gold answer is {index!r}; {field} must give a choice, or the number of one."
            )
        if not isinstance(index, str) and not 0 <= index < count:
            raise DataError(
                f"the gold answer is number {index}, but there are {count} choices, numbered from "
                f"0. Correct {field}, or leave such documents out with process_docs."
            )


def media(task: ConfigurableTask, doc: Any) -> tuple[dict[str, Any], ...]:
    """Pictures and sounds that go with the text."""
    found = {}
    if task.config.doc_to_image:
        found["visual"] = task.doc_to_image(doc)
    if task.config.doc_to_audio:
        found["audio"] = task.doc_to_audio(doc)
    return (found,) if found else ()
