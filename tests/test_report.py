"""Tests what a report contains; tests/browser opens reports in a browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from lm_eval import simple_evaluate
from lm_eval.cli import main
from lm_eval.engine.stored_keys import StoredKeys
from lm_eval.models.scripted import ScriptedLM
from lm_eval.report.documents import documents
from lm_eval.report.prompts import prompt_segments
from lm_eval.runs.stored import find_runs
from tests.comparison_runs import published_logs, run, write_tasks
from tests.conftest import Folder

Page = dict[str, Any]


def read_page(file: Path) -> Page:
    """Returns the data of a report: its summary, and `documents` by task."""
    text = file.read_text(encoding="utf-8")
    (summary,) = re.findall(r'id="summary">(.*?)</script>', text, re.DOTALL)
    page: Page = json.loads(summary)
    blocks = dict(re.findall(r'<script type="application/gzip" id="(\w+)">(.*?)</script>', text))
    unpacked = {k: gzip.decompress(base64.b64decode(v)).decode() for k, v in blocks.items()}
    page["index"] = json.loads(unpacked["index"])
    lines = [
        json.loads(line)
        for name, one in unpacked.items()
        if name != "index"
        for line in one.split("\n")
    ]
    page["documents"] = {}
    for task in page["tasks"]:
        page["documents"][task["name"]], lines = lines[: task["shown"]], lines[task["shown"] :]
    return page


def report(tmp_path: Path, *words: object) -> Page:
    file = tmp_path / "report.html"
    assert main(["report", *map(str, words), "-o", str(file)]) == 0
    return read_page(file)


def notes(page: Page) -> str:
    return " ".join(note["text"] for note in page["notes"])


@pytest.fixture
def runs(folder: Folder) -> tuple[Path, Path]:
    """Stores two runs: one answers questions 0 to 6 correctly, the other 0 to 3 and 8."""
    write_tasks(folder)
    words = ("numbers,words", "--log_samples")
    return run(folder, "one", range(7), *words), run(folder, "two", [0, 1, 2, 3, 8], *words)


def test_two_runs_have_scores_differences_and_flips(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    page = report(tmp_path, *runs, "--include_path", tmp_path)
    rows = {row["name"]: row for row in page["table"]["rows"]}
    values = [value["value"] for value in rows["numbers"]["scores"][0]["values"]]
    assert values == [0.7, 0.5]
    (row,) = [r for r in page["differences"]["rows"] if r["name"] == "numbers"]
    assert row["value"] == pytest.approx(0.2)
    assert row["wins"] == [3, 1]  # 4, 5, 6 against 8
    task = next(i for i, task in enumerate(page["tasks"]) if task["name"] == "numbers")
    assert page["index"][task]["status"]["acc,none"] == ["1111111000", "1111000010"]
    assert page["index"][task]["margin"][0][0] == pytest.approx(1.0)  # -1 and -2


@pytest.mark.parametrize(
    ("rule", "numbers"),
    [("wrong", [4, 5, 6, 7, 8, 9]), ("flips", [4, 5, 6, 8]), ("all", list(range(10)))],
)
def test_samples_are_bounded_and_the_page_says_so(
    runs: tuple[Path, Path], tmp_path: Path, rule: str, numbers: list[int]
) -> None:
    page = report(tmp_path, *runs, "--samples", rule)
    assert [one["i"] for one in page["documents"]["numbers"]] == numbers
    assert bool(page["selection"]) == (rule != "all")
    assert page["tasks"][0]["total"] == 10
    assert page["tasks"][0]["plots"][0]["documents"] == 10


def test_a_number_of_random_samples_is_the_same_every_time(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    first, second = (report(tmp_path, runs[0], "--samples", "4") for _ in range(2))
    assert len(first["documents"]["numbers"]) == 4
    assert first["documents"] == second["documents"]


@pytest.mark.parametrize("words", [["--samples", "some"], ["--samples", "flips"], ["nothing"]])
def test_mistakes_are_errors_in_one_line(
    runs: tuple[Path, Path], words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = str(tmp_path / "report.html")
    assert main(["report", str(runs[0]), *words, "-o", target]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not Path(target).exists()


def test_a_run_without_sample_logs_is_scored_from_its_store(folder: Folder, tmp_path: Path) -> None:
    write_tasks(folder)
    page = report(tmp_path, run(folder, "one", range(7), "numbers"))
    assert len(page["documents"]["numbers"]) == 10
    assert "computed from the stored answers" in notes(page)


def test_a_results_file_alone_has_its_scores_and_a_note(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    (file,) = runs[0].glob("*/results_*.json")
    alone = tmp_path / "alone" / file.name
    alone.parent.mkdir()
    shutil.copy(file, alone)
    page = report(tmp_path, alone)
    assert page["table"]["rows"][0]["scores"][0]["values"][0]["value"] == 0.7
    assert page["tasks"] == []
    assert "There are no samples" in notes(page)


@pytest.mark.parametrize("form", ["0.4.0", "0.4.5", "0.4.13"])
def test_files_of_the_published_harness(tmp_path: Path, form: str) -> None:
    page = report(tmp_path, published_logs(tmp_path / "one", range(6), form))
    (table,) = page["index"]
    assert table["status"]["acc,none"] == ["1111110000"]
    first = page["documents"]["numbers"][0]["r"][0]
    assert first["c"] == [[" no", -2.0, False, None], [" yes", -1.0, False, None]]
    assert first["b"] == 1
    assert first["g"] == [1]


def test_a_run_of_someone_else_runs_no_code_of_theirs(
    runs: tuple[Path, Path], folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its logs, a run whose tasks are in a folder of someone else has no samples."""
    for log in runs[0].glob("*/samples_*"):
        log.unlink()
    planted = folder.path / "planted"
    folder.write("numbers.yaml", "task: numbers\ndoc_to_text: !function code.f\n")
    folder.write("code.py", f"open({str(planted)!r}, 'w')\ndef f(doc): return ''\n")
    monkeypatch.setenv("LMEVAL_STATE_DIR", str(tmp_path / "another user"))
    page = report(tmp_path, runs[0])
    assert not planted.exists()
    assert page["tasks"] == []
    assert "There are no samples" in notes(page)


