"""Checks tasks without a model: their files, their prompts and their scoring.

First the files are read, and every problem is reported with its line. Then prompts are built from
the first documents, twice, and must be the same both times. Finally the gold answers are scored in
place of a model's answers. Scoring must not fail, and in multiple-choice tasks the gold answers
must be scored as correct.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from lm_eval.api.instance import Instance
from lm_eval.api.task import Task
from lm_eval.config.task import FewshotConfig, TaskConfig
from lm_eval.engine.keys import prompts_hash, set_digests
from lm_eval.errors import ConfigError, EvalError, describe_cause
from lm_eval.metrics.documents import NOT_A_CHOICE
from lm_eval.prompts.fields import column_or_template, none_in
from lm_eval.results.summarize import UncertaintyConfig, summarize
from lm_eval.scoring import TaskScores, score
from lm_eval.tasks.check import problems_of
from lm_eval.tasks.configurable import ConfigurableTask
from lm_eval.tasks.manager import TaskManager

logger = logging.getLogger(__name__)

#: How many documents of each task are checked.
DOCUMENTS = 20
#: The (log-likelihood, is greedy) of a correct choice and of a wrong one. The difference is so
#: large that normalization by length cannot change which is likelier.
_CORRECT, _WRONG = (-1.0, True), (-1e9, False)
#: Metrics that are 1 for a correct answer.
_PERFECT = ("acc", "acc_norm", "acc_bytes", "acc_tokens", "acc_mutual_info")
#: The maximum number of problems listed in one message.
_MAX_LISTED = 10


def check_integrity(
    specs: Iterable[Any], manager: TaskManager, tasks: Mapping[str, Task], seed: int | None
) -> None:
    """Raises `ConfigError` with all problems found in the tasks, or logs that there are none.

    The message lists the first 10 problems and the number of the others.

    Args:
        specs: the tasks as the user named them; names are looked up to check the files, and
            anything that is not text is skipped.
        manager: finds the files.
        tasks: the loaded tasks by name.
        seed: the seed for drawing few-shot examples.
    """
    problems = [
        p for spec in specs if isinstance(spec, str) for p in problems_in_files(spec, manager)
    ]
    for task in tasks.values():
        problems += problems_in_task(task, seed)
    found = list(dict.fromkeys(problems))
    if found:
        more = f" … and {len(found) - _MAX_LISTED} more" if len(found) > _MAX_LISTED else ""
        raise ConfigError(
            f"check_integrity found {len(found)} problem{'s' if len(found) > 1 else ''}, so the "
            f"model was not run: {' | '.join(found[:_MAX_LISTED])}{more}"
        )
    logger.info("check_integrity: %s: no problems found.", ", ".join(tasks))


def problems_in_files(name: str, manager: TaskManager) -> list[str]:
    """Returns the problems in the files of a task, group or tag, without running their code.

    Each is a message with the file and, where known, the line. Raises `UnknownNameError` if nothing
    has this name.
    """
    return problems_of(manager.entries(name), manager.task_index)


def problems_in_task(task: Task, seed: int | None = 0) -> list[str]:
    """Returns the problems in the prompts and the scoring of a task's first documents.

    They are messages that name the task; empty if there are none. An `EvalError` counts as a
    problem. At most `DOCUMENTS` documents are checked. Restores the states of the random generators
    and discards the requests, so that a run that follows is not affected.
    """
    states = random.getstate(), np.random.get_state()
    try:
        task.check_filters()
        hashes = []
        for _ in range(2):
            random.setstate(states[0])
            np.random.set_state(states[1])
            task.set_fewshot_seed(seed)
            task.build_all_requests(limit=DOCUMENTS)
            set_digests(task.instances)
            hashes.append(prompts_hash(task.instances))
        if hashes[0] != hashes[1]:
            return [
                f"task {task.task_name!r}: its prompts differ when they are built a second time. "
                "Its code uses random numbers that are not seeded; seed them with a constant."
            ]
        return _none_problems(task) + _scoring_problems(task)
    except EvalError as error:
        return [" ".join(str(error).split())]
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        task.set_fewshot_seed(seed)
        task.set_requests(None)


def _none_problems(task: Task) -> list[str]:
    """Returns problems with fields that are None, or whose templates render "None".

    Checks the first documents and, if the task uses them, the first few-shot documents. Returns
    none for tasks written as Python classes.
    """
    if not isinstance(task, ConfigurableTask):
        return []
    config, shots = task.config, task.fewshot_cfg
    docs = {request.doc_id or 0: request.doc for request in task.instances}
    found = _none_problems_in(task, "document", docs, config)
    if config.num_fewshot:
        examples = dict(enumerate(islice(task.fewshot_docs() or (), DOCUMENTS)))
        found += _none_problems_in(task, "few-shot document", examples, shots)
    return found


def _none_problems_in(
    task: ConfigurableTask,
    kind: str,
    docs: Mapping[int, Any],
    config: TaskConfig | FewshotConfig,
) -> list[str]:
    """Returns one problem per field that is None, or fails, in some of these documents.

    The fields are `doc_to_text`, `doc_to_target`, `doc_to_choice`, `gen_prefix`, `description` and
    `doc_to_decontamination_query`. A problem names the first such document. Fields that are not
    set, or whose methods a task class overrides, are not checked.

    Args:
        task: the task.
        kind: the name of the documents in messages ("document", "few-shot document").
        docs: the documents by number.
        config: the settings with the fields: of the task, or of its few-shot examples.
    """
    readers: dict[str, Callable[[Any, Any], Any]] = {
        "doc_to_text": task.doc_to_text,
        "doc_to_target": task.doc_to_target,
        "doc_to_choice": task.doc_to_choice,
        # An empty prefix or description is allowed.
        "gen_prefix": lambda doc, spec: column_or_template(doc, spec) or "",
        "description": lambda doc, spec: column_or_template(doc, spec) or "",
        "doc_to_decontamination_query": lambda doc, spec: (
            spec(doc) if callable(spec) else column_or_template(doc, spec)
        ),
    }
    problems: list[str] = []
    for field, read in readers.items():
        spec = getattr(config, field, None)
        if spec is None or spec == "" or (hasattr(task, field) and not task.is_unchanged(field)):
            continue
        found: dict[int, str] = {}
        for number, doc in docs.items():
            copied = copy.deepcopy(doc)  # the code of the task may change it
            try:
                problem = none_in(copied, spec, read(copied, spec))
            except EvalError as error:
                problem = f"fails: {error}"
            except (Exception, SystemExit) as error:  # from code in the task folder
                problem = f"fails: {describe_cause(error)}"
            if problem is not None:
                found[number] = problem
        if found:
            first, problem = next(iter(found.items()))
            problems.append(
                f"task {task.task_name!r}, {kind} {first}: {field} {problem} "
                f"({len(found)} of the first {len(docs)} documents)."
            )
    return problems


def _scoring_problems(task: Task) -> list[str]:
    """Returns the problems in the scoring of gold answers; raises `EvalError` if scoring fails.

    Returns none for tasks that run code which the model writes.
    """
    if getattr(task, "UNSAFE_CODE", False):  # scoring would run the answers as code
        return []
    answered, not_choices = _gold_answers(task)
    if not_choices:
        return [
            f"task {task.task_name!r}, document {not_choices[0]}: the gold answer is none of the "
            f"choices ({len(not_choices)} of the first {DOCUMENTS} documents). Check doc_to_target "
            "and doc_to_choice."
        ]
    scored = score(task.with_requests(answered))
    uncertainty = UncertaintyConfig(bootstrap_iters=0)
    summarize({str(task.task_name): scored}, {}, uncertainty, keep_samples=False)
    return _gold_scored_wrong(task, scored)


def _gold_scored_wrong(task: Task, scored: TaskScores) -> list[str]:
    """Returns a problem if a gold choice with by far the best score does not count as correct.

    At most one. Only multiple-choice tasks with the usual scoring and no filters are checked; for
    others the list is empty.
    """
    own = task.get_config("process_results") is not None or task.get_config("filter_list")
    if task.OUTPUT_TYPE != "multiple_choice" or not isinstance(task, ConfigurableTask) or own:
        return []
    return [
        f"task {task.task_name!r}, document {scored.doc_ids[position]}: {metric} counts its gold "
        "answer as wrong."
        for (metric, _), column in scored.columns().items()
        if metric in _PERFECT
        for value, position in zip(column.values, column.positions, strict=True)
        if value != 1.0
    ][:1]


def _gold_answers(task: Task) -> tuple[list[Instance], list[int]]:
    """Returns copies of the task's requests, answered with the gold answers.

    In a log-likelihood task that is not multiple-choice, the first request of each document counts
    as the gold one. The second value lists the numbers of the documents whose gold answer is none
    of the choices.
    """
    answered: list[Instance] = []
    not_choices: list[int] = []
    for request in task.instances:
        kind, number = request.request_type, request.doc_id or 0
        answer: Any
        if kind == "generate_until":
            answer = _gold_text(task, request.doc)
        elif kind == "loglikelihood_rolling":
            answer = -1.0
        elif task.OUTPUT_TYPE == "multiple_choice" and isinstance(task, ConfigurableTask):
            _, gold = task.choices_and_gold(request.doc)
            golds = gold if isinstance(gold, list) else [gold]
            if NOT_A_CHOICE in golds and number not in not_choices:
                not_choices.append(number)
            answer = _CORRECT if request.idx in golds else _WRONG
        else:
            answer = _CORRECT if request.idx == 0 else _WRONG
        # The number of tokens depends on the model; 1 for all is enough here.
        answers = [answer] * (request.repeats or 1)
        answered.append(dataclasses.replace(request, resps=answers, filtered_resps={}, tokens=1))
    return answered, not_choices


def _gold_text(task: Task, doc: Any) -> str:
    """Returns the gold answer of a document as the text that a model would generate.

    Of several gold answers it is the first; an index becomes the text of its choice.
    """
    target = task.doc_to_target(doc)
    if isinstance(task, ConfigurableTask) and task.has_choices and isinstance(target, int):
        target = task.doc_to_choice(doc)[target]
    if isinstance(target, (list, tuple)) and target:
        target = target[0]
    return str(target)
