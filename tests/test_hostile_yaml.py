"""Tests that no task file, whoever wrote it, can crash, block or exhaust a command."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator

import pytest

from lm_eval.cli import main
from lm_eval.config.yaml_file import load_yaml_file
from lm_eval.errors import ConfigError
from lm_eval.tasks import TaskManager
from tests.conftest import Folder

Output = pytest.CaptureFixture[str]

TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: rows.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{q}}}}"
doc_to_target: "{{{{a}}}}"
"""


def laughs(levels: int, width: int = 10) -> str:
    """Returns a mapping in which each list contains the one before `width` times."""
    lines = ["l0: &l0 [x, x]"]
    for level in range(1, levels):
        lines.append(f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * width)}]")
    return "\n".join(lines) + "\n"


BAD_TEXTS: dict[str, tuple[str | bytes, str]] = {
    "flow lists nested 100,000 levels": ("[" * 100_000, "nested more than 100 levels"),
    "closed lists nested 5,000 levels": (f"a: {'[' * 5_000}{']' * 5_000}", "more than 100 levels"),
    "flow mappings nested 5,000 levels": (f"a: {'{a: ' * 5_000}", "nested more than 100 levels"),
    "block lists nested in one line": (f"a:\n  {'- ' * 3_000}x", "nested more than 100 levels"),
    "block mappings by indentation": (
        "".join(f"{' ' * n}a:\n" for n in range(1_200)),
        "nested more than 100 levels",
    ),
    "complex keys in one line": (f"{'? ' * 3_000}x", "nested more than 100 levels"),
    "a billion laughs": (laughs(10), "stand for more than 100000 values"),
    "laughs in merge keys": (
        "a: &a {x: 1}\n"
        + "".join(
            f"b{n}: &b{n} {{<<: [{', '.join([f'*b{n - 1}' if n else '*a'] * 9)}]}}\n"
            for n in range(9)
        ),
        "stand for more than 100000 values",
    ),
    "a list that contains itself": ("a: &a [*a]", "*a refers to the value that contains it"),
    "a mapping that contains itself": ("a: &a {b: {c: *a}}", "refers to the value that contains"),
    "an alias of nothing": ("a: *nothing", "undefined alias"),
    "UTF-16": ("task: x\n".encode("utf-16"), "the file is UTF-16; save it as UTF-8"),
    "UTF-16 without a mark": ("task: x\n".encode("utf-16-le"), "the file is UTF-16; save it"),
    "UTF-32": ("task: x\n".encode("utf-32"), "the file is UTF-32; save it as UTF-8"),
    "Latin-1": ("task: é\n".encode("latin-1"), "not UTF-8 text"),
    "a NUL": (b"task: x\nnote: a\0b\n", "has a character that YAML forbids"),
    "an escape character": (b"task: x\nnote: a\x1b[31mb\n", "has a character that YAML forbids"),
    "a boolean that is none": ("a: !!bool x", "cannot be read"),
    "an integer that is none": ('a: !!int ""', "cannot be read"),
    "a date that is none": ("a: !!timestamp x", "cannot be read"),
    "an integer of a million digits": (f"a: {'9' * 1_000_000}", "more than 1000 digits"),
    "a hexadecimal number of 5,000 digits": (f"a: 0x{'f' * 5_000}", "more than 1000 digits"),
    "a number in base 60": (f"a: 1{':1' * 100_000}", "more than 1000 digits"),
    "an unknown type": ("a: !!python/object/apply:os.system [true]", "could not determine"),
    "a list as a key": ("? [a]\n: b", "unhashable key"),
    "a list at the top": ("- a\n- b", "expected `key: value` lines"),
    "a set at the top": ("!!set {a, b}", "expected `key: value` lines"),
    "text at the top": ("only text", "expected `key: value` lines"),
    "nothing": ("", "found nothing"),
    "two documents": ("a: 1\n---\nb: 2\n", "not valid YAML"),
    "more than four megabytes": (f"a: {'x' * (5 * 2**20)}", "more than the 4194304"),
    "an include with a NUL in its name": ('include: "a\\0b"\ntask: x', "include"),
    "an include of 5,000 characters": (f"include: {'a' * 5_000}.yaml\ntask: x", "include"),
    "an include of its own folder": ("include: .\ntask: x", "there is no file"),
    "an include that is a mapping of lists": ("include: [[a, b]]\ntask: x", "there is no file"),
    "a device that is included": ("include: /dev/zero\ntask: x", "there is no file"),
}


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_a_bad_file_is_one_message_and_disables_only_its_own_tasks(
    name: str, folder: Folder, capsys: Output
) -> None:
    text, said = BAD_TEXTS[name]
    bad = folder.path / "bad.yaml"
    bad.write_bytes(text if isinstance(text, bytes) else text.encode())
    folder.write("good.yaml", TASK.format(name="good_one"))
    started = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        load_yaml_file(bad)
    assert said in str(caught.value)
    assert str(bad) in str(caught.value)
    assert main(["ls", "tasks", "good_one", "--include_path", str(folder.path)]) == 0
    out, err = capsys.readouterr()
    assert "good_one" in out
    assert err.count("bad.yaml cannot be read") <= 1
    assert main(["validate", str(bad), "--no-build"]) == 1
    out, _ = capsys.readouterr()
    assert out.splitlines()[-1] == "1 problem found."
    assert len(out.splitlines()) == 2
    assert time.monotonic() - started < 10


