"""The whole pipeline on one page: names, tasks, requests, answers, scores, results."""

from __future__ import annotations

import json
import logging
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from lm_eval.api.context import RunContext
from lm_eval.api.group import Group
from lm_eval.api.model import LM
from lm_eval.api.task import Task
from lm_eval.config.run import RunConfig, Seeds
from lm_eval.data import mirror_at
from lm_eval.defaults import DEFAULT_BOOTSTRAP_ITERS, DEFAULT_OTHER_SEED, DEFAULT_RANDOM_SEED
from lm_eval.engine.answer import answer
from lm_eval.engine.keys import note_digests, prompts_hash
from lm_eval.engine.places import places_of
from lm_eval.engine.stages import Stages
from lm_eval.engine.store import AnswerStore
from lm_eval.errors import EvalError
from lm_eval.integrity import check_integrity
from lm_eval.interim import Interim
from lm_eval.logs import setup_logging
from lm_eval.models.create import check_available, create_model
from lm_eval.models.identity import model_identity
from lm_eval.preparation import (
    build_requests,
    check_fit,
    chosen_documents,
    count_tokens,
    load_tasks,
    make_context,
)
from lm_eval.results.provenance import describe_run, describe_usage
from lm_eval.results.run_folder import ANSWERS, RunFolder
from lm_eval.results.samples import answers_of
from lm_eval.results.schema import EvalResults
from lm_eval.results.serialise import hash_json
from lm_eval.results.summarise import Doubt, summarise
from lm_eval.scoring import score
from lm_eval.tasks.manager import TaskDict, TaskManager

logger = logging.getLogger(__name__)


def run_evaluation(
    run: RunConfig, task_manager: TaskManager | None = None, folder: RunFolder | None = None
) -> EvalResults | None:
    """One evaluation from its settings. Everything that can fail cheaply does so first.

    With a folder every answer is kept there the moment it exists, and what an earlier run has left
    there is not asked again.
    """
    started, stages = time.time(), Stages()
    check_available(run.model)
    plant_seeds(run.seed)
    manager = task_manager or TaskManager(
        include_path=run.include_path, metadata=run.metadata_of_tasks
    )
    with stages("load_tasks"), mirror_at(run.data_dir):
        loaded = load_tasks(run, manager)
        if run.check_integrity:
            check_integrity(run.task_list, manager, loaded["tasks"], run.seed.fewshot)
    with stages("load_model"):
        lm = create_model(run)
    plant_seeds(run.seed)
    with open_store(run, lm, folder) as store:
        results = evaluate_tasks(
            run, lm, loaded["tasks"], loaded["groups"], store, folder, stages, run.seed.torch
        )
    if results is not None:
        results.update(describe_run(run, lm, started))
        if isinstance(run.model, str):
            identity = model_identity(run, lm) if store is None else store.identity
            results["settings"] = run.settings(secrets=False)
            results["directory"] = str(Path.cwd())
            results["model_identity"] = json.loads(identity)
    return results


def evaluate_tasks(
    run: RunConfig,
    lm: LM,
    tasks: Mapping[str, Task],
    groups: Mapping[str, Group],
    store: AnswerStore | None = None,
    folder: RunFolder | None = None,
    stages: Stages | None = None,
    seed: int | None = None,
) -> EvalResults | None:
    """Requests, answers, scores, results."""
    stages = stages or Stages()
    check_fit(run, lm, tasks)
    context = make_context(run, lm, seed)
    lm.set_run_context(context)
    try:
        return _evaluate(run, lm, tasks, groups, store, folder, stages, context)
    finally:
        lm.set_run_context(None)


