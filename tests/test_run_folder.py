"""Tests run folders that are moved, renamed, removed, damaged or used from another directory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lm_eval.cli import main
from lm_eval.errors import OutputError
from lm_eval.results.files import save
from lm_eval.results.names import MAX_NAME_BYTES, file_name
from lm_eval.results.reader import latest_results
from lm_eval.runs.folder import RunFolder
from lm_eval.runs.stored import find_runs
from tests.conftest import Folder

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def run(colours: Folder, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a function that runs the dummy model on `colours` in its own directory."""
    work = colours.path / "work"
    work.mkdir()
    monkeypatch.chdir(work)

    def run(*words: str | Path) -> int:
        return main(
            ["run", "--model", "dummy", "--tasks", str(colours.path / "colours.yaml")]
            + [str(word) for word in words]
        )

    return run


# -- where it lies ----------------------------------------------------------------------------


def test_a_folder_that_was_moved_goes_on_where_it_is(
    run: Any, tmp_path: Path, capsys: Captured
) -> None:
    assert run("--output_path", "out") == 0
    shutil.move("out", tmp_path / "moved")
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "moved")]) == 0
    assert "12 of 12 answers were found in the store" in capsys.readouterr().err
    assert not Path("out").exists()
    assert len(list((tmp_path / "moved" / "dummy").glob("results_2*.json"))) == 2


def test_the_folder_of_a_named_file_may_be_moved_too(
    run: Any, tmp_path: Path, capsys: Captured
) -> None:
    assert run("--output_path", "out/mine.json") == 0
    shutil.move("out", tmp_path / "moved")
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "moved")]) == 0
    assert "12 of 12 answers were found in the store" in capsys.readouterr().err
    assert len(list((tmp_path / "moved").glob("mine_2*.json"))) == 2
    assert latest_results(tmp_path / "moved") == max((tmp_path / "moved").glob("mine_2*.json"))


def test_a_folder_of_another_name_is_not_left_for_a_new_one(run: Any, capsys: Captured) -> None:
    assert run("--output_path", "out") == 0
    Path("out", "dummy").rename("renamed")
    assert main(["resume", "renamed"]) == 2
    assert "Rename it back to dummy" in capsys.readouterr().err
    assert not list(Path("out").iterdir())


def test_a_model_in_a_relative_folder_is_found_from_anywhere(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    for place in (Path.cwd(), tmp_path / "elsewhere"):
        (place / "model").mkdir(parents=True)
        (place / "model" / "weights").write_text(str(place))
    assert run("--model_args", "pretrained=./model", "--output_path", tmp_path / "out") == 0
    work = Path.cwd()
    for word in ("resume", "reproduce"):
        capsys.readouterr()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert main([word, "../out"]) == 0
        said = "".join(capsys.readouterr())
        assert "differs from that of the earlier run" not in said
        assert "the model" not in said
        assert Path.cwd() == tmp_path / "elsewhere"  # as it was
    # And where that folder is gone, it is said which model is meant.
    monkeypatch.chdir(tmp_path / "elsewhere")
    shutil.rmtree(work)
    assert main(["resume", "../out"]) == 0
    said = capsys.readouterr().err
    assert f"The directory {work}, in which the run was started, no longer exists" in said
    assert "pretrained=./model is read relative to" in said
    assert "the model differs from that of the earlier run" in said
    shutil.rmtree("model")
    for word in ("resume", "reproduce"):
        work.mkdir(exist_ok=True)  # by now, "elsewhere" is where the run was given
        monkeypatch.chdir(work)
        shutil.rmtree(tmp_path / "elsewhere", ignore_errors=True)
        assert main([word, "../out"]) == 2
        assert "Change to the directory that contains ./model" in capsys.readouterr().err
    assert main(["score", "../out"]) == 0  # which needs no model


@pytest.mark.parametrize("name", [".", ".."])
def test_a_model_called_by_dots_stays_inside_its_output_path(run: Any, name: str) -> None:
    assert run("--model_args", f"pretrained={name}", "--output_path", "deep/out") == 0
    called = Path(name).resolve().name
    assert [p.name for p in Path("deep").iterdir()] == ["out"]
    assert [p.name for p in Path("deep/out").iterdir()] == [called]


def test_long_names_are_shortened_and_told_apart(tmp_path: Path) -> None:
    one, two = "é" * 300, "é" * 301
    assert file_name("an/ordinary:name") == "an__ordinary__name"
    assert len(file_name(one).encode()) <= MAX_NAME_BYTES
    assert file_name(one) != file_name(two)
    row = {"doc_id": 0, "doc": {}, "target": "", "arguments": [("a", "b")], "resps": [[[0, True]]]}
    samples = [{**row, "filtered_resps": [], "filter": "none", "metrics": [], "doc_hash": ""}]
    samples[0] |= {"prompt_hash": "", "target_hash": ""}
    written = save({"configs": {one: {}, two: {}}}, tmp_path, one, {one: samples, two: samples})
    assert len(list(written.parent.glob("samples_*"))) == 2
    from lm_eval.results.find_logs import find_logs

    assert set(find_logs(tmp_path)) == {one, two}


# -- what it says -----------------------------------------------------------------------------


def test_more_documents_are_no_changed_prompts(run: Any, colours: Folder, capsys: Captured) -> None:
    for words in (("--limit", "2"), ("--limit", "4"), ("--sample", "3"), ()):
        assert run("--output_path", "out", *words) == 0
        assert "changed since" not in capsys.readouterr().err
    assert run("--output_path", "out", "--system_instruction", "Hm.") == 0  # another run
    assert "changed since" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"settings": {}},
        {"settings": [], "state": 3, "directory": "."},
        {"settings": {}, "state": {"tasks": 1}, "directory": "."},
    ],
)
@pytest.mark.parametrize("command", ["resume", "score", "run"])
def test_half_a_record_is_explained(
    run: Any, capsys: Captured, command: str, record: dict[str, Any]
) -> None:
    assert run("--output_path", "out") == 0
    file = Path("out/dummy/run.json")
    file.write_text(json.dumps({"format": 1, **record}))
    before = file.read_text()
    code = run("--output_path", "out") if command == "run" else main([command, "out"])
    assert code == 2
    assert "not a complete record of a run. Move the file away" in capsys.readouterr().err
    assert file.read_text() == before
    file.rename("aside.json")
    assert run("--output_path", "out") == 0
    assert "12 of 12 answers were found in the store" in capsys.readouterr().err


