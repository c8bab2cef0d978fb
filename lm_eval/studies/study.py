"""Runs models on tasks under every setting of a grid, and collects the scores."""

from __future__ import annotations

import gc
import logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lm_eval.api.group import Group
from lm_eval.api.model import LM
from lm_eval.api.task import Task
from lm_eval.config.run import RunConfig
from lm_eval.engine.keys import is_sampled
from lm_eval.errors import ConfigError, DataError
from lm_eval.evaluator import run_evaluation
from lm_eval.launch import launched_count
from lm_eval.models.create import check_before_loading, check_model, close_model, create_model
from lm_eval.results.provenance import model_name
from lm_eval.runs.folder import ANSWERS_FILE
from lm_eval.studies.documents import draw_documents
from lm_eval.studies.grid import DEFAULT, Grid, Setting
from lm_eval.tasks.manager import TaskManager

logger = logging.getLogger(__name__)

#: Groups that are the same task in another style, as those of the group `prompt_styles`.
_STYLED = re.compile(r"(?:.*::)?(.+)_(cloze|mmlu_style|hybrid)$")
_FORMAT_OF_STYLE = {"mmlu_style": "mcqa"}


@dataclass(frozen=True)
class Score:
    """The score of a model on a task or group under one setting.

    Attributes:
        model: the label of the model.
        task: the name of the task or group, without its format.
        metric: the metric and its filter pipeline, `acc,none`.
        setting: the setting.
        value: the score.
        stderr: its standard error; None if it is not known.
        higher_is_better: the direction of the metric; None if it is not known.
    """

    model: str
    task: str
    metric: str
    setting: Setting
    value: float
    stderr: float | None
    higher_is_better: bool | None


