"""Lets an unprivileged user import from folders that only root can reach.

An interpreter below `/root` cannot be used by the user that programs run as. Without a mount
namespace, the folders of `sys.path` are opened by root, and imported from by their descriptors.
"""

from __future__ import annotations

import fcntl
import os
import sys

from lm_eval.sandbox.confine import IMPORT_DESCRIPTORS
from lm_eval.sandbox.processes import can_reach


def open_private_imports(user: int) -> list[str]:
    """Opens the folders of `sys.path` that `user` cannot reach, and changes `sys.path` to them.

    Returns the paths by which they can be reached from now on.
    """
    private = [path for path in sys.path if os.path.isdir(path) and not can_reach(user, path)]
    opened = {}
    for index, path in enumerate(private):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD, IMPORT_DESCRIPTORS + index)
        os.close(descriptor)
        opened[path] = f"/proc/self/fd/{moved}"
    sys.path[:] = [opened.get(path, path) for path in sys.path]
    for module in list(sys.modules.values()):
        # A package that is imported already looks for its submodules where it was found.
        places = getattr(module, "__path__", None)
        if isinstance(places, list):
            places[:] = [_moved(place, opened) for place in places]
    sys.path_importer_cache.clear()
    return list(opened.values())


def _moved(place: str, opened: dict[str, str]) -> str:
    for path, new in opened.items():
        if place.startswith(f"{path}/"):
            return new + place[len(path) :]
    return place
