"""Tests that scores are recomputed exactly from stored answers, without a model."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lm_eval import rescore as rescoring
from lm_eval.api.instance import Instance
from lm_eval.api.registry import register_model
from lm_eval.cli import main
from lm_eval.config.run import RunConfig
from lm_eval.errors import DataError, EvalError
from lm_eval.models.demo.model import DemoLM
from lm_eval.rescore import find_sources
from lm_eval.results.schema import EvalResults
from lm_eval.stored_requests import Changes
from tests.conftest import Command, Folder

PUBLISHED = Path(__file__).parent / "published"


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the test fail if a model is created."""

    def refuse(*_: object) -> None:
        raise AssertionError("a model was made")

    monkeypatch.setattr("lm_eval.evaluator.create_model", refuse)


def rescore(path: Path, wanted: Changes) -> tuple[RunConfig, EvalResults]:
    (source,) = find_sources(path, wanted)
    return rescoring.rescore(source)


def written(folder: Path) -> Any:
    return json.loads(max(folder.rglob("results_2*.json")).read_text())


# -- a run of ours ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a run with all request types, repeats, groups and bootstrap."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    words = ("--limit", "10", "--bootstrap_iters", "100", "--log_samples", "--confidence", "0.9")
    assert main(["run", "--model", "demo", "--tasks", "demo", *words, "-o", str(folder)]) == 0
    return folder


SCORES = ("results", "groups", "n-samples", "n-shot", "versions", "intervals", "extraction_failed")


def test_a_stored_run_scores_as_it_did(demo_run: Path, no_model: None) -> None:
    before = written(demo_run)
    _, results = rescore(demo_run, Changes())
    for key in SCORES:
        assert results.get(key) == before.get(key), key


@pytest.mark.parametrize("format", ["jsonl", "zst", "parquet"])
def test_sample_logs_score_as_the_run_did(
    tmp_path: Path, no_model: None, format: str, demo_run: Path
) -> None:
    out = tmp_path / "out"
    words = ("--tasks", "demo", "--log_samples", "--samples_format", format, "-o", str(out))
    assert main(["score", str(demo_run), *words]) == 0
    _, results = rescore(out, Changes())
    before = written(demo_run)
    assert results["results"] == before["results"]
    assert results["groups"] == before["groups"]


