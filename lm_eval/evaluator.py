"""The whole pipeline on one page: names, tasks, requests, answers, scores, results."""

from __future__ import annotations

import logging
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from lm_eval.api.group import Group
from lm_eval.api.model import LM
from lm_eval.api.task import Task
from lm_eval.config.run import RunConfig, Seeds
from lm_eval.data import mirror_at
from lm_eval.defaults import DEFAULT_BOOTSTRAP_ITERS, DEFAULT_OTHER_SEED, DEFAULT_RANDOM_SEED
from lm_eval.engine.answer import answer
from lm_eval.engine.choose_executor import executor_for
from lm_eval.engine.keys import note_digests
from lm_eval.engine.repeats import repeated
from lm_eval.engine.stages import Stages
from lm_eval.engine.threads import numpy_on_one_thread
from lm_eval.errors import EvalError
from lm_eval.integrity import check_integrity
from lm_eval.interim import Interim
from lm_eval.launch import launched_rank
from lm_eval.logs import setup_logging
from lm_eval.models.create import check_before_loading, check_model, create_model
from lm_eval.models.identity import model_identity
from lm_eval.preparation import (
    build_requests,
    check_fit,
    check_run,
    chosen_documents,
    count_tokens,
    load_tasks,
    make_context,
)
from lm_eval.results.assemble import assemble
from lm_eval.results.provenance import describe_reproduction, describe_run, describe_usage
from lm_eval.results.samples import answers_of
from lm_eval.results.schema import EvalResults
from lm_eval.results.summarise import UncertaintyConfig, summarise
from lm_eval.runs.hashes import task_hashes
from lm_eval.runs.observer import RunObserver
from lm_eval.runs.run import Run, open_run
from lm_eval.runs.stored import run_to_resume
from lm_eval.scoring import answered, score
from lm_eval.tasks.manager import TaskDict, TaskManager

logger = logging.getLogger(__name__)


def run_evaluation(
    run: RunConfig,
    task_manager: TaskManager | None = None,
    observers: Sequence[RunObserver] = (),
) -> EvalResults | None:
    """Returns the results of one evaluation, saved where its settings say.

    With an output path every answer is stored in the run's folder as it comes, and what an earlier
    run left there is not asked again. Returns None in a process that does not collect answers.
    """
    observers = observers if launched_rank() == 0 else ()
    with open_run(run) as place, run.in_environment():
        for observer in observers:
            observer.opened(run)
        results = _evaluate_run(run, place, task_manager)
        if results is None or not place.writes:
            return results
        try:
            for observer in observers:
                observer.scored(run, results)
        finally:  # whatever an observer did, the results are saved
            written = place.save(results)
    for observer in observers:
        observer.saved(run, results, written)
    return results


def _evaluate_run(
    run: RunConfig, place: Run, task_manager: TaskManager | None
) -> EvalResults | None:
    """Loads tasks and model, and evaluates. Everything that can fail cheaply does so first."""
    started, stages = time.time(), Stages()
    seed_generators(run.seed)
    check_model(run)
    manager = task_manager or TaskManager(
        include_path=run.include_path, metadata=run.metadata_of_tasks
    )
    with stages("load_tasks"), mirror_at(run.data_dir):
        loaded = load_tasks(run, manager)
        tasks, groups = loaded["tasks"], loaded["groups"]
        check_run(run, tasks)
        if run.check_integrity:
            check_integrity(run.task_list, manager, tasks, run.seed.fewshot)
    with stages("load_model"):
        check_before_loading(run)
        lm = create_model(run)
    seed_generators(run.seed)
    return evaluate_tasks(run, lm, tasks, groups, place, stages, run.seed.torch, started)


