"""Tests duels: two models are asked until it is known which one is better."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.cli import main
from lm_eval.config.run import RunConfig
from lm_eval.duels.decisions import Outcome
from lm_eval.duels.duel import Duel, DuelSettings, duel
from lm_eval.duels.report import as_text
from lm_eval.duels.schedule import by_task, random_order
from lm_eval.errors import DataError, EvalError, ModelError
from lm_eval.evaluator import run_evaluation
from tests.conftest import Folder
from tests.skilled import ALIVE, ASKED, BREAKS_AFTER, MOST_ALIVE, noised_copy

DOCUMENTS = 200
SKILLS = (("a", 60), ("b", 55))


@pytest.fixture
def questions(folder: Folder) -> Folder:
    """Returns a folder with the tasks `quiz` and `other_quiz` of 200 documents each.

    The answer to every question is yes.
    """
    ASKED.clear()
    folder.rows("questions.jsonl", [{"n": n} for n in range(DOCUMENTS)])
    folder.rows("one.jsonl", [{"n": 0}])
    for name in ("quiz", "other_quiz"):
        write_task(folder, name)
    return folder


def write_task(folder: Folder, name: str, data: str = "questions.jsonl", more: str = "") -> None:
    folder.write(
        f"{name}.yaml",
        f"task: {name}\ndataset_path: json\n"
        f"dataset_kwargs: {{data_files: {{test: {folder.path / data}}}}}\n"
        "test_split: test\nfewshot_split: test\noutput_type: multiple_choice\n"
        f'doc_to_text: "{name} {{{{n}}}} ?"\n'
        'doc_to_choice: ["yes", "no"]\ndoc_to_target: 0\n'
        + (more or "metric_list: [{metric: acc}]"),
    )


def settings_of(folder: Folder, name: str, skill: int, **more: Any) -> RunConfig:
    given = {"tasks": ["quiz"], "include_path": [str(folder.path)], **more}
    return RunConfig(model="skilled", model_args={"pretrained": name, "skill": skill}, **given)


def fight(
    folder: Folder, skills: tuple[int, int], how: DuelSettings | None = None, **more: Any
) -> Duel:
    runs = (settings_of(folder, n, s, **more) for n, s in zip("ab", skills, strict=True))
    return duel(*runs, how)


def asked_of(name: str) -> set[str]:
    prompts = [prompt for model, prompt in ASKED if model == name]
    assert len(prompts) == 2 * len(set(prompts))  # two choices each, asked once
    return set(prompts)


def test_a_clear_difference_is_settled_before_all_documents_are_asked(questions: Folder) -> None:
    done = fight(questions, (80, 40))
    (decision,) = done.tasks
    assert (decision.outcome, decision.better) == (Outcome.SETTLED, "a")
    assert decision.asked < DOCUMENTS / 2
    assert 0 < decision.interval[0] <= 0.4 <= decision.interval[1]  # the true difference is 0.4
    assert len(asked_of("a")) == len(asked_of("b")) == decision.asked == done.asked
    assert asked_of("a") == asked_of("b")
    mirrored = fight(questions, (40, 80))
    assert mirrored.tasks[0].better == "b"
    assert mirrored.tasks[0].asked == decision.asked


def test_identical_models_are_asked_everything_and_stay_undecided(questions: Folder) -> None:
    done = fight(questions, (60, 60))
    (decision,) = done.tasks
    assert (decision.outcome, decision.better) == (Outcome.EQUAL, None)
    assert decision.asked == DOCUMENTS
    assert decision.interval == (0, 0)
    text = as_text(done)
    assert "undecided" in text
    assert "exactly zero" in text
    assert "is better" not in text


def test_a_tiny_difference_is_exact_when_all_documents_are_asked(questions: Folder) -> None:
    done = fight(questions, (60, 59))
    (decision,) = done.tasks
    assert (decision.outcome, decision.better) == (Outcome.COMPLETE, "a")
    assert decision.interval == (0.01, 0.01)
    assert "no part of them settled it" in as_text(done)


def test_a_metric_of_which_less_is_better_turns_the_verdict_around(questions: Folder) -> None:
    more = "metric_list: [{metric: acc, aggregation: mean, higher_is_better: false}]"
    write_task(questions, "errors", more=more)
    done = fight(questions, (80, 40), tasks=["errors"])
    assert done.tasks[0].better == "b"
    assert done.tasks[0].advantage < 0


def test_several_tasks_are_decided_one_by_one_and_together(questions: Folder) -> None:
    done = fight(questions, (75, 55), tasks=["quiz", "other_quiz"])
    assert [decision.better for decision in done.tasks] == ["a", "a"]
    assert done.pooled is not None
    assert done.pooled.better == "a"
    assert done.pooled.asked < done.asked
    ASKED.clear()
    pooled = fight(questions, (75, 55), DuelSettings(each=False), tasks=["quiz", "other_quiz"])
    assert pooled.pooled == done.pooled
    assert pooled.asked == done.pooled.asked == len(asked_of("a"))


def test_only_one_model_is_loaded_at_a_time_if_that_is_wanted(questions: Folder) -> None:
    both = fight(questions, (65, 50))
    ALIVE.clear()
    MOST_ALIVE[0] = 0
    done = fight(questions, (65, 50), DuelSettings(one_at_a_time=True))
    assert MOST_ALIVE[0] == 1
    assert done.tasks[0].better == both.tasks[0].better == "a"


def test_an_interrupted_duel_asks_only_what_is_missing(
    questions: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setitem(BREAKS_AFTER, "b", 71)
        with pytest.raises(ModelError, match="the power failed"):
            fight(questions, (60, 45), output_path=out)
    before = [model for model, _ in ASKED]
    assert before.count("b") == 71
    done = fight(questions, (60, 45), output_path=out)
    assert len(asked_of("a")) == len(asked_of("b")) == done.asked  # none was asked twice
    ASKED.clear()
    again = fight(questions, (60, 45), output_path=out)
    assert again == done
    assert not ASKED
    stricter = fight(questions, (60, 45), DuelSettings(alpha=1e-4), output_path=out)
    assert len(asked_of("a")) == stricter.asked - done.asked > 0


def test_an_interruption_says_how_to_continue(questions: Folder, tmp_path: Path) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    runs = [settings_of(questions, n, s, output_path=str(tmp_path / "out")) for n, s in SKILLS]
    with pytest.raises(KeyboardInterrupt, match="the same command continues"):
        duel(*runs, on_portion=interrupt)
    asked = asked_of("a")
    ASKED.clear()
    duel(*runs)
    assert not asked & asked_of("a")


def test_a_run_after_a_duel_asks_only_what_the_duel_did_not(
    questions: Folder, tmp_path: Path
) -> None:
    more: dict[str, Any] = {"output_path": str(tmp_path / "out"), "num_fewshot": 2}
    done = fight(questions, (80, 40), **more)
    in_duel = asked_of("a")
    ASKED.clear()
    run_evaluation(settings_of(questions, "a", 80, **more))
    assert not in_duel & asked_of("a")
    assert len(in_duel) + len(asked_of("a")) == DOCUMENTS
    ASKED.clear()
    del more["output_path"]
    run_evaluation(settings_of(questions, "a", 80, **more))
    assert in_duel < asked_of("a")  # the same few-shot examples
    assert done.asked == len(in_duel)


def test_runs_that_a_duel_has_stopped_are_compared_only_if_forced(
    questions: Folder, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = fight(questions, (80, 40), output_path=str(out), num_fewshot=2)
    (out / "duel_a_b.json").write_text("{}")
    with pytest.raises(DataError) as error:
        lm_eval.compare(out / "a", out / "b")
    assert f"stopped by a duel, whose result is in {out / 'duel_a_b.json'}" in str(error.value)
    (row,) = lm_eval.compare(out / "a", out / "b", force=True).rows
    (decision,) = done.tasks
    assert (row.difference.first, row.difference.second) == (
        pytest.approx(decision.first),
        pytest.approx(decision.second),
    )
    assert row.difference.documents == done.asked < DOCUMENTS
    said = f"unfinished: {done.asked} and {done.asked} of {DOCUMENTS} and {DOCUMENTS} documents"
    assert len(row.unequal) == 1
    assert row.unequal[0].startswith(said)


def test_a_duel_that_asks_everything_leaves_finished_runs(
    questions: Folder, tmp_path: Path
) -> None:
    fight(questions, (60, 59), output_path=str(tmp_path / "out"), num_fewshot=1)
    for name, score in (("a", 0.6), ("b", 0.59)):
        (record,) = json.loads((tmp_path / "out" / name / "run.json").read_text())["runs"]
        assert record["finished"]
        (file,) = (tmp_path / "out" / name).glob("results_*.json")
        assert json.loads(file.read_text())["results"]["quiz"]["acc,none"] == pytest.approx(score)


def test_the_order_of_documents_depends_on_the_seed_alone() -> None:
    order = random_order({"x": 50, "y": 30}, 1)
    assert order == random_order({"x": 50, "y": 30}, 1) != random_order({"x": 50, "y": 30}, 2)
    assert sorted(by_task(order)["x"]) == list(range(50))
    assert by_task(order)["x"] != list(range(50))


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"tasks": ["demo_stories"]}, {}, "word_perplexity"),
        ({"tasks": ["single"]}, {}, "has only 1 document"),
        ({"tasks": ["percent"]}, {}, "between 0 and 1"),
        ({}, {"tasks": ["other_quiz"]}, "these are quiz and other_quiz"),
        ({}, {"num_fewshot": 1}, "these differ: num_fewshot"),
        ({"samples": {"quiz": [1]}}, {}, "samples cannot be used"),
        ({"output_path": "x.json"}, {}, "must be a folder"),
    ],
)
def test_a_duel_that_cannot_work_is_refused(
    questions: Folder, first: dict[str, Any], second: dict[str, Any], said: str
) -> None:
    write_task(questions, "single", "one.jsonl")
    questions.write("percent.py", "def score(doc, results):\n    return {'points': 100.0}\n")
    more = (
        "process_results: !function percent.score\n"
        "metric_list: [{metric: points, aggregation: mean, higher_is_better: true}]"
    )
    write_task(questions, "percent", more=more)
    with pytest.raises(EvalError, match=said):
        duel(
            settings_of(questions, "a", 60, **first),
            settings_of(questions, "b", 50, **{**first, **second}),
        )


@pytest.mark.parametrize("value", ["1.5", "float('nan')", None])
def test_a_late_score_that_is_out_of_range_ends_the_duel(
    questions: Folder, value: str | None
) -> None:
    _, late = random_order({"late": DOCUMENTS}, 1234)[100]
    result = "{}" if value is None else f"{{'points': {value}}}"
    questions.write(
        "late.py",
        "def score(doc, results):\n"
        f"    return {result} if doc['n'] == {late} else {{'points': 0.5}}\n",
    )
    more = (
        "process_results: !function late.score\n"
        "metric_list: [{metric: points, aggregation: mean, higher_is_better: true}]"
    )
    write_task(questions, "late", more=more)
    with pytest.raises(EvalError, match=f"document {late}: a duel needs a score between 0 and 1"):
        fight(questions, (60, 60), tasks=["late"])


def test_prompts_that_depend_on_the_model_are_refused(
    questions: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = iter([{"data": "x", "prompts": "y"}, {"data": "x", "prompts": "z"}])
    monkeypatch.setattr("lm_eval.duels.contestant.task_hashes", lambda *_: next(hashes))
    with pytest.raises(EvalError, match="its prompts depend on the model"):
        fight(questions, (60, 40))


def test_an_unknown_metric_is_refused_before_a_model_is_loaded(questions: Folder) -> None:
    with pytest.raises(EvalError, match="Did you mean 'acc'"):
        fight(questions, (60, 50), DuelSettings(metric="acd"))
    assert not ASKED


def test_the_demo_model_wins_against_a_noised_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noised = noised_copy(tmp_path / "noised")
    words = ["duel", "demo", f"demo,pretrained={noised}", "--tasks", "demo_lastword"]
    out = ["-o", str(tmp_path / "out")]
    assert main([*words, *out]) == 0
    shown = capsys.readouterr()
    assert "demo_lastword, acc: demo is better than noised, by " in shown.out
    assert "of 240 documents" in shown.err
    assert main([*words, *out, "--format", "json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "out" / "duel_demo_noised.json").read_text()) == content
    assert content["models"] == ["demo", "noised"]
    assert content["asked"] < content["documents"] == 240
    assert content["tasks"][0]["better"] == "demo"
    assert content["tasks"][0]["interval"][0] > 0


def test_models_of_a_duel_may_be_configuration_files(
    questions: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, skill in (("a", 80), ("b", 30)):
        questions.write(
            f"{name}.yml",
            f"model: skilled\nmodel_args: {{pretrained: {name}, skill: {skill}}}\n"
            f"tasks: [quiz]\ninclude_path: {questions.path}\n",
        )
    configs = [str(questions.path / "a.yml"), str(questions.path / "b.yml")]
    assert main(["duel", *configs]) == 0
    assert "quiz, acc: a is better than b" in capsys.readouterr().out
    assert main(["duel", "pretrained=a", "demo", "--tasks", "demo_choice"]) == 2
    assert "hf,pretrained=gpt2" in capsys.readouterr().err
