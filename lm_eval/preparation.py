"""Prepares a run: applies its settings to the tasks, rejects what cannot work, builds requests."""

from __future__ import annotations

import ast
import inspect
import logging
import math
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from lm_eval.api.context import RunContext, in_context
from lm_eval.api.group import Group
from lm_eval.api.model import LM, LengthCheck, TemplateLM, check_has_chat_template
from lm_eval.api.task import Task
from lm_eval.code_scoring import is_code_task, is_uncontained
from lm_eval.config.generation import MAX_LENGTH_NAMES, find_meaningless, read_sampled
from lm_eval.config.run import RunConfig
from lm_eval.data.draw import draw
from lm_eval.errors import (
    ConfigError,
    DataError,
    EvalError,
    ModelError,
    as_original_type,
    describe_cause,
    raise_interrupt,
    suggestion,
)
from lm_eval.filters.selection import TakeKFilter
from lm_eval.needed_packages import check_packages
from lm_eval.tasks.manager import TaskDict, TaskManager

logger = logging.getLogger(__name__)


def load_tasks(run: RunConfig, manager: TaskManager) -> TaskDict:
    """Returns the tasks and groups of the run, with the run's settings applied to the tasks.

    Raises `ConfigError` if the run names no tasks, or if `samples` names a task that is not among
    them, `UnknownNameError` if a task does not exist, and `DataError` if its data cannot be loaded.
    """
    if not run.task_list:
        raise ConfigError(
            "no tasks were given. Name them with --tasks; `lm-eval ls tasks` lists all tasks."
        )
    try:
        loaded = manager.load(run.task_list)
    except DataError as error:
        try:
            outline = manager.outline(run.task_list)
        except EvalError:
            raise error from error.__cause__
        _check_consent(run, outline)  # no data is needed to refuse that
        raise
    for name in run.samples or {}:
        if name not in loaded["tasks"]:
            known = list(loaded["tasks"])
            raise ConfigError(
                f"samples: {name!r} is none of the tasks of this run.{suggestion(name, known)} "
                "Its keys must be names of single tasks that --tasks selects."
            )
    prepare_tasks(run, loaded["tasks"])
    return loaded


def prepare_tasks(run: RunConfig, tasks: Mapping[str, Task]) -> None:
    """Applies the run's settings to tasks.

    These are the generation settings (for tasks of output type `generate_until`), the number of
    few-shot examples (not for a task that sets 0 itself; 0 if neither the run nor the task sets
    it), the few-shot seed, the number of repeats, the metrics and `predict_only`.
    """
    for name, task in tasks.items():
        if run.gen_kwargs and task.get_config("output_type") == "generate_until":
            task.set_config("generation_kwargs", run.gen_kwargs, update=True)
            _warn_of_ignored_length(name, task, run.gen_kwargs)
        if problem := find_meaningless(_generation_settings(task)):
            raise ConfigError(f"task {name!r}: generation_kwargs: {problem}")
        _apply_repeats(run, name, task)
        if run.predict_only:
            task.override_metric("bypass")
        # A task that sets 0 few-shot examples does not work with others.
        if run.num_fewshot is not None and task.get_config("num_fewshot") == 0:
            logger.info(
                "%s: num_fewshot is not applied, because the task file sets num_fewshot: 0.", name
            )
        elif run.num_fewshot is not None:
            task.set_config("num_fewshot", run.num_fewshot)
        elif task.get_config("num_fewshot") is None:
            task.set_config("num_fewshot", 0)
        task.set_fewshot_seed(run.seed.fewshot)


