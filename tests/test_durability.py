"""Tests that a power cut, a full disk or a deleted file leaves whole answers or none."""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lm_eval.engine import store as store_module
from lm_eval.engine import wal_sync
from lm_eval.engine.store import MISSING, AnswerStore
from lm_eval.errors import StoreError

BATCHES = 12


def batch(number: int) -> tuple[list[bytes], list[tuple[float, bool]]]:
    draw = random.Random(number)
    keys = [draw.randbytes(16) for _ in range(40)]
    return keys, [(-draw.random(), draw.random() < 0.5) for _ in keys]


@pytest.fixture
def at_work(tmp_path: Path) -> Iterator[Path]:
    """A store that is being written: all answers are in the WAL, none in the database file yet."""
    path = tmp_path / "run" / "answers.sqlite"
    with AnswerStore(path, "m") as store:
        for number in range(BATCHES):
            store.add("loglikelihood", *batch(number))
        yield path


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def cut_off(path: Path, folder: Path, spoil: Callable[[bytes], bytes]) -> Path:
    """Returns a copy of the store with a damaged WAL: `spoil` maps the old bytes to the new."""
    folder.mkdir()
    copy = Path(shutil.copy(path, folder))
    log_of(copy).write_bytes(spoil(log_of(path).read_bytes()))
    return copy


def whole_batches(path: Path) -> int:
    """Returns how many batches are stored, after checking that each is complete and in order."""
    with AnswerStore(path, "m") as store:
        found = 0
        for number in range(BATCHES):
            keys, answers = batch(number)
            there = store.find(keys)
            if there == answers:
                assert found == number, "a batch is there and one before it is not"
                found += 1
            else:
                assert there == [MISSING] * len(keys)
        (sound,) = store._connection.execute("PRAGMA integrity_check").fetchone()
        assert sound == "ok"
        store.add("generate_until", [b"x" * 16], ["and it can be written to"])
    return found


def test_a_log_cut_off_anywhere_leaves_whole_answers(at_work: Path, tmp_path: Path) -> None:
    size = log_of(at_work).stat().st_size
    draw = random.Random(3)
    cuts = sorted({0, 1, 31, 32, 33, size - 1, size, *(draw.randrange(size) for _ in range(80))})
    found = [
        whole_batches(cut_off(at_work, tmp_path / f"cut{cut}", lambda log, cut=cut: log[:cut]))  # type: ignore[misc]
        for cut in cuts
    ]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, BATCHES)
    assert len(set(found)) > BATCHES // 2  # the cuts fell between, not only at the ends


def test_a_log_whose_end_is_garbage_leaves_whole_answers(at_work: Path, tmp_path: Path) -> None:
    """Blocks that were allocated but never written contain zeros or garbage."""
    draw = random.Random(4)
    for number in range(30):
        size = log_of(at_work).stat().st_size
        cut = draw.randrange(size)
        rest = bytes(size - cut) if number % 2 else draw.randbytes(size - cut)
        copy = cut_off(at_work, tmp_path / f"cut{number}", lambda log: log[:cut] + rest)  # noqa: B023
        assert whole_batches(copy) <= BATCHES


# -- reaching the disk ------------------------------------------------------------------------


