"""Damaged folders of task files: scanned, listed, checked and built."""

# ruff: noqa: E501

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

GOOD = {
    "one.yaml": """\
include: base.yaml
task: fuzz_one
tag: [fuzz_tag]
output_type: generate_until
doc_to_text: "Q: {{q}}\\nA:"
doc_to_target: "{{a}}"
generation_kwargs: {until: ["\\n"], do_sample: false}
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
    ignore_case: true
filter_list:
  - name: number
    filter:
      - {function: regex, regex_pattern: "(\\\\d+)"}
      - {function: take_first}
metadata: {version: 1.0}
""",
    "two.yaml": """\
include: base.yaml
task: fuzz_two
tag: fuzz_tag
output_type: multiple_choice
doc_to_text: !function utils.text
doc_to_choice: "{{choices}}"
doc_to_target: gold
num_fewshot: 1
fewshot_config: {sampler: first_n}
description: "Choose. {% for c in choices %}{{c}} {% endfor %}"
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
    "base.yaml": """\
dataset_path: json
dataset_kwargs:
  data_files: {test: rows.jsonl, train: rows.jsonl}
test_split: test
fewshot_split: train
process_docs: !function utils.docs
target_delimiter: " "
""",
    "group.yaml": """\
group: fuzz_group
group_alias: "All"
task:
  - fuzz_one
  - task: fuzz_two
    num_fewshot: 0
  - group: fuzz_inner
    task: [fuzz_tag]
    aggregate_metric_list: [{metric: acc}]
aggregate_metric_list:
  - metric: acc
    weight_by_size: true
""",
    "utils.py": """\
def docs(dataset):
    return dataset

def text(doc):
    return doc["q"]
""",
    "rows.jsonl": "".join(
        f'{{"q": "question {n}", "a": "{n}", "choices": ["x", "y"], "gold": {n % 2}}}\n'
        for n in range(4)
    ),
}

#: Values that are put in the place of others.
NASTY = (
    *("", "~", "null", "true", "[]", "{}", "''", '""', "0", "-1", "1e999", ".nan", ".inf", "2020-01-01"),
    *("12:30:45", "0x" + "f" * 5000, "9" * 3000, "é\u202e", '"\\0"', '"\\e[31m"', "a: b: c", "*a", "&a"),
    *("[" * 200, "[" * 50 + "]" * 50, "{a: " * 60 + "}" * 60, "&a [*a]", "!!bool x", "!!int ''"),
    *("!!python/name:os.system", "!function", "!function ''", "!function a..b", "!function ../../x.f"),
    *("!function utils", "!function utils.gone", "!function utils.docs", "!function os.getpid"),
    *("!function /etc/passwd.f", "!function 1.2", '"{{"', '"{% for"', '"{{ 9 ** 9 ** 9 }}"'),
    *('"{{ q * 10 ** 12 }}"', '"{{ q.x.y }}"', '"{{ choices[99] }}"', '"{{ none }}"', '"{{ [[]] }}"'),
    *('"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"',),
    *('"{{ q|regex_replace(\'(.*)*x\', \'\') }}"', '"{{ ' + "(" * 500 + '1"', "[q, a]", "{q: a}"),
    *("[[[]]]", "[~]", "[1, 2]", "[{}]", "[{metric: acc}]", "[{metric: [acc]}]", "[{metric: {a: b}}]"),
    *("[{function: regex}]", "[{name: x, filter: [{function: regex, regex_pattern: '('}]}]"),
    *("[{name: x, filter: [{function: regex, regex_pattern: '(a+)+$'}]}]", "{until: 3}", "{until: [~]}"),
    *("generate_until", "multiple_choice", "loglikelihood", "loglikelihood_rolling", "nothing"),
    *("fuzz_one", "fuzz_two", "fuzz_group", "fuzz_inner", "fuzz_tag", "[fuzz_group]", "fuzz_one@mcqa"),
    *("[fuzz_one, fuzz_one]", "[{task: fuzz_one, group: x}]", "[{group: g, task: [{group: g, task: []}]}]"),
    *("pandas", "parquet", "csv", "text", "xml", "webdataset", "imagefolder", "../..", "/dev/zero", "."),
    *("{data_files: /dev/zero}", "{data_files: {test: []}}", "{data_files: {test: [rows.jsonl, 3]}}"),
    *("{data_files: '*'}", "{data_dir: .}", "{split: test}", "{revision: [1]}", "{1: 2}", "x" * 20_000),
)  # fmt: skip
#: Texts that are inserted anywhere.
PIECES = (
    *("\n", " ", "\t", ":", ": ", "- ", "? ", "[", "]", "{", "}", "'", '"', "!", "&a ", "*a", "<<: *a\n"),
    *("---\n", "...\n", "%YAML 1.1\n", "|", ">", "#", "{{", "}}", "{%", "%}", "!function ", "\0", "\x1b"),
    *("\ufeff", "\u2028", "\x85", "\\", "include: one.yaml\n", "include: group.yaml\n", "task: x\n"),
    *("group: x\n", "class: !function utils.text\n", "tag: []\n", "task:\n- fuzz_group\n", "é", "🙂"),
)  # fmt: skip


def make(seed: int, folder: Path) -> None:
    """Writes a folder of good task files with one to four random changes."""
    rng = random.Random(seed)
    files = {name: text.encode() for name, text in GOOD.items()}
    for _ in range(rng.randint(1, 4)):
        rng.choice(_CHANGES)(rng, files)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    if rng.random() < 0.15:
        _change_kind(rng, folder)


def attempt(folder: Path) -> str:
    """Scans, lists, checks and builds the tasks of a folder; returns "fine" or "refused"."""
    from lm_eval.data import load
    from lm_eval.errors import DataError, EvalError
    from lm_eval.integrity import problems_in_task
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks import manager as manager_module
    from lm_eval.tasks.check import problems_of

    def nowhere(path: str, *rest: object) -> None:
        raise DataError(f"there is no dataset {path}")

    load.hub.load_from_hub = nowhere  # type: ignore[assignment]
    manager_module.task_folders = dict  # looking for plug-ins takes as long as all the rest
    manager = TaskManager(include_path=folder, include_defaults=False)
    manager.list_all_tasks()
    problems = problems_of(list(manager.task_index.values()), manager.task_index)
    refused = False
    for name in [*manager.task_index, str(folder / "one.yaml"), str(folder)]:
        try:
            for task in manager.load(name)["tasks"].values():
                refused |= bool(problems_in_task(task))
        except EvalError as error:
            refused = bool(str(error))
    if sum(file.lstat().st_size for file in folder.iterdir()) % 8 == 0:
        _run_commands(folder)
    return f"{'problems' if problems else 'no problems'}, {'refused' if refused else 'built'}"


def _run_commands(folder: Path) -> None:
    """Runs `ls` and `validate` on the folder; raises `AssertionError` if they show Python text."""
    import contextlib
    import io

    from lm_eval.cli import main

    for words in (["ls", "tasks", "fuzz"], ["validate", "fuzz_one", "--no-build"]):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([*words, "--include_path", str(folder)])
        text = out.getvalue() + err.getvalue()
        assert code in (0, 1, 2), f"exit code {code}"
        assert "Traceback" not in text, text
        assert "--debug" not in text, text
        assert not set(text) & set("\x1b\x07\x9b\x00"), repr(text)


# -- changes ----------------------------------------------------------------------------------

Files = dict[str, bytes]


def _some_file(rng: random.Random, files: Files) -> str:
    names = [name for name in sorted(files) if name != "utils.py"]
    return rng.choice(names if rng.random() < 0.9 else sorted(files))


def _cut(rng: random.Random, files: Files) -> None:
    name = _some_file(rng, files)
    place = rng.randrange(len(files[name]) + 1)
    files[name] = files[name][:place] + files[name][place + rng.randint(1, 40) :]


def _insert(rng: random.Random, files: Files) -> None:
    name = _some_file(rng, files)
    place = rng.randrange(len(files[name]) + 1)
    piece = rng.choice(PIECES).encode()
    files[name] = files[name][:place] + piece * rng.choice((1, 1, 1, 3, 300)) + files[name][place:]


def _bytes(rng: random.Random, files: Files) -> None:
    name = _some_file(rng, files)
    content = bytearray(files[name] or b"x")
    for _ in range(rng.randint(1, 4)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    files[name] = bytes(content)


def _value(rng: random.Random, files: Files) -> None:
    """Replaces the value of a key, in the same line."""
    name = _some_file(rng, files)
    lines = files[name].split(b"\n")
    places = [number for number, line in enumerate(lines) if b":" in line]
    if places:
        number = rng.choice(places)
        key, _, _ = lines[number].partition(b":")
        lines[number] = key + b": " + rng.choice(NASTY).encode()
        files[name] = b"\n".join(lines)


def _key(rng: random.Random, files: Files) -> None:
    """Adds a key of a task or group with any value."""
    from lm_eval.config.group import GroupConfig
    from lm_eval.config.task import FewshotConfig, TaskConfig

    kinds = (TaskConfig, TaskConfig, GroupConfig, FewshotConfig)
    names = [*(f.name for f in fields(rng.choice(kinds))), "include", "tag", "class", "formats"]
    name = rng.choice([n for n in sorted(files) if n.endswith(".yaml")] or ["one.yaml"])
    line = f"{rng.choice(names)}: {rng.choice(NASTY)}\n".encode()
    files[name] = line + files.get(name, b"") if rng.random() < 0.3 else files[name] + line


def _lines(rng: random.Random, files: Files) -> None:
    """Repeats, deletes or indents lines."""
    name = _some_file(rng, files)
    lines = files[name].split(b"\n")
    number = rng.randrange(len(lines))
    kind = rng.randrange(3)
    if kind == 0:
        lines[number:number] = lines[number : number + rng.randint(1, 3)] * rng.choice((1, 1, 50))
    elif kind == 1:
        del lines[number : number + rng.randint(1, 4)]
    else:
        lines[number] = b" " * rng.randint(1, 5) + lines[number]
    files[name] = b"\n".join(lines)


def _encoding(rng: random.Random, files: Files) -> None:
    name = _some_file(rng, files)
    text = files[name].decode("utf-8", "replace")
    files[name] = text.encode(rng.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "utf-7")))


def _whole(rng: random.Random, files: Files) -> None:
    """Replaces, renames or copies a file."""
    name, other = _some_file(rng, files), rng.choice(sorted(files))
    kind = rng.randrange(4)
    if kind == 0:
        files[name] = rng.randbytes(rng.choice((0, 1, 100)))
    elif kind == 1:
        files[f"{rng.choice(('x', 'é', 'a b', '-x', '.h'))}.yaml"] = files[name]
    elif kind == 2:
        files[name] = files[other]
    elif len(files) > 2:
        del files[name]


def _includes(rng: random.Random, files: Files) -> None:
    """Makes files include each other."""
    names = [name for name in sorted(files) if name.endswith(".yaml")]
    for name in names:
        if rng.random() < 0.5:
            listed = ", ".join(rng.choices([*names, "gone.yaml", ".", "/dev/null"], k=3))
            files[name] = f"include: [{listed}]\n".encode() + files[name]


def _groups(rng: random.Random, files: Files) -> None:
    """Adds groups that contain each other."""
    count = rng.choice((2, 5, 30))
    names = [f"fuzz_g{number}" for number in range(count)]
    for number, name in enumerate(names):
        below = names if rng.random() < 0.1 else [*names[number + 1 : number + 4], "fuzz_one"]
        files[f"{name}.yaml"] = f"group: {name}\ntask: [{', '.join(below)}]\n".encode()


_CHANGES: tuple[Callable[[random.Random, Files], None], ...] = (
    *(_cut, _insert, _insert, _bytes, _value, _value, _value, _key, _key, _key, _lines),
    *(_encoding, _whole, _includes, _groups),
)


def _change_kind(rng: random.Random, folder: Path) -> None:
    """Puts a pipe, a folder or a link in the place of a file, or beside it."""
    file = rng.choice(sorted(folder.iterdir()))
    if rng.random() < 0.5:
        file = folder / rng.choice(("more.yaml", "more.py", "more.jsonl", "deep"))
    else:
        file.unlink()
    kind = rng.randrange(5)
    if kind == 0 and hasattr(os, "mkfifo"):
        os.mkfifo(file)
    elif kind == 1:
        file.mkdir()
    else:
        targets = (folder, file, Path("/dev/zero"), folder / "gone", folder / "one.yaml")
        file.symlink_to(rng.choice(targets))
