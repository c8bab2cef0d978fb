"""A group: tasks and groups that belong together, and the joint scores it reports for them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.task import Task
from lm_eval.config.group import AggMetricConfig, GroupConfig
from lm_eval.config.serialise import serialise
from lm_eval.errors import ConfigError
from lm_eval.stats.errors import pooled_sample_stderr, unweighted_mean_stderr

logger = logging.getLogger(__name__)

Scores = dict[str, Any]


@dataclass
class Group:
    """Children by name, in order. A group may hold groups."""

    name: str
    alias: str | None = None
    aggregate_metric_list: list[AggMetricConfig] | None = None
    metadata: dict[str, Any] | None = None
    _children: dict[str, Task | Group] = field(default_factory=dict, repr=False)
    _config: GroupConfig | None = field(default=None, repr=False)

    @classmethod
    def from_config(cls, config: GroupConfig | dict[str, Any]) -> Group:
        """The group itself, still without children."""
        settled = GroupConfig(**config) if isinstance(config, dict) else config
        return cls(
            name=settled.group,
            alias=settled.group_alias,
            aggregate_metric_list=settled.aggregates,
            metadata=settled.metadata,
            _config=settled,
        )

    def add(self, item: Task | Group) -> None:
        name = item.name if isinstance(item, Group) else item.task_name
        if self._children.setdefault(name, item) is not item:
            raise ConfigError(f"group {self.name!r} has two members called {name!r}.")

    def pop(self, name: str) -> Task | Group | None:
        return self._children.pop(name, None)

    def get(self, name: str) -> Task | Group | None:
        return self._children.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._children

    def __iter__(self) -> Iterator[Task | Group]:
        return iter(self._children.values())

    def __len__(self) -> int:
        return len(self._children)

    @property
    def child_names(self) -> list[str]:
        return list(self._children)

    def get_all_tasks(self, recursive: bool = True) -> list[Task]:
        """The tasks below this group."""
        tasks: list[Task] = []
        for child in self:
            if not isinstance(child, Group):
                tasks.append(child)
            elif recursive:
                tasks += child.get_all_tasks()
        return tasks

    def get_all_groups(self, recursive: bool = True) -> list[Group]:
        """The groups below this group."""
        groups: list[Group] = []
        for child in self:
            if isinstance(child, Group):
                groups.append(child)
                groups += child.get_all_groups() if recursive else []
        return groups

    @property
    def version(self) -> str:
        return str((self.metadata or {}).get("version", "N/A"))

    @property
    def has_aggregation(self) -> bool:
        return bool(self.aggregate_metric_list)

    def to_dict(self) -> dict[str, Any]:
        if self._config is not None:
            return self._config.to_dict()
        plain: dict[str, Any] = {"group": self.name, "task": self.child_names}
        if self.alias:
            plain["group_alias"] = self.alias
        if self.aggregate_metric_list:
            plain["aggregate_metric_list"] = serialise(self.aggregate_metric_list)
        if self.metadata:
            plain["metadata"] = self.metadata
        return plain

    # -- joint scores -------------------------------------------------------------------------

    def aggregate(self, task_metrics: Mapping[str, Scores]) -> Scores:
        """This group's row: each aggregated metric over the tasks below, with its error."""
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
                counts |= self._join(wanted, name, scored, row)
        if counts:
            row["sample_count"] = counts
        return row

    def _join(
        self, wanted: AggMetricConfig, filter_name: str, scored: Mapping[str, Scores], row: Scores
    ) -> dict[str, int]:
        key, stderr_key = f"{wanted.metric},{filter_name}", f"{wanted.metric}_stderr,{filter_name}"
        having = {name: scores for name, scores in scored.items() if key in scores}
        lacking = [name for name in scored if name not in having]
        if lacking:
            logger.warning(
                "group %s: %s of its %d tasks report no %s: %s%s",
                self.name,
                len(lacking),
                len(scored),
                key,
                ", ".join(lacking[:5]),
                " …" if len(lacking) > 5 else "",
            )
        if not having:
            logger.warning("group %s: none of its tasks reports %s to join.", self.name, key)
            return {}
        values = [scores[key] for scores in having.values()]
        sizes = [_size(scores, key) for scores in having.values()]
        errors = [scores.get(stderr_key, "N/A") for scores in having.values()]
        if callable(wanted.aggregation):
            row[key] = wanted.aggregation(values, sizes)
        else:
            row[key] = joint_mean(values, sizes, wanted.weight_by_size)
        known = callable(wanted.aggregation) is False and "N/A" not in errors
        if known and wanted.weight_by_size:
            row[stderr_key] = pooled_sample_stderr(errors, sizes)
        elif known:
            row[stderr_key] = unweighted_mean_stderr(errors)
        else:
            row[stderr_key] = "N/A"
        return {key: sum(sizes)}


def joint_mean(values: list[float], sizes: list[int], weight_by_size: bool = True) -> float:
    """The mean over tasks, each counted by its documents or once."""
    weights = sizes if weight_by_size else [1] * len(sizes)
    return sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)


def _size(scores: Scores, key: str) -> int:
    """How many documents a task's score is of: not every metric is given to every document."""
    size: int = scores.get("sample_count", {}).get(key, scores.get("sample_len", 0))
    return size


def _filters_with(metric: str, scored: Mapping[str, Scores]) -> list[str]:
    """Every filter pipeline under which some task reports the metric."""
    found = {
        key.partition(",")[2]
        for scores in scored.values()
        for key in scores
        if "," in key and key.partition(",")[0] == metric
    }
    return sorted(found)


class ConfigurableGroup(Group):
    """The older name of a group, hashable so that it can be the key of a nested task dictionary."""

    def __init__(self, config: dict[str, Any] | GroupConfig | None = None) -> None:
        made = Group.from_config(config or {})
        super().__init__(**vars(made))

    @classmethod
    def from_group(cls, group: Group) -> ConfigurableGroup:
        wrapped = cls.__new__(cls)
        wrapped.__dict__.update(vars(group))
        return wrapped

    @property
    def group(self) -> str:
        return self.name

    @property
    def group_name(self) -> str:
        return self.name

    @property
    def group_alias(self) -> str | None:
        return self.alias

    @property
    def config(self) -> dict[str, Any]:
        return self.to_dict()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigurableGroup) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)
