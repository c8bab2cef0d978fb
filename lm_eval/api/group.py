"""Groups: collections of tasks (and other groups) with scores aggregated over their tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.task import Task
from lm_eval.config.group import AggMetricConfig, GroupConfig
from lm_eval.errors import ConfigError
from lm_eval.metrics.aggregations import aggregate_subtask_metrics
from lm_eval.stats.errors import pooled_sample_stderr, unweighted_mean_stderr

logger = logging.getLogger(__name__)

Scores = dict[str, Any]


@dataclass
class Group:
    """A named collection of tasks and groups, in order.

    `aggregate_metric_list` contains the metrics that the group reports for all its tasks together;
    with None or an empty list it reports none. `alias` is the name shown in tables.
    """

    name: str
    alias: str | None = None
    aggregate_metric_list: list[AggMetricConfig] | None = None
    metadata: dict[str, Any] | None = None
    _children: dict[str, Task | Group] = field(default_factory=dict, repr=False)
    _config: GroupConfig | None = field(default=None, repr=False)

    @classmethod
    def from_config(cls, config: GroupConfig | dict[str, Any]) -> Group:
        """Returns a group with these settings and no members; add them with `add`.

        A dictionary has the keys of a group file. Raises `ConfigError` for an invalid
        `aggregate_metric_list`, and `TypeError` if a key is unknown or `group` is missing.
        """
        settled = GroupConfig(**config) if isinstance(config, dict) else config
        return cls(
            name=settled.group,
            alias=settled.group_alias,
            aggregate_metric_list=settled.aggregates,
            metadata=settled.metadata,
            _config=settled,
        )

    def add(self, item: Task | Group) -> None:
        """Adds a member; raises `ConfigError` if another member has its name.

        Adding the same object again has no effect.
        """
        name = item.name if isinstance(item, Group) else item.task_name
        if self._children.setdefault(name, item) is not item:
            raise ConfigError(
                f"group {self.name!r} has two members called {name!r}; rename or remove one."
            )

    def pop(self, name: str) -> Task | Group | None:
        """Removes and returns the direct member with this name; None if there is none."""
        return self._children.pop(name, None)

    def get(self, name: str) -> Task | Group | None:
        """Returns the direct member with this name; None if there is none."""
        return self._children.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._children

    def __iter__(self) -> Iterator[Task | Group]:
        return iter(self._children.values())

    def __len__(self) -> int:
        return len(self._children)

    @property
    def child_names(self) -> list[str]:
        """The names of the direct members, in order."""
        return list(self._children)

    def get_all_tasks(self, recursive: bool = True) -> list[Task]:
        """Returns the tasks of this group and, if `recursive`, of the groups inside it, in order.

        A task that is in several of these groups is returned several times. The tasks of a group
        that is inside several others are returned once.
        """
        tasks: list[Task] = []
        visited: set[int] = set()

        def visit(group: Group) -> None:
            visited.add(id(group))
            for child in group:
                if not isinstance(child, Group):
                    tasks.append(child)
                elif recursive and id(child) not in visited:
                    visit(child)

        visit(self)
        return tasks

    def get_all_groups(self, recursive: bool = True) -> list[Group]:
        """Returns the groups in this group and, if `recursive`, the groups inside those.

        Each group comes before those inside it, and is returned once. This group itself is not
        included.
        """
        groups: dict[int, Group] = {}

        def visit(group: Group) -> None:
            for child in group:
                if isinstance(child, Group) and id(child) not in groups:
                    groups[id(child)] = child
                    if recursive:
                        visit(child)

        visit(self)
        return list(groups.values())

    @property
    def version(self) -> str:
        """The `version` of the metadata; "N/A" if it has none."""
        return str((self.metadata or {}).get("version", "N/A"))

    @property
    def has_aggregation(self) -> bool:
        """Whether the group reports aggregated metrics."""
        return bool(self.aggregate_metric_list)

    def to_dict(self) -> dict[str, Any]:
        """Returns the group's settings as plain values, with the keys of a group file.

        Functions become their source code. For a group with a configuration these are all settings,
        as `GroupConfig.to_dict` returns them. Otherwise those that are not set are left out.
        """
        if self._config is not None:
            return self._config.to_dict()
        plain: dict[str, Any] = {"group": self.name}
        if self._children:
            plain["task"] = self.child_names
        if self.alias:
            plain["group_alias"] = self.alias
        if self.aggregate_metric_list:
            plain["aggregate_metric_list"] = [one.to_dict() for one in self.aggregate_metric_list]
        if self.metadata:
            plain["metadata"] = self.metadata
        return plain

    # -- aggregated scores --------------------------------------------------------------------

    def aggregate(self, task_metrics: Mapping[str, Scores]) -> Scores:
        """Returns the group's row of the results table.

        Args:
            task_metrics: for each task name, its row: `{"acc,none": 0.5, "acc_stderr,none": 0.1,
                "sample_len": 100, …}`. Tasks that are missing here are left out.

        Returns:
            A row with the same kind of keys: every metric of `aggregate_metric_list`, aggregated
            over the tasks below this group, with its standard error ("N/A" if unknown). A metric
            that no task has is left out with a warning. `sample_len` is the number of documents of
            all tasks, `sample_count` that of each metric, by its key. If the group aggregates no
            metric, the row contains only `alias` and `name`.
        """
        row: Scores = {"alias": self.alias or self.name, "name": self.name}
        if not self.aggregate_metric_list:
            return row
        leaves = [task.task_name for task in self.get_all_tasks()]
        scored = {name: task_metrics[name] for name in leaves if name in task_metrics}
        row["sample_len"] = sum(scores.get("sample_len", 0) for scores in scored.values())
        counts: dict[str, int] = {}
        for wanted in self.aggregate_metric_list:
            filters = wanted.filter_list
            for name in _filters_with(wanted.metric, scored) if filters is None else filters:
                counts |= self._aggregate_metric(wanted, name, scored, row)
        if counts:
            row["sample_count"] = counts
        return row

    def _aggregate_metric(
        self, wanted: AggMetricConfig, filter_name: str, scored: Mapping[str, Scores], row: Scores
    ) -> dict[str, int]:
        """Adds one metric under one filter pipeline to `row`, with its standard error.

        Returns `{key: number of documents it covers}`, or `{}` if no task has the metric. Tasks
        without the metric are left out with a warning.
        """
        key, stderr_key = f"{wanted.metric},{filter_name}", f"{wanted.metric}_stderr,{filter_name}"
        reporting = {name: scores for name, scores in scored.items() if key in scores}
        missing = [name for name in scored if name not in reporting]
        if missing:
            logger.warning(
                "group %s: %s of its %d tasks do not report %s and are left out of the group's "
                "aggregate: %s%s",
                self.name,
                len(missing),
                len(scored),
                key,
                ", ".join(missing[:5]),
                " …" if len(missing) > 5 else "",
            )
        if not reporting:
            logger.warning(
                "group %s: none of its tasks reports %s, so the group has no score for it. "
                "Check `metric` and `filter_list` in its aggregate_metric_list.",
                self.name,
                key,
            )
            return {}
        values = [scores[key] for scores in reporting.values()]
        sizes = [_size(scores, key) for scores in reporting.values()]
        errors = [scores.get(stderr_key, "N/A") for scores in reporting.values()]
        if callable(wanted.aggregation):
            row[key] = wanted.aggregation(values, sizes)
        else:
            row[key] = aggregate_subtask_metrics(values, sizes, wanted.weight_by_size)
        known = callable(wanted.aggregation) is False and "N/A" not in errors
        if known and wanted.weight_by_size:
            row[stderr_key] = pooled_sample_stderr(errors, sizes)
        elif known:
            row[stderr_key] = unweighted_mean_stderr(errors)
        else:
            row[stderr_key] = "N/A"
        return {key: sum(sizes)}


def _size(scores: Scores, key: str) -> int:
    """Returns how many documents have the metric `key`, which may be fewer than the task has.

    If the row `scores` has no count for the metric, returns the task's `sample_len`, or 0.
    """
    size: int = scores.get("sample_count", {}).get(key, scores.get("sample_len", 0))
    return size


def _filters_with(metric: str, scored: Mapping[str, Scores]) -> list[str]:
    """Returns the sorted names of the filter pipelines under which any task has the metric.

    `scored` contains the row of each task, with keys such as `acc,none` (metric and pipeline).
    """
    found = {
        key.partition(",")[2]
        for scores in scored.values()
        for key in scores
        if "," in key and key.partition(",")[0] == metric
    }
    return sorted(found)


class ConfigurableGroup(Group):
    """A group under the published harness's older class name.

    It is hashable, so that it can be a key of the nested dictionaries that `get_task_dict` returns.
    Two of them are equal if they have the same name.
    """

    def __init__(self, config: dict[str, Any] | GroupConfig | None = None) -> None:
        made = Group.from_config(config or {})
        super().__init__(**vars(made))

    @classmethod
    def from_group(cls, group: Group) -> ConfigurableGroup:
        """Returns the same group, with the same members, as a `ConfigurableGroup`."""
        wrapped = cls.__new__(cls)
        wrapped.__dict__.update(vars(group))
        return wrapped

    @property
    def group(self) -> str:
        """The name of the group."""
        return self.name

    @property
    def group_name(self) -> str:
        """The name of the group, as `group`."""
        return self.name

    @property
    def group_alias(self) -> str | None:
        """The name shown in tables; None if it is not set."""
        return self.alias

    @property
    def config(self) -> dict[str, Any]:
        """The settings of the group, as `to_dict` returns them."""
        return self.to_dict()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigurableGroup) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)
