"""Scans shards in several processes.

Each process maps the same index into memory, gets one shard at a time, and reports how far it is.
A process that loses its parent ends by itself.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from lm_eval.contamination.corpus import Shard
from lm_eval.contamination.index import Index
from lm_eval.contamination.readers import ReadOptions
from lm_eval.contamination.shard_scan import ShardResult, scan_shard
from lm_eval.errors import DataError

Progress = Callable[[int], object]
#: A process, and the shard that it scans with its number.
_Running = tuple[BaseProcess, tuple[int, Shard] | None]


def available_cores() -> int:
    """Returns the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not available on macOS and Windows
        return os.cpu_count() or 1


def scan_shards(
    index: Index,
    shards: Sequence[tuple[int, Shard]],
    options: ReadOptions,
    workers: int,
    folder: Path,
    progress: Progress,
) -> Iterator[tuple[int, Shard, ShardResult]]:
    """Yields each shard with its number and result as soon as it is finished, in any order.

    Args:
        index: what is searched for.
        shards: what is scanned, with the numbers of the shards.
        options: how records are read.
        workers: the number of processes. With 1, shards are scanned in this process.
        folder: the files of the index; not needed with one process.
        progress: called with a number of bytes that were read.

    Raises `DataError` if a process ends unexpectedly.
    """
    if workers <= 1:
        for number, shard in shards:
            yield number, shard, scan_shard(index, shard, options, progress)
        return
    context = multiprocessing.get_context("spawn")
    running: dict[Connection, _Running] = {}
    waiting = iter(shards)
    try:
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process: BaseProcess = context.Process(
                target=_work, args=(theirs, folder, index.settings, options), daemon=True
            )
            process.start()
            theirs.close()
            running[ours] = (process, None)
            _assign(running, ours, waiting)
        while running:
            for connection in wait(list(running)):
                assert isinstance(connection, Connection)
                owner, given = running[connection]
                try:
                    message = connection.recv()
                except (EOFError, OSError) as error:
                    raise _ended(owner, given) from error
                if isinstance(message, int):
                    progress(message)
                    continue
                if isinstance(message, Exception):
                    raise message
                if given is not None:
                    yield *given, message
                # Only now: if this process is killed, each worker loses one shard at most.
                _assign(running, connection, waiting)
    finally:
        for connection, (owner, _) in running.items():
            connection.close()
            owner.terminate()
            owner.join()


def _assign(
    running: dict[Connection, _Running],
    connection: Connection,
    waiting: Iterator[tuple[int, Shard]],
) -> None:
    """Sends a process the next shard; if there is none, sends None and waits for its end.

    Updates `running`, which has the process and its shard for each connection.
    """
    process, _ = running[connection]
    following = next(waiting, None)
    connection.send(None if following is None else following[1])
    if following is None:
        del running[connection]
        process.join()
    else:
        running[connection] = (process, following)


def _ended(process: BaseProcess, given: tuple[int, Shard] | None) -> DataError:
    process.join()
    name = given[1].path.name if given is not None else "the corpus"
    return DataError(
        f"a process that scanned {name} ended unexpectedly (exit code {process.exitcode}); perhaps "
        "there was not enough memory. The other shards are kept: run the same command again to go "
        "on, with fewer --workers if memory is short."
    )


def _work(
    connection: Connection,
    folder: Path,
    settings: tuple[int, str, tuple[int, ...]],
    options: ReadOptions,
) -> None:
    """Scans the shards that arrive through the connection, until None arrives.

    Sends numbers of bytes as progress, and the result of each shard. `folder` and `settings` are
    those of the saved index. Runs in a process of its own.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    index = Index.load(folder, settings)
    parent = os.getppid()

    def progress(count: int) -> None:
        if os.getppid() != parent:  # the parent was killed
            os._exit(1)
        connection.send(count)

    try:
        while (shard := connection.recv()) is not None:
            try:
                result: ShardResult | Exception = scan_shard(index, shard, options, progress)
            except Exception as error:  # reported to the user by the parent
                result = error
            connection.send(result)
    except (EOFError, BrokenPipeError):  # the parent has ended
        return
