"""Task folders of installed packages, found through the entry points `lm_eval.tasks`.

A package adds its tasks with two lines in its `pyproject.toml`:

    [project.entry-points."lm_eval.tasks"]
    my_plugin = "my_package.tasks"

The value names a folder of task files in the package, with dots between the parts of its path.
"""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path

from lm_eval.entry_points import plugin_entries

logger = logging.getLogger(__name__)

ENTRY_POINTS = "lm_eval.tasks"


def task_folders() -> dict[str, Path]:
    """Returns the task folder of each plug-in, by the name of its entry point.

    Imports none of the packages. An entry point whose folder does not exist, or whose name another
    package has used, is left out, and a warning is logged.
    """
    folders: dict[str, Path] = {}
    for entry in plugin_entries(ENTRY_POINTS):
        folder = _folder(entry.value)
        if folder is None:
            logger.warning(
                "The entry point %s (group %s) names no folder of task files, so its tasks are "
                "missing. The value must be a package and the path of a folder in it, such as "
                "'my_package.tasks'; the folder must be installed.",
                entry,
                ENTRY_POINTS,
            )
        elif folders.setdefault(entry.name, folder) != folder:
            logger.warning(
                "The entry point %s (group %s) is ignored, so its tasks are missing: another "
                "plug-in of the same name has the task folder %s. Uninstall one of the packages.",
                entry,
                ENTRY_POINTS,
                folders[entry.name],
            )
    return folders


def _folder(value: str) -> Path | None:
    """Returns the folder that `package.folder.below` names; None if there is no such folder.

    The package is found without importing it.
    """
    package, *below = value.replace(":", ".").split(".")
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # such as `__main__`, or an empty name
        return None
    roots = (spec.submodule_search_locations if spec is not None else None) or ()
    found = (Path(root, *below) for root in roots)
    return next((folder.resolve() for folder in found if folder.is_dir()), None)