def test_what_is_allowed_stays_allowed(folder: Folder) -> None:
    text = f"a: &a [1, 2]\nb: [*a, *a]\nc: {'[' * 90}{']' * 90}\nd: &d {{x: *a}}\ne: {{<<: *d}}\n"
    values = load_yaml_file(folder.write("x.yaml", text)).values
    assert values["b"] == [[1, 2], [1, 2]]
    assert values["e"] == {"x": [1, 2]}


def test_a_byte_order_mark_is_read(folder: Folder) -> None:
    file = folder.path / "marked.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + TASK.format(name="marked").encode())
    assert "marked" in TaskManager(include_path=folder.path).task_index
    assert load_yaml_file(file).values["task"] == "marked"


@pytest.fixture
def special(folder: Folder) -> Iterator[Folder]:
    """Returns a folder with a good task, a named pipe, a socket and a link to a device."""
    folder.write("good.yaml", TASK.format(name="good_one") + "metric_list: [{metric: own}]\n")
    os.mkfifo(folder.path / "pipe.yaml")
    os.mkfifo(folder.path / "pipe.py")
    (folder.path / "device.yaml").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(folder.path / "socket.yaml"))  # names are short
        yield folder


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_devices_and_sockets_are_reported_and_not_read(
    special: Folder, capsys: Output
) -> None:
    assert main(["ls", "tasks", "good_one", "--include_path", str(special.path)]) == 0
    out, err = capsys.readouterr()
    assert "good_one" in out
    for name in ("pipe", "device", "socket"):
        assert err.count(f"{name}.yaml cannot be read as YAML and is ignored") == 1
    for name, kind in (("pipe", "a named pipe"), ("device", "a device"), ("socket", "a socket")):
        assert main(["validate", str(special.path / f"{name}.yaml"), "--no-build"]) == 1
        assert f"not a regular file but {kind}" in capsys.readouterr().out
    assert main(["validate", str(special.path / "good.yaml"), "--no-build"]) == 1
    assert "unknown metric 'own'" in capsys.readouterr().out


