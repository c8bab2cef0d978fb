"""Tests the task index: lookup, detection of changes, no execution of code, clear errors."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import lm_eval
from lm_eval.config.functions import FunctionRef
from lm_eval.config.schema import FILE, file_schema
from lm_eval.config.yaml_file import load_yaml_file, parse_yaml
from lm_eval.errors import ConfigError, DataError, EvalError, UnknownNameError
from lm_eval.tasks import TaskManager, index_store
from lm_eval.tasks.check import problems_of
from lm_eval.tasks.index import Kind, build_index
from lm_eval.tasks.scan import Scan, scan_file
from tests.conftest import Command, Folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMEVAL_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def tasks(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "tasks")
    folder.write("a/a.yaml", "task: a\ntag: [x, y]\n")
    folder.write("a/b.yaml", "include: _base\ntask: b\n")
    folder.write("a/_base", "tag: x\noutput_type: multiple_choice\n")
    folder.write("g.yaml", "group: g\ntask:\n  - a\n  - b\n")
    folder.write("part.yaml", "output_type: multiple_choice\n")
    return folder


def names(folder: Folder) -> dict[str, str]:
    return {name: entry.kind.value for name, entry in build_index([folder.path]).items()}


FOUND = {"a": "task", "b": "task", "g": "group", "x": "tag", "y": "tag"}


def test_names_are_found_and_remembered(tasks: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(tasks) == FOUND
    monkeypatch.setattr("lm_eval.tasks.index.scan_file", lambda path: pytest.fail(f"read {path}"))
    assert names(tasks) == FOUND
    assert build_index([tasks.path])["x"].tags == {"a", "b"}


def test_a_changed_added_renamed_or_removed_file_is_noticed(tasks: Folder) -> None:
    assert names(tasks) == FOUND
    tasks.write("a/a.yaml", "task: changed\ntag: [x]\n")
    assert names(tasks) == {"changed": "task", "b": "task", "g": "group", "x": "tag"}
    tasks.write("new.yaml", "task: new\n")
    assert "new" in names(tasks)
    (tasks.path / "new.yaml").rename(tasks.path / "new.txt")
    assert "new" not in names(tasks)
    (tasks.path / "g.yaml").unlink()
    assert "g" not in names(tasks)


def test_a_changed_included_file_is_noticed(tasks: Folder) -> None:
    assert "z" not in names(tasks)
    tasks.write("a/_base", "tag: z\noutput_type: multiple_choice\n")
    assert names(tasks)["z"] == "tag"
    (tasks.path / "a" / "_base").unlink()
    assert "z" not in names(tasks)
    tasks.write("a/_base", "tag: w\n")
    assert names(tasks)["w"] == "tag"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"format": 1}', b"\x00\xff" * 99])
def test_a_broken_or_foreign_store_is_made_anew(tasks: Folder, content: bytes) -> None:
    assert names(tasks) == FOUND
    stored = list(index_store.cache_folder().glob("index-*.json"))
    assert len(stored) == 2
    for file in stored:
        file.write_bytes(content)
    assert names(tasks) == FOUND
    for file in stored:
        assert json.loads(file.read_bytes())["root"] == str(tasks.path)


def test_a_truncated_store_is_made_anew(tasks: Folder) -> None:
    names(tasks)
    for file in index_store.cache_folder().glob("index-*.json"):
        file.write_bytes(file.read_bytes()[:-20])
    assert names(tasks) == FOUND


def test_a_home_that_cannot_be_written_does_no_harm(
    tasks: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LMEVAL_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert names(tasks) == FOUND
    assert names(tasks) == FOUND


def test_several_at_once_agree(tasks: Folder) -> None:
    for number in range(40):
        tasks.write(f"many/{number}.yaml", f"task: t{number}\n")
    found: list[dict[str, str]] = []

    def work() -> None:
        for _ in range(5):
            found.append(names(tasks))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 30
    assert all(one == found[0] and len(one) == 45 for one in found)
    assert not [f for f in index_store.cache_folder().iterdir() if f.name.startswith(".")]


def test_a_loop_of_links_ends(tasks: Folder) -> None:
    (tasks.path / "a" / "loop").symlink_to(tasks.path, target_is_directory=True)
    assert set(FOUND) <= set(names(tasks))


UNUSUAL = [
    "task: plain\n",
    'task: "quoted"\n',
    "task: 'single'   # with a comment\n",
    "'task': key_in_quotes\n",
    '"task": "both"\n"tag": "t"\n',
    "---\ntask: after_a_marker\n",
    "--- {task: flow}\n",
    "{task: flow, tag: [a, b]}\n",
    "# a comment\n\ntask: later\n",
    "  task: indented\n  tag: t\n",
    "task: 123\n",
    "task: yes\n",
    "task: null\n",
    "task:\n",
    "task: [a, b]\ngroup: g\n",
    "group: g\ntask:\n- a\n- task: b\n",
    "tag:\n  - one\n  - two\ntask: t\n",
    "tag:\n- one\n- two # said twice\ntask: t\n",
    "tag: [one, two]\ntask: t\n",
    "tag: []\ntask: t\n",
    "tag: one\ntask: t\ntask: last_one_counts\n",
    "task: t\ndoc_to_text: |\n  task: not_this\n  tag: nor_this\n",
    'task: t\ndoc_to_text: "two\n\n  lines"\n',
    "task: &anchor t\ntask_alias: *anchor\n",
    "task: t\nclass: !function file.Name\n",
    "task: >-\n  folded\n",
    "task: with-dash.and/slash:colon\n",
    "task: ünïcode\n",
    "task : spaced\n",
    "task: t\r\ntag: windows\r\n",
    "tasks: not_a_key\n",
    "task:no_space\n",
    "include: [a.yaml, ../b.yaml]\ntask: t\n",
    "include: {num_fewshot: 5}\ngroup: g\n",
]


@pytest.mark.parametrize("text", UNUSUAL)
def test_scanning_finds_what_parsing_finds(folder: Folder, text: str) -> None:
    file = folder.write("t.yaml", text)
    try:
        values, _ = parse_yaml(file)
    except ConfigError:
        assert scan_file(str(file)) in (None, Scan())
        return
    found = scan_file(str(file))
    assert found is not None
    task, group, tags = values.get("task"), values.get("group"), values.get("tag")
    assert found.task == (task if isinstance(task, str) else None)
    assert found.group == (group if isinstance(group, str) else None)
    assert (found.has_task, found.has_group) == ("task" in values, "group" in values)
    assert found.has_class == ("class" in values)
    expected = None if "tag" not in values else tuple(tags) if isinstance(tags, list) else (tags,)
    assert found.tags == expected


# -- no code is run ---------------------------------------------------------------------------


def test_listing_and_checking_run_no_code(
    lm_eval_command: Command, colours: Folder, tmp_path: Path
) -> None:
    witness = tmp_path / "witness"
    colours.write("helpers.py", f"open({str(witness)!r}, 'w')\ndef text(doc): return 'x'\n")
    text = (colours.path / "colours.yaml").read_text()
    colours.write("colours.yaml", text + "doc_to_target: !function helpers.text\n")
    where = ("--include_path", colours.path)
    assert lm_eval_command("ls", "tasks", *where).returncode == 0
    checked = lm_eval_command("validate", "--tasks", "colours", "--no-build", *where)
    assert checked.returncode == 0, checked.stdout
    assert not witness.exists()
    lm_eval_command("validate", "--tasks", "colours", *where)
    assert witness.exists()


# -- the command line -------------------------------------------------------------------------


def test_ls_lists_searches_and_speaks_json(lm_eval_command: Command, tasks: Folder) -> None:
    where = ("--include_path", tasks.path)

    def listed(*what: str) -> list[list[str]]:
        lines = lm_eval_command("ls", *what, *where).stdout.splitlines()
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]

    (head, _, *groups) = listed("groups")
    assert head == ["Group", "Config Location"]
    assert ["demo", "lm_eval/tasks/demo/_demo.yaml"] in groups
    assert ["g", f"{tasks.path}/g.yaml"] in groups
    (head, _, *subtasks) = listed("subtasks", "demo_s")
    assert head == ["Task", "Config Location", "Output Type"]
    assert subtasks == [
        ["demo_stories", "lm_eval/tasks/demo/demo_stories.yaml", "loglikelihood_rolling"],
        ["demo_sums", "lm_eval/tasks/demo/demo_sums.yaml", "generate_until"],
    ]
    assert ["b", f"{tasks.path}/a/b.yaml", "multiple_choice"] in listed("subtasks")
    everything = listed("tasks")
    assert [row for row in everything if row[0] in ("Group", "Tag", "Task")] == [
        ["Group", "Config Location"],
        ["Tag"],
        ["Task", "Config Location", "Output Type"],
    ]
    assert set(FOUND) <= {row[0] for row in everything}
    found = json.loads(lm_eval_command("ls", "tasks", "--json", *where).stdout)
    assert {entry["name"]: entry["kind"] for entry in found} | FOUND == {
        entry["name"]: entry["kind"] for entry in found
    }
    assert {"name": "x", "kind": "tag", "path": None, "output_type": None} in found
    assert (
        lm_eval_command("ls", "tags", "nowhere").stdout == "No tags with 'nowhere' in the name.\n"
    )


def test_ls_shows_which_tasks_a_mirror_can_serve(lm_eval_command: Command, folder: Folder) -> None:
    for split in ("test", "train"):
        file = folder.path / "mirror" / "org" / "things" / "easy" / f"{split}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"no rows are read")
    witness = folder.path / "witness"
    folder.write("helpers.py", f"open({str(witness)!r}, 'w')\ndef load(**_): return {{}}\n")
    task = "task: {}\ndataset_path: {}\ndataset_name: {}\ntest_split: {}\ndoc_to_text: x\n"
    folder.write("a.yaml", task.format("has_it", "org/things", "easy", "test") + "tag: some\n")
    folder.write("b.yaml", task.format("other_config", "org/things", "hard", "test"))
    folder.write("c.yaml", task.format("other_split", "org/things", "easy", "validation"))
    folder.write("d.yaml", task.format("other_data", "org/else", "easy", "test"))
    shots = "num_fewshot: 3\nfewshot_split: dev\n"
    folder.write("e.yaml", task.format("no_examples", "org/things", "easy", "test") + shots)
    folder.write("f.yaml", "task: by_code\ncustom_dataset: !function helpers.load\n")
    files = "dataset_kwargs: {data_files: {test: rows.jsonl}}\n"
    folder.write("h.yaml", task.format("own_files", "json", "null", "test") + files)
    folder.write("i.yaml", "group: whole\ntask: [has_it, own_files]\n")
    folder.write("j.yaml", "group: part\ntask: [has_it, other_data]\n")
    folder.write(
        "k.yaml",
        "group: fitted\ntask:\n  - {task: other_config, dataset_name: easy}\n  - group: inner\n"
        "    dataset_name: easy\n    task: [other_config]\n",
    )
    where = ("--include_path", folder.path, "--data_dir", folder.path / "mirror")

    def listed(*words: str) -> tuple[list[str], str]:
        done = lm_eval_command("ls", *words, *where)
        assert done.returncode == 0, done.stderr
        *rows, note = done.stdout.splitlines()
        names = [row.strip("|").split("|")[0].strip() for row in rows if row.startswith("|")]
        return [n for n in names if n not in ("Group", "Tag", "Task") and "---" not in n], note

    names, note = listed("tasks")
    assert names == ["fitted", "whole", "some", "has_it"]
    total = len(json.loads(lm_eval_command("ls", "subtasks", "--json", *where[:2]).stdout))
    assert f"1 of {total} tasks have their datasets in {folder.path / 'mirror'}; " in note
    assert "load their documents with their own code, which `ls` does not run" in note
    assert listed("groups")[0] == ["fitted", "whole"]
    assert listed("tasks", "other_") == (
        [],
        f"0 of 3 tasks have their datasets in {folder.path / 'mirror'}.",
    )
    done = lm_eval_command("ls", "tasks", "has_it", "--json", *where)
    assert [entry["name"] for entry in json.loads(done.stdout)] == ["has_it"]
    assert "1 of 1 tasks have their datasets in" in done.stderr
    assert not witness.exists()
    nowhere = lm_eval_command("ls", "tasks", "--data_dir", folder.path / "nowhere")
    assert (nowhere.returncode, "does not exist" in nowhere.stderr) == (2, True)


def test_a_file_that_is_no_yaml_is_named_whether_the_index_is_new_or_stored(
    tasks: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tasks.write("broken.yaml", "task: {\n")
    for _ in ("new", "stored"):
        caplog.clear()
        build_index([tasks.path])
        assert f"{broken} cannot be read as YAML" in caplog.text


def test_a_folder_or_a_pattern_of_files_may_be_asked_for(colours: Folder) -> None:
    colours.write("other.yaml", "include: colours.yaml\ntask: other\n")
    colours.write("part.yaml", "num_fewshot: 1\n")
    manager = TaskManager()
    assert set(manager.load(str(colours.path))["tasks"]) == {"colours", "other"}
    assert set(manager.load(f"{colours.path}/o*.yaml")["tasks"]) == {"other"}
    with pytest.raises(UnknownNameError):
        manager.load(f"{colours.path}/p*.yaml")


def test_a_key_given_twice_is_told(colours: Folder, caplog: pytest.LogCaptureFixture) -> None:
    text = (colours.path / "colours.yaml").read_text()
    twice = colours.write("twice.yaml", f"num_fewshot: 1\n{text}num_fewshot: 2\n")
    assert load_yaml_file(twice).values["num_fewshot"] == 2
    line = text.count("\n") + 2
    assert f"{twice}:{line}: the key `num_fewshot` occurs a second time" in caplog.text
    assert "its value in line 1 is ignored" in caplog.text


def test_validate_accepts_the_library(lm_eval_command: Command) -> None:
    done = lm_eval_command("validate", "--tasks", "demo")
    assert (done.returncode, done.stdout) == (0, "demo: no problem found.\n")


def test_validate_reports_everything_at_once(lm_eval_command: Command, colours: Folder) -> None:
    text = (colours.path / "colours.yaml").read_text()
    bad = colours.write(
        "bad.yaml",
        text.replace("task: colours", "task: bad")
        .replace("metric: acc", "metric: acccuracy")
        .replace("{{thing}}", "{{thing")
        + "num_fewshots: 3\nrepeats: often\n",
    )
    done = lm_eval_command("validate", "--tasks", "bad", "--include_path", colours.path)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[-1] == "4 problems found."
    for line, said in (
        (8, "doc_to_text, line 1 of the template"),
        (12, "unknown metric 'acccuracy'"),
        (15, "unknown key 'num_fewshots'. Did you mean 'num_fewshot'"),
        (16, "repeats must be a number, not 'often'"),
    ):
        assert any(f"{bad}:{line}: " in problem and said in problem for problem in lines), said


def test_validate_looks_at_every_format(lm_eval_command: Command, colours: Folder) -> None:
    text = (colours.path / "colours.yaml").read_text()
    colours.write("good.yaml", text.replace("colours\n", "good\n", 1) + "formats: [mcqa, cloze]\n")
    bad = colours.write(
        "bad.yaml", text.replace("colours\n", "bad\n", 1) + "formats: [mcqa, clozed]\n"
    )
    words = ("--include_path", colours.path)
    assert lm_eval_command("validate", "--tasks", "good", *words).returncode == 0
    done = lm_eval_command("validate", "--tasks", "bad", *words)
    assert done.returncode == 1
    assert f"{bad}:15: unknown format 'clozed'. Did you mean 'cloze'" in done.stdout


def test_validate_accepts_choices_of_a_prompt_library(
    lm_eval_command: Command, colours: Folder
) -> None:
    text = (colours.path / "colours.yaml").read_text()
    text = text.replace("doc_to_choice: colours\n", "use_prompt: 'promptsource:*'\n")
    colours.write("prompted.yaml", text.replace("task: colours", "task: prompted"))
    words = ("--tasks", "prompted", "--include_path", colours.path)
    assert "needs doc_to_choice" not in lm_eval_command("validate", *words).stdout


# -- mistakes in files ------------------------------------------------------------------------

GOOD = {
    "t.yaml": "task: t\ndataset_path: json\ndataset_kwargs: {data_files: {test: d.jsonl}}\n"
    "test_split: test\noutput_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: c\n"
    "doc_to_target: a\nmetric_list:\n  - metric: acc\n",
    "u.yaml": "include: t.yaml\ntask: u\n",
    "g.yaml": "group: g\ntask:\n  - t\n  - u\naggregate_metric_list:\n  - metric: acc\n",
    "d.jsonl": '{"q": "?", "c": ["a", "b"], "a": 0}\n',
    "helpers.py": "def f(doc):\n    return 'x'\n",
}

#: File, what to write there (or to append), the line named, and what is said about it.
MISTAKES = [
    ("t.yaml", "task: t\n  x: [", 2, "not valid YAML"),
    ("t.yaml", "task: t\n\tx: 1\n", 2, "not valid YAML"),
    ("t.yaml", "task: 'open\n", None, "not valid YAML"),
    ("t.yaml", "+include: gone.yaml\n", 11, "there is no file"),
    ("t.yaml", "+include: u.yaml\n", None, "in a cycle"),
    ("t.yaml", "+doc_to_txt: q\n", 11, "unknown key 'doc_to_txt'. Did you mean 'doc_to_text'"),
    ("t.yaml", "+output_type: guess\n", 11, "output_type must be one of"),
    ("t.yaml", "+repeats: [3]\n", 11, "repeats must be a number"),
    ("t.yaml", "+num_fewshot: many\n", 11, "num_fewshot must be a number"),
    ("t.yaml", "+unsafe_code: perhaps\n", 11, "unsafe_code must be true or false"),
    ("t.yaml", "+metric_list: acc\n", 11, "metric_list must be a list"),
    ("t.yaml", "+metric_list:\n  - acc\n", 11, "metric_list must be a list"),
    ("t.yaml", "+metric_list:\n  - aggregation: mean\n", 12, "needs the key `metric`"),
    ("t.yaml", "+metric_list:\n  - metric: bleuu\n", 12, "unknown metric 'bleuu'"),
    (
        "t.yaml",
        "+metric_list: [{metric: acc, aggregation: men}]\n",
        11,
        "unknown aggregation 'men'",
    ),
    (
        "t.yaml",
        "+filter_list:\n  - filter: []\n",
        12,
        "needs a `name` and a list of filters `filter`",
    ),
    (
        "t.yaml",
        "+filter_list:\n  - name: n\n    filter: [{}]\n",
        12,
        "filter needs the key `function`",
    ),
    ("t.yaml", "+filter_list: [{name: n, filter: [{function: regx}]}]\n", 11, "filter 'regx'"),
    ("t.yaml", "+fewshot_config: {smpler: first_n}\n", 11, "unknown key 'smpler'"),
    ("t.yaml", "+fewshot_config: {sampler: frist_n}\n", 11, "unknown few-shot sampler"),
    ("t.yaml", "+generation_kwargs: greedy\n", 11, "generation_kwargs must be a mapping"),
    (
        "t.yaml",
        "+generation_kwargs: {temprature: 0}\n",
        11,
        "unknown generation setting 'temprature'. Did you mean 'temperature'",
    ),
    (
        "g.yaml",
        "group: g\ntask:\n  - task: t\n    generation_kwargs: {max_gen_tok: 3}\n",
        3,
        "unknown generation setting 'max_gen_tok'. Did you mean 'max_gen_toks'",
    ),
    ("t.yaml", "+doc_to_text: '{{q'\n", 11, "line 1 of the template"),
    ("t.yaml", "+doc_to_text: !function helpers.g\n", 11, "helpers.py has no 'g'"),
    ("t.yaml", "+doc_to_text: !function gone.f\n", 11, "there is no file"),
    ("t.yaml", "+doc_to_text: !function f\n", 11, "write it as file.name"),
    ("t.yaml", "+formats: mcq\n", 11, "unknown format 'mcq'. Did you mean 'mcqa'"),
    ("t.yaml", "+dataset_path: null\n", None, "the task has no dataset"),
    ("t.yaml", "+test_split: null\n", None, "no split to evaluate"),
    ("v.yaml", "task: t\n", None, "the name 't' is already used by"),
    ("g.yaml", "group: g\ntask:\n  - t\n  - uu\n", 4, "there is no task, group or tag 'uu'"),
    ("g.yaml", "group: g\ntask:\n  - {num_fewshot: 3}\n", 3, "a member must be a name"),
    (
        "g.yaml",
        "group: g\ntask:\n  - h\n",
        None,
        "these groups contain each other in a cycle: g -> h -> g",
    ),
    (
        "g.yaml",
        "group: g\ntask: [t]\naggregate_metric_list:\n  - metric: f1\n",
        4,
        "aggregates 'f1'",
    ),
    (
        "g.yaml",
        "group: g\ntask: [t]\naggregate_metric_list: [{metrc: acc}]\n",
        3,
        "needs the key `metric`",
    ),
    (
        "g.yaml",
        "group: g\ntask: [t]\naggregate_metric_list: [{metric: acc, filters: none}]\n",
        3,
        "unknown key 'filters'. Did you mean 'filter_list'",
    ),
    ("g.yaml", "group: g\ntsk: [t]\n", 2, "unknown key 'tsk'. Did you mean 'task'"),
    ("g.yaml", "group: g\ntask: 7\n", 2, "task must be a string or a list"),
]


@pytest.fixture
def good(folder: Folder) -> Folder:
    for name, text in GOOD.items():
        folder.write(name, text)
    folder.write("h.yaml", "group: h\ntask: [g]\n")
    return folder


def test_the_good_files_are_good(lm_eval_command: Command, good: Folder) -> None:
    done = lm_eval_command("validate", "--tasks", "g,h", "--include_path", good.path)
    assert (done.returncode, done.stdout) == (0, "g, h: no problem found.\n")


@pytest.mark.parametrize(("name", "text", "line", "said"), MISTAKES)
def test_a_mistake_is_named_with_file_line_and_remedy(
    good: Folder, name: str, text: str, line: int | None, said: str
) -> None:
    from lm_eval.tasks.check import problems_of

    if text.startswith("+"):
        key = re.escape(text[1:].partition(":")[0])
        kept = re.sub(rf"^{key}:.*\n(?:  .*\n)*", "", GOOD[name], flags=re.MULTILINE)
        filler = "# \n" * (GOOD[name].count("\n") - kept.count("\n"))
        text = kept + filler + text[1:]
    file = good.write(name, text)
    manager = TaskManager(include_path=good.path, include_defaults=False)
    entries = manager.entries("g") if name != "t.yaml" else _entries_of(file, manager)
    problems = problems_of(entries, manager.task_index)
    place = f"{file}:{line}: " if line else str(good.path)
    assert any(place in problem and said in problem for problem in problems), problems


def _entries_of(file: Path, manager: TaskManager) -> Iterator[object]:
    from lm_eval.tasks.index import Entry

    return iter([Entry("t", Kind.TASK, str(file))])  # type: ignore[return-value]


def test_a_group_that_holds_itself_is_refused_when_loaded(good: Folder) -> None:
    good.write("g.yaml", "group: g\ntask:\n  - t\n  - h\n")
    with pytest.raises(ConfigError, match=r"cycle: g -> h -> g"):
        TaskManager(include_path=good.path, include_defaults=False).load("g")


@pytest.mark.slow
def test_random_changes_to_good_files_end_in_clear_errors(
    good: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading and checking a randomly damaged file succeeds or raises one of our errors."""
    from lm_eval.data import load
    from lm_eval.tasks.check import problems_of

    def nowhere(path: str, *rest: object) -> None:
        raise DataError(f"there is no data set {path}")

    monkeypatch.setattr(load.hub, "load_from_hub", nowhere)
    rng = random.Random(0)
    pieces = [
        "\n",
        " ",
        ":",
        "- ",
        "[",
        "]",
        "{",
        "}",
        "'",
        '"',
        "!function ",
        "null",
        "0",
        "é",
        "\t",
        "&a",
        "*a",
        "{{",
        "}}",
        "%}",
        "group",
        "include: t.yaml\n",
        "task: u\n",
    ]
    seen = {"fine": 0, "refused": 0}
    for _ in range(400):
        name = rng.choice(["t.yaml", "u.yaml", "g.yaml"])
        text = list(GOOD[name])
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(text))
            if rng.random() < 0.5:
                text[place : place + rng.randint(1, 8)] = []
            else:
                text.insert(place, rng.choice(pieces))
        good.write(name, "".join(text))
        manager = TaskManager(include_path=good.path, include_defaults=False)
        problems_of(list(manager.task_index.values()), manager.task_index)
        try:
            manager.load(sorted(set(manager.task_index) & {"g", "h", "t", "u"}))
            seen["fine"] += 1
        except EvalError:
            seen["refused"] += 1
        good.write(name, GOOD[name])
    assert seen["fine"] > 10
    assert seen["refused"] > 20


