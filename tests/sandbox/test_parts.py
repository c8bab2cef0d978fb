"""Tests the parts of the sandbox that need no other process."""

from __future__ import annotations

import ast
import contextlib
import platform
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval.sandbox import Isolation, IsolationError, Limits, mechanisms_of, seccomp
from lm_eval.sandbox.paths import outermost
from lm_eval.sandbox.processes import remove_folder
from lm_eval.sandbox.remote import update
from lm_eval.sandbox.syscall_numbers import ALLOWED, ARCHITECTURES, NUMBERS, numbers
from lm_eval.sandbox.tested_names import names_of
from lm_eval.sandbox.values import MalformedError, Reader, ValueRefusedError, Writer


class NoReferences:
    """Refuses everything that is not plain."""

    def describe(self, value: Any) -> tuple[Any, ...]:
        raise ValueRefusedError(type(value).__name__)

    def resolve(self, description: tuple[Any, ...]) -> Any:
        raise MalformedError(str(description))


WRITER, READER = Writer(NoReferences(), 1 << 20), Reader(NoReferences())
KEYS = st.none() | st.booleans() | st.integers() | st.text() | st.binary()
PLAIN = st.recursive(
    KEYS | st.floats(allow_nan=False) | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS, inner)
        | st.sets(KEYS)
        | st.frozensets(KEYS)
    ),
)


@given(PLAIN)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    again = READER.read(WRITER.write(value))
    assert type(again) is type(value)
    assert repr(again) == repr(value) or again == value


@given(st.binary(max_size=200))
def test_other_bytes_are_malformed_and_nothing_worse(data: bytes) -> None:
    with contextlib.suppress(MalformedError):
        READER.read(data)


@given(PLAIN, st.integers(0, 10**6), st.binary(min_size=1, max_size=3))
def test_damaged_bytes_are_malformed_and_nothing_worse(value: Any, at: int, junk: bytes) -> None:
    data = bytearray(WRITER.write(value))
    at %= len(data)
    data[at : at + len(junk)] = junk
    with contextlib.suppress(MalformedError):
        READER.read(bytes(data))


def test_bytes_that_ask_for_a_huge_container_take_no_memory() -> None:
    for code in (b"l", b"d", b"i", b"u", b"s"):
        with pytest.raises(MalformedError):
            READER.read(code + struct.pack("<Q", 2**62) + b"N" * 100)


def test_values_beyond_the_limit_are_refused() -> None:
    for value in ("x" * (2 << 20), 1 << (9 << 20), bytes(2 << 20), [[0] * 10**5] * 9):
        with pytest.raises(ValueRefusedError, match="too large"):
            WRITER.write(value)


@pytest.mark.parametrize(
    ("tests", "wanted", "modules"),
    [
        ("assert f(1) == 2", ["f"], []),
        ("def check(candidate):\n    assert candidate(1)\ncheck(f)", ["f"], []),
        ("assert set(f(1)) == set(abs(x) for x in [1])", ["f"], []),
        ("assert sum(1, 2) == 3", ["sum"], []),
        ("assert abs(sum(1, 2)) == 3 and f(2)", ["f"], []),
        ("assert math.isclose(f(1), 2)", ["f"], ["math"]),
        ("import math\nassert math.isclose(f(1), 2)", ["f"], []),
        ("assert np.allclose(f(1), 2)", ["f"], ["np"]),
        ("assert copy(1) == 1", ["copy"], []),
        ("root = Node(1)\nassert height(root) == 1", ["Node", "height"], []),
        ("for x in data:\n    assert f(x)", ["data", "f"], []),
        ("def g():\n    global h\n    h = f(1)\ng()\nassert h", ["f"], []),
        ("assert [f(y) for y in range(3)]", ["f"], []),
    ],
)
def test_the_names_that_a_program_must_define_are_found(
    tests: str, wanted: list[str], modules: list[str]
) -> None:
    names = names_of(ast.parse(tests), tests)
    assert names.wanted == wanted
    assert sorted(names.modules) == modules


def test_the_imports_of_tests_are_found() -> None:
    tests = "import math\nimport os.path\nimport numpy as np\nfrom re import sub as s\nf()"
    assert names_of(ast.parse(tests), tests).imports == [
        ("math", "", "math"),
        ("os", "", "os"),
        ("numpy", "", "np"),
        ("re", "sub", "s"),
    ]


