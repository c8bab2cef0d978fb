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
    return list(opened.values())
