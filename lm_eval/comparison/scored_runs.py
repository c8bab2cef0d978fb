"""Loads what is compared: the scores of every document of a run, and what they depend on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lm_eval.api.group import Group
from lm_eval.api.instance import Instance
from lm_eval.comparison.sources import check_different, find_source, task_names, with_tasks
from lm_eval.comparison.task_settings import (
    TaskSettings,
    chat_template,
    recorded_results,
    same_prompts,
    task_settings,
)
from lm_eval.errors import ConfigError, DataError
from lm_eval.metrics.aggregations import mean
from lm_eval.rescore import ScoredAnswers, Source, score_documents
from lm_eval.results.provenance import model_name
from lm_eval.results.samples import document_hash
from lm_eval.results.summarize import clusters_of
from lm_eval.scoring import TaskScores
from lm_eval.stored_requests import Changes, SharedRequests

logger = logging.getLogger(__name__)

Key = tuple[str, str]
"""A metric and the filter pipeline it is computed under."""


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
        settings: what the scores depend on besides the model.
        requests: for each document its requests with answers; empty unless they were asked for.
        hashes: for each document a hash of it; empty if all runs have a hash of the data.
        unanswered: how many documents of the run have no answer yet.
    """

    name: str
    documents: Sequence[int]
    scores: Mapping[Key, Scores]
    clusters: Sequence[Hashable] | None
    settings: TaskSettings
    requests: Sequence[Sequence[Instance]] = ()
    hashes: Sequence[str] = ()
    unanswered: int = 0


@dataclass(frozen=True)
class ScoredRun:
    """A run whose documents are scored.

    Attributes:
        label: a short name that is unique among the runs of a comparison.
        path: where it was loaded from.
        model: the name of the model.
        chat_template: the chat template in words; None without one.
        tasks: the tasks by name.
        groups: the groups by name, for their weights.
    """

    label: str
    path: Path
    model: str
    chat_template: str | None
    tasks: Mapping[str, ScoredTask]
    groups: Mapping[str, Group] = field(default_factory=dict)


def load_runs(
    paths: Sequence[str | Path],
    tasks: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    include_path: Sequence[str] = (),
    data_dir: str | None = None,
    keep_requests: bool = False,
    unfinished: bool = False,
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
        unfinished: whether to load the answered documents of tasks that lack answers; otherwise
            these tasks are left out.

    Raises:
        ConfigError: two paths lead to the same run, or a run has none of the metrics.
        OutputError: a path does not exist or contains neither a run nor logs.
        DataError: the runs have no task in common, or no task of a run can be scored.
    """
    settings: dict[str, Any] = {} if data_dir is None else {"data_dir": data_dir}
    wanted = Changes(
        tasks=tasks, include_path=include_path, settings=settings, unfinished=unfinished
    )
    sources = [find_source(path, wanted) for path in paths]
    check_different(sources, paths)
    names = [task_names(source) for source in sources]
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
    by_content = any(source.run is None for source in sources)  # logs have no hash of the data
    checked = {name for name in common if not same_prompts(sources, name)}
    shared = None if keep_requests else SharedRequests()
    runs = []
    for source, found in zip(sources, names, strict=True):
        chosen = source if found == common else with_tasks(source, sorted(common))
        runs.append(_scored_run(chosen, metrics, keep_requests, by_content, checked, shared))
    return _labelled(runs)


def _scored_run(
    source: Source,
    metrics: Sequence[str] | None,
    keep_requests: bool,
    by_content: bool,
    checked: Collection[str],
    shared: SharedRequests | None,
) -> ScoredRun:
    """Returns a scored run; tasks without all answers are left out with a warning.

    Raises the first error if no task can be scored. If `by_content` is set, the tasks have hashes
    of their documents; those in `checked` have hashes of their prompts. `shared` are requests of
    the run before, which may be the same.
    """
    try:
        parts = [score_documents(source, shared)]
    except DataError:
        parts, errors = [], []
        for name in sorted(task_names(source)):
            try:
                parts.append(score_documents(with_tasks(source, [name])))
            except DataError as error:
                errors.append(error)
                logger.warning("%s is left out: %s", name, error)
        if not parts:
            raise DataError(f"{errors[0]}{_how_to_go_on(source)}") from None
    run, results = parts[0].run, recorded_results(source)
    tasks: dict[str, ScoredTask] = {}
    groups: dict[str, Group] = {}
    for part in parts:
        groups.update(part.groups)
        for name, scored in part.scores.items():
            hashes = part.hashes.get(name, {})
            tasks[name] = ScoredTask(
                name,
                scored.doc_ids,
                _columns(scored, metrics),
                _clusters(scored, part),
                task_settings(
                    source,
                    run,
                    scored.task,
                    scored.requests,
                    hashes,
                    results.get(name, {}),
                    with_prompts=name in checked,
                ),
                scored.requests if keep_requests else (),
                [document_hash(one[0].doc) for one in scored.requests] if by_content else (),
                part.unanswered.get(name, 0),
            )
    if metrics is not None and not any(task.scores for task in tasks.values()):
        known = {
            metric for part in parts for one in part.scores.values() for metric, _ in one.columns()
        }
        raise ConfigError(
            f"{source.path}: no task has the metric {' or '.join(metrics)}. The metrics of the run "
            f"are: {', '.join(sorted(known))}."
        )
    template = chat_template(run, next(iter(results.values()), {}))
    return ScoredRun("", source.path, model_name(run), template, tasks, groups)


def _how_to_go_on(source: Source) -> str:
    """Returns what else to do with a run without a finished task, for the error message."""
    if source.run is None or source.wanted.unfinished:
        return ""
    duels = sorted(source.run.folder.path.parent.glob("duel_*.json"))
    stopped = f" It was stopped by a duel, whose result is in {duels[0]}." if duels else ""
    return f"{stopped} --force compares the documents that have answers in both runs."


def _columns(scored: TaskScores, metrics: Sequence[str] | None) -> dict[Key, Scores]:
    """Returns the values of the metrics of a task; only of `metrics` unless it is None."""
    aggregations, directions = scored.task.aggregation(), scored.task.higher_is_better()
    return {
        (metric, pipeline): Scores(
            column.values,
            column.positions,
            aggregations.get(metric, mean),
            directions.get(metric),
        )
        for (metric, pipeline), column in scored.columns().items()
        if metrics is None or metric in metrics
    }


def _clusters(scored: TaskScores, answers: ScoredAnswers) -> Sequence[Hashable] | None:
    shared = clusters_of(scored, answers.run.cluster)
    return None if shared is None else shared[1]


def _labelled(runs: Sequence[ScoredRun]) -> list[ScoredRun]:
    """Returns the runs with labels: the model, or the folder where models have the same name."""
    labels = [Path(run.model).name or run.model for run in runs]
    if len(set(labels)) < len(labels):
        labels = [f"{label} ({run.path.name})" for label, run in zip(labels, runs, strict=True)]
    if len(set(labels)) < len(labels):
        labels = [f"{i + 1}: {label}" for i, label in enumerate(labels)]
    return [replace(run, label=label) for run, label in zip(runs, labels, strict=True)]