def _apply_repeats(run: RunConfig, name: str, task: Task) -> None:
    """Applies `repeats` and `metrics` of a run to a task.

    Without `metrics`, the mean over the repeats (`avg@N`) is reported beside the task's own
    metrics. Raises `ConfigError` if the task does not generate text, or has fewer repeats than a
    metric or filter needs. Logs a warning if the repeats are not sampled.
    """
    generates = task.get_config("output_type") == "generate_until"
    if run.repeats is not None and run.repeats > 1 and not generates:
        raise ConfigError(
            f"task {name!r}: repeats can be set only for tasks that generate text, but its "
            f"output_type is {task.get_config('output_type')}: every repeat would be the same. "
            "Leave the task out, or leave out --repeats."
        )
    if run.metrics is not None:  # before the repeats, which the task's own metrics may not fit
        if run.repeats is not None and generates:
            task.set_config("repeats", run.repeats)
        task.override_metrics(run.metrics)
    elif run.repeats is not None and generates:
        task.override_repeats(run.repeats)
        if run.repeats > 1 and not run.predict_only:
            task.add_average(run.repeats)
    repeats = task.get_config("repeats") or 1
    for step in task.filter_steps():
        made = step()
        if isinstance(made, TakeKFilter) and made.k > repeats:
            raise ConfigError(
                f"task {name!r}: its filter take_first_k needs {made.k} answers per document, but "
                f"there are {repeats}. Raise --repeats, or leave it out."
            )
    for pipeline in task.pipelines_without_extraction():
        votes = [one.name for one, _ in task.repeat_metrics(pipeline) if one.kind == "maj@"]
        if votes and task.get_config("vote_on") is None:
            logger.warning(
                "%s: %s votes on the whole text of each answer, because no filter of pipeline %s "
                "extracts an answer. Set `vote_on` in the task, or add a filter.",
                name,
                " and ".join(votes),
                pipeline,
            )
    if repeats > 1 and generates and not read_sampled(_generation_settings(task)):
        logger.warning(
            "%s: %d answers per document are generated greedily, so they are all alike. Sample "
            "them: --gen_kwargs do_sample=True,temperature=0.6",
            name,
            repeats,
        )


def generation_settings(tasks: Mapping[str, Task]) -> dict[str, Mapping[str, Any]]:
    """Returns the generation settings of the tasks that generate text, by name."""
    generating = (n for n, task in tasks.items() if task.OUTPUT_TYPE == "generate_until")
    return {name: _generation_settings(tasks[name]) for name in generating}


def _generation_settings(task: Task) -> Mapping[str, Any]:
    """Returns the generation settings of a task; empty if it generates nothing."""
    settings = task.get_config("generation_kwargs")
    generates = task.get_config("output_type") == "generate_until"
    return settings if generates and isinstance(settings, Mapping) else {}


def _warn_of_ignored_length(name: str, task: Task, gen_kwargs: Mapping[str, Any]) -> None:
    """Logs a warning if a maximum length in `gen_kwargs` has no effect on the task `name`.

    The maximum length of an answer has several names. If the task sets one that takes precedence
    over the name the user passed, the user's length is ignored.
    """
    own = [n for n in MAX_LENGTH_NAMES if task.get_config("generation_kwargs").get(n) is not None]
    for other in own[1:]:
        if other in gen_kwargs and own[0] not in gen_kwargs:
            logger.warning(
                "%s: %s in --gen_kwargs is ignored, because the task sets the maximum length as "
                "%s, which takes precedence. Pass %s in --gen_kwargs instead.",
                name,
                other,
                own[0],
                own[0],
            )


def check_run(run: RunConfig, tasks: Mapping[str, Task]) -> None:
    """Raises `ConfigError` for settings that do not fit the tasks, independently of the model.

    Rejects a `cluster` column that no task has, and tasks that run code which the model writes,
    unless the user has confirmed that and the isolation suffices (`IsolationError`). Raises
    `DataError` if a filter reads a file that does not fit its task. Scoring functions must accept
    the arguments that they will get, and the packages that they import must be installed.
    """
    if run.cluster and not any(task.has_column(run.cluster) for task in tasks.values()):
        raise ConfigError(
            f"cluster: no task has documents with a column {run.cluster!r}. Name a column that "
            "they have, or a template such as '{{passage}}'."
        )
    for name, task in tasks.items():
        if is_code_task(task):
            _check_code_task(run, name, task)
        task.check_filters()
        if not run.predict_only:
            check_packages(name, task)
            _check_signatures(name, task)


def _check_signatures(name: str, task: Task) -> None:
    """Raises `ConfigError` if a scoring function of a task cannot be called as it will be.

    Only the parameters are looked at. The functions are not tried with made-up values: they may be
    right about real ones and fail on a few equal values, or have effects. If one fails after the
    model was asked, the answers are kept.
    """
    called: list[tuple[str, Any, tuple[str, ...]]] = [
        (f"the aggregation of {metric!r}", function, ("values",))
        for metric, function in task.aggregation().items()
    ]
    called.append(("process_results", task.get_config("process_results"), ("doc", "results")))
    for what, function, arguments in called:
        if not callable(function):
            continue
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # some functions that are written in C have none
            continue
        try:
            signature.bind(*arguments)
        except TypeError as error:
            raise ConfigError(
                f"task {name!r}: {what} is called as function({', '.join(arguments)}), which its "
                f"parameters {signature} do not allow: {error}. Nothing has been run."
            ) from error


