"""How many threads numpy computes with."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

USER_SETTINGS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
"""Variables by which a user sets the number of threads; then nothing is limited."""

_LIMIT_HELD = threading.RLock()
"""Held by the thread whose evaluation has set the limit, which is the process's."""


@contextmanager
def numpy_on_one_thread() -> Iterator[None]:
    """Limits numpy's BLAS library to one thread, and restores the number afterwards.

    The products of an evaluation are small: more threads make them a tenth faster on an idle
    machine, and many times slower on a busy one, where threads wait for one another. A number
    that the user has set in the environment is kept. Torch's threads are never limited.

    Of evaluations side by side in several threads, the first sets the limit and restores the
    number; the others do neither, or a number could be restored that was already the limit. Also
    works as a decorator.
    """
    user_set = any(os.environ.get(name) for name in USER_SETTINGS)
    if user_set or not _LIMIT_HELD.acquire(blocking=False):
        yield
        return
    try:
        from threadpoolctl import ThreadpoolController

        blas = ThreadpoolController().select(user_api="blas")
        paths = [library["filepath"] for library in blas.info()]
        ours = blas.select(filepath=[path for path in paths if _used_by_numpy_alone(path)])
        with ours.limit(limits=1):
            yield
    finally:
        _LIMIT_HELD.release()


def _used_by_numpy_alone(library: str) -> bool:
    """Whether a BLAS library came with numpy, or is the system's and torch is not loaded.

    Conda and Linux distributions install one BLAS for all packages, torch included.
    """
    path, package = Path(library).resolve(), Path(np.__file__).resolve().parent
    if package in path.parents or package.with_name("numpy.libs") in path.parents:
        return True
    return package.parent not in path.parents and "torch" not in sys.modules
