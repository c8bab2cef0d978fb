"""Builds the index of a scan in a process of its own.

Loading tasks and building an index take several times the memory of the index. It is free again
when the process has ended; the scan maps the index from files.
"""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing.connection import Connection
from pathlib import Path

from lm_eval.contamination.search import Search, TaskSelection
from lm_eval.errors import DataError
from lm_eval.logs import setup_logging


def search_from_process(tasks: TaskSelection, ngram: int, folder: Path) -> Search:
    """Returns the search for the documents of tasks; another process writes it to `folder`.

    Raises what that process raises, and `DataError` if it ends unexpectedly.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_build, args=(theirs, tasks, ngram, folder), daemon=True)
    process.start()
    theirs.close()
    try:
        error = ours.recv()
    except EOFError as ended:
        process.join()
        raise DataError(
            f"the process that indexes the documents ended unexpectedly (exit code "
            f"{process.exitcode}); perhaps there was not enough memory. Scan for fewer tasks at a "
            "time, and combine the findings with `lm-eval contamination merge`."
        ) from ended
    finally:
        ours.close()
        process.terminate()
        process.join()
    if error is not None:
        raise error
    return Search.load(folder)


def _build(connection: Connection, tasks: TaskSelection, ngram: int, folder: Path) -> None:
    """Builds and saves the search; sends None, or the error that was raised."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    setup_logging()
    error: Exception | None = None
    try:
        Search.of(tasks.load, ngram).save(folder)
    except Exception as raised:  # reported to the user by the parent
        error = raised
    try:
        connection.send(error)
    except BrokenPipeError:  # the parent has ended
        return
