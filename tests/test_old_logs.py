"""Tests that `lm-eval score` reads the sample logs of older versions of the published harness.

The shapes are those that versions 0.4.0 to 0.4.4 write, found by running them; the rows are ours.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.cli import main
from lm_eval.errors import DataError, EvalError, OutputError
from tests.conftest import Folder

MODEL_ARGS, MODEL = "pretrained=org/my_model,dtype=float", "pretrained__org__my_model,dtype__float"
STAMP = "2024-05-06T07-08-09.123456"


@pytest.fixture
def tasks(colours: Folder) -> Folder:
    """Returns a folder with a task of each request type, and without data files."""
    choice = (colours.path / "colours.yaml").read_text()
    text = choice.replace("multiple_choice", "generate_until").replace(
        "doc_to_choice: colours\n", ""
    )
    text = text.replace("doc_to_target: answer", "doc_to_target: '{{colours[answer]}}'")
    colours.write(
        "by/words.yaml",
        text.replace("task: colours", "task: words_my").replace("acc", "exact_match"),
    )
    rolling = choice.replace("multiple_choice", "loglikelihood_rolling")
    rolling = rolling.replace("doc_to_choice: colours\n", "").replace("acc", "word_perplexity")
    colours.write(
        "by/things.yaml",
        rolling.replace("task: colours", "task: things").replace(
            "doc_to_target: answer", "doc_to_target: '{{thing}}'"
        ),
    )
    (colours.path / "colours.jsonl").unlink()
    return colours


DOC = {"thing": "grass", "colours": ["green", "red"], "answer": 0}
PROMPT = "Of what colour is grass?"


def samples(task: str, number: int = 3) -> list[dict[str, Any]]:
    """Returns samples as 0.4.0 to 0.4.2 has them; the answers to the first two are right."""
    rows = []
    for doc_id in range(number):
        right = doc_id < 2
        if task == "colours":
            arguments: Any = [[PROMPT, " green"], [PROMPT, " red"]]
            resps: Any = [[[-1.5 if right else -9.0, False]], [[-2.5, False]]]
        elif task == "words_my":
            arguments = [[PROMPT, {"until": ["\n"]}]]
            resps = [["green" if right else "blue"]]
        else:
            arguments, resps = [["grass"]], [[-2.0]]
        shared = {"doc_id": doc_id, "doc": DOC, "target": 0, "arguments": arguments}
        rows.append({**shared, "resps": resps, "filtered_resps": resps, "acc": float(right)})
    return rows


def results(**more: Any) -> dict[str, Any]:
    names = ("colours", "words_my", "things")
    configs = {name: {"task": name, "metadata": {"version": 1.0}} for name in names}
    return {
        "results": {},
        "configs": configs,
        "versions": dict.fromkeys(names, 1.0),
        "n-shot": dict.fromkeys(names, 2),
        "config": {"model": "hf", "model_args": MODEL_ARGS, "bootstrap_iters": 100},
        **more,
    }


def write_old(folder: Path, task: str, content: Any = None, model: str = MODEL) -> Path:
    """Writes a log as 0.4.0 to 0.4.2 does."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{model}_{task}.jsonl"
    file.write_text(json.dumps(samples(task) if content is None else content, indent=2))
    return file


SCORES = {"colours": ("acc,none", 2 / 3), "words_my": ("exact_match,none", 2 / 3)}


@pytest.mark.parametrize("results_name", ["results.json", "named_by_the_user.json", None])
def test_logs_named_after_the_model_are_scored(
    tasks: Folder, tmp_path: Path, results_name: str | None
) -> None:
    for name in ("colours", "words_my", "things"):
        write_old(tmp_path / "out", name)
    if results_name is not None:
        (tmp_path / "out" / results_name).write_text(json.dumps(results()))
    found = lm_eval.score(tmp_path / "out", include_path=str(tasks.path))
    for name, (metric, value) in SCORES.items():
        assert found["results"][name][metric] == pytest.approx(value)
    assert found["results"]["things"]["word_perplexity,none"] == pytest.approx(7.38905609893065)
    assert found["n-shot"]["colours"] == (0 if results_name is None else 2)


def test_one_log_named_after_the_model_is_enough(tasks: Folder, tmp_path: Path) -> None:
    log = write_old(tmp_path / "out", "words_my")
    found = lm_eval.score(log, include_path=str(tasks.path))
    assert found["scored_from"] == {"samples": {"words_my": str(log)}}


@pytest.mark.parametrize("lines", [False, True])
def test_logs_called_json_are_scored(tasks: Folder, tmp_path: Path, lines: bool) -> None:
    """They contain a list, or one sample per line, with arguments in either form."""
    folder = tmp_path / "out" / "org__my_model"
    folder.mkdir(parents=True)
    for name in SCORES:
        rows = samples(name)
        for row in rows if lines else ():
            row["arguments"] = {
                f"gen_args_{i}": {f"arg_{j}": part for j, part in enumerate(one)}
                for i, one in enumerate(row["arguments"])
            }
            row["resps"] = json.loads(json.dumps(row["resps"]), parse_float=str)
        text = "".join(json.dumps(row) + "\n" for row in rows) if lines else json.dumps(rows)
        (folder / f"samples_{name}_{STAMP}.json").write_text(text)
    (folder / f"results_{STAMP}.json").write_text(json.dumps(results()))
    found = lm_eval.score(tmp_path / "out", include_path=str(tasks.path))
    for name, (metric, value) in SCORES.items():
        assert found["results"][name][metric] == pytest.approx(value)
    assert found["n-shot"]["colours"] == 2


