"""Clean scores: those of the documents that were not found in training data.

With `--decontaminate FINDINGS`, the results contain for each task that the findings cover the
scores over its clean documents alone, and the difference between clean and contaminated documents.
The scores over all documents are not changed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any

from lm_eval.api.group import Group
from lm_eval.api.task import Task
from lm_eval.contamination.coverage import (
    Decontamination,
    TaskContamination,
    choose_documents,
    rows_fingerprint,
)
from lm_eval.contamination.findings import Findings
from lm_eval.errors import DataError, EvalError
from lm_eval.metrics.aggregations import mean
from lm_eval.results.samples import document_hash
from lm_eval.results.schema import Summary
from lm_eval.results.score_differences import (
    Difference,
    difference_of,
    mean_difference,
    number_or_na,
)
from lm_eval.results.summarize import Score, UncertaintyConfig, clusters_of, score_values
from lm_eval.scoring import TaskScores

logger = logging.getLogger(__name__)

#: The level of the intervals of differences, unless the run sets `--confidence`.
CONFIDENCE = 0.95


@dataclass
class _CleanTask:
    """The clean row of a task, and the differences by `metric,filter`."""

    row: dict[str, Any]
    differences: dict[str, Difference]


def contaminated_documents(
    path: str | None, findings: Findings | None, tasks: Mapping[str, Task]
) -> Decontamination | None:
    """Returns which documents of `tasks` are contaminated, by the findings in the file `path`.

    None if there are no findings. Raises and warns as `choose_documents` does. Documents from a
    sample log, whose rows have no fingerprint, are compared with the findings by their hashes.
    """
    if path is None or findings is None:
        return None
    chosen = choose_documents(path, findings, tasks)
    for name, contamination in chosen.tasks.items():
        if tasks[name].instances and rows_fingerprint(tasks[name]) is None:
            _check_hashes(path, name, contamination, tasks[name])
    return chosen


def _check_hashes(path: str, name: str, contamination: TaskContamination, task: Task) -> None:
    """Raises `DataError` if a document of the task `name` has another hash than in the findings.

    `path`, the file of the findings, is named in the message.
    """
    for request in task.instances:
        number = request.doc_number or 0
        expected = contamination.hashes.get(number)
        if expected is not None and expected != document_hash(request.doc):
            raise DataError(
                f"{path}: the findings are of other documents than the log of task {name!r}: "
                f"document {number} differs. Pass the findings of the data that was evaluated."
            )


def with_clean_scores(
    summary: Summary,
    scores: Mapping[str, TaskScores],
    groups: Mapping[str, Group],
    uncertainty: UncertaintyConfig,
    decontamination: Decontamination | None,
) -> Summary:
    """Returns the summary with clean scores, and with samples that tell clean from contaminated.

    Args:
        summary: what `summarize` returned for the same scores.
        scores: the metric values of each task.
        groups: the groups by name.
        uncertainty: how the uncertainty of scores is estimated.
        decontamination: the contaminated documents; None to return the summary unchanged.
    """
    if decontamination is None:
        return summary
    level = CONFIDENCE if uncertainty.confidence is None else uncertainty.confidence
    wanted = replace(uncertainty, confidence=level)
    tasks = {
        name: _clean_task(name, scores[name], contamination, wanted)
        for name, contamination in decontamination.tasks.items()
        if name in scores
    }
    rows = {name: task.row for name, task in tasks.items()}
    rows |= _group_rows(groups, tasks, scores)
    results: Summary = {
        **summary,
        "decontaminated": rows,
        "decontaminated_with": {**decontamination.source, "confidence": level},
    }
    if "samples" in summary:
        results["samples"] = {
            name: _flagged(samples, decontamination.tasks.get(name))
            for name, samples in summary["samples"].items()
        }
    return results


def _flagged(
    samples: list[dict[str, Any]], contamination: TaskContamination | None
) -> list[dict[str, Any]]:
    """Returns samples that say whether their document is contaminated, and its overlap.

    Samples of a task that the findings do not cover (None) are returned unchanged.
    """
    if contamination is None:
        return samples
    return [
        {
            **sample,
            "contaminated": sample["doc_id"] in contamination.contaminated,
            "contamination_overlap": contamination.overlaps.get(sample["doc_id"], 0.0),
        }
        for sample in samples
    ]


# -- tasks ------------------------------------------------------------------------------------


def _clean_task(
    name: str,
    scored: TaskScores,
    contamination: TaskContamination,
    uncertainty: UncertaintyConfig,
) -> _CleanTask:
    """Returns the clean scores of a task, and their differences to the contaminated documents.

    Logs a warning if all documents are contaminated, and for scores that are left out.
    """
    is_clean = [number not in contamination.contaminated for number in scored.doc_ids]
    count = sum(is_clean)
    row: dict[str, Any] = {
        "name": name,
        "alias": scored.task.config.task_alias or name,
        "sample_len": count,
        "dropped": len(is_clean) - count,
    }
    if not count:
        logger.warning(
            "task %s: all documents (%d) are contaminated, so it has no clean scores.",
            name,
            len(is_clean),
        )
    shared = clusters_of(scored, uncertainty.cluster)
    clusters = None if shared is None else shared[1]
    counts: dict[str, int] = {}
    differences: dict[str, Difference] = {}
    for (metric, pipeline), column in scored.columns().items():
        key = f"{metric},{pipeline}"
        aggregation = scored.task.aggregation().get(metric, mean)
        parts = {
            kind: [i for i, place in enumerate(column.positions) if is_clean[place] is wanted]
            for kind, wanted in (("clean", True), ("contaminated", False))
        }
        clean, contaminated = (
            _score_of_part(
                f"task {name}: {key} of the {kind} documents",
                partial(score_values, name, metric, aggregation),
                [column.values[i] for i in part],
                uncertainty,
                None if clusters is None else [clusters[column.positions[i]] for i in part],
            )
            for kind, part in parts.items()
        )
        if clean is None:
            continue
        counts[key] = len(parts["clean"])
        row[key] = clean.value
        row[f"{metric}_stderr,{pipeline}"] = number_or_na(clean.stderr)
        if contaminated is not None:
            differences[key] = difference_of(clean, contaminated, len(column.values))
    if set(counts.values()) - {count}:
        row["sample_count"] = counts
    if differences:
        row["difference"] = {key: one.to_row() for key, one in differences.items()}
    return _CleanTask(row, differences)


def _score_of_part(
    what: str,
    score: Callable[[Sequence[Any], UncertaintyConfig, Sequence[Hashable] | None], Score],
    values: Sequence[Any],
    uncertainty: UncertaintyConfig,
    clusters: Sequence[Hashable] | None,
) -> Score | None:
    """Returns the score of some documents of a task; None if there are none.

    Some metrics have no score for so few documents, such as F1 without a positive one. If the
    aggregation fails or its result is not a finite number, logs a warning and returns None, so that
    the scores of the run are not lost.

    Args:
        what: the name of the score, for the warning.
        score: returns the score of values, with the uncertainty and their clusters.
        values: the values of the documents.
        uncertainty: how the uncertainty is estimated.
        clusters: the clusters of the documents; None without clustering.
    """
    if not values:
        return None
    try:
        found = score(values, uncertainty, clusters)
    except EvalError as error:
        logger.warning("%s cannot be computed and is left out: %s", what, error)
        return None
    if isinstance(found.value, Real) and math.isfinite(found.value):
        return found
    logger.warning("%s is %s, which is no finite number, and is left out.", what, found.value)
    return None


# -- groups -----------------------------------------------------------------------------------


def _group_rows(
    groups: Mapping[str, Group],
    tasks: Mapping[str, _CleanTask],
    scores: Mapping[str, TaskScores],
) -> dict[str, dict[str, Any]]:
    """Returns the clean rows of the groups that aggregate scores and whose tasks are all covered.

    Logs which tasks are not covered, if only some are: a mean over the others would be the score of
    another group.
    """
    rows: dict[str, dict[str, Any]] = {}
    for group in groups.values():
        names = [task.task_name for task in group.get_all_tasks() if task.task_name in scores]
        missing = [name for name in names if name not in tasks]
        if not group.has_aggregation or len(missing) == len(names):
            continue
        if missing:
            logger.warning(
                "group %s: has no clean score, because the findings do not cover %s%s.",
                group.name,
                ", ".join(missing[:5]),
                ", …" if len(missing) > 5 else "",
            )
            continue
        own = {name: tasks[name] for name in names}
        row = {"alias": group.alias or group.name, "name": group.name, "sample_len": 0}
        if any(task.row["sample_len"] for task in own.values()):
            row = group.aggregate({name: task.row for name, task in own.items()})
        row["dropped"] = sum(task.row["dropped"] for task in own.values())
        differences = {
            key: one.to_row()
            for key in row
            if "," in key and (one := _group_difference(group, key, own)) is not None
        }
        rows[group.name] = {
            key: number_or_na(value) if isinstance(value, float) else value
            for key, value in row.items()
        }
        if differences:
            rows[group.name]["difference"] = differences
    return rows


def _group_difference(group: Group, key: str, tasks: Mapping[str, _CleanTask]) -> Difference | None:
    """Returns the mean of the differences of a group's tasks, with the weights of the group.

    Only tasks with clean and contaminated documents count. Each is compared with itself, since a
    group may have contaminated documents mainly in its easy tasks. Returns None if there are none,
    or if the group aggregates the metric with its own function.
    """
    metric = key.partition(",")[0]
    wanted = next((one for one in group.aggregate_metric_list or () if one.metric == metric), None)
    found = [task.differences[key] for task in tasks.values() if key in task.differences]
    if wanted is None or callable(wanted.aggregation) or not found:
        return None
    weights = [one.documents if wanted.weight_by_size else 1 for one in found]
    return mean_difference(found, weights)
