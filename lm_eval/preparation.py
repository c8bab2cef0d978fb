"""Everything before the first question: tasks fitted to the run, misfits refused, requests made."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.api.context import RunContext
from lm_eval.api.model import LM, TemplateLM
from lm_eval.api.task import Task
from lm_eval.config.generation import LENGTH_NAMES
from lm_eval.config.run import RunConfig
from lm_eval.data.draw import draw
from lm_eval.errors import ConfigError, ModelError, suggestion
from lm_eval.tasks.manager import TaskDict, TaskManager

logger = logging.getLogger(__name__)


def load_tasks(run: RunConfig, manager: TaskManager) -> TaskDict:
    """Build the tasks asked for and apply the run's settings to them."""
    if not run.task_list:
        raise ConfigError(
            "no tasks were given: name them with --tasks; `lm-eval ls tasks` lists them."
        )
    loaded = manager.load(run.task_list)
    for name in run.samples or {}:
        if name not in loaded["tasks"]:
            known = list(loaded["tasks"])
            raise ConfigError(f"samples: {name!r} is none of the tasks.{suggestion(name, known)}")
    prepare_tasks(run, loaded["tasks"])
    return loaded


def prepare_tasks(run: RunConfig, tasks: Mapping[str, Task]) -> None:
    """Apply the run's settings to tasks."""
    for name, task in tasks.items():
        if run.gen_kwargs and task.get_config("output_type") == "generate_until":
            task.set_config("generation_kwargs", run.gen_kwargs, update=True)
            _tell_lengths(name, task, run.gen_kwargs)
        if run.predict_only:
            task.override_metric("bypass")
        # A task that sets 0 examples itself means it.
        if run.num_fewshot is not None and task.get_config("num_fewshot") == 0:
            logger.info("%s: its configuration says 0 examples; num_fewshot is not applied.", name)
        elif run.num_fewshot is not None:
            task.set_config("num_fewshot", run.num_fewshot)
        elif task.get_config("num_fewshot") is None:
            task.set_config("num_fewshot", 0)
        task.set_fewshot_seed(run.seed.fewshot)


def _tell_lengths(name: str, task: Task, asked: Mapping[str, Any]) -> None:
    """Say so where a length is asked for by a name that the task's own goes before."""
    own = [n for n in LENGTH_NAMES if task.get_config("generation_kwargs").get(n) is not None]
    for other in own[1:]:
        if other in asked and own[0] not in asked:
            logger.warning(
                "%s: it sets %s, so %s is not looked at; give %s with --gen_kwargs.",
                name,
                own[0],
                other,
                own[0],
            )


def check_run(run: RunConfig, tasks: Mapping[str, Task]) -> None:
    """Refuse settings of a run that its tasks do not allow, whichever model answers."""
    if run.cluster and not any(task.has_column(run.cluster) for task in tasks.values()):
        raise ConfigError(
            f"cluster: no task has documents with a column {run.cluster!r}; name one they have, "
            "or a template such as '{{passage}}'."
        )
    for name, task in tasks.items():
        if getattr(task, "UNSAFE_CODE", False) and not run.confirm_run_unsafe_code:
            raise ConfigError(
                f"task {name!r} runs code that the model writes. "
                "Confirm with --confirm_run_unsafe_code if you accept that."
            )


def make_context(run: RunConfig, lm: LM, seed: int | None) -> RunContext:
    """Returns what the run tells the model; `seed` is for models that draw samples."""
    named = run.apply_chat_template
    by_name = isinstance(named, str) and isinstance(lm, TemplateLM)
    return RunContext(
        seed=seed,
        chat_template=lm.chat_template(named) if by_name else None,
        think_end_token=getattr(lm, "think_end_token", None),
    )


def check_fit(run: RunConfig, lm: LM, tasks: Mapping[str, Task]) -> None:
    """Refuse, before anything is asked, what this model or this run cannot do."""
    check_run(run, tasks)
    if run.apply_chat_template and type(lm).apply_chat_template is LM.apply_chat_template:
        raise ModelError(
            f"{type(lm).__name__} has no chat template; run without --apply_chat_template."
        )
    for name, task in tasks.items():
        if task.needs("tokens") and not hasattr(lm, "_encode_pair"):
            raise ModelError(
                f"task {name!r} asks for acc_tokens, and {type(lm).__name__} does not tell how it "
                "cuts text into tokens; use acc_norm (characters) or acc_bytes."
            )
        if getattr(task, "MULTIMODAL", False) and not getattr(lm, "MULTIMODAL", False):
            raise ModelError(
                f"task {name!r} shows images or plays sounds, and {type(lm).__name__} reads text "
                "alone; choose a model that takes them."
            )


def count_tokens(lm: LM, task: Task) -> None:
    """Note the length of every choice in tokens, for a task that divides by it."""
    encode = getattr(lm, "_encode_request", None) or getattr(lm, "_encode_pair", None)
    if encode is not None and task.needs("tokens"):
        for request in task.instances:
            request.set_tokens(len(encode(*request.args[:2])[1]))


def chosen_documents(run: RunConfig, tasks: Mapping[str, Task]) -> Mapping[str, list[int]]:
    """The numbers of the documents chosen or drawn, of the tasks of which not all are wanted."""
    if run.sample is None:
        return run.samples or {}
    return {
        name: draw(len(task.eval_docs), run.sample, run.sample_seed, name)
        for name, task in tasks.items()
    }


def first_documents(run: RunConfig, task: Task) -> int | None:
    """How many documents the run's limit leaves of a task."""
    if run.limit is None or run.limit >= 1:
        return None if run.limit is None else min(int(run.limit), sys.maxsize)
    return math.ceil(len(task.eval_docs) * run.limit)


def build_requests(
    run: RunConfig, lm: LM, name: str, task: Task, chosen: Sequence[int] | None
) -> None:
    """Make a task's requests for the documents the run asks for."""
    task.build_all_requests(
        limit=first_documents(run, task),
        samples=chosen,
        system_instruction=run.system_instruction,
        apply_chat_template=bool(run.apply_chat_template),
        fewshot_as_multiturn=bool(run.fewshot_as_multiturn),
        chat_template=lm.apply_chat_template if run.apply_chat_template else None,
        tokenizer_name=lm.tokenizer_name if run.apply_chat_template else "",
    )
    if run.write_out:
        first = task.instances[0]
        logger.info(
            "%s, document 0, prompt:\n%s\n(end of prompt) target:\n%s\n(end of target)",
            name,
            first.args[0],
            task.doc_to_target(first.doc),
        )
