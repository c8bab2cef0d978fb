"""Tests the filter `decontaminate`, and what `validate` knows about decontamination."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.api.filter import LEFT_OUT, Filter
from lm_eval.api.registry import filter_registry
from lm_eval.cli import main
from lm_eval.errors import ConfigError, DataError
from lm_eval.models.scripted import ScriptedLM
from lm_eval.results.reader import latest_results, read_samples
from lm_eval.results.table import make_tables
from lm_eval.tasks import TaskManager
from tests.conftest import Folder
from tests.planted_findings import plant

TASK = """\
task: numbers
dataset_path: json
dataset_kwargs: {data_files: {test: numbers.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
metadata: {version: 2}
"""
FILTERS = """\
filter_list:
  - name: every
    filter: [{function: take_first}]
  - name: clean
    filter:
      - {function: decontaminate, path: found/f.jsonl}
      - {function: regex, regex_pattern: "([0-9]+)"}
      - {function: take_first}
"""


@pytest.fixture
def numbers(folder: Folder) -> Folder:
    """Returns a folder with the task `numbers`, whose documents 2, 5 and 7 of 8 were found."""
    rows = [{"question": f"q{i}", "answer": str(i)} for i in range(8)]
    folder.rows("numbers.jsonl", rows)
    folder.write("numbers.yaml", TASK)
    (folder.path / "found").mkdir()
    plant(folder.path / "found" / "f.jsonl", {"numbers": [2, 5, 7]}, folder.path)
    folder.write("numbers.yaml", TASK + FILTERS)
    return folder


#: Answers right to the questions 0, 2, 5 and 7, and without a number to 3.
LM = ScriptedLM(
    generate=lambda text, _: text[1:] if text in ("q0", "q2", "q5", "q7") else "99" * (text != "q3")
)


def evaluate(numbers: Folder, **settings: Any) -> Any:
    manager = TaskManager(include_path=numbers.path)
    return lm_eval.simple_evaluate(LM, tasks=["numbers"], task_manager=manager, **settings)


def test_its_pipeline_scores_the_clean_documents_alone(
    numbers: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    got = evaluate(numbers)
    row = got["results"]["numbers"]
    assert row["exact_match,every"] == 4 / 8
    assert row["exact_match,clean"] == 1 / 5
    assert row["sample_count"] == {"exact_match,every": 8, "exact_match,clean": 5}
    assert row["sample_len"] == 8
    assert "no value for some documents" not in caplog.text
    assert got["extraction_failed"]["numbers"] == {"clean": 1}
    assert "decontaminated" not in got
    assert re.search(r"clean +\|.*exact_match.*0\.2000", make_tables(got))


def test_the_log_marks_what_it_left_out(numbers: Folder) -> None:
    samples = {
        s["doc_id"]: s for s in evaluate(numbers)["samples"]["numbers"] if s["filter"] == "clean"
    }
    assert samples[2]["filtered_resps"] == ["[left out]"]
    assert (samples[2]["metrics"], "exact_match" in samples[2]) == ([], False)
    assert samples[0]["filtered_resps"] == ["0"]
    assert (samples[0]["metrics"], samples[0]["exact_match"]) == (["exact_match"], 1.0)


@pytest.mark.parametrize("samples_format", ["jsonl", "zst", "parquet"])
def test_logs_of_documents_without_scores_are_read_back(
    numbers: Folder, tmp_path: Path, samples_format: str
) -> None:
    words = ("--include_path", str(numbers.path), "-s", "--samples_format", samples_format)
    out = tmp_path / "out"
    run = ["run", "--model", "dummy", "--tasks", "numbers", *words, "-o", str(out)]
    assert main(run) == 0
    own = [s for s in read_samples(latest_results(out))["numbers"] if s["filter"] == "clean"]
    assert [s["doc_id"] for s in own if not s["metrics"]] == [2, 5, 7]


def test_it_counts_documents_by_their_number_in_the_split(numbers: Folder) -> None:
    got = evaluate(numbers, samples={"numbers": [1, 2, 3, 7]}, log_samples=False)
    assert got["results"]["numbers"]["sample_count"]["exact_match,clean"] == 2


def test_it_works_together_with_the_option(numbers: Folder) -> None:
    got = evaluate(numbers, decontaminate=str(numbers.path / "found" / "f.jsonl"))
    row = got["decontaminated"]["numbers"]
    assert row["exact_match,every"] == row["exact_match,clean"] == 1 / 5
    assert list(row["difference"]) == ["exact_match,every"]  # the other has only clean documents
    assert row["difference"]["exact_match,every"]["difference"] == 1 / 5 - 1


def test_multiple_choice_tasks_may_leave_documents_out(colours: Folder) -> None:
    plant(colours.path / "f.jsonl", {"colours": [0, 2]}, colours.path)
    text = (colours.path / "colours.yaml").read_text()
    steps = "[{function: decontaminate, path: f.jsonl}, {function: take_first}]"
    colours.write("colours.yaml", f"{text}filter_list: [{{name: clean, filter: {steps}}}]\n")
    second = (" red", " black", " pink")  # right for documents 1, 3 and 5
    lm = ScriptedLM(loglikelihood=lambda _, choice: (float(choice in second) - 1, True))
    manager = TaskManager(include_path=colours.path)
    got = lm_eval.simple_evaluate(lm, tasks=["colours"], task_manager=manager)
    assert got is not None
    assert got["results"]["colours"]["sample_len"] == 4
    assert got["results"]["colours"]["acc,clean"] == 3 / 4


def test_a_threshold_chooses_among_the_documents(numbers: Folder) -> None:
    manager = TaskManager(include_path=numbers.path)
    for threshold, count in ((0.5, 5), (0.6, 8)):  # half of the n-grams were found
        text = FILTERS.replace("f.jsonl}", f"f.jsonl, threshold: {threshold}}}")
        numbers.write("numbers.yaml", TASK + text)
        got = lm_eval.simple_evaluate(LM, tasks=["numbers"], task_manager=manager)
        assert got is not None
        assert (
            got["results"]["numbers"].get("sample_count", {}).get("exact_match,clean", 8) == count
        )


def test_a_pipeline_that_leaves_all_documents_out_has_no_scores(
    numbers: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    numbers.write("numbers.yaml", TASK)
    plant(numbers.path / "found" / "f.jsonl", {"numbers": range(8)}, numbers.path)
    numbers.write("numbers.yaml", TASK + FILTERS)
    got = evaluate(numbers)
    assert "exact_match,clean" not in got["results"]["numbers"]
    assert got["results"]["numbers"]["exact_match,every"] == 4 / 8
    assert "pipeline clean left out all documents, so it has no scores" in caplog.text


def test_any_filter_may_leave_documents_out(
    numbers: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Short(Filter):
        def apply(self, resps: Any, docs: Any) -> list[Any]:
            return [LEFT_OUT if answers == [""] else answers for answers in resps]

    monkeypatch.setitem(filter_registry._entries, "answered", Short)
    numbers.write(
        "numbers.yaml",
        TASK + "filter_list: [{name: a, filter: [{function: answered}, {function: take_first}]}]\n",
    )
    assert evaluate(numbers)["results"]["numbers"]["exact_match,a"] == pytest.approx(4 / 7)


def test_score_takes_it_as_a_new_pipeline(
    numbers: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers.write("numbers.yaml", TASK)
    out = tmp_path / "out"
    manager = TaskManager(include_path=numbers.path)
    lm_eval.simple_evaluate(
        LM, tasks=["numbers"], task_manager=manager, output_path=str(out), log_samples=False
    )
    steps = [{"function": "decontaminate", "path": "f.jsonl"}, {"function": "take_first"}]
    monkeypatch.chdir(numbers.path / "found")  # a path in Python is relative to this folder
    pipeline = {"name": "clean", "filter": steps}
    got = lm_eval.score(out, filters=[pipeline], include_path=str(numbers.path))
    assert got["results"]["numbers"]["exact_match,clean"] == 1 / 5
    monkeypatch.chdir(tmp_path)  # a path in a file is relative to that file
    text = "[{name: c, filter: [{function: decontaminate, path: f.jsonl}, {function: take_first}]}]"
    file = numbers.write("found/pipelines.yaml", f"filter_list: {text}\n")
    words = ["score", str(out), "--include_path", str(numbers.path), "--filter", str(file)]
    assert main([*words, "-o", str(tmp_path / "scored")]) == 0


# -- bad input --------------------------------------------------------------------------------


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a model was made")

    monkeypatch.setattr("lm_eval.evaluator.create_model", refuse)


def test_a_missing_file_is_refused_with_the_task_file(no_model: None, numbers: Folder) -> None:
    (numbers.path / "found" / "f.jsonl").unlink()
    with pytest.raises(DataError, match=r"numbers.yaml: .*found/f.jsonl cannot be read: No such"):
        evaluate(numbers)


def test_findings_of_other_rows_are_refused(no_model: None, numbers: Folder) -> None:
    numbers.rows("numbers.jsonl", [{"question": "q0", "answer": "0"}])
    with pytest.raises(DataError, match=r"f.jsonl: the findings are of other rows than task 'numb"):
        evaluate(numbers)


def test_findings_of_another_task_are_refused(no_model: None, numbers: Folder) -> None:
    plant(numbers.path / "found" / "f.jsonl", {"demo_choice": [1]})
    with pytest.raises(DataError, match=r"do not cover the task 'numbers'; they cover: demo_choi"):
        evaluate(numbers)


@pytest.mark.parametrize("threshold", ["high", "2", "-0.5", "true"])
def test_a_threshold_that_is_no_share_is_refused(
    no_model: None, numbers: Folder, threshold: str
) -> None:
    text = FILTERS.replace("f.jsonl}", f"f.jsonl, threshold: {threshold}}}")
    numbers.write("numbers.yaml", TASK + text)
    with pytest.raises(ConfigError, match="threshold must be a number between 0 and 1"):
        evaluate(numbers)


# -- validate ---------------------------------------------------------------------------------


def problems(numbers: Folder, text: str, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    numbers.write("numbers.yaml", TASK + text)
    code = main(["validate", "numbers", "--include_path", str(numbers.path), *words])
    printed = capsys.readouterr().out
    assert code == (0 if "no problem found" in printed else 1)
    return printed


def test_validate_accepts_the_keys(numbers: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    query = 'should_decontaminate: true\ndoc_to_decontamination_query: "{{question}}"\n'
    assert "no problem found" in problems(numbers, FILTERS + query, capsys)


@pytest.mark.parametrize(
    ("text", "said", "words"),
    [
        ("should_decontaminate: often\n", "yaml:9: should_decontaminate must be", ["--no_build"]),
        ('doc_to_decontamination_query: "{{x"\n', "yaml:9: doc_to_decont", ["--no_build"]),
        ('doc_to_decontamination_query: "{{x.y}}"\n', "document 0: doc_to_decontamination_que", []),
        (FILTERS.replace("f.jsonl", "g.jsonl"), "yaml:12: the filter decontaminate reads", []),
        (FILTERS.replace(", path: found/f.jsonl", ""), "decontaminate needs `path`", []),
    ],
)
def test_validate_reports_mistakes_in_the_keys(
    numbers: Folder, capsys: pytest.CaptureFixture[str], text: str, said: str, words: list[str]
) -> None:
    assert said in problems(numbers, text, capsys, *words)


def test_validate_reports_findings_of_other_rows(
    numbers: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers.rows("numbers.jsonl", [{"question": "q0", "answer": "0"}])
    assert "the findings are of other rows" in problems(numbers, FILTERS, capsys)