def test_logs_of_unsafe_tasks_need_confirmation(
    colours: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scoring runs the code of the task."""
    file = colours.path / "colours.yaml"
    file.write_text(file.read_text() + "unsafe_code: true\n")
    out, confirmed = str(tmp_path / "out"), "--confirm_run_unsafe_code"
    words = ["--model", "dummy", "--model_args", "pretrained=a/b", "--tasks", "colours"]
    words += ["--include_path", str(colours.path), "--log_samples", "-o", out]
    assert main(["run", *words, confirmed]) == 0
    logs = tmp_path / "logs"
    logs.mkdir()
    for written_file in (tmp_path / "out" / "a__b").glob("*_2*.json*"):
        written_file.rename(logs / written_file.name)
    again = ["score", str(logs), "--include_path", str(colours.path)]
    capsys.readouterr()
    assert main(again) == 2
    assert "runs code that the model writes" in capsys.readouterr().err
    assert main([*again, confirmed, "-o", str(tmp_path / "scored")]) == 0
    assert [folder.name for folder in (tmp_path / "scored").iterdir()] == ["a__b"]


def test_predictions_are_scored_later(tmp_path: Path) -> None:
    words = ("--model", "demo", "--tasks", "demo_sums", "--limit", "6")
    for more, out in (("--predict_only", "predicted"), ("--log_samples", "scored")):
        assert main(["run", *words, more, "-o", str(tmp_path / out)]) == 0
    assert "exact_match,majority" not in written(tmp_path / "predicted")["results"]["demo_sums"]
    _, results = rescore(tmp_path / "predicted", Changes())
    assert results["results"] == written(tmp_path / "scored")["results"]


def test_the_command_writes_what_it_prints(
    demo_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "again"
    words = ("--tasks", "demo_sums", "--filter", "majority", "-o", str(out), "--log_samples")
    assert main(["score", str(demo_run), *words]) == 0
    assert "majority" in capsys.readouterr().out
    again = written(out)
    row, before = again["results"]["demo_sums"], written(demo_run)["results"]["demo_sums"]
    assert row == {k: v for k, v in before.items() if "first-answer" not in k}
    assert again["scored_from"]["run"] == str(demo_run / "demo")
    assert len(list(out.rglob("samples_demo_sums_*.jsonl"))) == 1


def test_another_filter_and_another_metric(demo_run: Path) -> None:
    pipeline = {
        "name": "nothing",
        "filter": [{"function": "regex", "regex_pattern": "(x{99})"}, {"function": "take_first"}],
    }
    wanted = Changes(tasks=["demo_sums"], filters=[pipeline], metrics=["exact_match", "bleu"])
    _, results = rescore(demo_run, wanted)
    assert results["extraction_failed"] == {"demo_sums": {"nothing": 10}}
    row = results["results"]["demo_sums"]
    assert {k for k in row if "," in k and "stderr" not in k} == {
        "exact_match,nothing",
        "bleu,nothing",
    }
    _, results = rescore(demo_run, Changes(tasks=["demo_choice"], metrics=["acc_norm"]))
    row = results["results"]["demo_choice"]
    before = written(demo_run)["results"]["demo_choice"]
    assert row == {k: v for k, v in before.items() if k not in ("acc,none", "acc_stderr,none")}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--filter", "majorty"), "no filter pipeline 'majorty'. Did you mean 'majority'?"),
        (("--metrics", "acc"), "acc cannot be computed for output_type generate_until"),
        (("--filter", "{name: x"), "not valid YAML"),
        (("--filter", "{nam: x}"), "each entry needs a `name`"),
        (("--log_samples",), "needs --output_path"),
    ],
)
def test_what_cannot_be_scored_is_explained(
    demo_run: Path, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", str(demo_run), "--tasks", "demo_sums", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_metric_that_suits_only_some_tasks_is_refused_with_the_way_to_select_them(
    demo_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", str(demo_run), "--metrics", "acc"]) == 2
    assert "Select the tasks that the metrics suit with --tasks." in capsys.readouterr().err
    words = ("--metrics", "acc", "--tasks", "demo_choice,demo_pairs")
    assert main(["score", str(demo_run), *words]) == 0


def test_a_task_that_was_not_run_has_no_answers(colours: Folder, demo_run: Path) -> None:
    wanted = Changes(tasks=["colours"], include_path=[str(colours.path)])
    with pytest.raises(DataError, match="'colours' was not part of the run there"):
        rescore(demo_run, wanted)


@pytest.mark.parametrize("named", ["colours", "inner"])
def test_a_task_is_scored_as_its_group_had_it(
    named: str, colours: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    member = "{task: colours, num_fewshot: 2, fewshot_split: test}"
    colours.write("inner.yaml", f"group: inner\ntask:\n  - {member}\n")
    colours.write("outer.yaml", "group: outer\ntask: [inner]\n")
    words = ("--tasks", "outer,demo_pairs", "--limit", "4", "--include_path", str(colours.path))
    assert main(["run", "--model", "demo", *words, "-o", str(tmp_path / "out")]) == 0
    _, results = rescore(tmp_path / "out", Changes(tasks=[named]))
    assert set(results["n-shot"]) - {"inner"} == {"colours"}
    assert results["n-shot"]["colours"] == 2
    assert "changed since" not in caplog.text


# -- what has changed since -------------------------------------------------------------------


@pytest.fixture
def ran(colours: Folder, lm_eval_command: Command, tmp_path: Path) -> Callable[..., Any]:
    """Runs `colours` with the demo model; returns a function that rescores the run.

    The function returns the scores (None if it failed) and the text on stderr.
    """
    words = ("--tasks", "colours", "--include_path", colours.path, "--model", "demo")

    def score(*more: str | Path) -> tuple[Any, str]:
        out = tmp_path / "scored"
        shutil.rmtree(out, ignore_errors=True)
        done = lm_eval_command("score", tmp_path / "out", *more, "-o", out)
        if done.returncode:
            return None, done.stderr
        return written(out)["results"]["colours"], done.stderr

    assert lm_eval_command("run", *words, "-o", tmp_path / "out").returncode == 0
    return score


def test_a_changed_metric_is_picked_up(ran: Callable[..., Any], colours: Folder) -> None:
    before, said = ran()
    assert "changed since" not in said
    file = colours.path / "colours.yaml"
    file.write_text(file.read_text().replace("metric: acc", "metric: acc_norm"))
    row, said = ran()
    assert "acc_norm,none" in row
    assert "acc,none" in before
    assert "task colours has changed since the earlier run: its configuration or code." in said


def test_answers_to_prompts_that_read_otherwise_now_are_found_by_document(
    ran: Callable[..., Any], colours: Folder
) -> None:
    before, _ = ran()
    file = colours.path / "colours.yaml"
    file.write_text(file.read_text().replace("Of what", "Of which"))
    row, said = ran()
    assert row == before
    assert "changed since the earlier run: its configuration or code, its prompts" in said
    assert "12 of its requests have changed since the run" in said


def test_answers_about_other_documents_are_not_taken(
    ran: Callable[..., Any], colours: Folder
) -> None:
    data = colours.path / "colours.jsonl"
    data.write_text(data.read_text().replace("grass", "a leaf"))
    row, said = ran()
    assert row is None
    assert "of 12 requests of task 'colours', 2 have no stored answer" in said


def test_prompts_that_a_chat_template_wrote_need_no_template(tmp_path: Path) -> None:
    @register_model("demo_in_chat")
    class Chatty(DemoLM):
        def apply_chat_template(
            self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
        ) -> str:
            return "".join(f"<{turn['role']}>{turn['content']}" for turn in chat_history)

        def chat_template(self, chat_template: bool | str = False) -> str:
            return "<>"

    words = ("--tasks", "demo_choice,demo_sums", "--limit", "5", "--apply_chat_template")
    assert main(["run", "--model", "demo_in_chat", *words, "-o", str(tmp_path)]) == 0
    _, results = rescore(tmp_path, Changes())
    assert results["results"] == written(tmp_path)["results"]


def test_a_run_cut_off_says_what_is_missing(tmp_path: Path) -> None:
    @register_model("demo_cut_off")
    class CutOff(DemoLM):
        def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
            raise RuntimeError("power cut")

    words = ("--tasks", "demo_choice,demo_sums", "--limit", "5", "-o", str(tmp_path))
    assert main(["run", "--model", "demo_cut_off", *words]) == 2
    with pytest.raises(DataError, match=r"`lm-eval resume .*` gets the remaining answers"):
        rescore(tmp_path, Changes())
    _, results = rescore(tmp_path, Changes(tasks=["demo_choice"]))
    assert results["results"]["demo_choice"]["sample_len"] == 5


def test_token_lengths_are_kept_with_the_answers(colours: Folder, tmp_path: Path) -> None:
    file = colours.path / "colours.yaml"
    file.write_text(file.read_text().replace("metric: acc", "metric: acc_tokens"))
    words = ("--model", "demo", "--tasks", str(file), "-o", str(tmp_path / "out"))
    assert main(["run", *words]) == 0
    _, results = rescore(tmp_path / "out", Changes())
    assert results["results"] == written(tmp_path / "out")["results"]


# -- logs of the published harness ------------------------------------------------------------


def test_logs_of_the_published_harness_give_its_scores() -> None:
    """Recorded with lm-eval 0.4.13, its dummy model and the tasks beside the logs; their data
    files are not there, so every document comes from the log.
    """
    _, results = rescore(PUBLISHED, Changes(include_path=[str(PUBLISHED / "tasks")]))
    theirs = written(PUBLISHED)
    for name, row in theirs["results"].items():
        for key, value in row.items():
            if value != "N/A":  # where it has no error, ours has one
                close = pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
                assert results["results"][name][key] == close, (name, key)
    assert results["groups"].keys() == theirs["groups"].keys()
    assert results["n-shot"]["rec_choice"] == theirs["n-shot"]["rec_choice"]


def test_one_log_is_enough() -> None:
    (log,) = PUBLISHED.rglob("samples_rec_text_*")
    _, results = rescore(log, Changes(include_path=[str(PUBLISHED / "tasks")], filters=["letter"]))
    assert results["results"]["rec_text"]["exact_match,letter"] == 0.25


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda p: p.write_text("{"), r":1: is not valid JSON"),
        (lambda p: p.write_text(""), "contains no samples"),
        (lambda p: p.write_text('{"doc_id": 0}\n'), r":1: is not a sample: KeyError: 'arguments'"),
        (
            lambda p: p.write_text(p.read_text().replace('["lol", "lol"]', '"lol"').strip()[:-9]),
            "is not valid JSON",
        ),
        (lambda p: p.rename(p.with_name("log.jsonl")), "contains neither a run .* nor sample logs"),
        (
            lambda p: p.rename(p.with_name(p.name.replace("rec_text", "rec_story"))),
            "not valid answers to",
        ),
    ],
)
def test_a_log_that_cannot_be_read_is_explained(
    tmp_path: Path, spoil: Callable[[Path], Any], said: str
) -> None:
    (log,) = PUBLISHED.rglob("samples_rec_text_*")
    spoil(Path(shutil.copy(log, tmp_path)))
    with pytest.raises(EvalError, match=said):
        rescore(tmp_path, Changes(include_path=[str(PUBLISHED / "tasks")]))


def test_a_log_with_documents_missing_is_said(
    demo_run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for file in [*demo_run.rglob("samples_*"), *demo_run.rglob("results_2*")]:
        shutil.copy(file, tmp_path)
    rescore(tmp_path, Changes())
    assert "documents" not in caplog.text
    (log,) = tmp_path.glob("samples_demo_choice_*")
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:-3]))
    rescore(tmp_path, Changes())
    told = f"{log}: contains {len(lines) - 3} documents, but the results file beside it reports "
    assert f"{told}{len(lines)}." in caplog.text


def test_an_answer_index_that_cannot_be_read_is_explained(demo_run: Path, tmp_path: Path) -> None:
    out = shutil.copytree(demo_run, tmp_path / "copy")
    (index,) = out.rglob("answer_index_*.npz")
    index.write_bytes(b"PK but not really")
    with pytest.raises(EvalError, match="cannot be read as the answer index of a run"):
        rescore(out, Changes())


def _newer(store: Path) -> None:
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_newer, "was written by a newer version"),
        (lambda store: store.write_text("no store " * 999), "is damaged or is not an answer store"),
    ],
)
@pytest.mark.parametrize("command", ["score", "resume"])
def test_a_store_that_cannot_be_used_stops_the_command_and_stays(
    demo_run: Path,
    tmp_path: Path,
    command: str,
    spoil: Callable[[Path], Any],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = shutil.copytree(demo_run, tmp_path / "copy")
    store = out / "demo" / "answers.sqlite"
    spoil(store)
    before = store.read_bytes()
    results = sorted(out.rglob("results_*"))
    assert main([command, str(out)]) == 2
    assert said in capsys.readouterr().err
    assert store.read_bytes() == before
    assert sorted(out.rglob("results_*")) == results


def test_a_folder_nobody_may_write_is_scored(
    demo_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write anywhere, so the permission error is simulated."""
    monkeypatch.setattr("os.access", lambda *_: False)
    before = sorted(demo_run.rglob("*"))
    _, results = rescore(demo_run, Changes())
    assert results["results"] == written(demo_run)["results"]
    assert sorted(demo_run.rglob("*")) == before