def check_groups(groups: Mapping[str, Group], tasks: Mapping[str, Task]) -> None:
    """Raises `ConfigError` if a function that aggregates the scores of a group fails.

    It is called with scores of 0.5, so that an error is found before the model is asked.
    """
    for name, group in groups.items():
        count = len([one for one in group.get_all_tasks() if one.task_name in tasks])
        for wanted in group.aggregate_metric_list or ():
            if not callable(wanted.aggregation) or not count:
                continue
            try:
                wanted.aggregation([0.5] * count, [1] * count)
            except BaseException as error:
                raise_interrupt(error)
                raise ConfigError(
                    f"group {name!r}: its aggregation of {wanted.metric!r} fails: "
                    f"{describe_cause(error)}. It is called as function(scores, sizes), with two "
                    "lists of numbers. Nothing has been run."
                ) from error


def _check_consent(run: RunConfig, tasks: Mapping[str, Task]) -> None:
    """Raises `ConfigError` for a task that runs programs, unless the user has confirmed that."""
    for name, task in tasks.items():
        if is_code_task(task) and not run.confirm_run_unsafe_code:
            raise ConfigError(
                f"task {name!r} runs code that the model writes. "
                "Confirm with --confirm_run_unsafe_code if you accept that."
            )


def _check_code_task(run: RunConfig, name: str, task: Task) -> None:
    """Raises `ConfigError` unless the run may run the programs that a model writes for a task.

    The user must have confirmed it, and the isolation must satisfy `require_isolation`
    (`IsolationError`). Logs a warning if the task does not use the sandbox.
    """
    _check_consent(run, {name: task})
    if run.predict_only:
        return
    if run.require_isolation is not None:
        from lm_eval.sandbox import require_isolation

        require_isolation(run.require_isolation)
    if not is_uncontained(task):
        return
    problem = f"task {name!r} runs programs with functions of its own, not in the sandbox"
    if run.require_isolation is not None:
        raise ConfigError(
            f"{problem}, so require_isolation {run.require_isolation!r} cannot be satisfied. Leave "
            "the task out, or let its metric call lm_eval.code_eval.pass_at_k (docs/code.md)."
        )
    logger.warning("%s: they can do what you can do on this machine.", problem)


def make_context(run: RunConfig, lm: LM, seed: int | None) -> RunContext:
    """Returns the context that is passed to the model.

    `seed` is the seed for models that sample their answers. The context contains the text of the
    chat template only if the run chooses one by name; raises `ModelError` if the tokenizer does not
    have it.
    """
    named = run.apply_chat_template
    can_name = isinstance(lm, TemplateLM) or getattr(lm, "names_templates", False)
    by_name = isinstance(named, str) and can_name
    return RunContext(
        seed=seed,
        chat_template=lm.chat_template(named) if by_name else None,
        think_end_token=getattr(lm, "think_end_token", None),
    )


def check_fit(run: RunConfig, lm: LM, tasks: Mapping[str, Task]) -> None:
    """Raises if the tasks need something that the model does not have.

    `check_run` is what does not depend on the model. Raises `ModelError` if the model has no chat
    template although the run applies one, if a metric needs token counts that the model cannot
    give, or if a task has images or audio and the model reads only text.
    """
    check_measurable(lm, tasks)
    if run.apply_chat_template and "apply_chat_template" not in vars(lm):
        check_has_chat_template(type(lm))
    for name, task in tasks.items():
        if task.needs("tokens") and not hasattr(lm, "_encode_pair"):
            raise ModelError(
                f"task {name!r} uses a metric that depends on the number of tokens (acc_tokens), "
                f"but {type(lm).__name__} has no method _encode_pair to count tokens; use acc_norm "
                "(characters) or acc_bytes instead."
            )
        if getattr(task, "MULTIMODAL", False) and not getattr(lm, "MULTIMODAL", False):
            raise ModelError(
                f"task {name!r} contains images or audio, but {type(lm).__name__} reads only "
                "text; choose a multimodal model."
            )


