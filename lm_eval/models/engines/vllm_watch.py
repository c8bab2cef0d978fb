"""Ends the wait for a vLLM engine whose process has died."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: How often the engine is checked, in seconds.
CHECK_SECONDS = 1.0


@contextmanager
def watched(engine: Any) -> Iterator[None]:
    """Makes `engine.step()` raise vLLM's error if the process of the engine dies.

    vLLM 0.32 notices that its process has died, but if that was killed, it does not end a step that
    waits for outputs already. So a thread looks for vLLM's mark and puts an error into the queue of
    outputs. An engine without a process of its own is not watched.
    """
    core = getattr(engine, "engine_core", None)
    resources, outputs = getattr(core, "resources", None), getattr(core, "outputs_queue", None)
    if resources is None or outputs is None:
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(CHECK_SECONDS):
            if resources.engine_dead:
                outputs.put_nowait(RuntimeError("the process of the engine has died"))
                return

    thread = threading.Thread(target=watch, name="lm-eval-engine-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