def waited_for(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + 10
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


def test_an_answer_reaches_the_disk_though_the_model_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(wal_sync, "SYNC_EVERY", 0.05)
    monkeypatch.setattr("os.fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    path = tmp_path / "s"
    with AnswerStore(path, "m") as store:
        log = log_of(path).stat().st_ino
        assert log not in synced
        for number in range(3):
            store.add("loglikelihood", *batch(number))
        assert waited_for(lambda: log in synced)
        count = len(synced)
        time.sleep(0.2)
        assert len(synced) == count  # nothing is waiting any more
        store.add("loglikelihood", *batch(3))
        assert waited_for(lambda: len(synced) > count)


def test_a_disk_that_fails_beside_the_model_is_told_at_the_next_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[int] = []

    def fail(handle: int) -> None:
        failed.append(handle)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(wal_sync, "SYNC_EVERY", 0.01)
    monkeypatch.setattr("os.fsync", fail)
    with AnswerStore(tmp_path / "s", "m") as store:
        store.add("loglikelihood", *batch(0))
        assert waited_for(lambda: bool(failed))
        time.sleep(0.05)
        with pytest.raises(
            StoreError, match=r"cannot be stored in this file \(Input/output error\)"
        ):
            store.add("loglikelihood", *batch(1))


@pytest.mark.parametrize("whole_folder", [True, False])
def test_a_store_removed_under_a_run_is_said_once_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, whole_folder: bool
) -> None:
    path = tmp_path / "s" / "a"
    with caplog.at_level(logging.WARNING), AnswerStore(path, "m") as store:
        store.add("loglikelihood", *batch(0))
        store.add("generate_until", [b"t" * 16], ["a text"])
        store.add_failures({b"f" * 16: "a reason"})
        if whole_folder:
            shutil.rmtree(tmp_path / "s")
        else:
            path.unlink()
        store.add("loglikelihood", *batch(1))
        store.add("loglikelihood_rolling", [b"r" * 16], [-2.0])
    (warning,) = [r.getMessage() for r in caplog.records]
    assert warning.startswith(f"{path}: the answer store was removed during the run. It is created")
    with AnswerStore(path, "m") as store:
        assert store.find(batch(0)[0]) == batch(0)[1]
        assert store.find(batch(1)[0]) == batch(1)[1]
        assert store.find([b"t" * 16, b"r" * 16]) == ["a text", -2.0]
        assert store.failure(b"f" * 16) == "a reason"


def test_a_store_removed_after_the_last_answer_is_made_again(tmp_path: Path) -> None:
    with AnswerStore(tmp_path / "a", "m") as store:
        store.add("loglikelihood", *batch(0))
        (tmp_path / "a").unlink()
    with AnswerStore(tmp_path / "a", "m") as store:
        assert store.find(batch(0)[0]) == batch(0)[1]


def test_results_are_on_the_disk_before_they_have_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval.results.files import write_atomically

    there: list[Any] = []
    fsync = os.fsync

    def note(handle: int) -> None:
        there.append((os.fstat(handle).st_size, (tmp_path / "r.json").exists()))
        fsync(handle)

    monkeypatch.setattr("os.fsync", note)
    write_atomically(tmp_path / "r.json", ["12345"])
    assert there == [(5, False)]


# -- reading ----------------------------------------------------------------------------------


def test_reading_leaves_nothing_behind(at_work: Path, tmp_path: Path) -> None:
    alone = cut_off(at_work, tmp_path / "alone", lambda log: log)
    with AnswerStore(alone, "m", read_only=True) as store:
        assert len(store) == BATCHES * 40
        with pytest.raises(StoreError):
            store.add("loglikelihood", *batch(BATCHES))
    assert [p.name for p in alone.parent.iterdir()] == [alone.name]
    with AnswerStore(at_work, "m", read_only=True) as store:  # while another is writing
        assert len(store) == BATCHES * 40
    assert log_of(at_work).exists()


def test_a_killed_run_is_read_where_nobody_may_write(
    at_work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = cut_off(at_work, tmp_path / "killed", lambda log: log)
    before = {p.name: p.read_bytes() for p in killed.parent.iterdir()}
    monkeypatch.setattr("os.access", lambda *_: False)
    with AnswerStore(killed, "m", read_only=True) as store:
        assert len(store) == BATCHES * 40
    assert {p.name: p.read_bytes() for p in killed.parent.iterdir()} == before


def test_a_store_without_its_tables_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with AnswerStore(path, "m") as store:
        store.add("loglikelihood", *batch(0))
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE models")
    connection.close()
    with pytest.raises(StoreError, match="is damaged or is not an answer store"):
        AnswerStore(path, "m")


def test_a_disk_with_no_room_for_the_log_counts_as_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite reports this as an I/O error."""
    error = sqlite3.OperationalError("disk I/O error")
    assert "(disk I/O error)" in str(store_module._store_error(tmp_path / "s", error))
    usage = shutil.disk_usage(tmp_path)._replace(free=4096)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    assert "the disk is full" in str(store_module._store_error(tmp_path / "s", error))