def test_the_policy_allows_the_script_and_style_of_the_page_alone(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    report(tmp_path, runs[0])
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', text)
    allowed = dict(part.split(" ", 1) for part in html.unescape(policy).split("; "))
    assert allowed["default-src"] == allowed["connect-src"] == allowed["base-uri"] == "'none'"
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    for content, name in ((script, "script-src"), (style, "style-src")):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert allowed[name] == f"'sha256-{digest}'"
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert forbidden not in script
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", script + style)


def test_few_shot_examples_are_folded_and_the_pieces_are_the_prompt() -> None:
    shots = "Q: one?\nA: 1\n\nQ: two?\nA: 2\n\n"
    question = "Q: What is three?\n\nThink first.\nA:"
    config = {"num_fewshot": 2}
    found = prompt_segments(shots + question, {"q": "What is three?"}, config)
    assert [(one.text, one.folded) for one in found] == [(shots, True), (question, False)]
    assert [s.folded for s in prompt_segments(shots + question, {}, {"num_fewshot": 0})] == [False]
    chat = [("system", "s"), ("user", "q1"), ("assistant", "a1"), ("user", "q2")]
    text = json.dumps([{"role": role, "content": said} for role, said in chat])
    found = prompt_segments(text, {}, config)
    assert [(one.role, one.text) for one in found] == chat
    assert [one.folded for one in found] == [True, True, True, False]


def test_thoughts_and_unknown_fields_of_samples_are_kept() -> None:
    sample = {
        "doc_id": 0,
        "doc": {},
        "target": "x",
        "arguments": [["prompt", {"until": []}]],
        "resps": [["answer"]],
        "filtered_resps": ["answer"],
        "filter": "none",
        "metrics": ["exact_match"],
        "exact_match": 1.0,
        "thinking": [["first I think"]],
        "length_stopped": [[True]],
        "thinking_tokens": [[17]],
    }
    (found,) = documents([sample], {}).values()
    assert found.thoughts == ["first I think"]
    assert found.flags == 2
    assert found.others == {"thinking_tokens": [[17]]}


@pytest.mark.parametrize(
    "sample",
    [{}, {"doc_id": []}, {"arguments": 7, "resps": "x"}, {"resps": [[]]}, {"metrics": [{}, [1]]}],
)
def test_samples_of_any_form_can_be_read(sample: dict[str, Any]) -> None:
    assert len(documents([sample], {})) == 1


def test_a_store_is_read_while_it_is_open_elsewhere(folder: Folder) -> None:
    from lm_eval.engine.store import AnswerStore

    file = folder.path / "answers.sqlite"
    keys = [bytes([i]) * 16 for i in range(4)]
    with AnswerStore(file, "model") as store:
        stored = StoredKeys(file, "model")
        store.add("loglikelihood", keys[:2], [(-1.0, True), (-2.0, False)])
        assert stored.refresh()
        assert stored.keys == set(keys[:2])
        assert not stored.refresh()
        store.add("loglikelihood", keys[2:3], [(-1.0, True)])
        assert stored.refresh()
        assert stored.keys == set(keys[:3])
    before = file.read_bytes()
    assert StoredKeys(file, "model").refresh()
    assert not StoredKeys(file, "another").refresh()
    assert file.read_bytes() == before
    assert not StoredKeys(folder.path / "missing.sqlite", "model").refresh()


def test_studies_are_shown_beside_runs(runs: tuple[Path, Path], tmp_path: Path) -> None:
    study = tmp_path / "study" / "study.json"
    study.parent.mkdir()
    score = {"model": "m", "task": "t", "metric": "acc,none", "value": 0.5, "stderr": None}
    setting = {"name": "mcqa_0-shot"}
    content = {"models": ["m"], "scores": [{**score, "setting": setting}], "distributions": []}
    study.write_text(json.dumps(content))
    page = report(tmp_path, runs[0], study.parent)
    assert page["studies"][0]["scores"][0]["setting"] == "mcqa_0-shot"
    assert len(page["runs"]) == 1
    assert find_runs(runs[0])[0].record.finished


def test_a_sample_without_a_prompt_is_listed_by_its_choices(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    for log in runs[0].glob("*/samples_*"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            line.pop("checksum", None)
            for one in line["arguments"].values():
                one["arg_0"] = ""
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = report(tmp_path, runs[0])
    assert page["index"][0]["snippets"][0] == "no / yes"


def test_an_empty_sample_log_is_named(runs: tuple[Path, Path], tmp_path: Path) -> None:
    (log,) = runs[0].glob("*/samples_numbers_*")
    log.write_text("")
    page = report(tmp_path, runs[0])
    assert [task["name"] for task in page["tasks"]] == ["words"]
    assert "numbers" in notes(page)


def test_a_run_of_python_objects_has_no_command(folder: Folder, tmp_path: Path) -> None:
    rows = [{"question": "1?", "answer": "1"}]
    task = {
        "task": "own",
        "custom_dataset": lambda **_: {"test": rows},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "metric_list": [{"metric": "exact_match"}],
    }
    out = str(folder.path / "out")
    model = ScriptedLM(generate=lambda prompt, settings: "1")
    simple_evaluate(model, tasks=[task], output_path=out, log_samples=True)
    page = report(tmp_path, out)
    assert page["provenance"][0]["commands"] == []
    assert page["documents"]["own"][0]["r"][0]["a"] == ["1"]


@pytest.mark.parametrize("value", [7, -1, "x", [1], [[[]]], True, {"numbers": 7}, None, 10**400])
@pytest.mark.parametrize(
    "name",
    [
        *("versions", "n-shot", "n-samples", "higher_is_better", "group_subtasks", "task_hashes"),
        *("configs", "config", "total_evaluation_time_seconds", "date", "extraction_failed"),
    ],
)
def test_a_results_file_with_fields_of_wrong_types_is_shown(
    tmp_path: Path, name: str, value: Any
) -> None:
    file = tmp_path / "results_2025-03-04T05-06-07.890123.json"
    rows = {"numbers": {"acc,none": 0.7, "acc_stderr,none": 0.1}}
    file.write_text(json.dumps({"results": rows, name: value}))
    page = report(tmp_path, file)
    assert page["table"]["rows"][0]["scores"][0]["values"][0]["value"] == 0.7