def _evaluate(
    run: RunConfig,
    lm: LM,
    tasks: Mapping[str, Task],
    groups: Mapping[str, Group],
    store: AnswerStore | None,
    folder: RunFolder | None,
    stages: Stages,
    context: RunContext,
) -> EvalResults | None:
    chosen = chosen_documents(run, tasks)
    with stages("build_requests"):
        for name, task in tasks.items():
            build_requests(run, lm, name, task, chosen.get(name))
            note_digests(task.instances)
            count_tokens(lm, task)
        data = {name: task.describe_data() for name, task in sorted(tasks.items())}
        hashes = {name: task_hashes(task, data[name]) for name, task in sorted(tasks.items())}
    doubt = Doubt(run.bootstrap_iters, run.confidence, run.cluster)
    thinking, seed = context.think_end_token, run.seed.of_model
    if folder is not None and store is not None and getattr(lm, "rank", 0) == 0:
        state = {"model": store.identity, "think_end_token": thinking, "tasks": hashes}
        folder.begin(run.settings(), state)
        folder.keep_plan({name: places_of(t.instances, seed) for name, t in tasks.items()})
        if len(tasks) > 1 and getattr(lm, "world_size", 1) == 1:
            write = folder.write_partial
            store.listener = Interim(tasks, chosen, store, seed, write, doubt, thinking).note
    requests = [request for task in tasks.values() for request in task.instances]
    with stages("answer"):
        answer(lm, requests, store, seed)
    used = describe_usage(lm, context.usage, None if store is None else store.written)
    if used is None or getattr(lm, "rank", 0) != 0:
        return None  # one of several processes, and not the one that collects
    with stages("score"), keeping_answers(tasks, chosen):
        scores = {name: score(t, chosen.get(name), thinking) for name, t in tasks.items()}
        results = summarise(scores, groups, doubt, run.log_samples)
    results["datasets"] = data
    results["hashes"] = hashes
    results["timings"] = stages.seconds
    results.update(used)
    if store is not None:
        results["answers"]["requests"] = len(requests)
    return results


@contextmanager
def keeping_answers(
    tasks: Mapping[str, Task], chosen: Mapping[str, Sequence[int]]
) -> Iterator[None]:
    """Hand what the model has answered along with an error in scoring it."""
    try:
        yield
    except EvalError as error:
        error.answers = {name: answers_of(t, chosen.get(name)) for name, t in tasks.items()}
        raise


@contextmanager
def open_store(run: RunConfig, lm: LM, folder: RunFolder | None) -> Iterator[AnswerStore | None]:
    """The store a run keeps its answers in: the file it names, or its folder's own."""
    path = run.use_cache or (folder.answers if folder is not None else None)
    if path is None:
        yield None
        return
    path, identity = Path(path), model_identity(run, lm)
    first, several = getattr(lm, "rank", 0) == 0, getattr(lm, "world_size", 1) > 1
    if run.fresh and not first:
        lm.barrier()  # the first process forgets before the others read
    with AnswerStore(path / ANSWERS if path.is_dir() else path, identity) as store:
        if run.fresh and first:
            store.forget()
            if several:
                lm.barrier()
        yield store


def task_hashes(task: Task, data: Mapping[str, Any]) -> dict[str, str]:
    """By which a later run knows whether it asks the same: configuration, data, prompts, and which
    documents the prompts are of.
    """
    return {
        "config": config_hash(task),
        # The rows alone: where they came from makes no difference.
        "data": hash_json(data.get("splits", data)),
        "prompts": prompts_hash(task.instances),
        "documents": hash_json(sorted({request.doc_id for request in task.instances})),
    }


def config_hash(task: Task) -> str:
    """A hash of all that a task's file says, and what the run has changed about it."""
    return hash_json(task.dump_config())


def plant_seeds(seeds: Seeds) -> None:
    """Seed the generators that are there; torch only if a model has brought it."""
    if seeds.random is not None:
        random.seed(seeds.random)
    if seeds.numpy is not None:
        np.random.seed(seeds.numpy)
    if seeds.torch is not None and "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seeds.torch)


# -- the published entry points ---------------------------------------------------------------