def check_types(run: RunConfig, manager: TaskManager, refused: Mapping[str, str]) -> None:
    """Raises `ModelError` as `check_measurable` does, before the datasets of the tasks are loaded.

    `refused` are the request types that the class of the model can never answer, with the reasons.
    """
    if refused and run.task_list:
        _refuse(manager.outline(run.task_list), refused.get)


def check_measurable(lm: LM, tasks: Mapping[str, Task]) -> None:
    """Raises `ModelError` if the model cannot answer the type of requests that tasks consist of.

    The message names these tasks and, for multiple-choice tasks, the form with generated answers.
    """
    if hasattr(lm, "cannot_measure"):
        _refuse(tasks, lm.cannot_measure)


def _refuse(tasks: Mapping[str, Task], reason_of: Callable[[str], str | None]) -> None:
    """Raises `ModelError` if the model cannot answer the type of requests of a task.

    `reason_of` returns why it cannot answer a request type; None if it can.
    """
    by_type: dict[str, list[str]] = {}
    for name, task in tasks.items():
        kind = task.OUTPUT_TYPE or task.get_config("output_type")
        request_type = "loglikelihood" if kind == "multiple_choice" else str(kind)
        by_type.setdefault(request_type, []).append(name)
    for request_type, names in by_type.items():
        reason = reason_of(request_type)
        if reason is None:
            continue
        choices = [n for n in names if tasks[n].OUTPUT_TYPE == "multiple_choice"]
        remedy = "Leave these tasks out, or use a model that can."
        if choices:
            remedy = (
                f"Let the model generate the answers instead: --tasks {choices[0]}@generate (or "
                f"{choices[0]}@cot); or use a model that can."
            )
        raise ModelError(
            f"{', '.join(names)}: the model cannot answer {request_type} requests: {reason}. "
            f"{remedy}"
        )


def count_tokens(lm: LM, task: Task) -> None:
    """Sets the length in tokens of every continuation, if a metric of the task needs it.

    Does nothing if the model has no method to encode requests.
    """
    encode = getattr(lm, "_encode_request", None) or getattr(lm, "_encode_pair", None)
    if encode is None or not task.needs("tokens"):
        return
    lengths_of = getattr(lm, "continuation_lengths", None)
    if lengths_of is not None:  # a model in other processes counts many at once
        pairs = [request.args[:2] for request in task.instances]
        for request, length in zip(task.instances, lengths_of(pairs), strict=True):
            request.set_tokens(length)
    else:
        for request in task.instances:
            request.set_tokens(len(encode(*request.args[:2])[1]))


def chosen_documents(run: RunConfig, tasks: Mapping[str, Task]) -> Mapping[str, list[int]]:
    """Returns the indices of the documents to evaluate, from 0 and sorted, by task name.

    They come from `samples`, or are drawn at random for `sample`. A task that is not in the result
    is evaluated on all its documents, or on the first ones (`limit`).
    """
    if run.sample is None:
        return run.samples or {}
    return {
        name: draw(len(task.eval_docs), run.sample, run.sample_seed, name)
        for name, task in tasks.items()
    }


def document_limit(task: Task, limit: float | None) -> int | None:
    """Returns how many documents of a task a run's `limit` allows; None for all.

    A `limit` below 1 is a share of the documents, rounded up. Otherwise it is rounded down, and may
    be more than the task has.
    """
    if limit is None or limit >= 1:
        return None if limit is None else min(int(limit), sys.maxsize)
    return math.ceil(len(task.eval_docs) * limit)


def build_requests(
    run: RunConfig, lm: LM, name: str, task: Task, chosen: Sequence[int] | None
) -> None:
    """Builds the requests of a task for the documents to evaluate.

    With `write_out`, logs the first prompt and its target. `chosen` are the indices of the
    documents; None for all, or for the first `limit` of them. Raises `ModelError` if the model does
    not implement a method that the requests need.
    """
    _build(run, lm, task, chosen)
    _check_implemented(lm, name, task)
    _check_requests(name, task)
    if run.write_out:
        log_first_prompt(task)


def _build(run: RunConfig, lm: LM, task: Task, chosen: Sequence[int] | None) -> None:
    """Builds the requests of a task, whose prompts the model `lm` formats."""
    task.build_all_requests(
        limit=document_limit(task, run.limit),
        samples=chosen,
        system_instruction=run.system_instruction,
        apply_chat_template=bool(run.apply_chat_template),
        fewshot_as_multiturn=bool(run.fewshot_as_multiturn),
        chat_template=lm.apply_chat_template if run.apply_chat_template else None,
        tokenizer_name=lm.tokenizer_name if run.apply_chat_template else "",
    )


