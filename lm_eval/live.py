"""Evaluates a model while it is trained: `evaluate_live`, and tasks whose requests are reused."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from lm_eval.config.run import RunConfig
from lm_eval.data import mirror_at
from lm_eval.engine.stages import Stages
from lm_eval.errors import ConfigError, EvalError, suggestion
from lm_eval.evaluator import BuiltRequests, build_all, evaluate_tasks, exits_as_errors
from lm_eval.launch import from_first
from lm_eval.models.seeding import seed_generators
from lm_eval.preparation import check_groups, check_run, load_tasks
from lm_eval.results.schema import EvalResults
from lm_eval.results.score_rows import score_rows
from lm_eval.tasks.manager import TaskManager

if TYPE_CHECKING:
    from lm_eval.models.huggingface.live import LiveModel

#: Settings of a run that have no meaning for a model object in this process.
_REFUSED = {
    *("model", "tasks", "device", "use_cache", "fresh", "output_path", "show_config"),
    *("wandb_args", "wandb_config_args", "trackio_args", "hf_hub_log_args", "environment"),
    *("verbosity", "trust_remote_code", "decontaminate", "check_integrity"),
}
#: Arguments of the model class that are passed as objects.
_OBJECTS = {"pretrained", "tokenizer", "model"}


class LiveTasks:
    """Tasks for a model that is being trained; their requests are built once and then reused.

    The tasks are loaded at once, so that mistakes are found before training begins. Pass the object
    to every call of `evaluate_live`.

    Example::

        tasks = LiveTasks(["arc_easy", "lambada"], limit=200)
        for step, batch in enumerate(batches):
            train(model, batch)
            if step % 500 == 0:
                results = evaluate_live(model, tokenizer, tasks)

    Args:
        tasks: names of tasks, groups and tags, or task files, as for `simple_evaluate`.
        settings: settings of the evaluation, named as for `lm-eval run --config`: `limit`,
            `num_fewshot`, `batch_size`, `apply_chat_template`, `gen_kwargs`, `include_path`, …
            `model_args` are further arguments of the model class `hf`, such as `max_length`.

    Raises:
        ConfigError: a setting is unknown, not valid, or has no meaning for a model object.
        UnknownNameError: a task does not exist.
    """

    def __init__(self, tasks: Sequence[Any] | str, **settings: Any) -> None:
        known = [f.name for f in fields(RunConfig) if f.name not in _REFUSED]
        for name in settings:
            if name not in known:
                raise ConfigError(
                    f"{name!r} is not a setting of a live evaluation.{suggestion(name, known)} "
                    f"Settings are: {', '.join(known)}."
                )
        self.run = RunConfig(model="hf", tasks=tasks, **settings)
        if given := _OBJECTS & set(self.run.model_args):
            raise ConfigError(
                f"model_args: {', '.join(sorted(given))} cannot be set, because the model and the "
                "tokenizer are passed as objects. Remove it."
            )
        self._stages = Stages()
        manager = TaskManager(include_path=self.run.include_path, metadata=self.run.task_metadata)
        with self._stages("load_tasks"), mirror_at(self.run.data_dir):
            loaded = load_tasks(self.run, manager)
            self._tasks, self._groups = loaded["tasks"], loaded["groups"]
            check_run(self.run, self._tasks)
            check_groups(self._groups, self._tasks)
        self._lm: LiveModel | None = None
        self._given: tuple[Any, Any] = (None, None)
        self._built: BuiltRequests | None = None

    def evaluate(self, model: Any, tokenizer: Any) -> EvalResults | None:
        """Evaluates the model as it is now; see `evaluate_live`."""
        from lm_eval.models.huggingface.model_state import random_state_restored

        started, stages = time.time(), self._stages
        self._stages = Stages()
        with random_state_restored(), exits_as_errors():
            with stages("load_model"):
                lm = self._model_of(model, tokenizer)
            run = replace(self.run, model=lm)
            seed_generators(run.seed)
            with stages("build_requests"):
                self._built = self._built or build_all(run, lm, self._tasks)
                for task in self._tasks.values():
                    for request in task.instances:
                        request.forget_answers()
            try:
                results = evaluate_tasks(
                    run,
                    lm,
                    self._tasks,
                    self._groups,
                    stages=stages,
                    seed=run.seed.torch,
                    started=started,
                    built=self._built,
                )
            except EvalError as error:
                if error.answers is not None:  # scoring failed, which only the first process does
                    from_first(str(error))
                raise
            if problem := from_first(None):  # else the next step would wait for the first process
                raise EvalError(f"process 0: {problem}")
            return results

    def _model_of(self, model: Any, tokenizer: Any) -> LiveModel:
        """Returns the model that answers requests: the one of the last call, or a new one."""
        from lm_eval.models.huggingface.live import live_model

        if self._lm is None or self._given[0] is not model or self._given[1] is not tokenizer:
            if self._given[1] is not tokenizer:
                self._discard_requests()  # prompts may depend on the chat template
            sizes = {"batch_size": self.run.batch_size, "max_batch_size": self.run.max_batch_size}
            given = {name: value for name, value in sizes.items() if value is not None}
            self._lm = live_model(model, tokenizer, **{**given, **self.run.model_args})
            self._given = (model, tokenizer)
        return self._lm

    def _discard_requests(self) -> None:
        self._built = None
        for task in self._tasks.values():
            task.set_requests(None)
            task.set_fewshot_seed(self.run.seed.fewshot)


def evaluate_live(
    model: Any, tokenizer: Any, tasks: LiveTasks | Sequence[Any] | str, **settings: Any
) -> EvalResults | None:
    """Evaluates a model in the middle of its training and returns the results.

    The model is used as it is, without a copy of its weights. Training continues as if it had not
    been evaluated: training mode, random generators and tokenizer are left as they were. If several
    processes train together (`torch.distributed`), all of them must call this function; they share
    the requests.

    Example::

        results = lm_eval.evaluate_live(model, tokenizer, ["demo_choice"], limit=100)

    Args:
        model: the model, a transformers model on its device. If its weights are sharded (FSDP,
            ZeRO-3), as it is wrapped for that; otherwise with or without a wrapper.
        tokenizer: its tokenizer.
        tasks: names of tasks; or a `LiveTasks` object, whose requests are built once and reused at
            every call.
        settings: settings of the evaluation, if `tasks` are names; see `LiveTasks`.

    Returns:
        The results, as `simple_evaluate` returns them; None in processes other than the first.

    Raises:
        EvalError: an evaluation failed, in all processes. The model is left as it was.
    """
    if not isinstance(tasks, LiveTasks):
        tasks = LiveTasks(tasks, **settings)
    elif settings:
        raise ConfigError(
            f"{', '.join(settings)}: pass settings to LiveTasks, which has built its requests "
            "with its own."
        )
    return tasks.evaluate(model, tokenizer)


def flat_scores(results: Mapping[str, Any], prefix: str = "eval/") -> dict[str, float]:
    """Returns the scores of results by name, as experiment trackers take them.

    Names are `eval/TASK/METRIC` and `eval/TASK/METRIC_stderr`; a filter pipeline other than `none`
    is added to the metric.
    """
    found: dict[str, float] = {}
    for row in score_rows(results):
        pipeline = "" if row.filter == "none" else f",{row.filter}"
        found[f"{prefix}{row.name}/{row.metric}{pipeline}"] = row.value
        if row.stderr is not None:
            found[f"{prefix}{row.name}/{row.metric}_stderr{pipeline}"] = row.stderr
    return found