# -- details ----------------------------------------------------------------------------------


def test_every_key_knows_its_file_and_line(good: Folder) -> None:
    file = load_yaml_file(good.path / "u.yaml")
    assert file.where("task") == f"{good.path / 'u.yaml'}:2"
    assert file.where("test_split") == f"{good.path / 't.yaml'}:4"
    assert file.where("metric_list[0]") == f"{good.path / 't.yaml'}:10"


def test_functions_are_looked_up_only_when_asked_for(good: Folder) -> None:
    file = good.write("f.yaml", "task: f\ndoc_to_text: !function helpers.f\n")
    ref = load_yaml_file(file).values["doc_to_text"]
    assert isinstance(ref, FunctionRef)
    assert (ref.name, ref.line) == ("f", 2)
    assert ref.resolve()({}) == "x"


def test_an_edited_module_is_run_anew(good: Folder) -> None:
    file = good.write("f.yaml", "task: f\ndoc_to_text: !function helpers.f\n")
    assert load_yaml_file(file).values["doc_to_text"].resolve()({}) == "x"
    module = good.write("helpers.py", "def f(doc):\n    return 'y'\n")
    os.utime(module, ns=(1, 1))
    assert load_yaml_file(file).values["doc_to_text"].resolve()({}) == "y"


def test_the_shipped_schema_is_that_of_the_dataclasses() -> None:
    assert json.loads(FILE.read_text(encoding="utf-8")) == file_schema()


