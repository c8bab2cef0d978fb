"""Tests that trackers log the published names, with their offline backends."""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.cli import main
from lm_eval.config.run import RunConfig
from lm_eval.errors import ConfigError
from lm_eval.loggers import EvaluationTracker
from lm_eval.loggers.tracker_formats import flatten_rows, sample_table, score_table

TASKS = ("--tasks", "demo_choice,demo_sums,demo_stories,demo_lastword", "--limit", "3")


def needs(package: str) -> Any:
    absent = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(absent, reason=f"{package} is not installed")


def run(tmp_path: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lm_eval", "run", "--model", "demo", *TASKS, *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **environment},
        check=False,
    )


# -- formats ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results() -> Any:
    return lm_eval.simple_evaluate("demo", tasks=["demo"], limit=3, bootstrap_iters=0)


def test_numbers_are_named_by_task_and_metric(results: Any) -> None:
    named = flatten_rows(results)
    row = results["results"]["demo_sums"]
    assert named["demo_sums/exact_match,majority"] == row["exact_match,majority"]
    assert named["demo_choice/acc"] == results["results"]["demo_choice"]["acc,none"]
    assert named["demo_choice/alias"] == "choice"


def test_the_table_has_a_row_a_metric(results: Any) -> None:
    rows = list(score_table(results, "results"))
    metrics = [(row[0], row[2], row[4]) for row in rows]
    assert ("demo_sums", "majority", "exact_match") in metrics
    assert len(metrics) == len(set(metrics))
    assert all(name not in results["groups"] for name, *_ in metrics)
    assert {row[0] for row in score_table(results, "groups")} == set(results["groups"])


def test_samples_become_columns_of_one_length(results: Any) -> None:
    for task, samples in results["samples"].items():
        columns = sample_table(samples, results["configs"][task])
        assert {len(column) for column in columns.values()} == {len(samples)}
        assert {"id", "data", "input_len", "labels", "raw_predictions"} <= set(columns)
    columns = sample_table(results["samples"]["demo_stories"], results["configs"]["demo_stories"])
    assert {"word_perplexity_loglikelihood", "word_perplexity_words"} <= set(columns)


# -- back ends --------------------------------------------------------------------------------