def test_folders_without_permission_and_links_in_a_circle_are_passed_over(
    folder: Folder, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("good.yaml", TASK.format(name="good_one"))
    folder.write("closed/x.yaml", "task: x")
    (folder.path / "circle").symlink_to(folder.path / "circle")
    (folder.path / "circle.yaml").symlink_to(folder.path / "circle.yaml")
    (folder.path / "nowhere.yaml").symlink_to(folder.path / "missing")
    listed = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert main(["ls", "tasks", "good_one", "--include_path", str(folder.path)]) == 0
    out, err = capsys.readouterr()
    assert "good_one" in out
    assert err.count("closed is ignored: it cannot be read (Permission denied)") == 1


def test_many_bad_files_give_few_warnings(folder: Folder, capsys: Output) -> None:
    for number in range(40):
        folder.write(f"bad{number:02}.yaml", "task: [")
    assert main(["ls", "tasks", "nothing_of", "--include_path", str(folder.path)]) == 0
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 11
    assert "30 more files cannot be read" in err


# -- includes and groups ----------------------------------------------------------------------


def test_a_file_is_included_once_however_many_paths_lead_to_it(folder: Folder) -> None:
    for level in range(40):
        after = f"include: [l{level + 1}.yaml, l{level + 1}.yaml]\n" if level < 39 else ""
        folder.write(f"l{level}.yaml", f"{after}key{level}: {level}\n")
    folder.write("top.yaml", "include: l0.yaml\n" + TASK.format(name="diamond"))
    values = load_yaml_file(folder.path / "top.yaml").values
    assert values["key39"] == 39
    assert "diamond" in TaskManager(include_path=folder.path).task_index


def test_files_that_all_include_each_other_are_one_message(folder: Folder) -> None:
    names = [f"f{number}.yaml" for number in range(14)]
    for name in names:
        folder.write(name, f"include: [{', '.join(names)}]\ntask: {name[:-5]}\n")
    started = time.monotonic()
    assert "f3" in TaskManager(include_path=folder.path).task_index
    with pytest.raises(ConfigError, match="include each other in a cycle"):
        load_yaml_file(folder.path / "f0.yaml")
    assert time.monotonic() - started < 5


def test_a_chain_of_1200_includes_is_one_message(folder: Folder) -> None:
    for level in range(1_200):
        folder.write(f"l{level}.yaml", f"include: l{level + 1}.yaml\n")
    folder.write("l1200.yaml", TASK.format(name="far"))
    TaskManager(include_path=folder.path)
    with pytest.raises(ConfigError, match="more than 50 files include each other in a row"):
        load_yaml_file(folder.path / "l0.yaml")


def nested_groups(folder: Folder, levels: int, width: int) -> None:
    folder.rows("rows.jsonl", [{"q": "1", "a": "1"}])
    folder.write("leaf.yaml", TASK.format(name="leaf"))
    for level in range(levels):
        below = f"g{level + 1}" if level < levels - 1 else "leaf"
        sides = [f"{{group: side{level}_{n}, task: [{below}]}}" for n in range(width)]
        folder.write(
            f"g{level}.yaml",
            f"group: g{level}\ntask: [{', '.join(sides)}]\n"
            "aggregate_metric_list: [{metric: exact_match}]\n",
        )


def test_groups_in_diamonds_are_visited_once(folder: Folder, capsys: Output) -> None:
    nested_groups(folder, 20, 3)
    started = time.monotonic()
    assert main(["validate", "g0", "--include_path", str(folder.path), "--no-build"]) == 0
    loaded = TaskManager(include_path=folder.path).load("g0")
    assert list(loaded["tasks"]) == ["leaf"]
    assert len(loaded["groups"]) == 20 + 3 * 20
    assert time.monotonic() - started < 10


def test_the_table_of_groups_in_diamonds_has_a_bounded_length() -> None:
    from lm_eval.results.table import make_table

    names = [f"{kind}{level}" for level in range(25) for kind in "gab"]
    children = {f"g{n}": [f"a{n}", f"b{n}"] for n in range(25)}
    for n in range(24):
        children[f"a{n}"] = children[f"b{n}"] = [f"g{n + 1}"]
    rows = {name: {"alias": name, "acc,none": 0.5} for name in names}
    table = make_table({"results": rows, "versions": {}, "group_subtasks": children})
    assert set(re.findall(r"[gab]\d+", table)) == set(names)
    assert len(table.splitlines()) < 5_000


def test_groups_nested_too_deeply_are_one_message(folder: Folder, capsys: Output) -> None:
    folder.write("leaf.yaml", TASK.format(name="leaf"))
    for level in range(1_200):
        below = f"g{level + 1}" if level < 1_199 else "leaf"
        folder.write(f"g{level}.yaml", f"group: g{level}\ntask: [{below}]\n")
    assert main(["validate", "g0", "--include_path", str(folder.path), "--no-build"]) == 1
    out = capsys.readouterr().out
    assert out.count("groups are nested more than 50 levels deep") == 1
    with pytest.raises(ConfigError, match="nested more than 50 levels"):
        TaskManager(include_path=folder.path).load("g0")


def test_groups_that_contain_all_others_are_one_message(folder: Folder, capsys: Output) -> None:
    names = [f"g{number}" for number in range(16)]
    for name in names:
        folder.write(f"{name}.yaml", f"group: {name}\ntask: [{', '.join(names)}]\n")
    assert main(["validate", "g0", "--include_path", str(folder.path), "--no-build"]) == 1
    with pytest.raises(ConfigError, match="contain each other in a cycle"):
        TaskManager(include_path=folder.path).load("g0")


# -- control characters -----------------------------------------------------------------------

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\rgone"
RAW = set("\x1b\x07\x9b\u202e\r")


@pytest.fixture
def evil(folder: Folder) -> Folder:
    """Returns a folder with a task whose names and texts contain escape sequences."""
    quoted = '"evil\\e]0;owned\\a\\e[2J\\x9b31m\\u202e\\rgone"'
    folder.rows("rows.jsonl", [{"q": f"question{EVIL}", "a": f"answer{EVIL}"}])
    folder.write(
        "evil.yaml",
        TASK.format(name=quoted)
        + f"tag: {quoted}\nunknown_key_{'x' * 3}: {quoted}\nmetric_list: [{{metric: {quoted}}}]\n",
    )
    folder.write("group.yaml", f'group: {quoted[:-1]}_group"\ntask: [{quoted}]\n')
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("ls", "tasks", "evil"),
        ("ls", "tasks", "evil", "--json"),
        ("show", f"evil{EVIL}"),
        ("validate", f"evil{EVIL}", "--no-build"),
        ("validate", f"evil{EVIL}_group", "--no-build"),
        ("run", "--model", "dummy", "--tasks", f"evil{EVIL}"),
        ("run", "--model", "dummy", "--tasks", f"no{EVIL}"),
    ],
)
def test_control_characters_never_reach_the_terminal(
    words: tuple[str, ...], evil: Folder, capsys: Output
) -> None:
    main([*words, "--include_path", str(evil.path)])
    out, err = capsys.readouterr()
    assert not RAW & set(out + err)
    assert "\\u001b" in out + err or "\\x1b" in out + err