def test_the_schema_knows_every_key_of_the_library() -> None:
    known = file_schema()
    for path in (Path(__file__).parents[1] / "lm_eval" / "tasks").rglob("*.yaml"):
        values, _ = parse_yaml(path)
        part = known["then"] if "group" in values else known["else"]
        assert set(values) <= set(part["properties"]), path


def test_names_of_the_published_wheel_are_found(tmp_path: Path) -> None:
    """All names of the published task folder are found, if it is available."""
    wheel = os.environ.get("LMEVAL_PUBLISHED_TASKS")
    if not wheel or not Path(wheel).is_dir():
        pytest.skip("LMEVAL_PUBLISHED_TASKS names no folder")
    kinds = [entry.kind for entry in build_index([Path(wheel)]).values()]
    assert kinds.count(Kind.TASK) == 13093
    assert kinds.count(Kind.GROUP) == 855
    assert kinds.count(Kind.TAG) == 705
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)


def test_validate_takes_names_without_an_option(lm_eval_command: Command) -> None:
    done = lm_eval_command("validate", "demo_choice", "demo_pairs")
    assert (done.returncode, done.stdout) == (0, "demo_choice, demo_pairs: no problem found.\n")


def test_validate_says_that_a_name_was_that_of_a_folder(
    lm_eval_command: Command, tmp_path: Path
) -> None:
    text = "include: {0}\ntask: {1}\n".format  # two tasks like one of the library
    like = Path(lm_eval.__file__).parent / "tasks/demo/demo_pairs.yaml"
    inside = Folder(tmp_path / "work" / "mine")
    inside.write("a.yaml", text(like, "first_one"))
    inside.write("b.yaml", text(like, "second_one"))
    done = lm_eval_command("validate", "mine", "--no_build")
    expected = "mine (the folder, with first_one, second_one): no problem found.\n"
    assert (done.returncode, done.stdout) == (0, expected)
    inside.write("c.yaml", text(like, "mine"))
    named = lm_eval_command("validate", "mine", "--no_build", "--include_path", inside.path)
    assert named.stdout == "mine: no problem found.\n"


