"""Tests that damage anywhere in an answer store is found, named, and costs only damaged answers."""

from __future__ import annotations

import logging
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lm_eval.api.instance import Completion
from lm_eval.engine.answer_codec import pack, unpack
from lm_eval.engine.store import FORMAT, MISSING, AnswerStore
from lm_eval.errors import OutputError, StoreError
from lm_eval.runs.folder import RunFolder

Answers = dict[bytes, Any]


def written(path: Path, batches: int = 12, of: int = 40, identity: str = "m") -> Answers:
    """Writes a store with answers of all types; returns them by key."""
    draw, given = random.Random(3), {}
    with AnswerStore(path, identity) as store:
        for number in range(batches):
            keys = [draw.randbytes(16) for _ in range(of)]
            kind, answers = (
                ("loglikelihood", [(-draw.random(), draw.random() < 0.5) for _ in keys]),
                ("generate_until", [f"text {draw.random()} ü\n" for _ in keys]),
                ("loglikelihood_rolling", [-draw.random() for _ in keys]),
                ("generate_until", [Completion("a", "b", "stop") for _ in keys]),
            )[number % 4]
            store.add(kind, keys, answers)
            given |= dict(zip(keys, answers, strict=True))
    return given


def found_in(path: Path, given: Answers, read_only: bool = False) -> tuple[int, int]:
    """Returns how many of the answers are found and how many are not; no other may be found."""
    with AnswerStore(path, "m", read_only=read_only) as store:
        found = store.find(given)
        for expected, answer in zip(given.values(), found, strict=True):
            assert answer is MISSING or answer == expected
            if isinstance(answer, Completion):
                assert vars(answer) == vars(expected)
        missing = sum(answer is MISSING for answer in found)
        assert len(store) == len(given) - missing
    return len(given) - missing, missing


def damage(path: Path, at: int, value: bytes) -> None:
    with path.open("rb+") as file:
        file.seek(at)
        file.write(value)


def offset_of(path: Path, content: bytes) -> int:
    return path.read_bytes().index(content)


def test_a_changed_answer_is_named_and_only_it_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s"
    given = written(path)
    value = next(iter(given.values()))[0]
    damage(path, offset_of(path, np.float64(value).tobytes()) + 3, b"\x55")
    with caplog.at_level(logging.WARNING):
        assert found_in(path, given) == (len(given) - 1, 1)
    (warning,) = caplog.messages
    assert f"{path}: the file is damaged: 1 of its stored answers (in row 1)" in warning
    caplog.clear()
    assert found_in(path, given) == (len(given) - 1, 1)  # it was removed, so all is well now
    assert not caplog.messages


