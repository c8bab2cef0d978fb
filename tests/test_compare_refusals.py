"""Tests that runs are compared only if nothing besides the model differs, and bad input."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.cli import main
from lm_eval.errors import DataError
from lm_eval.results.run_signature import run_signature
from tests.comparison_runs import CHOICE, DOCUMENTS, published_logs, run, write_tasks
from tests.conftest import Folder


@pytest.fixture
def tasks(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "tasks")
    write_tasks(folder)
    return folder


def compared(*words: object) -> int:
    return main(["compare", *map(str, words)])


# -- settings ---------------------------------------------------------------------------------

FEW = ("--num_fewshot", "2")


@pytest.mark.parametrize(
    ("task", "first", "second", "said"),
    [
        ("numbers", (), FEW, "number of few-shot examples: 0 and 2"),
        (
            "words",
            (),
            ("--gen_kwargs", "temperature=0.7"),
            'generation settings: {"until": ["."], "max_gen_toks',
        ),
        (
            "numbers",
            FEW,
            (*FEW, "--seed", "0,1234,1234,7"),
            "the prompts (without chat template) of 10 of 10 documents (few-shot seed: 1234 and 7)",
        ),
        (
            "numbers",
            (),
            ("--system_instruction", "Be brief."),
            '10 of 10 documents (system instruction: not set and "Be brief.")',
        ),
    ],
)
def test_runs_with_different_settings_are_not_compared(
    tasks: Folder,
    task: str,
    first: tuple[str, ...],
    second: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = [run(tasks, name, (), task, *w) for name, w in (("a", first), ("b", second))]
    capsys.readouterr()
    assert compared(*runs) == 2
    error = capsys.readouterr().err
    assert f"task {task!r}: the runs differ in more than the model: " in error
    assert said in error
    assert "--force" in error
    assert compared(*runs, "--force") == 0
    printed = capsys.readouterr().out
    assert f"|{task} (!)|" in printed
    assert said in printed


def test_model_arguments_and_metadata_are_no_difference(tasks: Folder) -> None:
    first = run(tasks, "a", (0,), "numbers", "--metadata", '{"tokenizer": "x"}')
    second = run(
        tasks, "b", (1,), "numbers", "--metadata", '{"tokenizer": "y"}', "--batch_size", "3"
    )
    (row,) = lm_eval.compare(first, second).rows
    assert row.unequal == []


def test_few_shot_seeds_of_tasks_without_examples_are_no_difference(tasks: Folder) -> None:
    first = run(tasks, "a", (0,), "numbers")
    second = run(tasks, "b", (1,), "numbers", "--seed", "0,1234,1234,7")
    assert lm_eval.compare(first, second).rows


CHANGES: list[tuple[str, str, str]] = [
    (
        "Question {{number}}:",
        "Now: Question {{number}}:",
        'doc_to_text: "Question {{number}}:" and ',
    ),
    ("version: 1.0", "version: 2.0", "version: 1.0 and 2.0"),
    ("acc\n", "acc\ndescription: Think.\n", 'description: "" and "Think."'),
]


@pytest.mark.parametrize(("before", "after", "said"), CHANGES)
def test_a_task_that_changed_between_the_runs_is_named(
    tasks: Folder, before: str, after: str, said: str
) -> None:
    first = run(tasks, "a", (0,), "numbers")
    tasks.write("numbers.yaml", CHOICE.replace(before, after))
    second = run(tasks, "b", (1,), "numbers")
    with pytest.raises(DataError) as error:
        lm_eval.compare(first, second)
    assert said in str(error.value)


@pytest.mark.parametrize(("before", "after", "said"), CHANGES[:1])
def test_tasks_of_different_folders_are_compared_by_their_settings(
    tasks: Folder, tmp_path: Path, before: str, after: str, said: str
) -> None:
    other = Folder(tmp_path / "other")
    shutil.copytree(tasks.path, other.path)
    other.write("numbers.yaml", CHOICE.replace(before, after))
    runs = run(tasks, "a", (0,), "numbers"), run(other, "b", (1,), "numbers")
    with pytest.raises(DataError, match="Question"):
        lm_eval.compare(*runs)


def test_changed_data_is_named(tasks: Folder, tmp_path: Path) -> None:
    other = Folder(tmp_path / "other")
    shutil.copytree(tasks.path, other.path)
    other.rows("numbers.jsonl", [{"number": i + 1, "passage": 0} for i in range(10)])
    runs = run(tasks, "a", (0,), "numbers"), run(other, "b", (1,), "numbers")
    with pytest.raises(DataError, match="the data: rows of 'test' differ"):
        lm_eval.compare(*runs)


SHOTS = "number of few-shot examples: 0 and 2"


def with_examples(tasks: Folder) -> None:
    """Gives the task `numbers` a split of its own for few-shot examples."""
    tasks.rows("shots.jsonl", [{"number": i, "passage": 0} for i in range(20, 24)])
    text = CHOICE.replace("{test: numbers.jsonl}", "{test: numbers.jsonl, train: shots.jsonl}")
    tasks.write("numbers.yaml", text.replace("fewshot_split: test", "fewshot_split: train"))


def test_runs_with_other_numbers_of_examples_differ_in_these_alone(tasks: Folder) -> None:
    with_examples(tasks)
    runs = run(tasks, "a", (0,), "numbers"), run(tasks, "b", (1,), "numbers", "-f", "2")
    (row,) = lm_eval.compare(*runs, force=True).rows
    assert row.unequal == [SHOTS]


def test_changed_data_is_named_beside_the_number_of_examples(tasks: Folder, tmp_path: Path) -> None:
    with_examples(tasks)
    other = Folder(tmp_path / "other")
    shutil.copytree(tasks.path, other.path)
    other.rows("numbers.jsonl", [{"number": i + 1, "passage": 0} for i in range(10)])
    runs = run(tasks, "a", (0,), "numbers"), run(other, "b", (1,), "numbers", "-f", "2")
    (row,) = lm_eval.compare(*runs, force=True).rows
    assert row.unequal == [SHOTS, "the data: rows of 'test' differ"]


def test_a_metric_that_changed_after_both_runs_is_no_difference(tasks: Folder) -> None:
    """Both are scored with the current task."""
    runs = run(tasks, "a", (0,), "numbers"), run(tasks, "b", (1,), "numbers")
    tasks.write("numbers.yaml", CHOICE.replace("metric: acc", "metric: acc_norm"))
    (row,) = lm_eval.compare(*runs).rows
    assert row.metric == "acc_norm"


def test_common_documents_of_runs_with_different_limits_are_compared(
    tasks: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(tasks, "a", (0, 5), "numbers", "--limit", "6")
    second = run(tasks, "b", (1,), "numbers", "--samples", '{"numbers": [1, 5, 9]}')
    capsys.readouterr()
    assert compared(first, second) == 0
    printed = capsys.readouterr().out
    assert (
        "numbers: 2 documents are in both runs; 4 only in A and 1 only in B are left out" in printed
    )
    (row,) = lm_eval.compare(first, second).rows
    assert (row.difference.first, row.difference.second) == (0.5, 0.5)
    assert (row.difference.first_wins, row.difference.second_wins) == (1, 1)


def test_prompts_of_common_documents_are_checked_if_the_limits_differ(tasks: Folder) -> None:
    first = run(tasks, "a", (0, 5), "numbers", "--limit", "6")
    second = run(tasks, "b", (1,), "numbers", "--limit", "4", "--system_instruction", "Be brief.")
    with pytest.raises(DataError, match="of 4 of 4 documents"):
        lm_eval.compare(first, second)


def test_chat_templates_may_differ_and_are_listed(tasks: Folder, tmp_path: Path) -> None:
    def logs(name: str, **more: Any) -> Path:
        return published_logs(tmp_path / name, (0, 1), "0.4.13", **more)

    template = {"chat_template": "{{messages}}", "chat_template_sha": "abcdef0123456789"}
    found = lm_eval.compare(logs("plain"), logs("chat", **template), include_path=[str(tasks.path)])
    assert found.chat_templates == {
        "plain": None,
        "chat": "the model's own (SHA-256 abcdef01…)",
    }


def test_logs_with_other_documents_are_refused(tasks: Folder, tmp_path: Path) -> None:
    logs = [published_logs(tmp_path / name, (0, 1), "0.4.13") for name in ("a", "b")]
    (file,) = logs[1].glob("samples_*")
    file.write_text(file.read_text().replace('"passage": 2', '"passage": 7'))
    with pytest.raises(DataError, match="the data: 2 of 10 documents differ"):
        lm_eval.compare(*logs, include_path=[str(tasks.path)])
    (row,) = lm_eval.compare(*logs, include_path=[str(tasks.path)], force=True).rows
    assert row.difference.documents == 8


def test_logs_of_another_version_of_the_task_are_refused(tasks: Folder, tmp_path: Path) -> None:
    logs = [published_logs(tmp_path / "a", (0,), "0.4.13")]
    logs.append(published_logs(tmp_path / "b", (1,), "0.4.2", versions={"numbers": 0.0}))
    with pytest.raises(DataError, match=r"version: 1\.0 and 0\.0"):
        lm_eval.compare(*logs, include_path=[str(tasks.path)])


# -- bad input --------------------------------------------------------------------------------


def error_of(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    assert compared(*words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    return printed.err


def test_paths_that_cannot_be_compared_are_one_error(
    tasks: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(tasks, "a", (0,), "numbers,few")
    empty = tmp_path / "empty"
    empty.mkdir()
    other = tmp_path / "other.json"
    other.write_text("{}")
    for words, said in [
        ((first,), "needs two or more runs"),
        ((first, first), "are the same run"),
        ((first, first / "org__a"), "are the same run"),
        ((first, empty), "contains neither a run nor sample logs"),
        ((first, tmp_path / "missing"), "does not exist"),
        ((first, other), "is not a results file"),
    ]:
        error = error_of(capsys, *words)
        assert said in error
        assert error.count("\n") == 1
    second = run(tasks, "b", (0,), "words")
    assert "no task in common" in error_of(capsys, first, second)
    third = run(tasks, "c", (0,), "numbers")
    error = error_of(capsys, first, third, "--metrics", "f1")
    assert "no task has the metric f1. The metrics of the run are: acc." in error
    assert "between 0 and 1" in error_of(capsys, first, third, "--confidence", "95")


def test_runs_without_common_documents_are_an_error(
    tasks: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(tasks, "a", (0,), "numbers", "--samples", '{"numbers": [1, 2]}')
    second = run(tasks, "b", (0,), "numbers", "--samples", '{"numbers": [3, 4]}')
    assert "no document was scored in both runs" in error_of(capsys, first, second)


def test_a_results_file_stands_for_its_run(tasks: Folder) -> None:
    runs = run(tasks, "a", (0,), "numbers"), run(tasks, "b", (1, 2), "numbers")
    files = [next(folder.rglob("results_*.json")) for folder in runs]
    assert [r.difference for r in lm_eval.compare(*files).rows] == [
        r.difference for r in lm_eval.compare(*runs).rows
    ]


def test_one_of_several_runs_is_chosen_by_its_id(
    tasks: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(tasks, "a", (0,), "numbers")
    run(tasks, "a", (0,), "numbers", "--limit", "3")
    second = run(tasks, "b", (1,), "numbers")
    error = error_of(capsys, first, second)
    assert f"contains 2 runs. Select one with {first}#ID" in error
    records = json.loads(next(first.rglob("run.json")).read_text())["runs"]
    assert len(records) == 2
    chosen = next(line.split()[1] for line in error.splitlines() if "--limit 3" in line)
    (row,) = lm_eval.compare(f"{first}#{chosen}", second).rows
    assert row.difference.documents == 3


def test_tasks_of_one_run_only_are_left_out(
    tasks: Folder, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    first = run(tasks, "a", (0,), "numbers,few,words")
    second = run(tasks, "b", (1,), "numbers")
    capsys.readouterr()
    assert compared(first, second) == 0
    printed = capsys.readouterr()
    assert "few, words are not in every run and left out" in printed.err
    assert "|numbers|" in printed.out


def test_an_unfinished_run_is_compared_in_its_finished_tasks(
    tasks: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(tasks, "a", (0,), "numbers,words")
    second = run(tasks, "b", (1,), "numbers")
    # As if the run of the second task had been stopped before its first answer.
    record = next(second.rglob("run.json"))
    content = json.loads(record.read_text())
    own = json.loads(next(first.rglob("run.json")).read_text())["runs"][0]["state"]["tasks"][
        "words"
    ]
    content["runs"][0]["state"]["tasks"]["words"] = own
    content["runs"][0]["settings"]["tasks"] = ["numbers", "words"]
    content["runs"][0] |= {"finished": False, "results": None}
    changed = content["runs"][0]
    del changed["checksum"]
    changed["signature"] = run_signature(changed["settings"], changed["directory"])
    record.write_text(json.dumps(content))
    capsys.readouterr()
    assert compared(first, second) == 0
    printed = capsys.readouterr()
    assert "words is left out" in printed.err
    assert "lm-eval resume" in printed.err
    assert "|numbers|" in printed.out
    assert "|words" not in printed.out
    error = error_of(capsys, first, second, "--tasks", "words")
    assert "lm-eval resume" in error
    assert "--force compares the documents that have answers" in error
    assert compared(first, second, "--force") == 0  # words has no answer at all
    printed = capsys.readouterr()
    assert "a task is left out" in printed.err
    assert "|words" not in printed.out


def without(logs: Path, field: str, rows: Iterable[int]) -> Path:
    """Removes a field from rows of a published log, in its own form; returns the file."""
    (file,) = [one for one in logs.iterdir() if one.suffix == ".jsonl"]
    text = file.read_text()
    listed = text.startswith("[")  # before 0.4.3
    samples = json.loads(text) if listed else [json.loads(line) for line in text.splitlines()]
    for row in rows:
        samples[row].pop(field, None)
    lines = "".join(json.dumps(one) + "\n" for one in samples)
    file.write_text(json.dumps(samples, indent=2) if listed else lines)
    return file


#: Versions of the published harness from which on logs have another form.
FORMS = ("0.4.0", "0.4.3", "0.4.13")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("field", ["doc", "arguments", "resps", "doc_id"])
def test_logs_with_missing_fields_are_an_error_with_the_line(
    tasks: Folder, tmp_path: Path, field: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = [published_logs(tmp_path / name, (0, 1), form) for name in ("a", "b")]
    file = without(logs[1], field, [3])
    error = error_of(capsys, *logs, "--include_path", tasks.path)
    assert f"{file}:4: is not a sample" in error


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "field", ["filter", "metrics", "doc_hash", "target", "filtered_resps", "acc"]
)
def test_logs_without_fields_that_scoring_does_not_need_are_compared(
    tasks: Folder, tmp_path: Path, field: str, form: str
) -> None:
    logs = [published_logs(tmp_path / name, (0, 1), form) for name in ("a", "b")]
    without(logs[1], field, range(DOCUMENTS))
    (row,) = lm_eval.compare(*logs, include_path=[str(tasks.path)]).rows
    assert row.difference.first == row.difference.second == 0.2


@pytest.mark.parametrize("field", ["versions", "n-shot", "config", "datasets"])
def test_damaged_results_beside_logs_are_not_used(
    folder: Folder, tmp_path: Path, field: str
) -> None:
    write_tasks(folder)
    one = published_logs(tmp_path / "one", (0, 1), "0.4.13")
    two = published_logs(tmp_path / "two", (0, 2), "0.4.13", **{field: 5})
    row = lm_eval.compare(one, two, include_path=[str(folder.path)]).row("numbers", "acc")
    assert (row.difference.first_wins, row.difference.second_wins) == (1, 1)