def test_a_group_may_aggregate_a_metric_of_some_of_its_tasks(
    lm_eval_command: Command, folder: Folder
) -> None:
    text = (
        "group: some\ntask: [demo_pairs, demo_stories]\naggregate_metric_list:\n  - metric: acc\n"
    )
    folder.write("some.yaml", text)
    folder.write("none.yaml", text.replace("some", "none").replace("acc", "f1"))
    where = ("--include_path", folder.path)
    assert lm_eval_command("validate", "some", *where).returncode == 0
    done = lm_eval_command("validate", "none", *where)
    assert done.returncode == 1
    assert "group 'none' aggregates 'f1', which none of its 2 tasks reports" in done.stdout


def test_text_as_the_target_of_a_task_with_choices_is_refused_before_the_model(
    colours: Folder,
) -> None:
    colours.write(
        "generated.yaml",
        "include: colours.yaml\ntask: generated\noutput_type: generate_until\n"
        'doc_to_target: "{{colours[answer]}}"\nmetric_list:\n  - metric: exact_match\n',
    )
    with pytest.raises(DataError, match=r"doc_to_target is 'green'.*`doc_to_choice: null`"):
        TaskManager(include_path=colours.path).load("generated")


INLINE_GROUP = """\
group: both
task:
  - task: first
    dataset_path: json
    dataset_kwargs: {data_files: {test: rows.jsonl}}
    test_split: test
    doc_to_text: q
    doc_to_target: a
    metric_list: [{metric: own_of_this_folder}]
  - group: inner
    task:
      - task: second
        dataset_path: json
        dataset_kwargs: {data_files: {test: rows.jsonl}}
        test_split: test
        doc_to_text: q
        doc_to_target: a
"""