def test_of_several_models_the_one_in_the_results_file_is_scored(
    tasks: Folder, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    mine = write_old(folder, "words_my")
    write_old(folder, "words_my", model="pretrained__org__other")
    with pytest.raises(OutputError, match=r"several models .*pretrained__org__other.*pass one log"):
        lm_eval.score(folder, include_path=str(tasks.path))
    (folder / "results.json").write_text(json.dumps(results()))
    found = lm_eval.score(folder, include_path=str(tasks.path))
    assert found["scored_from"] == {"samples": {"words_my": str(mine)}}


def test_a_list_of_something_else_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "a_b.jsonl").write_text('[{"question": "x"}]')
    with pytest.raises(OutputError, match="nor sample logs"):
        lm_eval.score(tmp_path)


UNUSABLE = [
    ("words_my", '[{"doc_id": 0, "doc"', "cannot be read as a sample log"),
    ("words_my", json.dumps([{"doc_id": 0, "doc": {}}]), ":1: is not a sample"),
    ("words_my", json.dumps([*samples("colours")[:1], 3]), ":2: is not a sample"),
    ("never_heard_of", json.dumps(samples("words_my")), "no task, group or tag"),
    ("things", json.dumps(samples("words_my")), "document 0: its answers are not valid answers to"),
]


@pytest.mark.parametrize(("task", "content", "said"), UNUSABLE)
def test_an_unusable_log_does_not_stop_the_others(
    tasks: Folder,
    tmp_path: Path,
    task: str,
    content: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_old(tmp_path / "out", "colours")
    bad = tmp_path / "out" / f"{MODEL}_{task}.jsonl"
    bad.write_text(content)
    out = tmp_path / "scored"
    words = ["--include_path", str(tasks.path), "-o", str(out)]
    assert main(["score", str(tmp_path / "out"), *words]) == 1
    printed = capsys.readouterr()
    assert "|colours|" in printed.out
    (line,) = (line for line in printed.err.splitlines() if "not scored" in line)
    assert f"not scored: {bad}" in line
    assert said in line
    written = json.loads(next(out.rglob("results_*.json")).read_text())
    assert list(written["results"]) == ["colours"]
    assert list(written["scored_from"]["not_scored"]) == [str(bad)]


@pytest.mark.parametrize(("task", "content", "said"), UNUSABLE)
def test_if_no_log_can_be_used_the_message_begins_with_the_log(
    tasks: Folder, tmp_path: Path, task: str, content: str, said: str
) -> None:
    (bad,) = [tmp_path / f"samples_{task}_{STAMP}.jsonl"]
    bad.write_text(content)
    with pytest.raises(EvalError) as error:
        lm_eval.score(tmp_path, include_path=str(tasks.path))
    assert str(error.value).startswith(str(bad))
    assert said in str(error.value)


def test_an_unusable_log_of_a_group_leaves_its_other_tasks(
    tasks: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tasks.write("both.yaml", "group: both\ntask: [colours, words_my]\n")
    write_old(tmp_path / "out", "colours")
    bad = write_old(tmp_path / "out", "words_my", [{"doc_id": 0}])
    beside = results(group_subtasks={"both": ["colours", "words_my"]})
    (tmp_path / "out" / "results.json").write_text(json.dumps(beside))
    found = lm_eval.score(tmp_path / "out", include_path=str(tasks.path))
    assert list(found["results"]) == ["colours"]
    assert f"not scored: {bad}:1: is not a sample" in caplog.text


def test_a_task_without_a_log_is_an_error(tasks: Folder, tmp_path: Path) -> None:
    write_old(tmp_path / "out", "colours")
    with pytest.raises(DataError, match="there is no sample log of task 'words_my'"):
        lm_eval.score(tmp_path / "out", tasks=["words_my"], include_path=str(tasks.path))


OTHER_VERSIONS = [
    {"versions": {"colours": 0.0}},
    {"versions": {"colours": "Yaml"}, "configs": {"colours": {"metadata": [{"version": 0}]}}},
    {"versions": {"colours": "Yaml"}, "configs": {"colours": {"metadata": {"version": 0.0}}}},
]


@pytest.mark.parametrize("recorded", OTHER_VERSIONS)
def test_another_version_of_the_task_is_a_warning(
    tasks: Folder, tmp_path: Path, recorded: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    log = write_old(tmp_path / "out", "colours")
    (tmp_path / "out" / "results.json").write_text(json.dumps(results(**recorded)))
    lm_eval.score(tmp_path / "out", include_path=str(tasks.path))
    (warning,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert warning.getMessage().startswith(f"{log}: CAUTION: was written with version 0")
    assert "task colours, but it is scored with version 1.0" in warning.getMessage()


@pytest.mark.parametrize("version", [1, 1.0, "1.0", None, "Yaml"])
def test_the_same_version_of_the_task_is_no_warning(
    tasks: Folder, tmp_path: Path, version: Any, caplog: pytest.LogCaptureFixture
) -> None:
    write_old(tmp_path / "out", "colours")
    beside = results(versions={"colours": version}, configs={"colours": {}})
    (tmp_path / "out" / "results.json").write_text(json.dumps(beside))
    lm_eval.score(tmp_path / "out", include_path=str(tasks.path))
    assert "version" not in caplog.text
