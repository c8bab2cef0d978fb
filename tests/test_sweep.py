"""Tests sweeps: files, names, resuming, failures and tables."""

from __future__ import annotations

import csv
import io
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from lm_eval.cli import main
from lm_eval.config.run import RunConfig
from lm_eval.errors import ConfigError, EvalError
from lm_eval.report.report import write_report
from lm_eval.sweeps import devices
from lm_eval.sweeps.checkpoints import find_revisions, step_in
from lm_eval.sweeps.devices import Gpu, gpus_needed, read_gpus
from lm_eval.sweeps.jobs import Job, jobs_of
from lm_eval.sweeps.matrix import SweepRun, read_matrix
from lm_eval.sweeps.plan import finished_results
from lm_eval.sweeps.pool import Pool
from lm_eval.sweeps.record import RecordedRun, SweepRecord, read_sweep
from lm_eval.sweeps.schema import FILE, file_schema
from lm_eval.sweeps.sweep import sweep_runs

MODEL = f"{Path(__file__).with_name('sweep_model.py')}:Noting"
Write = Callable[..., Path]


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the file in which models note their requests."""
    monkeypatch.setenv("SWEEP_NOTES", str(tmp_path / "notes"))
    return tmp_path / "notes"


@pytest.fixture
def sweep_file(tmp_path: Path, notes: Path) -> Write:
    """Returns a function that writes a sweep file with the model that notes its requests."""

    def write(matrix: Any, **more: Any) -> Path:
        base = {"model": MODEL, "tasks": ["demo_choice"], "limit": 3}
        content = {**base, "output_path": str(tmp_path / "out"), **more}
        if matrix is not None:
            content["matrix"] = matrix
        jsonschema.validate(content, file_schema())
        file = tmp_path / "sweep.yaml"
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        return file

    return write


def asked(notes: Path) -> Counter[str]:
    return Counter(notes.read_text().split()) if notes.exists() else Counter()


def models(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, "model_args": {"pretrained": name, **more}} for name in names]


def scores(folder: Path) -> dict[str, Any]:
    return {run.name: results["results"] for run, results in read_sweep(folder).results()}


def test_a_sweep_runs_every_combination_and_its_table_shows_them(
    sweep_file: Write, tmp_path: Path, notes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = sweep_file({"models": models("a", "b"), "num_fewshot": [0, 1]})
    assert main(["sweep", str(file), "--dry_run"]) == 0
    planned = capsys.readouterr().out
    assert "4 of 4 runs to do, at most 48 requests to send." in planned
    assert not (tmp_path / "out").exists()
    assert main(["sweep", str(file)]) == 0
    table = capsys.readouterr().out
    assert [line.split("|")[1:3] for line in table.splitlines()[2:]] == [
        ["a    ", "0-shot     "],
        ["a    ", "1-shot     "],
        ["b    ", "0-shot     "],
        ["b    ", "1-shot     "],
    ]
    assert set(asked(notes).values()) == {1}
    assert asked(notes).total() == 48
    for run, results in read_sweep(tmp_path / "out").results():
        shots = results["n-shot"]["demo_choice"]
        assert (run.model, run.labels["num_fewshot"]) == (run.name[0], f"{shots}-shot")
        args = results["config"]["model_args"]
        assert args["pretrained"] == run.model


def test_finished_runs_are_skipped_and_new_ones_are_added(
    sweep_file: Write, tmp_path: Path, notes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["sweep", str(sweep_file({"models": models("a")}))])
    file = sweep_file({"models": models("a", "b")})
    assert main(["sweep", str(file), "--dry_run"]) == 0
    lines = [line.split("|") for line in capsys.readouterr().out.splitlines() if "|a" in line]
    assert [part.strip() for part in lines[-1][3:6]] == ["finished", "12", "12"]
    before = (tmp_path / "out" / "a").stat().st_mtime_ns
    assert main(["sweep", str(file)]) == 0
    assert (tmp_path / "out" / "a").stat().st_mtime_ns == before
    assert asked(notes).total() == 24
    assert main(["sweep", str(file), "--fresh"]) == 0
    assert asked(notes).total() == 48


def test_a_run_whose_files_or_settings_changed_is_not_finished(
    sweep_file: Write, tmp_path: Path
) -> None:
    weights = tmp_path / "weights"
    weights.write_text("1")
    file = sweep_file({"num_fewshot": [0]}, model="dummy", model_args={})
    runs = sweep_runs(read_matrix(file), tmp_path / "out")
    assert finished_results(runs[0]) is None
    assert main(["sweep", str(file)]) == 0
    assert finished_results(runs[0]) is not None
    more = sweep_runs(read_matrix(file, {"limit": 2}), tmp_path / "out")
    assert finished_results(more[0]) is None
    moved = tmp_path / "moved"
    (tmp_path / "out").rename(moved)
    assert finished_results(sweep_runs(read_matrix(file), moved)[0]) is not None
    file = sweep_file({"num_fewshot": [0]}, model_args={"pretrained": str(weights)})
    (run,) = sweep_runs(read_matrix(file), tmp_path / "out")
    assert main(["sweep", str(file)]) == 0
    assert finished_results(run) is not None
    weights.write_text("2")
    assert finished_results(run) is None


@pytest.mark.slow
def test_a_killed_sweep_continues_and_asks_nothing_twice(
    sweep_file: Write, tmp_path: Path, notes: Path
) -> None:
    matrix = {
        "models": models("a", "b", pause=0.02),
        "tasks": ["demo_choice", "demo_pairs"],
        "num_fewshot": [0, 1],
    }
    file = sweep_file(matrix, limit=3)
    command = [sys.executable, "-m", "lm_eval", "sweep", str(file)]
    assert main(["sweep", str(file), "--output_path", str(tmp_path / "whole")]) == 0
    expected, requests = scores(tmp_path / "whole"), asked(notes)
    notes.unlink()
    drawn = random.Random(4)
    for stop in (signal.SIGKILL, signal.SIGINT):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        goal = asked(notes).total() + drawn.randint(2, 8)
        deadline = time.monotonic() + 60
        while asked(notes).total() < goal and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(stop)
        process.wait()
    assert main(["sweep", str(file)]) == 0
    assert scores(tmp_path / "out") == expected
    assert set(asked(notes)) == set(requests)
    again = [request for request, times in asked(notes).items() if times > 1]
    assert len(again) <= 2 * 2  # what was in flight: one request, or a batch that was not stored


@pytest.mark.slow
def test_failures_are_listed_and_the_rest_finishes(
    sweep_file: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = {
        "models": [
            *models("a", "broken"),
            *models("c", dies="loading"),
            *models("d", dies="answering"),
            *models("e"),
        ],
        "num_fewshot": [0, 1],
    }
    file = sweep_file(matrix)
    assert main(["sweep", str(file)]) == 1
    shown = capsys.readouterr().out
    record = read_sweep(tmp_path / "out")
    states = {run.name: run.state for run in record.runs}
    assert [name for name, state in states.items() if state == "finished"] == [
        *("a_0-shot", "a_1-shot", "e_0-shot", "e_1-shot")
    ]
    messages = {run.name: run.message for run in record.failed}
    assert "the weights are damaged" in messages["broken_0-shot"]
    assert messages["broken_1-shot"] == messages["broken_0-shot"]
    assert "its process ended (SIGKILL" in messages["c_0-shot"]
    assert "while the model was loaded" in messages["c_1-shot"]
    assert "its process ended (SIGKILL" in messages["d_1-shot"]
    assert "6 of 10 runs failed:" in shown
    assert "broken_0-shot: the model" in shown
    assert "Traceback" not in shown


def test_several_jobs_run_at_a_time(sweep_file: Write, tmp_path: Path, notes: Path) -> None:
    file = sweep_file({"models": models("a", "b", "c")})
    assert main(["sweep", str(file), "--jobs", "3"]) == 0
    assert [run.state for run in read_sweep(tmp_path / "out").runs] == ["finished"] * 3
    assert asked(notes).total() == 36
    assert len(list((tmp_path / "out" / "logs").glob("*.log"))) == 3


def test_scores_are_written_in_four_formats(
    sweep_file: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    file = sweep_file({"models": models("a", "b"), "tasks": ["demo_choice", "demo_pairs"]})
    outputs = {}
    for form in ("text", "markdown", "csv", "json"):
        assert main(["sweep", str(file), "--format", form]) == 0
        outputs[form] = capsys.readouterr().out
    assert outputs["text"] == outputs["markdown"]
    assert outputs["text"].startswith("|Model|demo_choice (acc)|demo_pairs (acc)|")
    assert len(outputs["text"].splitlines()) == 4  # the tasks of a model are in one line
    rows = list(csv.DictReader(io.StringIO(outputs["csv"])))
    listed = json.loads(outputs["json"])["scores"]
    assert [(row["run"], row["metric"]) for row in rows] == [
        (row["run"], row["metric"]) for row in listed
    ]
    assert {row["task"] for row in rows} == {"demo_choice", "demo_pairs"}
    assert main(["sweep", str(file), "--metric", "acc_norm"]) == 0
    assert "demo_choice (acc_norm)" in capsys.readouterr().out
    assert main(["sweep", str(file), "--metric", "accc"]) == 2


def test_checkpoints_make_a_curve(sweep_file: Write, tmp_path: Path) -> None:
    for step in (1000, 200, 30):
        (tmp_path / "train" / f"step{step}").mkdir(parents=True)
    (tmp_path / "train" / "step.txt").write_text("not a folder")
    file = sweep_file(None)
    pattern = str(tmp_path / "train" / "step*")
    assert main(["sweep", str(file), "--checkpoints", pattern]) == 0
    record = read_sweep(tmp_path / "out")
    assert [run.step for run in record.runs] == [30, 200, 1000]
    assert [run.name for run in record.runs] == ["step30", "step200", "step1000"]
    assert {run.model for run in record.runs} == {"train"}
    found = {results["config"]["model_args"]["pretrained"] for _, results in record.results()}
    assert found == {str(tmp_path / "train" / f"step{step}") for step in (30, 200, 1000)}


def test_several_training_runs_make_several_curves(sweep_file: Write, tmp_path: Path) -> None:
    for name in ("one/checkpoint-5", "two/checkpoint-5", "two/checkpoint-10"):
        (tmp_path / name).mkdir(parents=True)
    file = sweep_file(None, checkpoints=str(tmp_path / "*" / "checkpoint-*"))
    runs = read_matrix(file).runs("out")
    assert [(run.model, run.name, run.step) for run in runs] == [
        ("one", "one_checkpoint-5", 5),
        ("two", "two_checkpoint-5", 5),
        ("two", "two_checkpoint-10", 10),
    ]


def test_models_of_several_training_runs_keep_a_line_each(
    sweep_file: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of four runs has its line, although the steps and parts of the paths are equal."""
    for name in ("one/x/step5", "two/x/step5"):
        (tmp_path / name).mkdir(parents=True)
    variants = [{"name": "a", "limit": 1}, {"name": "b", "limit": 2}]
    file = sweep_file({"models": variants}, checkpoints=str(tmp_path / "*" / "x" / "step*"))
    runs = read_matrix(file).runs("out")
    assert [run.model for run in runs] == ["a one_x", "a two_x", "b one_x", "b two_x"]
    assert main(["sweep", str(file)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 + 4


def test_steps_are_found_in_names() -> None:
    names = ["step1000", "checkpoint-20", "iter_0003", "step10-tokens4B", "v2_epoch7", "final"]
    assert [step_in(name) for name in names] == [1000, 20, 3, 10, 7, None]


def test_revisions_may_contain_wildcards(
    monkeypatch: pytest.MonkeyPatch, sweep_file: Write
) -> None:
    branches = ["main", "step0", "step1000", "step512"]
    monkeypatch.setattr("lm_eval.sweeps.checkpoints._branches", lambda name: branches)
    found = find_revisions("org/model", ["step*"])
    assert [(one.arguments, one.step, one.curve) for one in found] == [
        ({"revision": "step0"}, 0, "model"),
        ({"revision": "step512"}, 512, "model"),
        ({"revision": "step1000"}, 1000, "model"),
    ]
    with pytest.raises(ConfigError, match="no branch or tag that matches 'epoch"):
        find_revisions("org/model", ["epoch*"])
    args = {"pretrained": "org/model"}
    file = sweep_file({"num_fewshot": [0, 2]}, model="hf", model_args=args)
    runs = read_matrix(file, revisions=["step512"]).runs("out")
    assert [run.config.model_args for run in runs] == [{**args, "revision": "step512"}] * 2
    file = sweep_file({"models": models("a", "b")})
    with pytest.raises(ConfigError, match="revisions need one model that all runs share"):
        read_matrix(file, revisions=["step512"])


def test_settings_of_values_are_merged_over_those_of_the_file(sweep_file: Write) -> None:
    matrix = {
        "models": ["hf,pretrained=org/x,dtype=float16", {"model_args": "pretrained=y"}],
        "variant": [{"name": "chat", "apply_chat_template": True}, {"num_fewshot": 5}],
        "gen_kwargs": ["temperature=0", {"temperature": 1}],
    }
    file = sweep_file(matrix, model="hf", model_args={"max_length": 64})
    runs = {run.name: run for run in read_matrix(file).runs("out")}
    assert list(runs)[:3] == [
        *("x_chat_temperature=0", "x_chat_temperature=1", "x_5-shot_temperature=0"),
    ]
    first = runs["x_chat_temperature=0"].config
    args = {"max_length": 64, "pretrained": "org/x", "dtype": "float16"}
    assert (first.model_args, first.apply_chat_template) == (args, True)
    assert runs["y_5-shot_temperature=1"].config.gen_kwargs == {"temperature": 1}
    assert runs["y_5-shot_temperature=1"].labels["variant"] == "5-shot"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "there is nothing to vary"),
        ({"matrix": {}}, ":1: matrix is empty"),
        ({"matrix": None}, ":1: matrix is empty"),
        ({"matrix": {"num_fewshot": []}}, "num_fewshot must be a list with at least one value"),
        ({"matrix": {"num_fewshot": 3}}, "num_fewshot must be a list with at least one value"),
        ({"matrix": {"output_path": ["a"]}}, "output_path cannot be varied"),
        ({"matrix": {"num_fewshots": [0]}}, "Did you mean 'num_fewshot'?"),
        ({"matrix": {"seed": [1]}, "matrx": 3}, "unknown key 'matrx'. Did you mean 'matrix'?"),
        ({"matrix": {"num_fewshot": [0, 0]}}, "two runs have the name '0-shot'"),
        ({"matrix": {"models": [{"modle": "x"}]}}, "Did you mean 'model'"),
        ({"matrix": {"models": ["pretrained=x"]}}, "does not begin with the name of a model"),
        ({"matrix": {"models": ["a/x", "b/x", "hf,pretrained=x"]}}, "two runs have the name 'x'"),
        ({"matrix": {"limit": [-1]}}, "run 'limit--1': limit must be positive"),
        ({"checkpoints": "nowhere/step*"}, "no folder matches 'nowhere/step*'"),
        ({"checkpoints": []}, "checkpoints is empty"),
        ({"checkpoints": "a", "revisions": "b"}, "give either checkpoints or revisions"),
        (
            {"model": "demo", "matrix": {"tasks": [["demo_chioce"]]}},
            "run 'demo_chioce': there is no task",
        ),
        ({"matrix": {"model": ["dmo"]}, "tasks": "demo_choice"}, "run 'dmo': "),
        ({"matrix": {"model": ["demo"]}}, "run 'demo': no tasks were given"),
        ({"matrix": [1]}, ":1: matrix must be a mapping of lists, not [1]"),
        ({"matrix": {"seed": [1], "limitt": [2]}}, ":5: 'limitt' is not a setting"),
        ({"matrix": {"models": ["demo", 3]}}, ":4: 3 is not a model"),
        ({"matrix": {"models": ["demo", "hf,x"]}}, ":4: 'hf,x': 'x' is not of the form key=value"),
        ({"matrix": {"model_args": [{"a": 1}, 5]}}, ":4: model_args: "),
        ({"matrix": {"models": [{"name": None, "limit": 1}]}}, "`name` must be a text, not null"),
        ({"matrix": {"models": [{"name": [1], "limit": 1}]}}, "`name` must be a text, not [1]"),
        ({"matrix": {"models": [{"name": "", "limit": 1}]}}, "`name` must be a text"),
        ({"matrix": {"v": [{"name": "Logs", "limit": 1}]}}, "'Logs' cannot be the name of a run"),
        (
            {"matrix": {"v": [{"name": "answers.sqlite", "limit": 1}]}},
            "'answers.sqlite' cannot be the name of a run",
        ),
        (
            {"matrix": {"v": [{"name": "a/b", "limit": 1}, {"name": "a b", "limit": 2}]}},
            "two runs have the name 'a_b': v 'a/b' and v 'a b'",
        ),
        ({"matrix": {"v": [{"name": "A"}, {"name": "a"}]}}, "two runs have the name 'a'"),
        (
            {"matrix": {name: [{"name": n} for n in range(100)] for name in "abcd"}},
            "100 a × 100 b × 100 c × 100 d are 100,000,000 runs; a sweep has at most 20,000",
        ),
        ({"checkpoints": ""}, ":1: checkpoints is empty"),
        ({"checkpoints": 0}, ":1: checkpoints must be a text"),
        ({"checkpoints": "~nobody/step*"}, "no folder matches '~nobody/step*'"),
        ({"revisions": ["a"], "model_args": {"pretrained": ["x"]}}, "revisions need one model"),
        ({"output_path": ["x"], "matrix": {"limit": [1]}}, "output_path must be a path"),
    ],
)
def test_mistakes_in_the_file_are_named_before_anything_runs(
    content: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    assert main(["sweep", str(file), "--output_path", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../../x", "a/../../x", "/etc/x", "..", "sweep.json", "x" * 400])
def test_the_folder_of_a_run_is_one_folder_inside_that_of_the_sweep(
    name: str, sweep_file: Write, tmp_path: Path
) -> None:
    """A path that ends in .json would be a file, and that of `sweep.json` the sweep's own."""
    (run,) = read_matrix(sweep_file({"v": [{"name": name, "limit": 1}]})).runs(tmp_path / "out")
    folder = Path(str(run.config.output_path))
    assert folder.resolve().parent == (tmp_path / "out").resolve()
    assert not folder.name.endswith(".json")
    assert len(folder.name) < 200
    assert run.labels == {"v": name}


def test_a_sweep_of_other_runs_in_the_same_folder_is_named(
    sweep_file: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["sweep", str(sweep_file({"num_fewshot": [0, 1]}))])
    assert "not in this sweep" not in capsys.readouterr().err
    assert main(["sweep", str(sweep_file({"num_fewshot": [1, 2]}))]) == 0
    assert "that its table will not show: 0-shot. Their" in capsys.readouterr().err
    assert [run.name for run in read_sweep(tmp_path / "out").runs] == ["1-shot", "2-shot"]
    assert (tmp_path / "out" / "0-shot").is_dir()


def test_fresh_in_the_file_runs_everything_again(sweep_file: Write, notes: Path) -> None:
    file = sweep_file({"num_fewshot": [0]}, fresh=True)
    main(["sweep", str(file)])
    main(["sweep", str(file)])
    assert set(asked(notes).values()) == {2}


def test_a_file_or_a_used_folder_is_no_output_path(
    sweep_file: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = sweep_file({"num_fewshot": [0]})
    assert main(["sweep", str(file), "--output_path", "out.json"]) == 2
    assert "must be a folder" in capsys.readouterr().err
    assert main(["sweep", str(file), "--jobs", "0"]) == 2
    assert "jobs must be 1 or more" in capsys.readouterr().err
    with pytest.raises(EvalError, match="contains no sweep"):
        read_sweep(tmp_path)
    (tmp_path / "sweep.json").write_text("[")
    with pytest.raises(EvalError, match="cannot be read as the record of a sweep"):
        read_sweep(tmp_path)


def test_the_shipped_schema_is_that_of_the_code() -> None:
    assert json.loads(FILE.read_text()) == json.loads(json.dumps(file_schema()))
    for wrong in ({"matrix": {}}, {"matrix": {"num_fewshot": []}}, {"limitt": 3}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, file_schema())


LISTED = "0, GPU-aa1, 81920, 10\n1, GPU-bb2, 81920, 60000\n2, GPU-cc3, 81920, 0\n"


def test_gpus_are_those_that_are_visible() -> None:
    every = read_gpus(LISTED, None)
    assert [(gpu.name, gpu.is_free) for gpu in every] == [("0", True), ("1", False), ("2", True)]
    assert [gpu.name for gpu in read_gpus(LISTED, "2,GPU-aa")] == ["2", "GPU-aa"]
    assert read_gpus(LISTED, "") == []
    assert [gpu.name for gpu in read_gpus(LISTED, "2,7,0")] == ["2"]


def run_of(name: str, **settings: Any) -> SweepRun:
    return SweepRun(name, RunConfig(output_path="out", **settings), model=name)


def test_large_models_start_first_and_get_as_many_gpus_as_they_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpus = [Gpu(str(n), 80 << 30, 0) for n in range(4)]
    sizes = {"small": 2 << 30, "large": 140 << 30, "medium": 30 << 30, "huge": 900 << 30}
    monkeypatch.setattr(devices, "weights_size", lambda run: sizes.get(str(run.model_args)))
    monkeypatch.setattr(
        "lm_eval.sweeps.jobs.weights_size", lambda run: sizes.get(run.model_args["pretrained"])
    )
    monkeypatch.setattr(
        devices, "weights_size", lambda run: sizes.get(run.model_args.get("pretrained"))
    )
    runs = [run_of(n, model="hf", model_args={"pretrained": n}) for n in sizes]
    jobs = jobs_of([*runs, run_of("api", model="demo")], gpus)
    assert [(job.name, job.gpus) for job in jobs] == [
        *(("huge", 4), ("large", 3), ("medium", 1), ("small", 1), ("api", 0))
    ]
    split = {job.name: job.runs[0].config.model_args.get("parallelize") for job in jobs}
    assert split == {"huge": True, "large": True, "medium": None, "small": None, "api": None}
    engine = {"pretrained": "small", "tensor_parallel_size": 2}
    assert gpus_needed(RunConfig(model="vllm", model_args=engine), gpus) == 2
    assert gpus_needed(RunConfig(model="hf", device="cpu"), gpus) == 0
    assert gpus_needed(RunConfig(model="hf", device="cuda:1"), gpus) == 0
    assert gpus_needed(RunConfig(model="hf"), []) == 0


def test_the_optimizer_beside_the_weights_is_no_part_of_the_model(tmp_path: Path) -> None:
    for name, size in {"model.safetensors": 10, "optimizer.pt": 90, "rng_state_0.pth": 50}.items():
        (tmp_path / name).write_bytes(b"x" * size)
    run = RunConfig(model="hf", model_args={"pretrained": str(tmp_path)})
    assert devices.weights_size(run) == 10
    assert gpus_needed(run, [Gpu("0", 20, 0), Gpu("1", 20, 0)]) == 1
    (tmp_path / "pytorch_model.bin").write_bytes(b"x" * 30)
    assert devices.weights_size(run) == 30


WORKER = """
import json, os, sys, time
runs = json.loads(sys.stdin.readline())
place = os.environ.get("CUDA_VISIBLE_DEVICES", "")
with open({log!r}, "a") as file:
    file.write(f"{{runs[0]['name']}} begins on {{place}}\\n")
time.sleep(0.3)
for run in runs:
    event = {{"event": "finished", "run": run["name"], "partial": False, "asked": 0}}
    print(json.dumps(event), flush=True)
print(json.dumps({{"event": "done"}}), flush=True)
"""


def test_small_models_fill_the_gpus_that_a_large_one_leaves(tmp_path: Path) -> None:
    log = tmp_path / "log"
    gpus = [Gpu(str(n), 80 << 30, 0) for n in range(3)]
    sizes = {"two": 2, "one": 1, "other": 2, "last": 1}
    jobs = [Job([run_of(name)], count) for name, count in sizes.items()]
    ended: list[str] = []
    command = [sys.executable, "-c", WORKER.format(log=str(log))]
    pool = Pool(gpus, None, tmp_path, False, lambda name, event: ended.append(name), command)
    pool.run(jobs)
    assert sorted(ended) == sorted(sizes)
    began = dict(line.split(" begins on ") for line in log.read_text().splitlines())
    assert {name: len(place.split(",")) for name, place in began.items()} == sizes
    assert set(began["two"].split(",")) | {began["one"]} == {"0", "1", "2"}
    assert list(began).index("other") >= 2  # it waits for two GPUs


@pytest.mark.parametrize("visible", [None, "GPU-aa"])
def test_numbers_of_gpus_are_those_of_nvidia_smi(
    visible: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA counts the fastest GPU first, unless it is told to count as `nvidia-smi` does."""
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    (gpu,) = read_gpus("1, GPU-aa, 100, 0\n", visible)
    script = "import os; print(os.environ.get('CUDA_DEVICE_ORDER'), end='', file=open({!r}, 'w'))"
    command = [sys.executable, "-c", script.format(str(tmp_path / "order"))]
    Pool([gpu], None, tmp_path, False, lambda *event: None, command).run([Job([run_of("a")], 1)])
    assert (tmp_path / "order").read_text() == ("PCI_BUS_ID" if visible is None else "None")


class Dead(subprocess.Popen[bytes]):
    """A process that has ended before anything is written to it."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.wait()


def test_a_worker_that_dies_before_it_reads_its_runs_fails_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: dict[str, str] = {}
    monkeypatch.setattr(subprocess, "Popen", Dead)
    pool = Pool(
        *([], None, tmp_path, False),
        lambda name, event: failed.update({name: event["message"]}),
        [sys.executable, "-c", "import os; os._exit(3)"],
    )
    pool.run([Job([run_of("a")])])
    assert "its process ended (exit code 3) while the model was loaded" in failed["a"]


def test_a_worker_that_dies_in_the_middle_of_a_line_fails_its_runs(tmp_path: Path) -> None:
    failed: dict[str, str] = {}
    script = 'import os; os.write(1, b\'{"event": "star\'); os._exit(3)'
    pool = Pool(
        *([], None, tmp_path, False),
        lambda name, event: failed.update({name: event["message"]}),
        [sys.executable, "-c", script],
    )
    pool.run([Job([run_of("a"), run_of("b")])])
    assert list(failed) == ["a", "b"]
    assert "its process ended (exit code 3)" in failed["a"]


def test_the_file_of_the_documentation_is_a_sweep(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "docs" / "sweeps.md").read_text(encoding="utf-8")
    file = tmp_path / "sweep.yaml"
    file.write_text(text.partition("```yaml needs-files\n")[2].partition("```")[0])
    jsonschema.validate(yaml.safe_load(file.read_text()), file_schema())
    names = [run.name for run in read_matrix(file).runs(tmp_path)]
    assert names == ["demo_0-shot", "demo_2-shot", "baseline_0-shot", "baseline_2-shot"]


def recorded(folder: Path, step: int, value: float, name: str = "run") -> RecordedRun:
    """Writes the results of one run of a sweep, and returns its entry in `sweep.json`."""
    row = {"alias": "quiz", "acc,none": value, "acc_stderr,none": 0.1, "sample_len": 20}
    results = {
        "results": {"quiz": row},
        "configs": {"quiz": {}},
        "higher_is_better": {"quiz": {"acc": True}},
    }
    file = folder / f"{name}_step{step}" / "results_2026-01-01T00-00-00.000000.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(results))
    labels = {"checkpoint": f"step{step}", "num_fewshot": "0-shot"}
    path = file.relative_to(folder).as_posix()
    return RecordedRun(f"{name}_step{step}", name, labels, step, "finished", path)


def test_the_report_of_a_sweep_has_a_table_and_curves_with_intervals(tmp_path: Path) -> None:
    runs = [
        recorded(tmp_path, 200, 0.5),
        recorded(tmp_path, 100, 0.25),
        recorded(tmp_path, 100, 0.3, "other"),
        RecordedRun("lost", "lost", {}, 300, "failed", None, "no such model <b>"),
    ]
    SweepRecord(tmp_path, runs).write()
    report = write_report([tmp_path], tmp_path / "report.html")
    (sweep,) = report.summary["sweeps"]
    (curve,) = sweep["curves"]
    assert (curve["task"], curve["metric"], curve["higher"]) == ("quiz", "acc", True)
    assert [one["label"] for one in curve["series"]] == ["run 0-shot", "other 0-shot"]
    points = curve["series"][0]["points"]
    assert [(point["step"], point["value"]) for point in points] == [(100, 0.25), (200, 0.5)]
    assert points[0]["low"] == pytest.approx(0.25 - 1.95996 * 0.1, abs=1e-4)
    assert points[0]["high"] == pytest.approx(0.25 + 1.95996 * 0.1, abs=1e-4)
    assert sweep["settings"] == ["checkpoint", "num_fewshot"]
    assert [(line["model"], *line["labels"]) for line in sweep["lines"]] == [
        ("run", "step200", "0-shot"),
        ("run", "step100", "0-shot"),
        ("other", "step100", "0-shot"),
    ]
    assert sweep["failed"] == [{"name": "lost", "message": "no such model <b>"}]
    page = (tmp_path / "report.html").read_text()
    assert "no such model <b>" not in page
    assert "no such model \\u003cb>" in page


@pytest.mark.parametrize(
    "change",
    [
        {"results": "../outside.json"},
        {"results": "/etc/passwd"},
        {"labels": [1]},
        {"step": "3"},
        {"name": None},
    ],
)
def test_a_record_of_someone_else_cannot_name_files_outside(
    change: dict[str, Any], tmp_path: Path
) -> None:
    run = {"name": "a", "model": "b", "labels": {}, "step": 1, "state": "finished", **change}
    (tmp_path / "sweep.json").write_text(json.dumps({"format": 1, "runs": [run]}))
    with pytest.raises(EvalError, match="cannot be read as the record of a sweep"):
        read_sweep(tmp_path)