@needs("wandb")
def test_an_offline_run_of_wandb_holds_the_scores(tmp_path: Path) -> None:
    words = ("--wandb_args", "project=p,mode=offline", "--wandb_config_args", "note=hello")
    done = run(tmp_path, *words, "--log_samples", "-o", "out", WANDB_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "could not log the results" not in done.stderr
    (log,) = tmp_path.rglob("run-*.wandb")
    content = log.read_bytes()
    for name in (
        b"demo_choice/acc",
        b"demo_sums/exact_match,majority",
        b"evaluation/eval_results",
        b"demo_sums_eval_results",
        b"samples_by_task",
        b"task_configs",
        b"cli_configs",
        b"note",
    ):
        assert name in content, name


@needs("trackio")
def test_trackio_keeps_the_scores_on_this_machine(tmp_path: Path) -> None:
    home = tmp_path / "trackio"
    words = ("--trackio_args", "project=mine", "--log_samples", "-o", "out")
    done = run(tmp_path, *words, TRACKIO_DIR=str(home))
    assert done.returncode == 0, done.stderr
    assert "could not log the results" not in done.stderr
    (database,) = home.rglob("mine.db")
    with sqlite3.connect(database) as connection:
        logged = [json.loads(row[0]) for row in connection.execute("SELECT metrics FROM metrics")]
        traces = connection.execute("SELECT * FROM traces").fetchall()
    assert any("demo_choice/acc" in row for row in logged)
    assert sum("demo_choice/sample" in row for row in traces) == 3


def test_a_tracker_that_is_absent_is_said_before_the_model_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("wandb", "trackio"):
        monkeypatch.setitem(sys.modules, package, None)
        words = ("--model", "demo", "--tasks", "demo_choice", f"--{package}_args", "project=p")
        assert main(["run", *words]) == 2
        assert f"pip install -e '.[{package}]'" in capsys.readouterr().err


class _Hub:
    """Replaces `huggingface_hub.HfApi`."""

    def __init__(self, token: str) -> None:
        assert token == "secret"
        _Hub.calls = []

    calls: list[tuple[str, dict[str, Any]]]

    def whoami(self) -> dict[str, str]:
        return {"name": "me"}

    def list_repo_files(self, repo: str, repo_type: str) -> list[str]:
        pushed = [call for name, call in self.calls if name == "commit" and call["repo_id"] == repo]
        return [op.path_in_repo for call in pushed for op in call["operations"]]

    def create_repo(self, **call: Any) -> None:
        self.calls.append(("create", call))

    def create_commit(self, **call: Any) -> None:
        assert all(Path(op.path_or_fileobj).is_file() for op in call["operations"])
        self.calls.append(("commit", call))

    def upload_file(self, **call: Any) -> None:
        self.calls.append(("upload", call))


def test_results_and_samples_are_pushed_to_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.HfApi", _Hub)
    monkeypatch.setenv("HF_TOKEN", "secret")
    hub = "hub_results_org=org,push_results_to_hub=True,push_samples_to_hub=True"
    words = ("--hf_hub_log_args", f"{hub},details_repo_name=d,results_repo_name=r", "--log_samples")
    assert main(["run", "--model", "demo", *TASKS, *words, "-o", str(tmp_path)]) == 0
    commits = {call["repo_id"]: call for name, call in _Hub.calls if name == "commit"}
    assert set(commits) == {"org/r-private", "org/d-private"}
    (pushed,) = commits["org/r-private"]["operations"]
    assert pushed.path_in_repo.startswith("demo/results_")
    names = [op.path_in_repo for op in commits["org/d-private"]["operations"]]
    assert len(names) == 4
    assert all(name.startswith("demo/samples_demo_") for name in names)
    assert all(call["private"] for name, call in _Hub.calls if name == "create")
    (card,) = [c for name, c in _Hub.calls if name == "upload" and c["repo_id"] == "org/d-private"]
    assert "demo__demo_choice" in card["path_or_fileobj"].decode()
    assert "secret" not in "".join(p.read_text() for p in tmp_path.rglob("results_2*.json"))


def test_a_failed_push_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Down(_Hub):
        def create_repo(self, **call: Any) -> None:
            raise ConnectionError("the hub is down")

    monkeypatch.setattr("huggingface_hub.HfApi", Down)
    words = ("--hf_hub_log_args", "push_results_to_hub=True,token=secret", "-o", str(tmp_path))
    assert main(["run", "--model", "demo", *TASKS, *words]) == 0
    assert "could not push to this repository (the hub is down)" in capsys.readouterr().err
    assert len(list(tmp_path.rglob("results_2*.json"))) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [("push_results_to_hub=True", "needs a token"), ("nonsense=1", "hf_hub_log_args: ")],
)
def test_what_the_hub_cannot_be_told_is_said_first(
    arguments: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert main(["run", "--model", "demo", *TASKS, "--hf_hub_log_args", arguments]) == 2
    assert said in capsys.readouterr().err


def test_simple_evaluate_takes_a_tracker(tmp_path: Path) -> None:
    tracker = EvaluationTracker(output_path=tmp_path)
    results: Any = lm_eval.simple_evaluate(
        "dummy", "pretrained=org/name", tasks=["demo_choice"], limit=2, evaluation_tracker=tracker
    )
    samples = results.pop("samples")
    tracker.save_results_aggregated(results, samples)
    for task in results["configs"]:
        tracker.save_results_samples(task_name=task, samples=samples[task])
    names = sorted(p.name.split("_2")[0] for p in (tmp_path / "org__name").iterdir())
    assert names == ["results", "samples_demo_choice"]


def test_settings_of_trackers_are_tables() -> None:
    assert RunConfig(wandb_args="project=p,step=3").wandb_args == {"project": "p", "step": 3}
    with pytest.raises(ConfigError, match="wandb_args"):
        RunConfig(wandb_args=3)


def test_samples_saved_after_their_results_are_written(tmp_path: Path) -> None:
    tracker = EvaluationTracker(output_path=tmp_path)
    results: Any = lm_eval.simple_evaluate(
        "dummy", "pretrained=org/name", tasks=["demo_choice"], limit=2, evaluation_tracker=tracker
    )
    samples = results.pop("samples")
    written = tracker.save_results_aggregated(results)
    tracker.save_results_samples("demo_choice", samples["demo_choice"])
    (log,) = (tmp_path / "org__name").glob("samples_demo_choice_*.jsonl")
    assert log.stem.rpartition("_")[2] == written.stem.rpartition("_")[2]
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [row["doc_id"] for row in rows] == [0, 1]