@dataclass(frozen=True)
class Study:
    """The scores of a study.

    Attributes:
        models: the labels of the models.
        scores: one per model, task and setting, in one metric per task.
    """

    models: Sequence[str]
    scores: Sequence[Score]

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks and groups."""
        return list(dict.fromkeys(score.task for score in self.scores))

    def of(self, task: str, model: str | None = None) -> list[Score]:
        """Returns the scores of a task, of one model if it is given."""
        return [s for s in self.scores if s.task == task and model in (None, s.model)]


def study(
    models: Sequence[RunConfig],
    grid: Grid,
    metric: str | None = None,
    output_path: str | None = None,
    group_sample: int | None = None,
) -> Study:
    """Runs each model under all settings of a grid and returns the scores.

    A model is loaded once. With an output path, each setting has a folder below it with one run
    folder per model; all runs share one answer store, so that equal requests are sent once, and a
    study that was interrupted asks only for what is missing when it is started again.

    Args:
        models: for each model, the settings that all its runs have in common; they differ in the
            model alone.
        grid: what is varied.
        metric: the metric to report: its name, or `metric,filter`. None for the first metric of
            each task that all its settings have.
        output_path: the folder of the study; None to store nothing.
        group_sample: the number of random documents of each group, all its tasks together; None for
            those that the settings of the models name.

    Raises:
        ConfigError: there is nothing to vary, or a setting is invalid.
        DataError: a task has no metric that all settings have.
    """
    _check(models, output_path, group_sample)
    labels = _labels(models)
    managers = [TaskManager(include_path=m.include_path, metadata=m.task_metadata) for m in models]
    outline = managers[0].load(models[0].task_list, lambda name: None)
    settings = grid.settings(_samples(models[0], outline["tasks"]))
    if len(settings) * len(models) < 2 and not _has_styles(outline["groups"]):
        raise ConfigError(
            "a study needs several settings or models: give several --formats, --prompts, "
            "--num_fewshot, --seeds or --model."
        )
    for model, manager in zip(models, managers, strict=True):
        check_model(model)
        check_before_loading(model)
        for setting in {setting.cell: setting for setting in settings}.values():
            manager.outline(grid.run_of(model, setting, None).task_list)  # raises now, not later
    found: list[Score] = []
    drawn: dict[Any, dict[str, list[int]]] = {}
    for label, model, manager in zip(labels, models, managers, strict=True):
        lm: LM | None = None
        for i, setting in enumerate(settings):
            logger.info("%s: setting %d of %d, %s", label, i + 1, len(settings), setting.name)
            run = grid.run_of(
                _with_store(model, output_path), setting, _folder(output_path, setting)
            )
            if run.sample is not None or group_sample is not None:
                if setting.cell not in drawn:
                    drawn[setting.cell] = draw_documents(run, manager, group_sample)
                run = replace(run, sample=None, samples=drawn[setting.cell])
            lm = lm or create_model(run)
            results = run_evaluation(run, manager, lm=lm)
            assert results is not None  # there is a single process
            found += _scores(results, label, setting, model.task_list)
        if lm is not None:
            close_model(lm)
        lm = None
        _free_memory()
    return Study(labels, list(_in_one_metric(found, metric)))


def _check(models: Sequence[RunConfig], output_path: str | None, group_sample: int | None) -> None:
    """Raises `ConfigError` for a study that cannot work, before anything is loaded."""
    if launched_count() > 1:
        raise ConfigError(
            "a study runs in a single process: start it without accelerate launch or torchrun."
        )
    if not models:
        raise ConfigError("a study needs at least one --model.")
    if output_path is not None and Path(output_path).suffix == ".json":
        raise ConfigError("the output path of a study must be a folder, not a .json file.")
    if group_sample is not None:
        if group_sample < 1:
            raise ConfigError(f"--group_sample must be 1 or more, not {group_sample}.")
        for name in ("limit", "sample", "samples"):
            if any(getattr(model, name) is not None for model in models):
                raise ConfigError(f"give --group_sample or --{name}, not both.")
    if any(not isinstance(task, str) for task in models[0].task_list):
        raise ConfigError("the tasks of a study must be given by their names.")


def _labels(models: Sequence[RunConfig]) -> list[str]:
    """Returns the names of the models in tables; equal ones get a number."""
    names = [Path(model_name(run)).name or model_name(run) for run in models]
    return [
        f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name
        for i, name in enumerate(names)
    ]


def _has_styles(groups: Mapping[str, Group]) -> bool:
    """Returns whether one of the groups consists of a task in several styles."""
    return any(
        all(map(_STYLED.match, group.child_names)) and len(group.child_names) > 1
        for group in groups.values()
    )


def _samples(run: RunConfig, tasks: Mapping[str, Task]) -> bool:
    """Returns whether any task of a run samples its answers, so that they depend on the seed."""
    return any(
        is_sampled({**(task.get_config("generation_kwargs") or {}), **run.gen_kwargs})
        for task in tasks.values()
        if task.get_config("output_type") == "generate_until"
    )


def _folder(output_path: str | None, setting: Setting) -> str | None:
    return None if output_path is None else str(Path(output_path) / setting.name)


def _with_store(run: RunConfig, output_path: str | None) -> RunConfig:
    """Returns the run with the answer store of the study, unless it has another one."""
    if output_path is None or run.use_cache is not None:
        return run
    Path(output_path).mkdir(parents=True, exist_ok=True)
    return replace(run, use_cache=str(Path(output_path) / ANSWERS_FILE))


def _free_memory() -> None:
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _scores(
    results: Mapping[str, Any], model: str, setting: Setting, tasks: Sequence[str]
) -> Iterator[Score]:
    """Yields the scores of the tasks and groups that a study is about, in all metrics."""
    for row, name, own in _rows(results, setting, tasks):
        values = results["results"][row]
        for key, value in values.items():
            metric, comma, pipeline = key.partition(",")
            if not comma or metric.endswith("_stderr") or not isinstance(value, (int, float)):
                continue
            stderr = values.get(f"{metric}_stderr,{pipeline}")
            known = isinstance(stderr, (int, float)) and stderr == stderr
            direction = results["higher_is_better"].get(row, {}).get(metric)
            yield Score(
                model, name, key, own, float(value), float(stderr) if known else None, direction
            )


def _rows(
    results: Mapping[str, Any], setting: Setting, tasks: Sequence[str]
) -> Iterator[tuple[str, str, Setting]]:
    """Yields the rows of the results that a study is about, with their names and settings.

    They are the tasks and groups that were asked for; of a group without a score its members, and
    of a tag or pattern its tasks. A group whose members are one task in several styles
    (`prompt_styles`) counts as these tasks in the formats of these styles.
    """
    scores, members = results["results"], results.get("group_subtasks", {})
    plain = {row.partition("@")[0]: row for row in scores}
    wanted = [plain.get(task.partition("@")[0]) for task in tasks]
    if None in wanted:  # a tag or a pattern
        groups = set(members)
        yield from ((row, name, setting) for name, row in plain.items() if row not in groups)
        return
    for row in wanted:
        assert row is not None
        if any("," in key for key in scores[row]):
            yield row, row.partition("@")[0], setting
            continue
        for member in members.get(row, ()):
            styled = _STYLED.match(member)
            if styled and setting.format == DEFAULT:
                style = _FORMAT_OF_STYLE.get(styled[2], styled[2])
                yield member, styled[1], replace(setting, format=style)
            else:
                yield member, member.partition("@")[0], setting


def _in_one_metric(scores: Sequence[Score], wanted: str | None) -> Iterator[Score]:
    """Yields the scores in the wanted metric, or the first one that all settings of a task have.

    Raises `DataError` if a task has none.
    """
    for task in dict.fromkeys(score.task for score in scores):
        own = [score for score in scores if score.task == task]
        runs = {(score.model, score.setting) for score in own}
        metrics = list(dict.fromkeys(score.metric for score in own))
        common = [m for m in metrics if len(runs) == sum(score.metric == m for score in own)]
        chosen = [m for m in common if wanted is None or wanted in (m, m.partition(",")[0])]
        if not chosen:
            what = "no metric" if wanted is None else f"no metric {wanted!r}"
            raise DataError(
                f"task {task!r} has {what} that all settings have. Its metrics are "
                f"{', '.join(metrics)}; choose one with --metric."
            )
        yield from (score for score in own if score.metric == chosen[0])
