"""Loads what is compared: the scores of every document of a run, and what they depend on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lm_eval.api.group import Group
from lm_eval.api.instance import Instance
from lm_eval.errors import DataError, OutputError
from lm_eval.metrics.aggregations import mean
from lm_eval.rescore import Changes, ScoredAnswers, Source, find_sources, score_documents
from lm_eval.results.find_logs import find_logs
from lm_eval.results.provenance import model_name
from lm_eval.results.samples import document_hash
from lm_eval.results.serialize import hash_json
from lm_eval.results.summarize import clusters_of
from lm_eval.runs.stored import only_run
from lm_eval.scoring import TaskScores

logger = logging.getLogger(__name__)

Key = tuple[str, str]
"""A metric and the filter pipeline it is computed under."""

#: Keys of a task's configuration that do not change what is measured. `metadata` contains the
#: arguments of the model.
_UNIMPORTANT = {"metadata", "task_alias", "tag", "task", "group", "dataset_kwargs"}


@dataclass(frozen=True)
class Scores:
    """The values of one metric under one filter pipeline.

    Attributes:
        values: the value of each document.
        positions: the positions of these documents in `ScoredTask.documents`.
        aggregation: the function that turns values into the score.
        higher_is_better: the direction; None if it is not known.
    """

    values: Sequence[Any]
    positions: Sequence[int]
    aggregation: Callable[..., Any]
    higher_is_better: bool | None


@dataclass(frozen=True)
class ScoredTask:
    """One task of one run.

    Attributes:
        name: the name of the task.
        documents: the numbers of the scored documents in the evaluated split.
        scores: the values by metric and filter pipeline.
        clusters: the cluster of each document; None if documents are independent.
        settings: what the scores depend on besides the model: the version, the number of examples,
            the configuration, and hashes of data and prompts (None where unknown).
        requests: for each document its requests with answers; empty unless they were asked for.
        hashes: for each document a hash of it; empty if `settings` has a hash of the data.
    """

    name: str
    documents: Sequence[int]
    scores: Mapping[Key, Scores]
    clusters: Sequence[Hashable] | None
    settings: Mapping[str, Any]
    requests: Sequence[Sequence[Instance]] = ()
    hashes: Sequence[str] = ()


@dataclass(frozen=True)
class ScoredRun:
    """A run whose documents are scored.

    Attributes:
        label: a short name that is unique among the runs of a comparison.
        path: where it was loaded from.
        model: the name of the model.
        chat_template: the chat template: True, its name, or None without one.
        tasks: the tasks by name.
        groups: the groups by name, for their weights.
    """

    label: str
    path: Path
    model: str
    chat_template: bool | str | None
    tasks: Mapping[str, ScoredTask]
    groups: Mapping[str, Group] = field(default_factory=dict)


def load_runs(
    paths: Sequence[str | Path],
    tasks: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    include_path: Sequence[str] = (),
    data_dir: str | None = None,
    keep_requests: bool = False,
) -> list[ScoredRun]:
    """Returns the runs to compare, each with the tasks that all of them have.

    Args:
        paths: for each run its folder or `output_path` (`PATH#ID` chooses one of several runs), or
            a folder or file of sample logs, also of the published harness.
        tasks: compare only these tasks; names or patterns.
        metrics: load only these metrics.
        include_path: additional folders with tasks.
        data_dir: a mirror of the data.
        keep_requests: whether to keep prompts and answers, to show them.

    Raises:
        OutputError: a path does not exist or contains neither a run nor logs.
        DataError: the runs have no task in common, or no task of a run can be scored.
    """
    settings: dict[str, Any] = {} if data_dir is None else {"data_dir": data_dir}
    wanted = Changes(tasks=tasks, metrics=None, include_path=include_path, settings=settings)
    sources = [_find(path, wanted) for path in paths]
    names = [_task_names(source) for source in sources]
    common = set.intersection(*names)
    if not common:
        listed = "; ".join(
            f"{source.path}: {', '.join(sorted(found)[:8]) or 'none'}"
            for source, found in zip(sources, names, strict=True)
        )
        raise DataError(f"the runs have no task in common, so they cannot be compared ({listed}).")
    for source, found in zip(sources, names, strict=True):
        if left := sorted(found - common):
            logger.warning(
                "%s: %s %s not in every run and left out.",
                source.path,
                ", ".join(left[:8]) + (", …" if len(left) > 8 else ""),
                "is" if len(left) == 1 else "are",
            )
    runs = []
    for source, found in zip(sources, names, strict=True):
        chosen = source if found == common else _with_tasks(source, sorted(common))
        runs.append(_scored_run(chosen, metrics, keep_requests))
    return _labelled(runs)


def _find(path: str | Path, wanted: Changes) -> Source:
    """Returns the one run or set of logs at a path; `PATH#ID` selects a run by its id."""
    text, _, run_id = str(path).partition("#") if not Path(path).exists() else (str(path), "", "")
    sources = find_sources(text, wanted, run_id or None)
    if len(sources) > 1:
        runs = [source.run for source in sources if source.run is not None]
        found = only_run(runs, text)
        return next(source for source in sources if source.run is found)
    return sources[0]


def _task_names(source: Source) -> set[str]:
    """Returns the tasks that a source contains."""
    if source.run is not None:
        names = set(source.run.record.tasks)
    else:
        names = set(find_logs(source.path))
        if not names:
            raise OutputError(f"{source.path}: contains neither a run nor sample logs.")
    if source.wanted.tasks is None:
        return names
    if source.run is not None:
        chosen = [name for one in source.wanted.tasks for name in _matching(source, one)]
        return names & set(chosen) or set(source.wanted.tasks)
    return names & set(source.wanted.tasks)


def _matching(source: Source, name: str) -> list[str]:
    return source.run.record.tasks_matching(name) if source.run is not None else [name]


def _with_tasks(source: Source, tasks: Sequence[str]) -> Source:
    """Returns the source restricted to some tasks."""
    wanted = Changes(
        tasks=tasks,
        include_path=source.wanted.include_path,
        settings=source.wanted.settings,
    )
    return Source(source.path, wanted, source.run)


def _scored_run(source: Source, metrics: Sequence[str] | None, keep_requests: bool) -> ScoredRun:
    """Returns a scored run; tasks without all answers are left out with a warning.

    Raises the first error if no task can be scored.
    """
    try:
        parts = [score_documents(source)]
    except DataError:
        parts, errors = [], []
        for name in sorted(_task_names(source)):
            try:
                parts.append(score_documents(_with_tasks(source, [name])))
            except DataError as error:
                errors.append(error)
                logger.warning("%s is left out: %s", name, error)
        if not parts:
            raise errors[0] from None
    run = parts[0].run
    tasks: dict[str, ScoredTask] = {}
    groups: dict[str, Group] = {}
    for part in parts:
        groups.update(part.groups)
        for name, scored in part.scores.items():
            tasks[name] = _scored_task(name, scored, part, metrics, keep_requests)
    template = run.apply_chat_template or None
    return ScoredRun("", source.path, model_name(run), template, tasks, groups)


def _scored_task(
    name: str,
    scored: TaskScores,
    answers: ScoredAnswers,
    metrics: Sequence[str] | None,
    keep_requests: bool,
) -> ScoredTask:
    """Returns one task without what the comparison does not need."""
    task = scored.task
    aggregations, directions = task.aggregation(), task.higher_is_better()
    scores = {
        (metric, pipeline): Scores(
            column.values,
            column.positions,
            aggregations.get(metric, mean),
            directions.get(metric),
        )
        for (metric, pipeline), column in scored.columns().items()
        if metrics is None or metric in metrics
    }
    shared = clusters_of(scored, answers.run.cluster)
    hashes = answers.hashes.get(name, {})
    config = task.dump_config()
    settings = {
        "version": task.VERSION,
        "num_fewshot": config.get("num_fewshot") or 0,
        "output_type": config.get("output_type"),
        "generation_kwargs": config.get("generation_kwargs"),
        "repeats": config.get("repeats"),
        "data": hashes.get("data"),
        "prompts": hashes.get("prompts"),
        "config": {
            key: hash_json(value) for key, value in config.items() if key not in _UNIMPORTANT
        },
    }
    documents = [] if "data" in hashes else [document_hash(one[0].doc) for one in scored.requests]
    return ScoredTask(
        name,
        scored.doc_ids,
        scores,
        None if shared is None else shared[1],
        settings,
        scored.requests if keep_requests else (),
        documents,
    )


def _labelled(runs: Sequence[ScoredRun]) -> list[ScoredRun]:
    """Returns the runs with labels: the model, or the folder where models have the same name."""
    labels = [Path(run.model).name or run.model for run in runs]
    if len(set(labels)) < len(labels):
        labels = [f"{label} ({run.path.name})" for label, run in zip(labels, runs, strict=True)]
    if len(set(labels)) < len(labels):
        labels = [f"{i + 1}: {label}" for i, label in enumerate(labels)]
    return [replace(run, label=label) for run, label in zip(runs, labels, strict=True)]
