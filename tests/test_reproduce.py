"""Tests that a run can be reproduced from its results file, and that changes are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lm_eval.cli import main
from lm_eval.cli.reproduce import _published_settings
from lm_eval.results.agreement import compare
from tests.conftest import Folder
from tests.test_rescore import PUBLISHED


def results_of(folder: Path) -> Path:
    return max(folder.rglob("results_2*.json"))


@pytest.fixture
def copied(tmp_path: Path) -> Folder:
    """Writes a copy of `demo_choice` as a custom task."""
    source = Path(__file__).parents[1] / "lm_eval" / "tasks" / "demo"
    folder = Folder(tmp_path / "tasks")
    text = (source / "demo_choice.yaml").read_text()
    folder.write("mine.yaml", text.replace("demo_choice", "mine"))
    for file in (source / "data").glob("choice_*"):
        folder.write(f"data/{file.name}", file.read_text())
    return folder


def run(*words: object) -> int:
    return main(["run", "--model", "demo", *map(str, words)])


def reproduce(*words: object) -> int:
    return main(["reproduce", *map(str, words)])


def test_the_demo_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("--limit", 8, "--num_fewshot", 1, "--seed", 5, "--bootstrap_iters", 50)
    assert run("--tasks", "demo_choice,demo_sums,demo_stories", *settings, "-o", tmp_path) == 0
    capsys.readouterr()
    before = sorted(tmp_path.rglob("*"))
    assert reproduce(tmp_path) == 0
    assert capsys.readouterr().out.startswith("identical: ")
    assert sorted(tmp_path.rglob("*")) == before


def test_one_changed_character_is_traced_to_its_task_and_hash(
    copied: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--tasks", "mine,demo_pairs", "--include_path", copied.path, "--limit", 20)
    assert run(*words, "-o", tmp_path / "out") == 0
    file = copied.path / "mine.yaml"
    prompt = next(line for line in file.read_text().splitlines() if "doc_to_text" in line)
    place = prompt.rindex("}}") + 2
    file.write_text(file.read_text().replace(prompt, prompt[:place] + "!" + prompt[place:]))
    capsys.readouterr()
    assert reproduce(results_of(tmp_path / "out")) == 1
    said = capsys.readouterr().out
    assert "identical" not in said.split()[0]
    assert "task mine: its configuration (hash " in said
    assert "task mine: its prompts (hash " in said
    assert "task mine: its data" not in said
    assert "demo_pairs:" not in said


def test_another_model_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--tasks", "demo_pairs", "--limit", 5, "-o", tmp_path) == 0
    file = results_of(tmp_path)
    changed = json.loads(file.read_text())
    changed["model_identity"]["own"]["weights"] = "others"
    changed["libraries"]["numpy"] = "0.1"
    changed["results"]["demo_pairs"]["acc,none"] += 0.25
    file.write_text(json.dumps(changed))
    capsys.readouterr()
    assert reproduce(file) == 1
    said = capsys.readouterr().out
    assert "demo_pairs: acc,none was" in said
    assert "the model: own" in said
    assert "numpy was 0.1, is now" in said


def test_a_published_results_file_is_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The dummy model's texts are constant, so the scores must be reproduced."""
    folder = Folder(tmp_path / "tasks")
    (log,) = PUBLISHED.rglob("samples_rec_text_*")
    rows = {row["doc_id"]: row["doc"] for row in map(json.loads, log.read_text().splitlines())}
    folder.rows("rec_text.jsonl", rows.values())
    folder.write("rec_text.yaml", (PUBLISHED / "tasks" / "rec_text.yaml").read_text())
    published = json.loads(results_of(PUBLISHED).read_text())
    published["configs"] = {"rec_text": {}}
    file = folder.write("results.json", json.dumps(published))
    assert reproduce(file, "--include_path", folder.path) == 0
    assert capsys.readouterr().out.startswith("identical: ")
    published["results"]["rec_text"]["exact_match,letter"] += 1e-4
    file = folder.write("results.json", json.dumps(published))
    assert reproduce(file, "--include_path", folder.path) == 1
    assert "rec_text: exact_match,letter was 0.2501, is now 0.25" in capsys.readouterr().out


@pytest.mark.parametrize("turns", [True, False])
def test_examples_of_a_published_chat_keep_their_turns(turns: bool, tmp_path: Path) -> None:
    published = json.loads(results_of(PUBLISHED).read_text())
    published["configs"] = {"rec_text": {}}
    chat = {"chat_template": "{{ messages }}", "fewshot_as_multiturn": turns}
    settings = _published_settings({**published, **chat}, tmp_path)
    assert settings["apply_chat_template"] is True
    assert settings["fewshot_as_multiturn"] is turns
    assert "fewshot_as_multiturn" not in _published_settings(published, tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no such file"),
        ("{", "cannot be read as a results file"),
        ("[]", "is not a results file"),
        ('{"results": {}}', "does not contain the settings of the run"),
    ],
)
def test_what_is_no_results_file_is_refused(
    tmp_path: Path, content: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.json"
    if content is not None:
        file.write_text(content)
    assert reproduce(file) == 2
    assert said in capsys.readouterr().err


def test_a_folder_without_results_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(tmp_path) == 2
    assert "contains no results file" in capsys.readouterr().err


def test_numbers_are_compared_as_numbers() -> None:
    def results(**row: Any) -> Any:
        return {"results": {"t": {"acc,none": row.get("acc"), "alias": "x"}}}

    nan = float("nan")
    assert compare(results(acc=nan), results(acc=nan)).identical
    assert compare(results(acc=1.0), results(acc=1)).identical
    assert not compare(results(acc=1.0), results(acc=1.0 + 1e-15)).identical
    assert compare(results(acc=1.0), results(acc=1.0 + 1e-15), 1e-9).identical
    assert not compare(results(acc=1.0), results(acc="N/A")).identical
    assert not compare(results(acc=1.0), {"results": {}}).identical
    assert compare(results(acc="N/A"), results(acc="N/A")).identical


def test_results_hold_no_secret(tmp_path: Path) -> None:
    words = ("--model", "dummy", "--model_args", "api_key=abracadabra,x=1", "--limit", "2")
    assert main(["run", *words, "--tasks", "demo_choice", "-o", str(tmp_path)]) == 0
    text = results_of(tmp_path).read_text()
    assert "abracadabra" not in text
    assert json.loads(text)["settings"]["model_args"] == {"x": 1}
