"""Tests runs from Python and from the command line, and several runs in one folder."""

from __future__ import annotations

import itertools
import json
import shlex
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lm_eval
from lm_eval.api.model import LM
from lm_eval.cli import main
from lm_eval.config.run import RunConfig
from lm_eval.errors import OutputError
from lm_eval.evaluator import run_evaluation
from lm_eval.runs.observer import RunObserver
from lm_eval.runs.stored import find_runs
from lm_eval.tasks import TaskManager
from tests.conftest import Folder
from tests.test_evaluate import painter

Captured = pytest.CaptureFixture[str]


def written(folder: Path) -> Any:
    return json.loads(max(folder.rglob("results_2*.json")).read_text())


@pytest.fixture
def command(colours: Folder, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a function that runs a model on `colours` into the folder `out`."""
    monkeypatch.chdir(colours.path)

    def run(*words: str, model: str = "dummy", tasks: str = "colours") -> int:
        given = ["--model", model, "--tasks", tasks, "--include_path", ".", "--output_path", "out"]
        return main(["run", *given, *words])

    return run


# -- from Python ------------------------------------------------------------------------------


def test_simple_evaluate_keeps_a_run_folder(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    results: Any = lm_eval.simple_evaluate(
        "demo", tasks=["demo_choice"], limit=5, output_path=out, bootstrap_iters=0
    )
    file = written(tmp_path)
    assert file["results"] == results["results"]
    assert file["settings"]["tasks"] == ["demo_choice"]
    assert len([*tmp_path.rglob("samples_demo_choice_*.jsonl")]) == 1
    assert len(results["samples"]["demo_choice"]) == 5
    (run,) = find_runs(out)
    assert run.record.finished


def test_the_same_call_asks_nothing_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="lm_eval")
    call: dict[str, Any] = {"tasks": ["demo_choice"], "limit": 3, "output_path": str(tmp_path)}
    first: Any = lm_eval.simple_evaluate("demo", **call)
    assert first["answers"] == {"asked": 12, "requests": 12}
    again: Any = lm_eval.simple_evaluate("demo", **call)
    assert again["answers"] == {"asked": 0, "requests": 12}
    assert "12 of 12 answers were found in the store" in caplog.text
    fresh: Any = lm_eval.simple_evaluate("demo", fresh=True, **call)
    assert fresh["answers"] == {"asked": 12, "requests": 12}


def test_resume_goes_on_from_the_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval.models.demo import DemoLM

    plain = DemoLM.loglikelihood

    def cut_off(self: DemoLM, requests: Any, disable_tqdm: bool = False) -> Any:
        plain(self, requests[:6], disable_tqdm)
        signal.raise_signal(signal.SIGINT)

    call: dict[str, Any] = {"tasks": ["demo_choice"], "limit": 3}
    with monkeypatch.context() as patched:
        patched.setattr(DemoLM, "loglikelihood", cut_off)
        with pytest.raises(KeyboardInterrupt, match="lm-eval resume"):
            lm_eval.simple_evaluate("demo", **call, output_path=str(tmp_path))
    assert not [*tmp_path.rglob("results_2*")]
    before = Path.cwd()
    resumed: Any = lm_eval.resume(tmp_path)
    assert resumed["answers"] == {"asked": 6, "requests": 12}
    assert Path.cwd() == before
    whole: Any = lm_eval.simple_evaluate("demo", **call)
    assert resumed["results"] == whole["results"]
    assert written(tmp_path)["results"] == whole["results"]


def test_score_needs_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results: Any = lm_eval.simple_evaluate(
        "demo", tasks=["demo_sums"], limit=5, output_path=str(tmp_path)
    )

    def refuse(*_: object) -> None:
        raise AssertionError("a model was made")

    monkeypatch.setattr("lm_eval.evaluator.create_model", refuse)
    again = lm_eval.score(tmp_path)
    assert again["results"] == results["results"]
    assert len(again["samples"]["demo_sums"]) == len(results["samples"]["demo_sums"])
    majority = lm_eval.score(tmp_path, filters=["majority"], confidence=0.9, log_samples=False)
    assert "samples" not in majority
    assert [key for key in majority["results"]["demo_sums"] if "," in key] == [
        "exact_match,majority",
        "exact_match_stderr,majority",
    ]
    with pytest.raises(TypeError, match=r"unknown setting 'confidense'. Did you mean 'confidence'"):
        lm_eval.score(tmp_path, confidense=0.9)


def test_a_model_object_keeps_its_answers_too(colours: Folder, tmp_path: Path) -> None:
    def run(lm: LM) -> Any:
        manager = TaskManager(include_path=str(colours.path))
        out = str(tmp_path / "out")
        return lm_eval.simple_evaluate(lm, tasks=["colours"], task_manager=manager, output_path=out)

    first, second = painter(), painter()
    assert run(first)["results"]["colours"]["acc,none"] == 5 / 6
    assert run(second)["results"]["colours"]["acc,none"] == 5 / 6
    assert (len(first.requests), len(second.requests)) == (12, 0)
    with pytest.raises(
        OutputError, match=r"made with a model object .*ScriptedLM.* Call simple_ev"
    ):
        lm_eval.resume(tmp_path / "out")
    scored = lm_eval.score(tmp_path / "out", include_path=str(colours.path))
    assert scored["results"]["colours"]["acc,none"] == 5 / 6


# -- several in one folder --------------------------------------------------------------------


def test_each_command_keeps_its_own_settings(command: Any) -> None:
    assert command("--limit", "2") == 0
    assert command("--num_fewshot", "0", "--limit", "4") == 0
    assert command("--limit", "2", "--batch_size", "3", "--log_samples") == 0  # the first again
    runs = find_runs("out")
    assert [run.record.settings.get("limit") for run in runs] == [4, 2]
    assert [run.record.settings.get("batch_size") for run in runs] == [None, 3]
    assert len([*Path("out/dummy").glob("answer_index_*.npz")]) == 2
    assert len([*Path("out/dummy").glob("*.sqlite")]) == 1


def test_model_arguments_that_change_only_the_speed_are_not_part_of_a_run(
    command: Any, capsys: Captured
) -> None:
    assert command("--model_args", "num_concurrent=2,size=3") == 0
    capsys.readouterr()
    assert command("--model_args", "num_concurrent=8,timeout=5,size=3") == 0
    assert "changed since the earlier run" not in capsys.readouterr().err
    (run,) = find_runs("out")
    assert run.record.settings["model_args"] == {"num_concurrent": 8, "timeout": 5, "size": 3}
    assert main(["resume", "out"]) == 0
    assert command("--model_args", "num_concurrent=8,size=4") == 0
    assert len(find_runs("out")) == 2


def test_runs_that_an_earlier_version_told_apart_by_speed_are_read_as_one(
    command: Any, colours: Folder
) -> None:
    assert command("--model_args", "num_concurrent=2") == 0
    folder = Path("out/dummy")
    (run,) = find_runs("out")
    index = folder / str(run.record.answer_index)
    with np.load(index) as columns:
        renamed = {**columns, "run id": np.array("0123abcd")}
    np.savez(folder / "answer_index_0123abcd.npz", **renamed)
    index.unlink()
    record = run.record.to_json() | {"answer_index": "answer_index_0123abcd.npz"}
    del record["checksum"]
    later = {**record, "settings": {**record["settings"], "model_args": {"num_concurrent": 4}}}
    later["begun"] += 1
    (folder / "run.json").write_text(json.dumps({"format": 2, "runs": [record, later]}))
    (run,) = find_runs("out")
    assert run.record.settings["model_args"] == {"num_concurrent": 4}
    text = (colours.path / "colours.yaml").read_text()
    colours.write("colours.yaml", text.replace("Of what", "Of which"))  # so that the index is read
    scored = lm_eval.score("out", include_path=str(colours.path))
    assert scored["results"] == written(Path("out"))["results"]


def test_a_list_of_runs_shows_options_as_they_are_typed(command: Any, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    typed = ("--samples", '{"colours": [0, 3]}', "--include_path", str(tmp_path / "more"))
    assert command(*typed, "--model_args", "size=3") == 0
    (run,) = find_runs("out")
    words = shlex.split(run.describe())
    for option, value in [*zip(typed[::2], typed[1::2], strict=True), ("--model_args", "size=3")]:
        assert (option, value) in itertools.pairwise(words)
    assert words.count("--include_path") == 2


def test_resume_lists_several_runs_and_takes_the_one_that_is_named(
    command: Any, capsys: Captured
) -> None:
    assert command("--limit", "2") == 0
    assert command("--limit", "4") == 0
    assert command(model="demo", tasks="demo_choice,demo_pairs") == 0
    capsys.readouterr()
    assert main(["resume", "out"]) == 2
    said = capsys.readouterr().err
    assert "out: contains 3 runs. Select one with --run ID" in said
    assert "demo: " in said
    assert "--tasks demo_choice,demo_pairs" in said
    assert "--tasks colours --limit 2 " in said
    for run in find_runs("out"):
        assert f"\n  {run.folder.path.name}: {run.record.id}  --tasks" in said
        assert main(["resume", "out", "--run", run.record.id]) == 0
        printed = capsys.readouterr().out
        assert f"limit: {run.record.settings.get('limit')}" in printed
    assert main(["resume", "out/demo"]) == 0  # there is one alone
    assert main(["resume", "out", "--run", "nothing"]) == 2
    assert "contains no run 'nothing'. The runs are:" in capsys.readouterr().err


def test_resume_takes_the_only_unfinished_run(command: Any, capsys: Captured) -> None:
    assert command("--limit", "2") == 0
    assert command("--limit", "4") == 0
    file = Path("out/dummy/run.json")
    record = json.loads(file.read_text())
    record["runs"][0] |= {"finished": False}
    file.write_text(json.dumps(record))
    capsys.readouterr()
    assert main(["resume", "out"]) == 0
    told = capsys.readouterr()
    assert "resuming the unfinished one" in told.err
    assert "limit: 2" in told.out


def test_score_prints_a_table_for_every_run(command: Any, capsys: Captured) -> None:
    assert command("--limit", "2") == 0
    assert command("--limit", "4") == 0
    assert command("--limit", "3", model="demo") == 0
    capsys.readouterr()
    assert main(["score", "out"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("Version|") == 3
    assert all(run.record.id in printed for run in find_runs("out"))
    with pytest.raises(OutputError, match="contains 3 runs"):
        lm_eval.score("out")
    chosen = find_runs("out")[-1].record
    one = lm_eval.score("out", run=chosen.id)
    assert one["n-samples"]["colours"]["effective"] == chosen.settings["limit"]


def test_score_finds_a_task_whichever_command_asked_it(
    command: Any, colours: Folder, capsys: Captured
) -> None:
    text = (colours.path / "colours.yaml").read_text()
    colours.write("shades.yaml", text.replace("task: colours", "task: shades"))
    assert command() == 0
    first = written(Path("out"))["results"]["colours"]
    assert command(tasks="shades") == 0
    second = written(Path("out"))["results"]["shades"]
    assert lm_eval.score("out", tasks="colours")["results"] == {"colours": first}
    assert lm_eval.score("out", tasks=["shades"])["results"] == {"shades": second}
    capsys.readouterr()
    assert main(["score", "out", "--tasks", "colours,shades"]) == 0
    assert capsys.readouterr().out.count("Version|") == 2
    assert main(["score", "out", "--tasks", "hues"]) == 2
    assert "hues" in capsys.readouterr().err


def test_a_folder_of_the_first_format_is_read_and_added_to(command: Any) -> None:
    assert command("--limit", "2") == 0
    folder = Path("out/dummy")
    (run,) = find_runs("out")
    record = json.loads((folder / "run.json").read_text())["runs"][0]
    (folder / record.pop("answer_index")).rename(folder / "plan.npz")
    del record["model_object"], record["checksum"]
    (folder / "run.json").write_text(json.dumps({"format": 1, **record}))
    before = lm_eval.score("out")
    assert before["results"]["colours"]["sample_len"] == 2
    assert command("--limit", "4") == 0
    assert [one.record.settings["limit"] for one in find_runs("out")] == [2, 4]
    assert lm_eval.score("out", run=run.record.id)["results"] == before["results"]


def test_one_run_has_one_record_however_it_was_asked_for(colours: Folder, tmp_path: Path) -> None:
    """`--limit 3` is a float on the command line; a function's repr differs in every process."""
    out = str(tmp_path / "out")
    assert (
        main(["run", "--model", "demo", "--tasks", "demo_choice", "--limit", "3", "-o", out]) == 0
    )
    lm_eval.simple_evaluate("demo", tasks=["demo_choice"], limit=3, output_path=out)
    assert len(find_runs(out)) == 1
    for _ in range(2):
        task = {"task": "demo_choice", "doc_to_text": lambda doc: "?"}
        lm_eval.simple_evaluate("demo", tasks=[task], limit=3, output_path=out)
    assert len(find_runs(out)) == 2


def test_score_goes_on_after_a_run_that_was_cut_off(command: Any, capsys: Captured) -> None:
    import sqlite3

    assert command("--limit", "2") == 0
    assert command("--limit", "2", "--system_instruction", "Hm.") == 0
    with sqlite3.connect("out/dummy/answers.sqlite") as store:  # the first run's, in one row
        store.execute("DELETE FROM answers WHERE rowid = 1")
    capsys.readouterr()
    assert main(["score", "out"]) == 1
    told = capsys.readouterr()
    assert told.out.count("Version|") == 1
    assert "not scored: " in told.err
    assert "4 have no stored answer" in told.err


def test_the_reason_why_a_run_cannot_be_scored_is_printed_once(
    command: Any, capsys: Captured
) -> None:
    import sqlite3

    assert command("--limit", "2") == 0
    with sqlite3.connect("out/dummy/answers.sqlite") as store:
        store.execute("DELETE FROM answers")
    capsys.readouterr()
    assert main(["score", "out"]) == 2
    assert capsys.readouterr().err.count("have no stored answer") == 1
    assert command("--limit", "4") == 0
    with sqlite3.connect("out/dummy/answers.sqlite") as store:
        store.execute("DELETE FROM answers")
    capsys.readouterr()
    assert main(["score", "out"]) == 2
    said = capsys.readouterr().err
    assert said.count("have no stored answer") == 2
    assert said.endswith("lm-eval: error: out: none of the 2 runs could be scored.\n")


def test_score_takes_patterns_for_tasks(command: Any, capsys: Captured) -> None:
    assert command(tasks="demo_choice,demo_pairs", model="demo") == 0
    assert command() == 0
    capsys.readouterr()
    assert main(["score", "out", "--tasks", "demo_c*"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("Version|") == 1
    assert "choice" in printed
    assert "pairs" not in printed


def test_resume_with_a_moved_mirror_finishes_the_run_itself(mirrored: Folder, command: Any) -> None:
    assert command("--data_dir", "mirror") == 0
    Path("mirror").rename("moved")
    assert main(["resume", "out", "--data_dir", "moved"]) == 0
    (run,) = find_runs("out")
    assert run.record.settings["data_dir"].endswith("moved")


def test_results_are_saved_whatever_an_observer_does(tmp_path: Path) -> None:
    class Broken(RunObserver):
        def scored(self, run: RunConfig, results: Any) -> None:
            raise BrokenPipeError

    run = RunConfig(model="demo", tasks=["demo_choice"], limit=2, output_path=str(tmp_path))
    with pytest.raises(BrokenPipeError):
        run_evaluation(run, observers=[Broken()])
    assert written(tmp_path)["results"]["demo_choice"]["sample_len"] == 2
    assert find_runs(tmp_path)[0].record.finished


def test_a_later_process_writes_nothing_even_if_its_model_ignores_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    words = ("--model", "dummy", "--tasks", "demo_choice", "--limit", "2")
    assert main(["run", *words, "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == ""
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["answers.sqlite"]


def test_what_a_newer_version_recorded_is_kept(command: Any) -> None:
    assert command("--limit", "2") == 0
    file = Path("out/dummy/run.json")
    record = json.loads(file.read_text())
    record["runs"][0]["weather"] = "fair"
    file.write_text(json.dumps(record))
    assert command("--limit", "4") == 0
    assert json.loads(file.read_text())["runs"][0]["weather"] == "fair"


def test_whoever_interrupts_one_of_several_runs_is_told_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval.models.demo import DemoLM

    def stop(*_: Any, **__: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    call: dict[str, Any] = {"tasks": ["demo_choice"], "output_path": str(tmp_path)}
    lm_eval.simple_evaluate("demo", limit=2, **call)
    monkeypatch.setattr(DemoLM, "loglikelihood", stop)
    with pytest.raises(KeyboardInterrupt) as stopped:
        lm_eval.simple_evaluate("demo", limit=4, **call)
    (unfinished,) = [run for run in find_runs(tmp_path) if not run.record.finished]
    assert f"`lm-eval resume {tmp_path / 'demo'} --run {unfinished.record.id}`" in str(
        stopped.value
    )


def test_fresh_forgets_what_this_command_asked_and_nothing_else(command: Any) -> None:
    assert command("--limit", "2") == 0
    assert command(tasks="demo_pairs", model="dummy") == 0
    before = lm_eval.score("out", tasks="demo_pairs")["results"]
    assert command("--limit", "2", "--fresh") == 0
    assert written(Path("out"))["answers"] == {"asked": 4, "requests": 4}
    assert lm_eval.score("out", tasks="demo_pairs")["results"] == before


def test_an_answer_is_not_given_to_another_choice_that_has_its_place_now(
    command: Any, colours: Folder, capsys: Captured
) -> None:
    """The prompt has changed, so answers are looked up by position; the choices are reordered."""
    assert command() == 0
    text = (colours.path / "colours.yaml").read_text()
    colours.write("colours.yaml", text.replace("Of what", "Of which"))
    before = lm_eval.score("out")["results"]
    assert before == written(Path("out"))["results"]
    turned = text.replace("Of what", "Of which").replace(
        "doc_to_choice: colours", 'doc_to_choice: "{{colours[::-1]}}"'
    )
    turned = turned.replace("doc_to_target: answer", 'doc_to_target: "{{1 - answer}}"')
    colours.write("colours.yaml", turned)
    assert main(["score", "out"]) == 2
    assert "12 have no stored answer" in capsys.readouterr().err


def test_an_answer_index_of_another_run_is_refused(command: Any, colours: Folder) -> None:
    assert command("--limit", "2") == 0
    assert command("--limit", "4") == 0
    first, second = (run.folder.path / str(run.record.answer_index) for run in find_runs("out"))
    first.write_bytes(second.read_bytes())
    text = (colours.path / "colours.yaml").read_text()
    colours.write("colours.yaml", text.replace("Of what", "Of which"))
    with pytest.raises(OutputError, match=r"belongs to the run \w+, not \w+"):
        lm_eval.score("out", run=find_runs("out")[0].record.id)


def test_scoring_what_was_only_predicted_finds_no_change(command: Any, capsys: Captured) -> None:
    assert command("--predict_only") == 0
    capsys.readouterr()
    assert main(["score", "out"]) == 0
    assert "changed since" not in capsys.readouterr().err


def test_reproduce_says_when_there_is_nothing_to_compare(command: Any, capsys: Captured) -> None:
    assert command("--predict_only") == 0
    assert main(["reproduce", "out"]) == 1
    assert "nothing to compare" in capsys.readouterr().out
    assert main(["score", "out", "--output_path", "scored"]) == 0
    assert main(["reproduce", "scored"]) == 2
    assert "was made by `lm-eval score`" in capsys.readouterr().err


def test_a_project_that_was_moved_can_be_scored_with_its_tasks_named_anew(
    command: Any, colours: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("--limit", "2") == 0
    moved = tmp_path.parent / f"{tmp_path.name}_moved"
    tmp_path.rename(moved)
    monkeypatch.chdir(moved)
    assert main(["score", "out", "--include_path", "."]) == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("begun", "x"),
        ("begun", 1e300),
        ("directory", None),
        ("answer_index", 4),
        ("settings", {"model_args": 3}),
        ("settings", {"tasks": 5}),
        ("state", {"tasks": {"colours": "x"}}),
    ],
)
def test_a_record_of_wrong_types_is_explained(
    command: Any, capsys: Captured, field: str, value: Any
) -> None:
    assert command("--limit", "2") == 0
    file = Path("out/dummy/run.json")
    content = json.loads(file.read_text())
    content["runs"][0][field] = value
    file.write_text(json.dumps(content))
    for words in (["score", "out"], ["resume", "out"]):
        assert main(words) == 2
        assert "this is not a complete record of a run" in capsys.readouterr().err
    assert command("--limit", "2") == 2


# -- where its data is ------------------------------------------------------------------------


@pytest.fixture
def mirrored(colours: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """Makes the task read its documents from a mirror."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [json.loads(line) for line in (colours.path / "colours.jsonl").read_text().splitlines()]
    mirror = colours.path / "mirror" / "some" / "colours" / "default"
    mirror.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), mirror / "test.parquet")
    text = (colours.path / "colours.yaml").read_text()
    head, _, rest = text.partition("dataset_path: json\n")
    rest = rest.partition("test_split")[2]
    colours.write("colours.yaml", f"{head}dataset_path: some/colours\ntest_split{rest}")
    monkeypatch.chdir(colours.path)
    return colours


def test_what_a_variable_set_is_kept_in_the_run(
    mirrored: Folder, command: Any, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("LMEVAL_DATA_DIR", "mirror")
    assert command() == 0
    results = max(Path("out").rglob("results_2*.json"))
    monkeypatch.delenv("LMEVAL_DATA_DIR")
    for words in (["resume", "out"], ["score", "out"], ["reproduce", str(results)]):
        assert main(words) == 0, capsys.readouterr().err
    assert "identical" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["resume", "score"])
def test_a_mirror_that_was_moved_can_be_named(
    mirrored: Folder, command: Any, capsys: Captured, word: str
) -> None:
    assert command("--data_dir", "mirror") == 0
    Path("mirror").rename("moved")
    assert main([word, "out"]) == 2
    assert "--data_dir" in capsys.readouterr().err
    assert main([word, "out", "--data_dir", "moved"]) == 0


def test_tasks_list_prints_the_names(capsys: Captured) -> None:
    for name in ("tasks", "groups", "subtasks", "tags"):
        assert main(["--tasks", "list" if name == "tasks" else f"list_{name}"]) == 0
        printed = capsys.readouterr().out
        assert main(["ls", name]) == 0
        assert printed == capsys.readouterr().out
        assert printed.count("\n") > 20