def test_inline_tasks_find_their_data_and_code_beside_the_group_file(
    folder: Folder, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    folder.rows("group/rows.jsonl", [{"q": "1", "a": "2"}])
    folder.write("group/both.yaml", INLINE_GROUP)
    folder.write(
        "group/metrics.py",
        "from lm_eval.api.registry import register_metric\n"
        "@register_metric(metric='own_of_this_folder', output_type='generate_until',\n"
        "                 aggregation='mean', higher_is_better=True)\n"
        "def own(items):\n    return 1.0\n",
    )
    loaded = TaskManager(include_path=folder.path).load("both")
    assert [len(task.eval_docs) for task in loaded["tasks"].values()] == [1, 1]
    source = str(folder.path / "group" / "both.yaml")
    for task in loaded["tasks"].values():
        assert (task.config.metadata or {})["config_source"] == source


def test_settings_that_a_group_makes_for_its_tasks_count_in_its_aggregates(folder: Folder) -> None:
    folder.write("t.yaml", "task: t\ndataset_path: x\ntest_split: test\ndoc_to_text: q\n")
    folder.write(
        "g.yaml",
        "group: g\ntask:\n  - group: inner\n    task: [t]\n    metric_list: [{metric: bleu}]\n"
        "    aggregate_metric_list: [{metric: bleu}]\n",
    )
    manager = TaskManager(include_path=folder.path)
    assert problems_of([manager.task_index["g"]], manager.task_index) == []
    text = (folder.path / "g.yaml").read_text()
    folder.write("g.yaml", text.replace("    metric_list: [{metric: bleu}]\n", ""))
    manager = TaskManager(include_path=folder.path)
    (problem,) = problems_of([manager.task_index["g"]], manager.task_index)
    assert "aggregates 'bleu', which none of its 1 tasks reports" in problem