def test_show_and_the_results_table_print_texts_without_escapes(
    evil: Folder, capsys: Output
) -> None:
    text = (evil.path / "evil.yaml").read_text().partition("unknown_key")[0]
    evil.write("evil.yaml", text)
    where = ["--include_path", str(evil.path)]
    assert main(["show", f"evil{EVIL}", *where]) == 0
    assert main(["show", f"evil{EVIL}", "--json", *where]) == 0
    assert main(["run", "--model", "dummy", "--tasks", f"evil{EVIL}_group", *where]) == 0
    out, err = capsys.readouterr()
    assert "evil\\u001b]0;owned" in out
    assert not RAW & set(out + err)


def test_long_values_do_not_fill_the_screen(folder: Folder, capsys: Output) -> None:
    folder.write("x.yaml", TASK.format(name="x") + f"num_fewshot: {'x' * 1_000_000}\n")
    assert main(["run", "--model", "dummy", "--tasks", str(folder.path / "x.yaml")]) == 2
    assert len(capsys.readouterr().err) < 5_000


def test_a_home_folder_of_nobody_is_an_unknown_task(capsys: Output) -> None:
    assert main(["run", "--model", "dummy", "--tasks", "~nobody-of-that-name/x"]) == 2
    assert "there is no task" in capsys.readouterr().err


WRONG_TYPES = {
    "a member that is a mapping": "group: g\ntask: [{task: {a: b}}]\n",
    "a member that is a number": "group: g\ntask: [5]\n",
    "a group without a name": "group: g\ntask: [{group: [x], task: [leaf]}]\n",
    "metadata of a group that is a list": "group: g\ntask: [leaf]\nmetadata: [1]\n",
    "members of an inner group": "group: g\ntask: [{group: x, task: 3}]\n",
    "aggregates that are text": "group: g\ntask: [leaf]\naggregate_metric_list: acc\n",
    "a metric that is a list": TASK.format(name="g") + "metric_list: [{metric: [acc]}]\n",
    "a metric that is a mapping": TASK.format(name="g") + "metric_list: [{metric: {a: b}}]\n",
    "an output type that is a list": TASK.format(name="g").replace("generate_until", "[x]"),
    "data files of numbers": TASK.format(name="g").replace("rows.jsonl", "[3]"),
    "data that is a device": TASK.format(name="g").replace("rows.jsonl", "/dev/zero"),
    "data that is a pipe": TASK.format(name="g").replace("rows.jsonl", "pipe.jsonl"),
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_a_value_of_the_wrong_type_is_one_message(
    name: str, folder: Folder, capsys: Output
) -> None:
    folder.rows("rows.jsonl", [{"q": "1", "a": "1"}])
    folder.write("leaf.yaml", TASK.format(name="leaf"))
    file = folder.write("g.yaml", WRONG_TYPES[name])
    if "pipe" in name:
        os.mkfifo(folder.path / "pipe.jsonl")
    where = ["--include_path", str(folder.path)]
    assert main(["validate", "g", *where]) == 1
    out = capsys.readouterr().out
    assert str(folder.path) in out
    assert "Error: " not in out
    assert main(["run", "--model", "dummy", "--tasks", "g", *where]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"lm-eval: error: {file}")
    assert "--debug" not in error


def test_a_gold_answer_beyond_the_choices_is_a_problem(folder: Folder, capsys: Output) -> None:
    folder.rows("rows.jsonl", [{"q": "1", "a": 7}])
    text = TASK.format(name="g").replace('"{{a}}"', "a")
    folder.write("g.yaml", text + "doc_to_choice: [x, y]\n")
    assert main(["validate", "g", "--include_path", str(folder.path)]) == 1
    assert "is choice 7, but it has only 2 choices" in capsys.readouterr().out
