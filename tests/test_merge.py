"""Tests `lm-eval merge`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.cli import main
from lm_eval.engine.store import AnswerStore, models_in
from lm_eval.errors import OutputError
from lm_eval.runs.merge import merge
from tests.workers import lms
from tests.workers.battery import MODEL


def run(out: Path, tasks: str, log: Path, **settings: Any) -> Mapping[str, Any]:
    found = lm_eval.simple_evaluate(
        MODEL,
        model_args={"log": str(log)},
        tasks=[tasks],
        bootstrap_iters=0,
        output_path=str(out),
        **{"limit": 10, **settings},
    )
    assert found is not None
    return found


def test_merged_runs_are_scored_as_before(tmp_path: Path) -> None:
    one = run(tmp_path / "a", "demo_choice", tmp_path / "log")
    two = run(tmp_path / "b", "demo_pairs", tmp_path / "log")
    merged = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
    assert (merged.runs, merged.answers) == (2, len(set(lms.asked(tmp_path / "log"))))
    out = tmp_path / "scored"
    assert main(["score", str(tmp_path / "all"), "-o", str(out), "--bootstrap_iters", "0"]) == 0
    files = [json.loads(file.read_text()) for file in out.rglob("results_*.json")]
    found = {task: scores for file in files for task, scores in file["results"].items()}
    for task, before in {**one["results"], **two["results"]}.items():
        assert found[task]["acc,none"] == before["acc,none"]


def test_a_run_over_merged_answers_asks_for_nothing(tmp_path: Path) -> None:
    run(tmp_path / "a", "demo_choice", tmp_path / "log")
    run(tmp_path / "b", "demo_pairs", tmp_path / "log")
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
    run(tmp_path / "all", "demo_choice,demo_pairs", tmp_path / "again")
    assert lms.asked(tmp_path / "again") == []


def test_an_unfinished_run_is_resumed_after_merging(tmp_path: Path) -> None:
    """A run of twenty documents has lost its answers; another run has those of the first ten."""
    run(tmp_path / "a", "demo_choice", tmp_path / "log")
    whole = run(tmp_path / "b", "demo_choice", tmp_path / "log", limit=20)
    (record,) = (tmp_path / "b").rglob("run.json")
    content = json.loads(record.read_text())
    content["runs"][0]["finished"] = False
    record.write_text(json.dumps(content))
    (store,) = (tmp_path / "b").rglob("answers.sqlite")
    store.unlink()
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all")
    before = len(lms.asked(tmp_path / "log"))
    found = lm_eval.resume(tmp_path / "all")
    assert found is not None
    assert found["results"] == whole["results"]
    assert len(lms.asked(tmp_path / "log")) - before == 40  # ten documents with four choices


def test_different_answers_are_an_error_that_names_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "ab":
        run(tmp_path / name, "demo_choice", tmp_path / "log")
    (store,) = (tmp_path / "b").rglob("answers.sqlite")
    (identity,) = models_in(store)
    with AnswerStore(store, identity) as opened:
        key = next(iter(opened._answers))
        opened.add("loglikelihood", [key], [(-1.25, True)])
    words = ["merge", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(tmp_path / "all")]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "1 of its answers differ" in error
    assert "(task demo_choice, document " in error
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["a", "b"]


def test_the_same_answers_in_both_are_no_conflict(tmp_path: Path) -> None:
    for name in "ab":
        run(tmp_path / name, "demo_choice", tmp_path / "log")
    assert merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all").runs == 1


def test_stores_are_merged_by_model_and_an_answer_replaces_a_failure(tmp_path: Path) -> None:
    with AnswerStore(tmp_path / "a", "one") as store:
        store.add("generate_until", [b"k" * 16], ["text"])
        store.add_failures({b"l" * 16: "too long"})
    with AnswerStore(tmp_path / "b", "one") as store:
        store.add("loglikelihood", [b"l" * 16], [(-1.0, True)])
        store.add_failures({b"k" * 16: "lost"})
    with AnswerStore(tmp_path / "b", "two") as store:
        store.add("generate_until", [b"k" * 16], ["another"])
    assert merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c").answers == 3
    with AnswerStore(tmp_path / "c", "one", read_only=True) as store:
        assert store.find([b"k" * 16, b"l" * 16]) == ["text", (-1.0, True)]


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["a"], "at least two"),
        (["a", "missing"], "there is no such file or folder"),
        (["a", "empty"], "contains no run"),
        (["a", "file"], "cannot be merged together"),
        (["a", "../{name}/a"], "is given twice"),
    ],
)
def test_bad_sources_are_refused(tmp_path: Path, sources: list[str], message: str) -> None:
    run(tmp_path / "a", "demo_choice", tmp_path / "log", limit=1)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("text")
    paths = [tmp_path / name.format(name=tmp_path.name) for name in sources]
    with pytest.raises(OutputError, match=message):
        merge(paths, tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_an_existing_destination_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "a", "demo_choice", tmp_path / "log", limit=1)
    with pytest.raises(OutputError, match="exists already"):
        merge([tmp_path / "a", tmp_path / "a"], tmp_path / "a")


def test_a_run_below_another_source_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "a", "demo_choice", tmp_path / "log", limit=1)
    (folder,) = [path for path in (tmp_path / "a").iterdir() if path.is_dir()]
    with pytest.raises(OutputError, match="is given twice"):
        merge([tmp_path / "a", folder], tmp_path / "all")
