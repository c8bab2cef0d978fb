"""The task catalog, and the bundled benchmarks.

The modules here find, check and build tasks. Each folder is a benchmark: YAML task files, with
Python modules beside them where a task needs code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lm_eval._lazy import lazy_exports
from lm_eval.tasks import pack_imports

if TYPE_CHECKING:
    from lm_eval.tasks.manager import TaskDict as TaskDict
    from lm_eval.tasks.manager import TaskManager as TaskManager

__getattr__, __dir__ = lazy_exports(
    __name__, {"TaskManager": "lm_eval.tasks.manager", "TaskDict": "lm_eval.tasks.manager"}
)
__all__ = ["TaskDict", "TaskManager", "get_task_dict"]

pack_imports.install()


def get_task_dict(task_name_list: Any, task_manager: TaskManager | None = None) -> dict[Any, Any]:
    """Builds tasks and groups; returns `{name: Task}`, with `{ConfigurableGroup: {…}}` for groups.

    `task_name_list` is what `TaskManager.load` takes. Without `task_manager`, a new one is created,
    with the library, plug-ins and packs. Kept for compatibility with the published harness; new
    code should call `TaskManager.load`.
    """
    from lm_eval.tasks.manager import TaskManager

    return (task_manager or TaskManager()).load_task_or_group(task_name_list)