@pytest.mark.parametrize("what", ["key", "text", "line break", "completion", "kind", "format"])
def test_damage_to_any_part_of_a_row_costs_only_what_it_touches(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s"
    given = written(path, batches=4, of=10)
    keys = list(given)
    content, change = {
        "key": (keys[5], b"\xff"),
        "text": (b'"text', b"!"),
        "line break": (b'"\n"text', b"##"),
        "completion": (b'{"text"', b"?"),
        "kind": (b"generate_until", b"G"),
        "format": (b"P" + np.float64(given[keys[0]][0]).tobytes(), b"L"),
    }[what]
    damage(path, offset_of(path, content), change)
    lost = {"kind": 0, "format": 0, "line break": 2}.get(what, 1)
    assert found_in(path, given) == (40 - lost, lost)
    assert ("is damaged" in caplog.text) is bool(lost)


def test_answers_of_another_model_are_never_taken(tmp_path: Path) -> None:
    path = tmp_path / "s"
    given = written(path)
    AnswerStore(path, "another").close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE answers SET model = 2")
    with AnswerStore(path, "another") as store:
        assert set(store.find(given)) == {MISSING}


def test_a_damaged_name_of_the_model_is_recognized_by_its_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s"
    given = written(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE models SET identity = 'n'")
    assert found_in(path, given, read_only=True) == (len(given), 0)
    assert found_in(path, given) == (len(given), 0)
    assert "has lost the name of the model" in caplog.text
    caplog.clear()
    assert found_in(path, given) == (len(given), 0)
    assert not caplog.messages


def test_a_truncated_store_keeps_what_is_before_the_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s"
    given = written(path, batches=40)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    before = path.read_bytes()
    found, missing = found_in(path, given, read_only=True)
    assert path.read_bytes() == before, "reading changes nothing"
    assert found > 100
    assert missing
    assert found_in(path, given) == (found, missing)
    assert "the damaged one is kept as s.damaged-" in caplog.text
    (kept,) = tmp_path.glob("s.damaged-*")
    assert kept.read_bytes()[:4096] != path.read_bytes()[:4096]
    with AnswerStore(path, "m") as store:  # the new file can be written to
        store.add("generate_until", [b"x" * 16], ["new"])
    assert found_in(path, {**given, b"x" * 16: "new"}) == (found + 1, missing)


def test_a_damaged_store_that_another_process_uses_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    written(path, batches=40)
    with AnswerStore(path, "m"):
        damage(path, 4096 * 4, b"\xff" * 64)
        with pytest.raises(StoreError, match="is locked"):
            AnswerStore(path, "m")
    assert not list(tmp_path.glob("*damaged*"))


def test_random_damage_never_changes_an_answer(tmp_path: Path) -> None:
    source = tmp_path / "source"
    given = written(source, batches=24)
    whole, draw = source.read_bytes(), random.Random(7)
    refused = lost = 0
    for number in range(60):
        path = tmp_path / f"s{number}"
        content = bytearray(whole)
        for _ in range(draw.choice([1, 1, 1, 4, 64])):
            content[draw.randrange(len(content))] = draw.randrange(256)
        path.write_bytes(content)
        try:
            lost += bool(found_in(path, given)[1])
        except StoreError:
            refused += 1
    assert lost > 20
    assert refused < 15  # only where the header of the file or its tables are damaged


# -- stores of older versions -----------------------------------------------------------------


def old_store(path: Path) -> Answers:
    """Writes a store of format 3, which has no checksums."""
    pairs = {bytes([i]) * 16: (-i / 7, i % 2 == 0) for i in range(10)}
    texts = {bytes([100 + i]) * 16: f"text {i}" for i in range(10)}
    packed = b"P" + np.array([v for v, _ in pairs.values()], "<f8").tobytes()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(
            "CREATE TABLE models (id INTEGER PRIMARY KEY, identity TEXT UNIQUE NOT NULL);"
            "CREATE TABLE answers (model INTEGER NOT NULL, kind TEXT NOT NULL, "
            "keys BLOB NOT NULL, answers BLOB NOT NULL);"
            "CREATE INDEX answers_of_model ON answers (model);"
            "PRAGMA application_id = 0x4C4D6576; PRAGMA user_version = 3;"
            "INSERT INTO models VALUES (1, 'm');"
        )
        rows = [
            ("loglikelihood", b"".join(pairs), packed + bytes(g for _, g in pairs.values())),
            ("generate_until", b"".join(texts), f"J{[*texts.values()]}".replace("'", '"').encode()),
        ]
        connection.executemany("INSERT INTO answers VALUES (1, ?, ?, ?)", rows)
    return {**pairs, **texts}


def test_a_store_without_checksums_is_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "s"
    given = old_store(path)
    assert found_in(path, given, read_only=True) == (20, 0)
    with AnswerStore(path, "m") as store:
        store.add("generate_until", [b"x" * 16, b"e" * 16], ["new", "changed"])
    assert found_in(path, {**given, b"x" * 16: "new", b"e" * 16: "changed"}) == (21, 0)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)


@pytest.mark.parametrize("value", [np.nan, np.inf, 3.0])
def test_answers_without_checksums_must_be_ones_that_a_model_can_give(
    tmp_path: Path, value: float, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s"
    given = old_store(path)
    damage(path, offset_of(path, np.float64(-3 / 7).tobytes()), np.float64(value).tobytes())
    assert found_in(path, given) == (19, 1)
    assert "1 of its stored answers (in row 1)" in caplog.text


# -- the packed form --------------------------------------------------------------------------


def test_anything_a_file_may_contain_can_be_unpacked() -> None:
    keys = [bytes([i]) * 16 for i in range(3)]
    row = ("loglikelihood", *pack("m", "loglikelihood", keys, [(-1.0, True)] * 3))
    assert unpack("m", *row).keys == keys
    for i in range(4):
        for value in (None, 3, 2.5, "text", b"", b"\0", b"x" * 16, b"x" * 48):
            if value != row[i]:
                found = unpack("m", *row[:i], value, *row[i + 1 :])
                assert found.damaged >= 3 or (i == 0 and found.keys == keys), (i, value, found)


def test_an_answer_index_with_any_byte_changed_is_read_or_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    columns = {
        "keys": np.zeros((3, 16), dtype=np.uint8),
        "document": np.arange(3),
        "place": np.zeros(3, dtype=np.int32),
    }
    record = folder.begin({"model": "m"}, {"model": "m", "tasks": {}}, {"t": columns})
    file = tmp_path / str(record.answer_index)
    whole = file.read_bytes()
    refused = 0
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x15]) + whole[at + 1 :])
        try:
            found = folder.answer_index(record)
        except OutputError:
            refused += 1
            continue
        for name, column in found.get("t", {}).items():
            assert np.array_equal(column, columns[name])
    assert refused > len(whole) // 2
