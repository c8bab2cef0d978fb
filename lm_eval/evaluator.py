"""The evaluation pipeline: from task names to tasks, requests, answers, scores and results."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from lm_eval.api.group import Group
from lm_eval.api.model import LM
from lm_eval.api.task import Task
from lm_eval.code_scoring import code_session
from lm_eval.config.run import RunConfig, Seeds, absolute_path
from lm_eval.contamination.coverage import Decontamination
from lm_eval.contamination.findings import read_findings
from lm_eval.data import mirror_at
from lm_eval.defaults import (
    DEFAULT_BOOTSTRAP_ITERS,
    DEFAULT_MAX_FAILED,
    DEFAULT_OTHER_SEED,
    DEFAULT_RANDOM_SEED,
)
from lm_eval.engine.answer import answer
from lm_eval.engine.choose_executor import executor_for
from lm_eval.engine.gc_pause import full_gc_postponed
from lm_eval.engine.keys import forget_digests, set_digests
from lm_eval.engine.repeats import repeated
from lm_eval.engine.stages import Stages
from lm_eval.engine.threads import numpy_on_one_thread
from lm_eval.engine.unstored import UnstoredAnswers
from lm_eval.errors import EvalError, describe_cause, raise_interrupt
from lm_eval.integrity import check_integrity
from lm_eval.interim import InterimResults
from lm_eval.launch import launched_rank
from lm_eval.logs import setup_logging
from lm_eval.models.create import (
    check_before_loading,
    check_model,
    close_model,
    create_model,
    length_check,
    never_measured,
)
from lm_eval.models.identity import model_identity
from lm_eval.models.seeding import seed_generators
from lm_eval.models.thinking import check_room
from lm_eval.preparation import (
    build_requests,
    check_fit,
    check_groups,
    check_lengths,
    check_run,
    check_types,
    chosen_documents,
    count_tokens,
    generation_settings,
    load_tasks,
    make_context,
)
from lm_eval.redaction import without_secrets
from lm_eval.results.assemble import assemble
from lm_eval.results.clean_scores import contaminated_documents, with_clean_scores
from lm_eval.results.provenance import describe_reproduction, describe_run, describe_usage
from lm_eval.results.samples import requests_with_answers
from lm_eval.results.schema import EvalResults
from lm_eval.results.summarize import UncertaintyConfig, summarize
from lm_eval.runs.consent import Consent
from lm_eval.runs.hashes import task_hashes
from lm_eval.runs.observer import RunObserver
from lm_eval.runs.run import Run, open_run
from lm_eval.runs.stored import run_to_resume
from lm_eval.scoring import answered, score, third_party_error, unanswered_documents
from lm_eval.tasks.manager import TaskDict, TaskManager

logger = logging.getLogger(__name__)


def run_evaluation(
    run: RunConfig,
    task_manager: TaskManager | None = None,
    observers: Sequence[RunObserver] = (),
    lm: LM | None = None,
) -> EvalResults | None:
    """Runs one evaluation and returns its results; saves them if the run has an `output_path`.

    With an `output_path`, every answer is stored in the run folder as soon as the model gives it,
    and requests whose answers are already stored there are not sent to the model again.

    Args:
        run: the settings of the run.
        task_manager: finds the tasks; by default one that searches `run.include_path`.
        observers: called when the run starts, when it is scored and when its results are saved.
        lm: the model, if it was created before from the run's `model` and `model_args`; several
            runs can share it.

    Returns:
        The results; None in a process that does not collect answers (a rank other than 0). Raises
        an `EvalError` for anything that the user can fix, such as an unknown task.
    """
    observers = observers if launched_rank() == 0 else ()
    with open_run(run) as active_run, run.in_environment():
        for observer in observers:
            observer.opened(run)
        with exits_as_errors():
            results = _evaluate_run(run, active_run, task_manager, lm)
        if results is None or not active_run.writes:
            return results
        try:
            written = active_run.save(results)
        finally:  # if they cannot be written, they are at least shown
            for observer in observers:
                observer.scored(run, results)
    for observer in observers:
        observer.saved(run, results, written)
    return results


def _evaluate_run(
    run: RunConfig, active_run: Run, task_manager: TaskManager | None, lm: LM | None = None
) -> EvalResults | None:
    """Loads tasks and model, and evaluates; returns as `run_evaluation` does.

    Checks that take little time come first, so that errors are found before the model is loaded.
    """
    started, stages = time.time(), Stages()
    seed_generators(run.seed)
    findings = None if run.decontaminate is None else read_findings(run.decontaminate)
    check_model(run)
    manager = task_manager or TaskManager(include_path=run.include_path, metadata=run.task_metadata)
    with stages("load_tasks"), mirror_at(run.data_dir), full_gc_postponed():
        check_types(run, manager, never_measured(run))
        loaded = load_tasks(run, manager)
        tasks, groups = loaded["tasks"], loaded["groups"]
        check_run(run, tasks)
        check_groups(groups, tasks)
        decontamination = contaminated_documents(run.decontaminate, findings, tasks)
        if run.check_integrity:
            with code_session(run, active_run.verdicts):
                check_integrity(run.task_list, manager, tasks, run.seed.fewshot)
    with ExitStack() as opened:
        with stages("load_model"):
            if lm is None:
                check_before_loading(run)
                with mirror_at(run.data_dir):
                    check_lengths(run, length_check(run), tasks)
                check_room(run.model_args, generation_settings(tasks))
                lm = create_model(run)
                opened.callback(close_model, lm)
        seed_generators(run.seed)
        return evaluate_tasks(
            run, lm, tasks, groups, active_run, stages, run.seed.torch, started, decontamination
        )


@dataclass(frozen=True)
class BuiltRequests:
    """What is known about the requests of an evaluation, which are in its tasks, once built.

    Attributes:
        chosen: the numbers of the evaluated documents by task (`chosen_documents`).
        data: a description of each task's data.
        hashes: the hashes of each task, its data and its prompts.
    """

    chosen: Mapping[str, list[int]]
    data: dict[str, dict[str, Any]]
    hashes: dict[str, dict[str, str]]


def build_all(
    run: RunConfig, lm: LM, tasks: Mapping[str, Task], stored: bool = True
) -> BuiltRequests:
    """Builds the requests of all tasks, and describes them.

    The model formats prompts, if the run applies a chat template. `stored` is whether their answers
    are stored; if not, the hashes under which they would be are not kept.
    """
    chosen = chosen_documents(run, tasks)
    with mirror_at(run.data_dir), full_gc_postponed():
        for name, task in tasks.items():
            build_requests(run, lm, name, task, chosen.get(name))
        data = {name: task.describe_data() for name, task in sorted(tasks.items())}
        hashes = {}
        for name, task in sorted(tasks.items()):
            set_digests(task.instances)
            hashes[name] = task_hashes(task, data[name])
            if not stored:
                forget_digests(task.instances)
    return BuiltRequests(chosen, data, hashes)


@numpy_on_one_thread()
def evaluate_tasks(
    run: RunConfig,
    lm: LM,
    tasks: Mapping[str, Task],
    groups: Mapping[str, Group],
    active_run: Run | None = None,
    stages: Stages | None = None,
    seed: int | None = None,
    started: float | None = None,
    decontamination: Decontamination | None = None,
    built: BuiltRequests | None = None,
) -> EvalResults | None:
    """Evaluates a loaded model on loaded tasks and returns the results.

    Args:
        run: the settings of the run.
        lm: the model.
        tasks: the tasks by name.
        groups: the groups by name, whose scores are aggregated.
        active_run: the opened run with its folder; by default one that saves nothing.
        stages: measures how long each stage takes; by default a new one.
        seed: the seed for models that sample their answers.
        started: when the run started (seconds since the epoch). If given, the results contain a
            description of the run and its machine.
        decontamination: the contaminated documents; if given, the results contain clean scores.
        built: what `build_all` returned, if the tasks have their requests already, without answers.

    Returns:
        The results; None in a process that does not collect answers (a rank other than 0).
        Documents with a failed request are left out; raises `ModelError` if none remains.
    """
    stages, active_run = stages or Stages(), active_run or Run(run)
    check_fit(run, lm, tasks)
    context, executor = make_context(run, lm, seed), executor_for(run, lm)
    by_name = isinstance(run.model, str)
    identity = model_identity(run, lm) if by_name or active_run.store is not None else ""
    with executor.running(context), active_run.open_store(identity) as store:
        with stages("build_requests"):
            built = built or build_all(run, lm, tasks, stored=store is not None)
            for task in tasks.values():
                count_tokens(lm, task)
        chosen, data, hashes = built.chosen, built.data, built.hashes
        uncertainty = UncertaintyConfig(run.bootstrap_iters or 0, run.confidence, run.cluster)
        on_stored = None
        if active_run.folder is not None and store is not None and executor.collects:
            active_run.begin(identity, context, tasks, hashes)
            if executor.sees_every_answer:
                interim = InterimResults(active_run, store, tasks, chosen, uncertainty, context)
                on_stored = interim.on_stored
        requests = [request for task in tasks.values() for request in task.instances]
        unstored = UnstoredAnswers() if store is None else None
        with stages("answer"), active_run.keeping(unstored, lambda: model_identity(run, lm)):
            done = answer(
                executor,
                requests,
                store,
                run.seed.model_seeds,
                on_stored,
                run.fresh,
                run.max_failed,
                unstored,
            )
        context.usage.failed.update(done.failed)
        statistics = describe_usage(executor, context.usage, None if store is None else done.sent)
    if statistics is None:
        return None  # one of several processes, and not the one that collects the answers
    with (
        stages("score"),
        full_gc_postponed(),
        attach_answers_to_errors(tasks, chosen),
        code_session(run, active_run.verdicts) as programs,
    ):
        scores = {
            name: score(task, chosen.get(name), context.think_end_token, run.metrics is not None)
            for name, task in answered(tasks).items()
        }
        summary = with_clean_scores(
            summarize(scores, groups, uncertainty, run.log_samples),
            scores,
            groups,
            uncertainty,
            decontamination,
        )
    statistics["timings"] = stages.seconds
    if programs is not None and programs.isolation:
        statistics["isolation"], statistics["programs"] = programs.isolation, programs.describe()
    if unanswered := unanswered_documents(tasks, chosen):
        statistics["partial"], statistics["unanswered_documents"] = True, unanswered
    if store is not None:
        statistics["answers"]["requests"] = len(repeated(requests))
    return assemble(
        summary,
        inputs={"datasets": data, "hashes": hashes},
        statistics=statistics,
        description=None if started is None else describe_run(run, lm, started),
        reproduction=describe_reproduction(run, identity) if by_name else None,
    )


@contextmanager
def attach_answers_to_errors(
    tasks: Mapping[str, Task], chosen: Mapping[str, Sequence[int]]
) -> Iterator[None]:
    """Attaches the answers of all tasks to an `EvalError` raised inside the `with` block.

    Any other error becomes an `EvalError`; the user's interruption passes unchanged. If scoring
    fails, the caller can save the answers (`EvalError.answers`). `chosen` are the numbers of
    the evaluated documents of each task; a task that is not in it was evaluated from the first one
    on.
    """
    try:
        yield
    except BaseException as error:
        answers = {name: requests_with_answers(t, chosen.get(name)) for name, t in tasks.items()}
        if isinstance(error, EvalError):
            raise error.with_answers(answers) from error.__cause__
        named = third_party_error("computing the results failed", error)
        raise named.with_answers(answers) from error


@contextmanager
def exits_as_errors() -> Iterator[None]:
    """Turns `SystemExit` and the like, raised by code of tasks or models, into an `EvalError`.

    The user's own interruption passes.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        raise_interrupt(error)
        raise EvalError(
            f"code of a task or model ended the program ({describe_cause(error)}). It must raise "
            "another exception instead."
        ) from error


