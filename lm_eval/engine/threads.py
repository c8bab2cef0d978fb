"""Limits the number of threads that numpy computes with."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

USER_SETTINGS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
"""Environment variables that set the number of threads. If one is set, no limit is applied."""

_LIMIT_LOCK = threading.RLock()
"""Held by the thread whose evaluation has set the limit. The limit applies to the process."""


@contextmanager
def numpy_on_one_thread() -> Iterator[None]:
    """Limits numpy's BLAS library to one thread inside the `with` block.

    The matrix products of an evaluation are small. More threads make them 10% faster on an idle
    machine, but many times slower on a busy one, where threads wait for each other. No limit is
    applied if the user has set the number of threads (`USER_SETTINGS`). Torch's threads are never
    limited.

    If several threads evaluate at the same time, only the first one sets the limit, and restores
    the previous number when its own block ends. Otherwise a later thread could "restore" the limit
    itself. Also works as a decorator.
    """
    user_set = any(os.environ.get(name) for name in USER_SETTINGS)
    if user_set or not _LIMIT_LOCK.acquire(blocking=False):
        yield
        return
    try:
        from threadpoolctl import ThreadpoolController

        blas = ThreadpoolController().select(user_api="blas")
        paths = [library["filepath"] for library in blas.info()]
        numpy_blas = blas.select(filepath=[path for path in paths if _is_used_by_numpy_only(path)])
        with numpy_blas.limit(limits=1):
            yield
    finally:
        _LIMIT_LOCK.release()


def _is_used_by_numpy_only(library: str) -> bool:
    """Returns whether limiting the BLAS library at this path affects numpy but not torch.

    True if the library was installed with numpy, or if it is the system's and torch is not loaded:
    conda and Linux distributions install one BLAS for all packages, including torch.
    """
    path, package = Path(library).resolve(), Path(np.__file__).resolve().parent
    if package in path.parents or package.with_name("numpy.libs") in path.parents:
        return True
    return package.parent not in path.parents and "torch" not in sys.modules
