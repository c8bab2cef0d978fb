"""How far the runs of a folder are: which answers the store already has."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lm_eval.engine.keys import KEY_SIZE
from lm_eval.engine.stored_keys import StoredKeys
from lm_eval.errors import OutputError
from lm_eval.runs.folder import LOCK_FILE
from lm_eval.runs.stored import StoredRun

#: A run without a known process counts as running if its store was written so many seconds ago.
_RECENT_SECONDS = 20.0


class RunProgress:
    """The progress of one run; it reads the store and never locks anything."""

    def __init__(self, run: StoredRun) -> None:
        """Takes a run. Of a run of someone else, only the store in its own folder is read."""
        self._run = run
        self._store = run.answers if run.is_own else run.folder.answers
        self._stored = StoredKeys(self._store, str(run.record.state.get("model")))
        self._keys = _keys_of(run)
        self._done = dict.fromkeys(self._keys, 0)

    def read(self) -> dict[str, Any]:
        """Returns the state of the run, and the numbers of requests and answers by task."""
        if self._run.record.finished:
            self._done = {task: len(keys) for task, keys in self._keys.items()}
        elif self._stored.refresh():
            known = self._stored.keys
            self._done = {
                task: sum(key in known for key in keys) for task, keys in self._keys.items()
            }
        tasks = [
            {"name": task, "requests": len(keys), "answers": self._done[task]}
            for task, keys in self._keys.items()
        ]
        return {
            "model": model_of(self._run),
            "state": self.state,
            "requests": sum(len(keys) for keys in self._keys.values()),
            "answers": sum(self._done.values()),
            "tasks": tasks,
        }

    @property
    def state(self) -> str:
        """`finished`, `running`, or `interrupted`."""
        if self._run.record.finished:
            return "finished"
        lock, log = self._run.folder.path / LOCK_FILE, f"{self._store}-wal"
        if _is_alive(lock):
            return "running"
        recent = min(_age(self._store), _age(Path(log)))
        return "running" if recent < _RECENT_SECONDS else "interrupted"


def model_of(run: StoredRun) -> str:
    """Returns the name of a run's model as far as the settings have it."""
    settings = run.record.settings
    arguments = settings.get("model_args")
    named: Mapping[str, Any] = arguments if isinstance(arguments, Mapping) else {}
    return str(named.get("pretrained") or named.get("model") or settings.get("model") or "model")


def _keys_of(run: StoredRun) -> dict[str, list[bytes]]:
    """Returns the keys of all requests of a run by task; empty if its index cannot be read."""
    try:
        index = run.folder.answer_index(run.record)
    except OutputError:
        return {}
    found = {}
    for task, table in sorted(index.items()):
        packed = np.ascontiguousarray(table["keys"]).tobytes()
        found[task] = [packed[i : i + KEY_SIZE] for i in range(0, len(packed), KEY_SIZE)]
    return found


def _is_alive(lock: Path) -> bool:
    """Returns whether the process that wrote its number into the lock file still runs."""
    if os.name == "nt":  # os.kill would end the process
        return False
    try:
        process = int(lock.read_text(encoding="ascii"))
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return True


def _age(file: Path) -> float:
    """Returns how many seconds ago a file was changed; infinity if it does not exist."""
    try:
        return max(0.0, time.time() - file.stat().st_mtime)
    except OSError:
        return float("inf")
