"""The catalogue of tasks, and the library of benchmarks: one folder a benchmark, YAML first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lm_eval._lazy import lazy_exports

if TYPE_CHECKING:
    from lm_eval.tasks.manager import TaskDict as TaskDict
    from lm_eval.tasks.manager import TaskManager as TaskManager

__getattr__, __dir__ = lazy_exports(
    __name__, {"TaskManager": "lm_eval.tasks.manager", "TaskDict": "lm_eval.tasks.manager"}
)
__all__ = ["TaskDict", "TaskManager", "get_task_dict"]


def get_task_dict(task_name_list: Any, task_manager: TaskManager | None = None) -> dict[Any, Any]:
    """The older way to load tasks, as a nested dictionary; `TaskManager.load` is the newer."""
    from lm_eval.tasks.manager import TaskManager

    return (task_manager or TaskManager()).load_task_or_group(task_name_list)
