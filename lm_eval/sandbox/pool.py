"""Runs many programs at once, one worker per thread."""

from __future__ import annotations

import itertools
import os
import queue
import re
import threading
from collections.abc import Callable, Sequence

from lm_eval.sandbox.types import Limits, Verdict
from lm_eval.sandbox.workers import SupervisorDiedError, Worker

#: Modules that take long to import; they are imported once if a program or its tests use them.
_SLOW_IMPORTS = ("numpy",)


def run_all(
    programs: Sequence[str],
    tests: Sequence[str],
    limits: Limits,
    mechanisms: Sequence[str],
    *,
    workers: int | None = None,
    report: Callable[[int, Verdict], None] | None = None,
    given: Sequence[str] | None = None,
) -> list[Verdict]:
    """Returns one verdict per program, isolated by `mechanisms`; see `lm_eval.sandbox.run`."""
    if len(programs) != len(tests):
        raise ValueError(f"{len(programs)} programs, but tests for {len(tests)}")
    if given is not None and len(given) != len(programs):
        raise ValueError(f"{len(programs)} programs, but given texts for {len(given)}")
    count = min(workers or _processors(), len(programs))
    preload = [name for name in _SLOW_IMPORTS if _is_imported(name, programs, tests)]
    verdicts: dict[int, Verdict] = {}
    ended: queue.SimpleQueue[tuple[int, Verdict] | BaseException | None] = queue.SimpleQueue()
    remaining = itertools.count()
    stop = threading.Event()

    def work(number: int) -> None:
        worker: Worker | None = None
        try:
            while not stop.is_set() and (index := next(remaining)) < len(programs):
                worker = worker or Worker(number, mechanisms, limits, preload)
                try:
                    verdict = worker.judge(
                        programs[index], tests[index], given[index] if given else ""
                    )
                except SupervisorDiedError as error:
                    worker.close()
                    worker = None
                    verdict = Verdict(False, "died", f"the program ended the runner: {error}", 0.0)
                ended.put((index, verdict))
            ended.put(None)
        except BaseException as error:  # raised again in the caller's thread
            ended.put(error)
        finally:
            if worker:
                worker.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        working = count
        while working:
            item = ended.get()
            if item is None:
                working -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                verdicts[item[0]] = item[1]
                if report:
                    report(*item)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return [verdicts[index] for index in range(len(programs))]


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _is_imported(module: str, *texts: Sequence[str]) -> bool:
    pattern = re.compile(rf"\b(?:import|from)\s+{module}\b")
    return any(pattern.search(text) for group in texts for text in group)