# -- entry points that the published harness has too ------------------------------------------


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
    bootstrap_iters: int | None = DEFAULT_BOOTSTRAP_ITERS,
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
    max_failed: float | None = DEFAULT_MAX_FAILED,
    decontaminate: str | None = None,
    require_isolation: str | None = None,
    executor: str | None = None,
    workers: int | str | None = None,
    gpus_per_worker: float | None = None,
    cpus_per_worker: float | None = None,
    ray_address: str | None = None,
    max_restarts: int | None = None,
    repeats: int | None = None,
    metrics: Sequence[str] | str | None = None,
) -> EvalResults | None:
    """Evaluates a model on tasks and returns the results.

    Example::

        results = simple_evaluate("hf", model_args="pretrained=gpt2", tasks=["arc_easy"], limit=100)
        print(results["results"]["arc_easy"]["acc,none"])

    Args:
        model: the name of a model class, or an `LM` object.
        model_args: its constructor arguments: a dictionary, or `"key=value,key=value"`.
        tasks: names of tasks, groups and tags, task files, or task configurations; at least one.
        num_fewshot: the number of few-shot examples; None for what each task sets.
        batch_size: the batch size, or "auto".
        max_batch_size: the largest batch size that "auto" tries.
        device: the device of the model, for example "cuda:0".
        use_cache: path of an answer store that several runs share.
        cache_requests: accepted and ignored, as are `rewrite_requests_cache` and
            `delete_requests_cache`: building requests is faster here than reading them from disk.
        limit: evaluate only the first `limit` documents of each task; below 1, that share.
        samples: indices of the documents to evaluate, from 0, by task name.
        bootstrap_iters: number of bootstrap replicates; 0 or None for no standard errors at all.
        check_integrity: whether to check the tasks before the model is loaded.
        write_out: whether to log the first prompt of each task.
        log_samples: whether the results contain every document with its answers and scores.
        evaluation_tracker: a tracker of the published harness, which gets the settings of the run.
        system_instruction: text at the start of every prompt.
        apply_chat_template: whether to format prompts with the model's chat template, or the name
            of the template.
        fewshot_as_multiturn: whether few-shot examples become separate chat messages; only with
            `apply_chat_template`.
        gen_kwargs: generation settings that override those of the tasks.
        task_manager: finds the tasks; by default one that finds the tasks of this package.
        verbosity: the level of log messages, for example "DEBUG".
        predict_only: whether to collect answers without scoring them.
        random_seed: the seed of `random`; None to leave it as it is.
        numpy_random_seed: the seed of numpy.
        torch_random_seed: the seed of torch, and of models that sample their answers.
        fewshot_random_seed: the seed with which few-shot examples are drawn.
        confirm_run_unsafe_code: confirms that tasks may run code that the model writes.
        metadata: values for tasks that read them, in addition to `model_args`.
        data_dir: a folder with a mirror of the datasets, used instead of the hub (docs/data.md).
        confidence: the level of confidence intervals, for example 0.95; None for no intervals.
        cluster: the column whose value identifies documents of one cluster, for clustered standard
            errors.
        sample: evaluate a random sample of this many documents of each task; below 1, this share.
        sample_seed: the seed of that sample.
        output_path: folder for the run, as on the command line (docs/runs.md). Every answer is
            stored as soon as the model gives it, the same call resumes after a crash, and results
            and sample logs are written at the end.
        fresh: whether to send all requests again, in spite of stored answers.
        max_failed: how many requests the model may leave unanswered (`Failure`) before the run is
            stopped with a `ModelError`; below 1, which share of them. None for any number.
        decontaminate: path of a findings file (docs/contamination.md). The results then also
            contain the scores over the documents that were not found in the corpus.
        require_isolation: the isolation that programs of code tasks need at least, for example
            "landlock+seccomp" (docs/code.md).
        executor: where the model runs: "in_process" (the default), "processes" for several
            processes on this machine, or "ray" for a Ray cluster (docs/clusters.md).
        workers: the number of processes that hold the model, or "auto".
        gpus_per_worker: the number of GPUs of each; a part of 1 if several share a GPU.
        cpus_per_worker: the number of processors of each.
        ray_address: the address of the Ray cluster: "auto" or "ray://HOST:PORT"; by default the
            one on this machine, which is started if there is none.
        max_restarts: how often in a row a worker may end without an answer before it is given up.
        repeats: how often each document of a generating task is answered; None for what each task
            sets (docs/reasoning.md).
        metrics: report only these metrics, such as `["avg@8", "maj@8", "pass@4"]`; None for those
            of the tasks.

    Returns:
        The results (docs/results.md); None in a process that does not collect answers (a rank other
        than 0). Raises an `EvalError` for anything that the user can fix, such as an unknown task.
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
        repeats=repeats,
        metrics=metrics,
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
        max_failed=max_failed,
        fresh=fresh,
        decontaminate=decontaminate,
        require_isolation=require_isolation,
        executor=executor,
        workers=workers,
        gpus_per_worker=gpus_per_worker,
        cpus_per_worker=cpus_per_worker,
        ray_address=ray_address,
        max_restarts=max_restarts,
    )
    results = run_evaluation(run, task_manager)
    if evaluation_tracker is not None and results is not None:
        evaluation_tracker.general_config_tracker.log_experiment_args(
            model_source=results["model_source"],
            model_args=without_secrets(run.model_args),
            system_instruction=system_instruction,
            chat_template=results["chat_template"],
            fewshot_as_multiturn=bool(run.fewshot_as_multiturn),
        )
    return results


def resume(
    folder: str | Path,
    *,
    run: str | None = None,
    data_dir: str | None = None,
    observers: Sequence[RunObserver] = (),
    model: str | None = None,
    model_args: str | dict[str, Any] | None = None,
    include_path: str | Sequence[str] | None = None,
    use_cache: str | None = None,
    trust_remote_code: bool = False,
    confirm_run_unsafe_code: bool = False,
    executor: Mapping[str, Any] | None = None,
) -> EvalResults | None:
    """Resumes an interrupted run, with the settings recorded in its folder; returns the results.

    A run that was made by someone else uses no code, server or file that its record names, unless
    the arguments below name it too. Returns None in a process that does not collect answers (a rank
    other than 0). Raises `OutputError` if there is no run, its model was passed as an object, or a
    secret is missing, `ForeignRunError` with a list of what the arguments would have to allow, and
    `WhichRunError` if several runs are possible.

    Args:
        folder: the `output_path` of the run, or the folder of its model inside it.
        run: the id of the run, or its beginning, if there are several. By default the only run, or
            the only unfinished one; the error message lists them.
        data_dir: a mirror of the datasets, if it has moved since.
        observers: called at the stages of the run (`lm_eval.runs.observer`).
        model: the model class, `FILE.py:CLASS`.
        model_args: arguments of the model that replace the recorded ones, and its secrets, which
            are not recorded.
        include_path: folders with tasks, used instead of the recorded ones.
        use_cache: the file with stored answers.
        trust_remote_code: allows code of the model's repository.
        confirm_run_unsafe_code: allows code that the model writes.
        executor: where the model runs now, as settings of a run: `{"executor": "processes",
            "workers": 2}`. None for where it ran before.
    """
    stored = run_to_resume(Path(folder).absolute(), run)
    given = RunConfig(model_args=model_args, include_path=include_path)
    consent = Consent(
        trust_remote_code=trust_remote_code,
        confirm_run_unsafe_code=confirm_run_unsafe_code,
        include_path=given.include_folders,
        model=model,
        model_args=given.model_args,
        use_cache=use_cache,
        executor=executor,
    )
    settings = stored.to_resume(consent)
    if data_dir is not None:
        settings = replace(settings, data_dir=absolute_path(data_dir))
    with stored.in_original_directory(with_model=True):
        return run_evaluation(settings, observers=observers)


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
    max_failed: float | None = DEFAULT_MAX_FAILED,
    decontaminate: str | None = None,
    require_isolation: str | None = None,
) -> EvalResults | None:
    """Evaluates a model on loaded tasks and returns the results.

    Nothing is saved. Returns None in a process that does not collect answers (a rank other than 0).

    Args:
        lm: the model.
        task_dict: the tasks, as `TaskManager.load` or `get_task_dict` returns them.
        cache_requests: accepted and ignored, as are `rewrite_requests_cache` and `verbosity`.

    The other arguments are those of `simple_evaluate`.
    """
    run = RunConfig(
        model=lm,
        limit=limit,
        samples=samples,
        bootstrap_iters=bootstrap_iters,
        write_out=write_out,
        log_samples=log_samples,
        system_instruction=system_instruction,
        apply_chat_template=apply_chat_template,
        fewshot_as_multiturn=fewshot_as_multiturn and bool(apply_chat_template),
        confirm_run_unsafe_code=confirm_run_unsafe_code,
        confidence=confidence,
        cluster=cluster,
        max_failed=max_failed,
        decontaminate=decontaminate,
        require_isolation=require_isolation,
    )
    tasks, groups = flatten(task_dict)
    check_run(run, tasks)
    findings = None if decontaminate is None else read_findings(decontaminate)
    decontamination = contaminated_documents(decontaminate, findings, tasks)
    with exits_as_errors():
        return evaluate_tasks(run, lm, tasks, groups, decontamination=decontamination)


def flatten(task_dict: Mapping[Any, Any]) -> tuple[dict[str, Task], dict[str, Group]]:
    """Returns two dictionaries, of tasks and of groups, by name.

    `task_dict` is what `TaskManager.load` returns, or the nested dictionary of the published
    `get_task_dict`, whose keys may be groups. In the latter, tasks are named by their keys.
    """
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