def test_changed_arguments_keep_their_identity() -> None:
    inner, arguments = [1, 2], ([3, 1], {"a": 1}, {5}, "text")
    nested = (inner, [inner, 4], *arguments)
    update(nested, ([9], [[9], 5, 6], [1, 3], {"b": 2}, set(), "other"))
    assert nested[0] is inner
    assert nested == ([9], [[9], 5, 6], [1, 3], {"b": 2}, set(), "text")
    assert nested[1][0] is inner


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_a_filter_decides_about_every_call_as_listed(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    numbers.cache_clear()
    seccomp._packed_search.cache_clear()
    try:
        code = list(struct.iter_unpack("HBBI", seccomp.program_filter(77)))
        known = numbers()
    finally:
        numbers.cache_clear()
        seccomp._packed_search.cache_clear()
    allowed = {known[name] for name in ALLOWED.split() if name in known}
    named = {known[name] for name in seccomp._conditional(1)}
    architecture = ARCHITECTURES[machine]
    for number in set(range(600)) - named:
        expected = 0x7FFF0000 if number in allowed else 0x00050001
        assert interpreted(code, number, architecture) == expected, number
    assert interpreted(code, 1, 0x40000003) == 0x80000000, "another architecture"
    assert interpreted(code, 0x40000001, architecture) == 0x00050026, "the x32 table"

    def decided(name: str, *args: int) -> bool:
        return interpreted(code, known[name], architecture, args) == 0x7FFF0000

    assert decided("kill", 77)
    assert not decided("kill", 78)
    assert not decided("kill", 2**32 - 1)
    assert decided("clone", 0x10000 | 0x100)
    assert not decided("clone", 17)
    assert decided("prlimit64", 0, 1, 0)
    assert not decided("prlimit64", 0, 1, 1 << 40)
    assert not decided("prlimit64", 0, 1, 4096)
    assert decided("socketpair", 1, 1 | 0o2000000)
    assert not decided("socketpair", 1, 2)
    assert not decided("socketpair", 2, 1)
    assert decided("sendto", 3, 1, 1, 0, 0)
    assert not decided("sendto", 3, 1, 1, 0, 1 << 33)
    assert decided("ioctl", 1, 0x5401)
    assert not decided("ioctl", 1, 0x5412)
    assert decided("fcntl", 1, 4)
    assert not decided("fcntl", 1, 8)
    assert not decided("prctl", 4)


def interpreted(
    code: list[tuple[int, ...]], number: int, architecture: int, args: tuple[int, ...] = ()
) -> int:
    """Returns what a filter returns for a call; the kernel's language, in a few lines."""
    padded = (*args, *(0,) * (6 - len(args)))
    data = struct.pack("=IIQ6Q", number, architecture, 0, *padded)
    at = value = 0
    while True:
        operation, if_true, if_false, operand = code[at]
        at += 1
        if operation == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
        elif operation == 0x54:
            value &= operand
        elif operation == 0x05:
            at += operand
        elif operation == 0x06:
            return operand
        else:
            tests = {
                0x15: value == operand,
                0x25: value > operand,
                0x35: value >= operand,
                0x45: bool(value & operand),
            }
            at += if_true if tests[operation] else if_false


def test_all_allowed_calls_have_numbers() -> None:
    assert set(ALLOWED.split()) <= {entry.partition(":")[0] for entry in NUMBERS.split()}


def test_a_path_below_another_is_covered_by_it() -> None:
    assert outermost(["/a/b", "/a", "/ab", "/c/d/e", "/c/d"]) == ["/a", "/ab", "/c/d"]


def test_a_locked_folder_is_removed_and_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    scratch, kept = tmp_path / "scratch", tmp_path / "kept"
    (scratch / "a" / "b").mkdir(parents=True)
    (kept / "inner").mkdir(parents=True, mode=0o755)
    (scratch / "a" / "link").symlink_to(kept)
    (scratch / "a" / "b").chmod(0)
    (scratch / "a").chmod(0)
    scratch.chmod(0)
    remove_folder(str(scratch))
    assert not scratch.exists()
    scratch.symlink_to(kept)
    remove_folder(str(scratch))
    assert not scratch.is_symlink()
    assert (kept / "inner").stat().st_mode & 0o777 == 0o755
    remove_folder(str(scratch))


def test_a_level_names_mechanisms() -> None:
    found = Isolation("landlock+seccomp", ("landlock", "seccomp"), {"namespaces": "forbidden"})
    assert found.satisfies("limits")
    assert found.satisfies("seccomp")
    assert found.satisfies("seccomp+landlock")
    assert not found.satisfies("namespaces+landlock+seccomp")
    assert mechanisms_of("limits") == set()
    with pytest.raises(IsolationError, match="joined by"):
        mechanisms_of("full")


def test_a_longer_wall_limit_comes_with_more_processor_time() -> None:
    assert Limits().with_wall_seconds(30).cpu_seconds > 30
    assert Limits().with_wall_seconds(1).cpu_seconds == Limits().cpu_seconds