@numpy_on_one_thread()
def evaluate_tasks(
    run: RunConfig,
    lm: LM,
    tasks: Mapping[str, Task],
    groups: Mapping[str, Group],
    place: Run | None = None,
    stages: Stages | None = None,
    seed: int | None = None,
    started: float | None = None,
) -> EvalResults | None:
    """Requests, answers, scores, results.

    `seed` is for models that draw samples. The results describe the run if it `started` somewhere.
    """
    stages, place = stages or Stages(), place or Run(run)
    check_fit(run, lm, tasks)
    context, executor = make_context(run, lm, seed), executor_for(run, lm)
    by_name = isinstance(run.model, str)
    identity = model_identity(run, lm) if by_name or place.keeps_answers else ""
    with executor.running(context), place.open_store(identity) as store:
        chosen = chosen_documents(run, tasks)
        with stages("build_requests"):
            for name, task in tasks.items():
                build_requests(run, lm, name, task, chosen.get(name))
                note_digests(task.instances)
                count_tokens(lm, task)
            data = {name: task.describe_data() for name, task in sorted(tasks.items())}
            hashes = {name: task_hashes(task, data[name]) for name, task in sorted(tasks.items())}
        uncertainty = UncertaintyConfig(run.bootstrap_iters, run.confidence, run.cluster)
        interim = None
        if place.folder is not None and store is not None and executor.collects:
            place.begin(identity, context, tasks, hashes)
            if executor.sees_every_answer:
                interim = Interim(place, store, tasks, chosen, uncertainty, context).note
        requests = [request for task in tasks.values() for request in task.instances]
        with stages("answer"):
            done = answer(executor, requests, store, run.seed.of_model, interim, run.fresh)
        context.usage.failed.update(done.failed)
        used = describe_usage(executor, context.usage, None if store is None else done.asked)
    if used is None:
        return None  # one of several processes, and not the one that collects
    with stages("score"), keeping_answers(tasks, chosen):
        scores = {
            name: score(task, chosen.get(name), context.think_end_token)
            for name, task in answered(tasks).items()
        }
        summary = summarise(scores, groups, uncertainty, run.log_samples)
    used["timings"] = stages.seconds
    if store is not None:
        used["answers"]["requests"] = len(repeated(requests))
    return assemble(
        summary,
        inputs={"datasets": data, "hashes": hashes},
        statistics=used,
        description=None if started is None else describe_run(run, lm, started),
        reproduction=describe_reproduction(run, identity) if by_name else None,
    )


@contextmanager
def keeping_answers(
    tasks: Mapping[str, Task], chosen: Mapping[str, Sequence[int]]
) -> Iterator[None]:
    """Adds to an error in scoring what the model has answered."""
    try:
        yield
    except EvalError as error:
        answers = {name: answers_of(t, chosen.get(name)) for name, t in tasks.items()}
        raise error.with_answers(answers) from error.__cause__


def seed_generators(seeds: Seeds) -> None:
    """Seeds the generators that are there; torch only if a model has imported it."""
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
    output_path: str | None = None,
    fresh: bool = False,
) -> EvalResults | None:
    """Evaluate a model, by name or ready made, on tasks by name. Returns the results.

    With `output_path` the run keeps a folder there, as the command line does: every answer is
    stored as it comes, the same call goes on after a crash (`fresh` asks everything again), and
    results and sample logs are written at the end (docs/runs.md).

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
        output_path=output_path,
        fresh=fresh,
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


def resume(
    folder: str | Path, *, run: str | None = None, data_dir: str | None = None
) -> EvalResults | None:
    """Goes on with a run that was cut off, from its folder alone; returns the results.

    Args:
        folder: where its `output_path` pointed, or the folder of its model.
        run: the id of the run, where there are several; the error that asks for it lists them.
        data_dir: a mirror of the data sets, if it lies elsewhere now.
    """
    return resume_run(folder, run, data_dir)


def resume_run(
    folder: str | Path,
    run_id: str | None = None,
    data_dir: str | None = None,
    observers: Sequence[RunObserver] = (),
) -> EvalResults | None:
    """Returns the results of a stored run, after asking what is missing; see `resume`."""
    stored = run_to_resume(Path(folder).absolute(), run_id)
    run = stored.to_resume()
    if data_dir is not None:
        run = replace(run, data_dir=str(Path(data_dir).expanduser().absolute()))
    with stored.where_it_was_run(with_model=True):
        return run_evaluation(run, observers=observers)


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
