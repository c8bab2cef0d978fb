"""Whether tasks are sound, before a model is asked: their files, their prompts, their scoring.

The files are read and every problem told with its line. The first documents are then made into
prompts twice, which must give the same, and answered as the task itself would answer them, which
must be scored without a mistake and, where choices are ranked, as right.
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
from lm_eval.engine.keys import note_digests, prompts_hash
from lm_eval.errors import ConfigError, EvalError, whence
from lm_eval.metrics.documents import NOT_A_CHOICE
from lm_eval.prompts.fields import column_or_template, none_in
from lm_eval.results.summarise import UncertaintyConfig, summarise
from lm_eval.scoring import TaskScores, score
from lm_eval.tasks.check import problems_of
from lm_eval.tasks.configurable import ConfigurableTask
from lm_eval.tasks.manager import TaskManager

logger = logging.getLogger(__name__)

#: Of each task, so many documents are tried.
DOCUMENTS = 20
#: What a model says of a right answer, and of any other: no length makes up for that.
_RIGHT, _WRONG = (-1.0, True), (-1e9, False)
#: Metrics that a right answer is 1 by.
_PERFECT = ("acc", "acc_norm", "acc_bytes", "acc_tokens", "acc_mutual_info")
#: Problems told in one message.
_TOLD = 10


def check_integrity(
    specs: Iterable[Any], manager: TaskManager, tasks: Mapping[str, Task], seed: int | None
) -> None:
    """Refuse tasks that are not sound, with everything that is wrong with them."""
    problems = [p for spec in specs if isinstance(spec, str) for p in in_files(spec, manager)]
    for task in tasks.values():
        problems += in_task(task, seed)
    found = list(dict.fromkeys(problems))
    if found:
        more = f" … and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
        raise ConfigError(
            f"check_integrity: {len(found)} problem{'s' if len(found) > 1 else ''}, and nothing "
            f"was asked: {' | '.join(found[:_TOLD])}{more}"
        )
    logger.info("check_integrity: %s: no problem found.", ", ".join(tasks))


def in_files(name: str, manager: TaskManager) -> list[str]:
    """What is wrong with the files that a name leads to; none of their code is run."""
    return problems_of(manager.entries(name), manager.task_index)


def in_task(task: Task, seed: int | None = 0) -> list[str]:
    """What is wrong with the prompts and the scoring of a task's first documents.

    Random numbers are drawn as if nothing had been tried: the run that follows is the same.
    """
    drawn = random.getstate(), np.random.get_state()
    try:
        hashes = []
        for _ in range(2):
            random.setstate(drawn[0])
            np.random.set_state(drawn[1])
            task.set_fewshot_seed(seed)
            task.build_all_requests(limit=DOCUMENTS)
            note_digests(task.instances)
            hashes.append(prompts_hash(task.instances))
        if hashes[0] != hashes[1]:
            return [
                f"task {task.task_name!r}: its prompts are others when they are made again: it "
                "draws at random, and by no seed."
            ]
        return _nones(task) + _in_scoring(task)
    except EvalError as error:
        return [" ".join(str(error).split())]
    finally:
        random.setstate(drawn[0])
        np.random.set_state(drawn[1])
        task.set_fewshot_seed(seed)
        task.set_requests(None)


def _nones(task: Task) -> list[str]:
    """Fields that are None, or templates that write `None`, in the first documents and examples."""
    if not isinstance(task, ConfigurableTask):
        return []
    config, shots = task.config, task.fewshot_cfg
    asked = {request.doc_id or 0: request.doc for request in task.instances}
    found = _nones_in(task, "document", asked, config)
    if config.num_fewshot:
        examples = dict(enumerate(islice(task.fewshot_docs() or (), DOCUMENTS)))
        found += _nones_in(task, "few-shot document", examples, shots)
    return found


def _nones_in(
    task: ConfigurableTask,
    kind: str,
    docs: Mapping[int, Any],
    config: TaskConfig | FewshotConfig,
) -> list[str]:
    """One problem per field that is None in some of these documents, with the first of them.

    Fields that a class reads by methods of its own are left to the class.
    """
    readers: dict[str, Callable[[Any, Any], Any]] = {
        "doc_to_text": task.doc_to_text,
        "doc_to_target": task.doc_to_target,
        "doc_to_choice": task.doc_to_choice,
        # Without a prefix or description, nothing is written.
        "gen_prefix": lambda doc, spec: column_or_template(doc, spec) or "",
        "description": lambda doc, spec: column_or_template(doc, spec) or "",
    }
    problems: list[str] = []
    for field, read in readers.items():
        spec = getattr(config, field, None)
        if spec is None or spec == "" or (hasattr(task, field) and not task.is_unchanged(field)):
            continue
        found: dict[int, str] = {}
        for number, doc in docs.items():
            copied = copy.deepcopy(doc)  # a function may change it
            try:
                said = none_in(copied, spec, read(copied, spec))
            except EvalError as error:
                said = f"fails: {error}"
            except (Exception, SystemExit) as error:  # from code in the task folder
                said = f"fails: {whence(error)}"
            if said is not None:
                found[number] = said
        if found:
            first, said = next(iter(found.items()))
            problems.append(
                f"task {task.task_name!r}, {kind} {first}: {field} {said} "
                f"({len(found)} of the first {len(docs)} documents)."
            )
    return problems


def _in_scoring(task: Task) -> list[str]:
    """Whether right answers can be scored, and are right."""
    if getattr(task, "UNSAFE_CODE", False):  # scoring would run the answers
        return []
    answered, stray = _right_answers(task)
    if stray:
        return [
            f"task {task.task_name!r}, document {stray[0]}: the gold answer is none of the choices "
            f"({len(stray)} of the first {DOCUMENTS})."
        ]
    scored = score(task.with_requests(answered))
    uncertainty = UncertaintyConfig(bootstrap_iters=0)
    summarise({str(task.task_name): scored}, {}, uncertainty, keep_samples=False)
    return _short_of_perfect(task, scored)


def _short_of_perfect(task: Task, scored: TaskScores) -> list[str]:
    """A choice that is the right one beyond doubt must count as right."""
    own = task.get_config("process_results") is not None or task.get_config("filter_list")
    if task.OUTPUT_TYPE != "multiple_choice" or not isinstance(task, ConfigurableTask) or own:
        return []
    return [
        f"task {task.task_name!r}, document {scored.doc_ids[place]}: by {metric} its own gold "
        "answer is wrong."
        for (metric, _), column in scored.columns().items()
        if metric in _PERFECT
        for value, place in zip(column.values, column.places, strict=True)
        if value != 1.0
    ][:1]


def _right_answers(task: Task) -> tuple[list[Instance], list[int]]:
    """Every request answered as the task's targets do, and the documents whose target is no choice.

    The requests are copies; those of the task stay without answers.
    """
    answered: list[Instance] = []
    stray: list[int] = []
    for request in task.instances:
        kind, number = request.request_type, request.doc_id or 0
        answer: Any
        if kind == "generate_until":
            answer = _text(task, request.doc)
        elif kind == "loglikelihood_rolling":
            answer = -1.0
        elif task.OUTPUT_TYPE == "multiple_choice" and isinstance(task, ConfigurableTask):
            _, gold = task.choices_and_gold(request.doc)
            right = gold if isinstance(gold, list) else [gold]
            if NOT_A_CHOICE in right and number not in stray:
                stray.append(number)
            answer = _RIGHT if request.idx in right else _WRONG
        else:
            answer = _RIGHT if request.idx == 0 else _WRONG
        # Only a model could tell the number of tokens; 1 will do for all.
        answers = [answer] * (request.repeats or 1)
        answered.append(dataclasses.replace(request, resps=answers, filtered_resps={}, tokens=1))
    return answered, stray


def _text(task: Task, doc: Any) -> str:
    """A document's target as a model would write it."""
    target = task.doc_to_target(doc)
    if isinstance(task, ConfigurableTask) and task.has_choices and isinstance(target, int):
        target = task.doc_to_choice(doc)[target]
    if isinstance(target, (list, tuple)) and target:
        target = target[0]
    return str(target)