def simple_evaluate(
    model: str | LM,
    model_args: str | dict[str, Any] | None = None,
    tasks: list[Any] | str | None = None,
    num_fewshot: int | None = None,
    batch_size: int | str | None = None,
    max_batch_size: int | None = None,
    device: str | None = None,
    use_cache: str | None = None,
    cache_requests: bool = False,
    rewrite_requests_cache: bool = False,
    delete_requests_cache: bool = False,
    limit: float | None = None,
    samples: dict[str, list[int]] | None = None,
    bootstrap_iters: int = DEFAULT_BOOTSTRAP_ITERS,
    check_integrity: bool = False,
    write_out: bool = False,
    log_samples: bool = True,
    evaluation_tracker: Any = None,
    system_instruction: str | None = None,
    apply_chat_template: bool | str = False,
    fewshot_as_multiturn: bool = True,
    gen_kwargs: str | dict[str, Any] | None = None,
    task_manager: TaskManager | None = None,
    verbosity: str | None = None,
    predict_only: bool = False,
    random_seed: int | None = DEFAULT_RANDOM_SEED,
    numpy_random_seed: int | None = DEFAULT_OTHER_SEED,
    torch_random_seed: int | None = DEFAULT_OTHER_SEED,
    fewshot_random_seed: int | None = DEFAULT_OTHER_SEED,
    confirm_run_unsafe_code: bool = False,
    metadata: dict[str, Any] | None = None,
    data_dir: str | None = None,
    confidence: float | None = None,
    cluster: str | None = None,
    sample: float | None = None,
    sample_seed: int = DEFAULT_OTHER_SEED,
) -> EvalResults | None:
    """Evaluate a model, by name or ready made, on tasks by name. Returns the results.

    The request caches of the published harness are accepted and have nothing to do: building
    requests costs less here than reading them back would. `data_dir` is a mirror that answers for
    the hub (docs/data.md).
    """
    if verbosity is not None:
        setup_logging(verbosity)
    run = RunConfig(
        model=model,
        model_args=model_args,
        tasks=tasks,
        num_fewshot=num_fewshot,
        batch_size=batch_size,
        max_batch_size=max_batch_size,
        device=device,
        use_cache=use_cache,
        limit=limit,
        samples=samples,
        sample=sample,
        sample_seed=sample_seed,
        bootstrap_iters=bootstrap_iters,
        check_integrity=check_integrity,
        write_out=write_out,
        log_samples=log_samples,
        system_instruction=system_instruction,
        apply_chat_template=apply_chat_template,
        fewshot_as_multiturn=fewshot_as_multiturn and bool(apply_chat_template),
        gen_kwargs=gen_kwargs,
        predict_only=predict_only,
        seed=Seeds(random_seed, numpy_random_seed, torch_random_seed, fewshot_random_seed),
        confirm_run_unsafe_code=confirm_run_unsafe_code,
        metadata=metadata,
        data_dir=data_dir,
        confidence=confidence,
        cluster=cluster,
    )
    results = run_evaluation(run, task_manager)
    if evaluation_tracker is not None and results is not None:
        evaluation_tracker.general_config_tracker.log_experiment_args(
            model_source=results["model_source"],
            model_args=run.model_args,
            system_instruction=system_instruction,
            chat_template=results["chat_template"],
            fewshot_as_multiturn=bool(run.fewshot_as_multiturn),
        )
    return results


def evaluate(
    lm: LM,
    task_dict: Mapping[Any, Any],
    limit: float | None = None,
    samples: dict[str, list[int]] | None = None,
    cache_requests: bool = False,
    rewrite_requests_cache: bool = False,
    bootstrap_iters: int | None = DEFAULT_BOOTSTRAP_ITERS,
    write_out: bool = False,
    log_samples: bool = True,
    system_instruction: str | None = None,
    apply_chat_template: bool | str = False,
    fewshot_as_multiturn: bool = False,
    verbosity: str = "INFO",
    confirm_run_unsafe_code: bool = False,
    confidence: float | None = None,
    cluster: str | None = None,
) -> EvalResults | None:
    """Evaluate a model on loaded tasks: what `TaskManager.load` or `get_task_dict` gave."""
    run = RunConfig(
        model=lm,
        limit=limit,
        samples=samples,
        bootstrap_iters=bootstrap_iters or 0,
        write_out=write_out,
        log_samples=log_samples,
        system_instruction=system_instruction,
        apply_chat_template=apply_chat_template,
        fewshot_as_multiturn=fewshot_as_multiturn and bool(apply_chat_template),
        confirm_run_unsafe_code=confirm_run_unsafe_code,
        confidence=confidence,
        cluster=cluster,
    )
    tasks, groups = flatten(task_dict)
    return evaluate_tasks(run, lm, tasks, groups)


def flatten(task_dict: Mapping[Any, Any]) -> tuple[dict[str, Task], dict[str, Group]]:
    """Tasks and groups by name, from the flat form or the older nested one."""
    if "tasks" in task_dict and not isinstance(task_dict["tasks"], Task):
        loaded = cast("TaskDict", task_dict)
        return loaded["tasks"], loaded.get("groups", {})
    tasks: dict[str, Task] = {}
    groups: dict[str, Group] = {}
    for key, value in task_dict.items():
        if isinstance(key, Group):
            groups[key.name] = key
        if isinstance(value, Mapping):
            inner_tasks, inner_groups = flatten(value)
            tasks |= inner_tasks
            groups |= inner_groups
        else:
            tasks[key] = value
    return tasks, groups