@pytest.mark.parametrize("layout", ['"x"', "null", "0", "99"])
def test_a_record_of_another_layout_is_refused(run: Any, capsys: Captured, layout: str) -> None:
    assert run("--output_path", "out") == 0
    Path("out/dummy/run.json").write_text(f'{{"format": {layout}}}')
    assert main(["resume", "out"]) == 2
    assert (
        "not the record of a run, or it was written by a newer version" in capsys.readouterr().err
    )


def test_settings_of_a_newer_version_are_named(run: Any, capsys: Captured) -> None:
    assert run("--output_path", "out") == 0
    file = Path("out/dummy/run.json")
    record = json.loads(file.read_text())
    record["runs"][0]["settings"]["telepathy"] = True
    del record["runs"][0]["checksum"]
    file.write_text(json.dumps(record))
    for word in ("resume", "score"):
        assert main([word, "out"]) == 2
        assert "its settings contain 'telepathy', which this version" in capsys.readouterr().err
    results = latest_results(Path("out"))
    content = json.loads(results.read_text())
    content["settings"]["telepathy"] = True
    results.write_text(json.dumps(content))
    assert main(["reproduce", str(results)]) == 2
    assert f"{results}: its settings contain 'telepathy'" in capsys.readouterr().err


def test_a_folder_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read anywhere, so the permission error is simulated."""

    def refuse(path: Path) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(OutputError, match=r"the folder cannot be read \(Permission denied\)"):
        find_runs(tmp_path)


def test_a_secret_is_not_stored_and_the_same_command_continues(run: Any, capsys: Captured) -> None:
    words = ("--output_path", "a", "--model_args", "api_key=abracadabra")
    assert run(*words) == 0
    for file in Path("a").rglob("*"):
        assert file.is_dir() or b"abracadabra" not in file.read_bytes()
    capsys.readouterr()
    assert main(["resume", "a"]) == 2
    assert "secret settings (model_args api_key), which are not stored" in capsys.readouterr().err
    assert run(*words) == 0
    assert "answers were found in the store" in capsys.readouterr().err


def test_a_secret_in_the_record_of_an_earlier_version_is_removed(run: Any, tmp_path: Path) -> None:
    assert run("--output_path", "a") == 0
    file = Path("a/dummy/run.json")
    content = json.loads(file.read_text())
    content["runs"][0]["settings"]["model_args"] = {"api_key": "abracadabra"}
    del content["runs"][0]["checksum"]
    file.write_text(json.dumps(content))
    assert run("--output_path", "a", "--limit", "1") == 0
    assert "abracadabra" not in file.read_text()
    earlier = json.loads(file.read_text())["runs"][0]
    assert earlier["left_out"] == ["model_args api_key"]


def test_a_folder_removed_under_a_run_leaves_no_half_record(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "out")
    settings: dict[str, Any] = {"model": "dummy"}
    record = folder.begin(settings, {"model": "m", "tasks": {}}, {})
    shutil.rmtree(folder.path)
    folder.path.mkdir()
    folder.finish(record, folder.path / "results_1.json")
    assert folder.records() == []
    assert not list(folder.path.iterdir())


def test_results_that_cannot_be_written_are_not_lost(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    from lm_eval.results import files

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_log", full)
        assert run("--output_path", "out", "--log_samples") == 2
    said = capsys.readouterr().err
    assert "writing the results failed (No space left on device). All answers are stored" in said
    assert main(["resume", "out"]) == 0
    assert "12 of 12 answers were found in the store" in capsys.readouterr().err
    assert len(list(Path("out/dummy").glob("samples_*"))) == 1


def test_whoever_interrupts_a_run_is_told_how_it_goes_on(tmp_path: Path) -> None:
    words = ("run", "--model", "demo", "--tasks", "demo_sums", "--output_path", "out")
    process = subprocess.Popen(
        [sys.executable, "-m", "lm_eval", *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has them ignore interrupts.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    until = time.monotonic() + 60
    while not [*tmp_path.glob("out/demo/answer_index_*")] and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (
        "interrupted. The answers so far are stored. To continue, run `lm-eval resume out/demo`"
        in said
    )
