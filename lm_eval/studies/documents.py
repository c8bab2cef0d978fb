"""Draws the documents of a study: the same ones under every setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lm_eval.api.group import Group
from lm_eval.api.task import Task
from lm_eval.config.run import RunConfig
from lm_eval.data import mirror_at
from lm_eval.data.draw import draw
from lm_eval.tasks.manager import TaskManager

#: The fewest documents of a task, if its group is sampled.
_LEAST = 2


def draw_documents(
    run: RunConfig, manager: TaskManager, group_sample: int | None = None
) -> dict[str, list[int]]:
    """Returns the numbers of the documents that a run of a study uses, by task.

    They do not depend on the names of tasks, which contain their formats: the settings of a study
    must be compared on the same documents.

    Args:
        run: the settings of the run. Its `sample` is the number of documents of each task, unless
            `group_sample` is given.
        manager: the catalog.
        group_sample: the number of documents of each group with a score, all its tasks together;
            of a task outside such groups, its own.
    """
    with mirror_at(run.data_dir):
        loaded = manager.load(run.task_list)
        counts = {name: len(task.eval_docs) for name, task in loaded["tasks"].items()}
    if group_sample is None:
        assert run.sample is not None
        wanted: Mapping[str, float] = dict.fromkeys(counts, run.sample)
    else:
        wanted = {
            name: share
            for names in reversed(_scored_together(loaded["tasks"], loaded["groups"]))
            for name, share in _shares({name: counts[name] for name in names}, group_sample).items()
        }
    return {name: draw(counts[name], wanted[name], run.sample_seed, "study") for name in counts}


def _scored_together(tasks: Mapping[str, Task], groups: Mapping[str, Group]) -> list[list[str]]:
    """Returns the names of the tasks that share a score: the outermost groups that have one."""
    name_of = {id(task): name for name, task in tasks.items()}
    inner = {id(inside) for group in groups.values() for inside in group.get_all_groups()}
    outermost = [group for group in groups.values() if id(group) not in inner]
    together = [
        list(dict.fromkeys(name_of[id(task)] for task in group.get_all_tasks()))
        for group in _with_scores(outermost)
    ]
    grouped = {name for names in together for name in names}
    return together + [[name] for name in tasks if name not in grouped]


def _with_scores(groups: Iterable[Group]) -> Iterator[Group]:
    for group in groups:
        if group.aggregate_metric_list:
            yield group
        else:
            yield from _with_scores(child for child in group if isinstance(child, Group))


def _shares(counts: Mapping[str, int], wanted: int) -> dict[str, int]:
    """Divides `wanted` documents among tasks in proportion to their sizes, at least two for each.

    With a single document of a task, the standard error of the group would not be known. So the
    tasks that are due less than two get two, and the others share the rest. Rounding favors the
    tasks that lose most by it, in the order of `counts` where they are equal.
    """
    least = {name: min(_LEAST, count) for name, count in counts.items()}
    larger = dict(counts)
    while True:
        left = wanted - sum(least[name] for name in counts if name not in larger)
        total = max(1, sum(larger.values()))
        exact = {name: min(count, count * left / total) for name, count in larger.items()}
        small = [name for name, share in exact.items() if share < least[name]]
        if not small:
            break
        for name in small:
            del larger[name]
    shares = {name: int(exact.get(name, least[name])) for name in counts}
    by_loss = sorted(exact, key=lambda name: int(exact[name]) - exact[name])
    for name in by_loss[: max(0, wanted - sum(shares.values()))]:
        shares[name] = min(counts[name], shares[name] + 1)
    return shares
