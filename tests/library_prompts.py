"""The requests of a task's first documents, and a hash that changes when they change."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import islice
from typing import Any

DOCUMENTS = 5
SHOTS = 2


@dataclass(frozen=True)
class Asked:
    """One document: its question, its prompts without and with examples, and its requests."""

    doc: Any
    question: Any
    context: Any
    with_examples: Any
    arguments: list[Any]


def shots_of(task: Any) -> int:
    """Returns the number of examples: 0 for zero-shot tasks and perplexity, else `SHOTS`."""
    without = task.config.num_fewshot == 0 or task.OUTPUT_TYPE == "loglikelihood_rolling"
    return 0 if without else SHOTS


def ask(task: Any) -> list[Asked]:
    task.set_fewshot_seed(1234)
    found = []
    for number, doc in enumerate(islice(task.eval_docs, DOCUMENTS)):
        prefix = task.doc_to_prefix(doc)
        context = task.fewshot_context(doc, 0, gen_prefix=prefix)
        shown = task.fewshot_context(doc, shots_of(task), gen_prefix=prefix)
        made = task.construct_requests(doc=doc, ctx=context, metadata=("task", number, 1))
        requests = made if isinstance(made, list) else [made]
        arguments = [[r.request_type, *map(_plain, r.args)] for r in requests]
        found.append(Asked(doc, task.doc_to_text(doc), context, shown, arguments))
    return found


def _plain(argument: Any) -> Any:
    return argument if isinstance(argument, (str, list)) else json.dumps(argument, sort_keys=True)


def prompt_hash(asked: list[Asked]) -> str:
    """Returns a hash of all requests of the documents and of their prompts with examples."""
    everything = [[item.arguments, item.with_examples] for item in asked]
    text = json.dumps(everything, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
