"""Tests that files which task files and runs name are read only if they can be read safely."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lm_eval.cli import main
from lm_eval.config.arguments import parse_arguments
from lm_eval.contamination.findings import read_findings
from lm_eval.engine.store import AnswerStore
from lm_eval.errors import ConfigError, DataError, OutputError, StoreError
from lm_eval.results.find_logs import find_logs, results_beside
from lm_eval.results.reader import latest_results
from lm_eval.tasks import TaskManager
from tests.conftest import Folder
from tests.test_hostile_yaml import BAD_TEXTS, TASK, laughs

Output = pytest.CaptureFixture[str]
needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")

#: How a file that reading would block, or that never ends, takes the place of another one.
SPECIAL: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo if hasattr(os, "mkfifo") else Path.touch,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.fixture
def asked(folder: Folder) -> Folder:
    """Returns a folder with a document and a task `asked` that takes a prompt of prompts.yaml."""
    folder.rows("rows.jsonl", [{"q": "1", "a": "1"}])
    folder.write("asked.yaml", TASK.format(name="asked") + "use_prompt: prompts.yaml:short\n")
    return folder


def refusal(folder: Folder, capsys: Output) -> str:
    """Returns the message with which a run of the task `asked` ends."""
    words = ["run", "--model", "dummy", "--tasks", "asked", "--include_path", str(folder.path)]
    assert main(words) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("lm-eval: error: ")
    assert "--debug" not in message
    return message


# -- template files -----------------------------------------------------------------------------

PROMPTS = "prompts: {short: {doc_to_text: 'Q', doc_to_target: 'A'}}\n"
TEMPLATES: dict[str, tuple[str | bytes, str]] = {
    **{
        name: BAD_TEXTS[name]
        for name in (
            *("flow lists nested 100,000 levels", "closed lists nested 5,000 levels"),
            *("a list that contains itself", "a boolean that is none", "an integer that is none"),
            *("an integer of a million digits", "a number in base 60", "UTF-16"),
            *("more than four megabytes", "an unknown type"),
        )
    },
    "a billion laughs": (
        f"{laughs(10)}prompts: {{short: {{doc_to_text: *l9, doc_to_target: x}}}}\n",
        "stand for more than 100000 values",
    ),
    "nothing": ("", "is not a file of prompt templates"),
    "a list": ("- a\n", "is not a file of prompt templates"),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_bad_template_file_is_one_message(name: str, asked: Folder, capsys: Output) -> None:
    text, said = TEMPLATES[name]
    file = asked.path / "prompts.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    message = refusal(asked, capsys)
    assert said in message
    assert str(file) in message


@needs_pipes
@pytest.mark.parametrize("kind", SPECIAL)
def test_a_template_file_is_a_regular_file(kind: str, asked: Folder, capsys: Output) -> None:
    SPECIAL[kind](asked.path / "prompts.yaml")
    assert f"not a regular file but a {'named ' * ('pipe' in kind)}{kind[2:]}" in refusal(
        asked, capsys
    )


@pytest.mark.parametrize(
    "use_prompt",
    ["x" * 5000 + ":y", "x" * 5000 + ".yaml:y", "~nobody-of-that-name/x:y"],
)
def test_a_template_file_with_an_impossible_name_is_one_message(
    use_prompt: str, asked: Folder, capsys: Output
) -> None:
    asked.write("asked.yaml", TASK.format(name="asked") + f"use_prompt: '{use_prompt}'\n")
    assert "use_prompt: " in refusal(asked, capsys)


def test_a_dataset_with_an_impossible_name_has_no_templates(
    asked: Folder, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMEVAL_PROMPTSOURCE_DIR", str(asked.path))
    text = TASK.format(name="asked").replace("path: json", f"path: {'x' * 300}")
    asked.write("asked.yaml", f"{text}use_prompt: short\n")
    assert "has no templates for xxx" in refusal(asked, capsys)


def test_a_template_file_of_promptsource_is_still_read(asked: Folder) -> None:
    asked.write(
        "prompts.yaml",
        "templates:\n  1: !Template\n    name: short\n    jinja: 'Q {{q}}|||{{a}}'\n"
        "    metadata: !TemplateMetadata {original_task: true}\n",
    )
    (task,) = TaskManager(include_path=asked.path).load(["asked"])["tasks"].values()
    assert task.doc_to_text({"q": "1", "a": "2"}) == "Q 1"


# -- functions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "module", ["x" * 300, "utils" + "[" * 300, "sub/" + "x" * 5000, "../" + "x" * 300]
)
def test_a_function_in_a_file_with_an_impossible_name_is_one_message(
    module: str, asked: Folder, capsys: Output
) -> None:
    text = TASK.format(name="asked").replace('"{{q}}"', f"!function {module}.f")
    asked.write("asked.yaml", text)
    where = ["--include_path", str(asked.path), "--no-build"]
    assert main(["validate", "asked", *where]) in (0, 1)
    assert "Error" not in capsys.readouterr().out
    assert f"!function {module[:9]}" in refusal(asked, capsys)


def test_a_package_with_an_impossible_name_is_missed_before_the_model_is_asked(
    asked: Folder, capsys: Output
) -> None:
    name = "x" * 300
    asked.write(
        "code.py", f"def score(doc, results):\n    import {name}\n    return {{'a': 1.0}}\n"
    )
    text = TASK.format(name="asked") + "process_results: !function code.score\n"
    asked.write("asked.yaml", f"{text}metric_list: [{{metric: a, aggregation: mean}}]\n")
    assert f"imports '{name}'" in refusal(asked, capsys)


# -- findings -----------------------------------------------------------------------------------


@needs_pipes
@pytest.mark.parametrize("kind", SPECIAL)
def test_findings_are_a_regular_file(kind: str, folder: Folder) -> None:
    SPECIAL[kind](folder.path / "findings.jsonl")
    with pytest.raises(DataError, match="a pipe, a socket or a device"):
        read_findings(folder.path / "findings.jsonl")


@pytest.mark.parametrize("name", ["~nobody-of-that-name/f.jsonl", "x" * 5000])
def test_findings_with_an_impossible_name_are_a_problem_of_the_task_file(
    name: str, asked: Folder, capsys: Output
) -> None:
    step = f"{{function: decontaminate, path: {name}, threshold: 1}}"
    text = f"{TASK.format(name='asked')}filter_list: [{{name: a, filter: [{step}]}}]\n"
    asked.write("asked.yaml", text)
    assert main(["validate", "asked", "--include_path", str(asked.path), "--no-build"]) == 1
    assert "but there is no such file" in capsys.readouterr().out


# -- run folders --------------------------------------------------------------------------------

STAMP = "2026-01-02T03-04-05.000006"


@needs_pipes
@pytest.mark.parametrize("kind", SPECIAL)
def test_results_and_logs_of_a_folder_are_regular_files(kind: str, tmp_path: Path) -> None:
    log = tmp_path / f"samples_a_{STAMP}.jsonl"
    log.write_text('{"doc_id": 0}\n')
    for name in (f"results_{STAMP}.json", f"samples_b_{STAMP}.jsonl", "model_c.jsonl"):
        SPECIAL[kind](tmp_path / name)
    with pytest.raises(OutputError, match="contains no results file"):
        latest_results(tmp_path)
    assert find_logs(tmp_path) == {"a": log}
    assert results_beside({"a": log}) == {"a": {}}
    log.unlink()
    assert find_logs(tmp_path) == {}


@needs_pipes
def test_a_store_is_a_regular_file(tmp_path: Path, capsys: Output) -> None:
    run = ["run", "--model", "dummy", "--tasks", "demo_choice", "--limit", "1"]
    assert main([*run, "--output_path", str(tmp_path / "out")]) == 0
    (store,) = tmp_path.rglob("answers.sqlite")
    store.unlink()
    os.mkfifo(store)
    capsys.readouterr()
    with pytest.raises(StoreError, match="not a regular file"):
        AnswerStore(store, "m")
    assert main(["resume", str(tmp_path / "out")]) == 2
    assert "answers.sqlite: not a regular file" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "out")


# -- arguments ----------------------------------------------------------------------------------


def test_digits_that_are_no_decimal_number_are_text() -> None:
    assert parse_arguments("size=²,other=12") == {"size": "²", "other": 12}


@pytest.mark.parametrize("text", ["size=" + "9" * 5000, '{"size": ' + "9" * 5000 + "}"])
def test_a_number_with_too_many_digits_is_one_message(text: str) -> None:
    with pytest.raises(ConfigError, match=r"a number of 5000 digits|is not a JSON object"):
        parse_arguments(text)