def check_lengths(run: RunConfig, check: LengthCheck | None, tasks: Mapping[str, Task]) -> None:
    """Raises `ConfigError` if requests do not fit into the context length that the user chose.

    Builds the requests of all tasks for it, and restarts the draws of their few-shot examples
    afterwards. Does nothing if `check` is None.
    """
    if check is None:
        return
    chosen = chosen_documents(run, tasks)
    problems, needed = [], 0
    with in_context(check.encoder, make_context(run, check.encoder, None)):
        for name, task in tasks.items():
            _build(run, check.encoder, task, chosen.get(name))
            lengths = check.needed(task.instances)
            task.set_fewshot_seed(run.seed.fewshot)
            long = [number for number, length in enumerate(lengths) if length > check.limit]
            if long:
                worst = max(long, key=lengths.__getitem__)
                needed = max(needed, lengths[worst])
                problems.append(
                    f"{len(long)} of {len(lengths)} requests of task {name!r} (the longest is of "
                    f"document {task.instances[worst].doc_number}, {lengths[worst]} tokens)"
                )
    if problems:
        others = f", and requests of {len(problems) - 1} other tasks" if problems[1:] else ""
        raise ConfigError(
            f"{check.argument}={check.limit} is too short for {problems[0]}{others}. Pass "
            f"{check.argument}={needed}, or {check.remedy}."
        )


def _check_requests(name: str, task: Task) -> None:
    """Raises if requests mean nothing, before the model is asked.

    That is `ConfigError` for generation settings that no model can apply, and `DataError` for a
    task whose texts to be scored are all empty: their perplexity is not defined.
    """
    if task.instances and all(
        request.request_type == "loglikelihood_rolling" and not any(request.args)
        for request in task.instances
    ):
        raise DataError(
            f"task {name!r}: the texts of all its documents are empty (document "
            f"{task.instances[0].doc_number} is the first), so there is nothing to score. Check "
            "doc_to_target and the data."
        )
    for request in task.instances:
        if request.request_type == "generate_until" and len(request.args) > 1:
            settings = request.args[1]
            if isinstance(settings, Mapping) and (problem := find_meaningless(settings)):
                raise ConfigError(
                    f"task {name!r}, document {request.doc_number}: its generation settings: "
                    f"{problem}"
                )


def log_first_prompt(task: Task) -> None:
    """Logs the first prompt of a task and its target, if its requests are built."""
    for first in task.instances[:1]:
        logger.info(
            "%s, first document, prompt:\n%s\n(end of prompt) target:\n%s\n(end of target)",
            task.task_name,
            first.args[0],
            task.doc_to_target(first.doc),
        )


def _check_implemented(lm: LM, name: str, task: Task) -> None:
    """Raises `ModelError` if the requests of task `name` need a method that `lm` lacks.

    Calling such a method raises `NotImplementedError`. Without this check, the run would end there
    after the requests of all other types were answered.
    """
    for method in {request.request_type for request in task.instances}:
        if not _is_unimplemented(type(lm), method):
            continue
        try:
            getattr(lm, method)([])
        except NotImplementedError as error:
            reason = f" ({error})" if str(error) else ""
            ours = ModelError(
                f"task {name!r} needs {type(lm).__name__}.{method}, which is not implemented"
                f"{reason}. Leave the task out, or implement the method."
            )
            raise as_original_type(ours, error) from error


@cache
def _is_unimplemented(model_class: type[LM], name: str) -> bool:
    """Returns whether all that a method does is to raise `NotImplementedError`.

    False if its source cannot be read.
    """
    try:
        source = inspect.getsource(getattr(model_class, name))
        (function,) = ast.parse(textwrap.dedent(source)).body
    except (AttributeError, OSError, SyntaxError, TypeError, ValueError):
        return False
    if not isinstance(function, ast.FunctionDef):
        return False
    body = function.body[1:] if ast.get_docstring(function) else function.body
    if len(body) != 1 or not isinstance(body[0], ast.Raise):
        return False
    raised = body[0].exc.func if isinstance(body[0].exc, ast.Call) else body[0].exc
    return isinstance(raised, ast.Name) and raised.id == NotImplementedError.__name__
