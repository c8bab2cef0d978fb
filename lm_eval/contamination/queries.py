"""What is searched for: the question and the gold answer of each test document."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from lm_eval.api.task import Task
from lm_eval.contamination.finding_types import SearchedTask
from lm_eval.contamination.index import MIN_WORDS, Query
from lm_eval.contamination.words import normalize
from lm_eval.errors import DataError, EvalError, describe_cause
from lm_eval.metrics.documents import NOT_A_CHOICE
from lm_eval.prompts import fields
from lm_eval.tasks.configurable import ConfigurableTask


def queries_of(task: Task, docs: Iterable[Any] | None = None) -> Iterator[Query]:
    """Yields what to search for, for each evaluated document of a task, or for each of `docs`.

    Raises `DataError` with the number of the document if its texts cannot be computed.
    """
    for doc_id, doc in enumerate(task.eval_docs if docs is None else docs):
        try:
            question, answer = texts_of(task, doc)
        except EvalError as error:
            raise type(error)(f"task {task.task_name!r}, document {doc_id}: {error}") from error
        except (Exception, SystemExit) as error:  # from code in the task folder
            raise DataError(
                f"task {task.task_name!r}, document {doc_id}: the text to search for cannot be "
                f"computed: {describe_cause(error)}"
            ) from error
        asked, answered = normalize(question), normalize(answer)
        if (b" " + asked).endswith(b" " + answered):
            answered = b""  # some queries are whole texts, such as that of lambada
        yield Query(str(task.task_name), doc_id, asked, answered)


def texts_of(task: Task, doc: Any) -> tuple[str, str]:
    """Returns the question and the gold answer of a document.

    The question is `doc_to_decontamination_query`, whether or not the task sets
    `should_decontaminate`, or else `doc_to_text`. The answer is the text of the gold choice, or
    `doc_to_target`; of several gold answers it is the first. It is "" if there is none, and for
    tasks that measure the perplexity of whole texts.
    """
    question = _question(task, doc)
    if task.OUTPUT_TYPE == "loglikelihood_rolling":
        return _text(question) or _text(task.doc_to_target(doc)), ""
    if isinstance(task, ConfigurableTask) and task.has_choices:
        choices = task.doc_to_choice(doc)
        if task.multiple_input:  # the choices are alternative contexts of one target
            _, gold = task.choices_and_gold(doc)
            if isinstance(question, int):
                question = _choice(choices, gold)
            return _text(question), _text(task.doc_to_target(doc))
        if task.OUTPUT_TYPE == "multiple_choice":
            _, gold = task.choices_and_gold(doc)
            return _text(question), _choice(choices, gold)
        target = _first(task.doc_to_target(doc))
        answer = _choice(choices, target) if _is_number(target) else _text(target)
        return _text(question), answer
    return _text(question), _text(_first(task.doc_to_target(doc)))


def _question(task: Task, doc: Any) -> Any:
    if not isinstance(task, ConfigurableTask) or not task.is_unchanged(
        "doc_to_decontamination_query"
    ):
        try:
            query = task.doc_to_decontamination_query(doc)
        except NotImplementedError:
            query = None
    else:
        spec = task.config.doc_to_decontamination_query
        query = spec(doc) if callable(spec) else fields.column_or_template(doc, spec)
    return task.doc_to_text(doc) if query is None else query


def _first(target: Any) -> Any:
    if isinstance(target, (list, tuple)):
        return target[0] if target else ""
    return target


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _choice(choices: Sequence[Any], gold: Any) -> str:
    gold = _first(gold)
    if not _is_number(gold) or gold == NOT_A_CHOICE or not 0 <= gold < len(choices):
        return ""
    return _text(choices[gold])


def _text(value: Any) -> str:
    """Returns a value as text; the texts of a list are joined by blanks, None is ""."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return " ".join(map(_text, value))
    return str(value)


def describe_task(task: Task, queries: Sequence[Query], ngram: int) -> SearchedTask:
    """Returns the entry of a task in the header of the findings.

    It tells the version, the split, and how many documents and n-grams of `ngram` words it has, and
    identifies its rows and queries by hashes. `queries` are those of all its documents.
    """
    words = [whole.count(b" ") + 1 if (whole := query.whole) else 0 for query in queries]
    texts = hashlib.sha256()
    for query in queries:
        texts.update(query.question + b"\0" + query.answer + b"\n")
    split = evaluated_split(task)
    described = task.describe_data()["splits"].get(split)
    return SearchedTask(
        version=task.VERSION,
        split=split,
        documents=len(queries),
        short_documents=sum(count < ngram for count in words),
        too_short_documents=sum(count < min(ngram, MIN_WORDS) for count in words),
        ngrams=sum(max(0, count - ngram + 1) for count in words),
        fingerprint=described["fingerprint"] if described else None,
        query_hash=texts.hexdigest(),
    )


def evaluated_split(task: Task) -> str:
    """Returns the name of the split that is evaluated; `documents` for task classes in Python."""
    if isinstance(task, ConfigurableTask):
        split = task.config.test_split if task.has_test_docs() else task.config.validation_split
        return str(split)
    return "documents"
