"""Tests studies: tasks under many settings, and what their scores depend on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lm_eval
from lm_eval.cli import main
from lm_eval.config.run import RunConfig
from lm_eval.errors import ConfigError, EvalError
from lm_eval.prompts.formats import SET_BY_FORMATS, apply_format
from lm_eval.stats.ranks import kendall_tau, ranks
from lm_eval.stats.variance_split import split_variance
from lm_eval.studies.analysis import cell, distributions, ranking, varied_factors
from lm_eval.studies.documents import draw_documents
from lm_eval.studies.grid import Grid, Setting
from lm_eval.studies.report import as_json, as_text
from lm_eval.studies.study import Score, Study, study
from lm_eval.tasks import TaskManager
from tests.conftest import Folder
from tests.skilled import ASKED, noised_copy


@pytest.fixture
def questions(folder: Folder) -> Folder:
    """Returns a folder with the task `quiz` of 20 documents; the answer is always yes."""
    ASKED.clear()
    folder.rows("questions.jsonl", [{"n": n} for n in range(20)])
    folder.write("quiz.yaml", task_file(folder, "quiz"))
    return folder


def task_file(folder: Folder, name: str, text: str = "quiz {{n}} ?") -> str:
    return (
        f"task: {name}\ndataset_path: json\n"
        f"dataset_kwargs: {{data_files: {{test: {folder.path / 'questions.jsonl'}}}}}\n"
        "test_split: test\nfewshot_split: test\noutput_type: multiple_choice\n"
        f'doc_to_text: "{text}"\ndoc_to_choice: ["yes", "no"]\ndoc_to_target: 0\n'
        "metric_list: [{metric: acc}]\n"
    )


def settings_of(folder: Folder, name: str, skill: int, **more: Any) -> RunConfig:
    given = {"tasks": ["quiz"], "include_path": [str(folder.path)], **more}
    return RunConfig(model="skilled", model_args={"pretrained": name, "skill": skill}, **given)


def test_kendalls_tau_counts_pairs_in_the_same_order() -> None:
    assert kendall_tau([1, 2, 3], [10, 20, 30]) == 1
    assert kendall_tau([1, 2, 3], [3, 2, 1]) == -1
    assert kendall_tau([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 3)
    assert math.isnan(kendall_tau([1, 1], [1, 2]))
    assert math.isnan(kendall_tau([1], [2]))
    assert ranks([0.5, 0.9, 0.5]) == [2, 1, 2]
    assert ranks([0.5, 0.9, 0.5], higher_is_better=False) == [1, 3, 1]


def test_kendalls_tau_agrees_with_scipy() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(1)
    for _ in range(50):
        one, two = generator.integers(0, 6, (2, 8)).tolist()
        assert kendall_tau(one, two) == pytest.approx(scipy_stats.kendalltau(one, two).statistic)


def test_the_variance_is_split_into_its_known_parts() -> None:
    generator = np.random.default_rng(2)
    found = []
    for _ in range(300):
        prompts = generator.normal(0, 0.05, 6)
        scores = 0.5 + prompts[:, None] + generator.normal(0, 0.02, (6, 4))
        found.append(split_variance(scores.tolist(), [0.03, None, math.nan]))
    assert np.mean([one.prompts for one in found]) == pytest.approx(0.05**2, rel=0.1)
    assert np.mean([one.seeds for one in found]) == pytest.approx(0.02**2, rel=0.05)
    assert found[0].documents == pytest.approx(0.03**2)
    alone = split_variance([[0.5]])
    assert [math.isnan(v) for v in (alone.documents, alone.prompts, alone.seeds)] == [True] * 3


def test_a_grid_contains_every_combination_once() -> None:
    grid = Grid(["mcqa", "cloze"], num_fewshot=[0, 5], seeds=[1, 2, 3])
    names = [setting.name for setting in grid.settings(False)]
    assert len(names) == len(set(names)) == 2 * (1 + 3)  # without examples, seeds change nothing
    assert "cloze_5-shot_seed3" in names
    assert len(grid.settings(True)) == 2 * 2 * 3
    assert [setting.name for setting in Grid().settings(False)] == ["default"]


def test_rotated_choices_keep_their_gold_answer() -> None:
    manager = TaskManager()
    (plain, turned) = (
        next(iter(manager.load(f"demo_choice@mcqa{mark}")["tasks"].values())) for mark in ("", "~1")
    )
    hybrid = next(iter(manager.load("demo_choice@hybrid~3")["tasks"].values()))
    for doc in list(plain.eval_docs)[:5]:
        choices = doc["choices"]
        lines = [f"{letter}. {choice}" for letter, choice in zip("ABCD", choices, strict=False)]
        assert "\n".join(lines) in plain.doc_to_text(doc)
        moved = [*choices[1:], choices[0]]
        lines = [f"{letter}. {choice}" for letter, choice in zip("ABCD", moved, strict=False)]
        assert "\n".join(lines) in turned.doc_to_text(doc)
        gold = choices[plain.doc_to_target(doc)]
        assert moved[turned.doc_to_target(doc)] == gold
        assert hybrid.doc_to_choice(doc)[hybrid.doc_to_target(doc)] == gold
    with pytest.raises(ConfigError, match="write a number"):
        manager.load("demo_choice@mcqa~x")


def test_only_formats_that_show_choices_are_rotated() -> None:
    names = [s.name for s in Grid(["mcqa", "cloze"], rotations=3).settings(False)]
    assert names == ["mcqa", "mcqa_rotated1", "mcqa_rotated2", "cloze"]
    done = study(
        [RunConfig(model="dummy", tasks=["demo_choice"], limit=4)], Grid(["mcqa"], rotations=2)
    )
    assert varied_factors(done) == {"rotation": ["0", "1"]}
    with pytest.raises(ConfigError, match="only in formats that show them"):
        Grid(["cloze"], rotations=2)


def test_every_score_of_a_study_is_that_of_a_run(tmp_path: Path) -> None:
    noised = noised_copy(tmp_path / "noised")
    models = [
        RunConfig(model="demo", model_args=arguments, tasks=["demo_choice"], limit=8)
        for arguments in ({}, {"pretrained": str(noised)})
    ]
    grid = Grid(["mcqa", "cloze"], num_fewshot=[1], seeds=[2])
    done = study(models, grid, output_path=str(tmp_path / "out"))
    assert done.models == ["demo", "noised"]
    assert len(done.scores) == 2 * 2
    chosen = next(
        s for s in done.of("demo_choice", "demo") if s.setting.name == "cloze_1-shot_seed2"
    )
    plain = lm_eval.simple_evaluate(
        "demo",
        tasks=["demo_choice@cloze"],
        num_fewshot=1,
        limit=8,
        **dict.fromkeys(("random_seed", "numpy_random_seed", "torch_random_seed"), 2),
        fewshot_random_seed=2,
    )
    assert plain is not None
    row = plain["results"]["demo_choice@cloze"]
    assert (chosen.value, chosen.stderr) == (row["acc,none"], row["acc_stderr,none"])
    folders = {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()}
    assert folders == {score.setting.name for score in done.scores}
    assert (tmp_path / "out" / "cloze_1-shot_seed2" / "demo" / "run.json").is_file()
    text = as_text(done)
    assert "mcqa (MMLU-style)" in text
    assert "Best of 2 settings" in text


def test_a_study_that_is_started_again_asks_nothing(questions: Folder, tmp_path: Path) -> None:
    grid = Grid(num_fewshot=[0, 1], seeds=[1, 2])
    models = [settings_of(questions, "a", 70), settings_of(questions, "b", 40)]
    done = study(models, grid, output_path=str(tmp_path / "out"))
    # Prompts that two settings have in common were asked once; there are two choices.
    assert all(ASKED.count(one) == 2 for one in set(ASKED))
    ASKED.clear()
    assert study(models, grid, output_path=str(tmp_path / "out")) == done
    assert not ASKED
    found = ranking(done, "quiz")
    assert found is not None
    assert found.rank_ranges == {"a": (1, 1), "b": (2, 2)}
    assert found.mean_tau == found.lowest_tau == 1
    assert [d.variances.prompts for d in distributions(done)] == [0, 0]  # it reads the last line


def test_all_settings_are_asked_the_same_random_documents(
    questions: Folder, tmp_path: Path
) -> None:
    prompts = {"short": {"doc_to_text": "a {{n}} ?"}, "long": {"doc_to_text": "b {{n}} ?"}}
    study([settings_of(questions, "a", 60, sample=7)], Grid(prompts=prompts))
    by_prompt = {
        first: {prompt.split()[1] for _, prompt in ASKED if prompt.startswith(first)}
        for first in "ab"
    }
    assert by_prompt["a"] == by_prompt["b"]
    assert len(by_prompt["a"]) == 7
    models = [RunConfig(model="dummy", tasks=["demo_choice"], sample=5)]
    study(models, Grid(["mcqa", "cloze"]), output_path=str(tmp_path / "out"))
    chosen = [
        json.loads((tmp_path / "out" / form / "dummy" / "run.json").read_text())["runs"][0]
        for form in ("mcqa", "cloze")
    ]
    numbers = [list(record["settings"]["samples"].values()) for record in chosen]
    assert numbers[0] == numbers[1]  # though the names of the tasks differ
    assert len(numbers[0][0]) == 5


def test_prompts_from_a_file_replace_keys_of_the_task(questions: Folder) -> None:
    file = questions.write(
        "prompts.yml",
        'short: {doc_to_text: "quiz {{n}} ?"}\nshifted: {doc_to_text: "quiz {{n + 50}} ?"}\n',
    )
    words = ["study", "--model", "skilled,pretrained=a,skill=50", "--tasks", "quiz"]
    out = questions.path / "out"
    words += ["--include_path", str(questions.path), "--prompts", str(file), "-o", str(out)]
    assert main(words) == 0
    content = json.loads((out / "study.json").read_text())
    values = {score["setting"]["prompt"]: score["value"] for score in content["scores"]}
    assert set(values) == {"short", "shifted"}
    asked = {prompt for _, prompt in ASKED}
    assert {"quiz 0 ?", "quiz 50 ?", "quiz 69 ?"} <= asked


def test_every_prompt_is_asked_in_every_format(questions: Folder, tmp_path: Path) -> None:
    prompts = {"plain": {}, "polite": {"doc_to_text": "Please: quiz {{n}} ?", "description": "Hi "}}
    run = RunConfig("dummy", tasks=["quiz"], include_path=[str(questions.path)], limit=1)
    grid = Grid(["default", "mcqa", "cloze"], prompts)
    asked = {}
    for setting in grid.settings(False):
        loaded = TaskManager(include_path=str(questions.path)).load(
            grid.run_of(run, setting, None).task_list
        )
        (task,) = loaded["tasks"].values()
        task.build_all_requests(limit=1)
        asked[setting.format, setting.prompt] = task.instances[0].args[0]
    assert asked == {
        ("default", "plain"): "quiz 0 ?",
        ("mcqa", "plain"): "Question: quiz 0 ?\nA. yes\nB. no\nAnswer:",
        ("cloze", "plain"): "Question: quiz 0 ?\nAnswer:",
        ("default", "polite"): "Hi Please: quiz 0 ?",
        ("mcqa", "polite"): "Hi Question: Please: quiz 0 ?\nA. yes\nB. no\nAnswer:",
        ("cloze", "polite"): "Hi Question: Please: quiz 0 ?\nAnswer:",
    }
    done = study([run], grid, output_path=str(tmp_path))
    assert varied_factors(done) == {
        "format": ["default", "mcqa", "cloze"],
        "prompt": ["plain", "polite"],
    }
    assert {score.task for score in done.scores} == {"quiz"}
    assert (tmp_path / "cloze_polite" / "dummy" / "run.json").is_file()


def test_settings_have_different_folders_below_that_of_the_study() -> None:
    names = [s.name for s in Grid(prompts={"..": {}, "a b": {}, "c/d": {}}).settings(False)]
    assert names == ["__", "a_b", "c_d"]
    for prompts in ({"a b": {}, "a_b": {}}, {"default": {}, "cloze": {}}):
        with pytest.raises(ConfigError, match=r"would both be called '(a_b|cloze)'. Rename"):
            Grid(("default", "cloze"), prompts).settings(False)


def test_a_range_of_too_many_seeds_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["study", "--model", "demo", "--tasks", "demo_choice", "--seeds", "1..100000000000"])
    assert stop.value.code == 2
    assert "are more than 10,000 numbers" in capsys.readouterr().err


def test_studies_without_a_model_and_seeds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(SystemExit):
        main(["study", "--model", "demo", "--tasks", "demo_choice", "--seeds", "5..1"])
    with pytest.raises(EvalError, match="at least one"):
        study([], Grid())


def test_prompts_that_a_format_would_ignore_are_refused() -> None:
    prompts = {"odd": {"target_delimiter": "\n"}}
    Grid(prompts=prompts)
    with pytest.raises(ConfigError, match="'odd' sets target_delimiter, which a format sets"):
        Grid(["mcqa"], prompts)


def test_all_formats_set_the_keys_that_prompts_must_not_replace() -> None:
    named = {"doc_to_text": "question", "doc_to_choice": "choices", "doc_to_target": "answer"}
    for name in ("mcqa", "cloze", "hybrid", "generate", "cot"):
        assert set(SET_BY_FORMATS) <= set(apply_format(dict(named), name))


def test_a_group_of_styles_is_a_task_in_several_formats(questions: Folder) -> None:
    members = ""
    for style in ("cloze", "mmlu_style", "hybrid"):
        questions.write(
            f"{style}.yaml", task_file(questions, f"own_{style}", f"{style} {{{{n}}}} ?")
        )
        members += (
            f"  - group: pub_{style}\n    task: [own_{style}]\n"
            "    aggregate_metric_list: [{metric: acc}]\n"
        )
    questions.write("group.yaml", f"group: pub_styles\ntask:\n{members}")
    done = study([settings_of(questions, "a", 60, tasks=["pub_styles"])], Grid())
    assert done.tasks == ["pub"]
    assert varied_factors(done) == {"format": ["cloze", "mcqa", "hybrid"]}
    shown = cell(done, "pub", "a", "format", "mcqa")
    assert shown is not None
    assert shown.interval is not None


def test_ranks_that_change_with_the_setting_are_reported() -> None:
    scores = [
        Score(model, "t", "acc,none", Setting(form), value, 0.01, True)
        for form, values in (("mcqa", (0.9, 0.8, 0.1)), ("cloze", (0.5, 0.6, 0.7)))
        for model, value in zip("abc", values, strict=True)
    ]
    done = Study(["a", "b", "c"], scores)
    found = ranking(done, "t")
    assert found is not None
    assert found.lowest_tau == -1
    assert found.rank_ranges == {"a": (1, 3), "b": (2, 2), "c": (1, 3)}
    assert found.winners == {"a": 1, "b": 0, "c": 1}
    (first, *_) = distributions(done)
    assert (first.mean, first.lowest.name, first.highest.name) == (0.7, "cloze", "mcqa")
    assert first.quantiles == [0.5, pytest.approx(0.6), 0.7, pytest.approx(0.8), 0.9]
    text = as_text(done)
    assert "a 1 to 3, b 2, c 1 to 3" in text
    assert json.loads(as_json(done))["rankings"][0]["mean_tau"] == -1
    shown = cell(done, "t", "a", "format", "cloze")
    assert shown is not None
    assert shown.interval == pytest.approx((0.5 - 0.0196, 0.5 + 0.0196), abs=1e-5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tasks", "quiz"], "several settings or models"),
        (["--tasks", "quiz", "--formats", "mcqa,clozed"], "clozed"),
        (["--tasks", "demo_stories", "--formats", "mcqa,cloze"], "doc_to_choice"),
        (["--tasks", "quiz", "--seeds", "1,1"], "twice"),
        (["--tasks", "quiz", "--num_fewshot", "0,1", "--metric", "f1"], "no metric 'f1'"),
        (["--tasks", "quiz", "--prompts", "missing.yml"], "missing.yml"),
    ],
)
def test_a_study_that_cannot_work_is_refused(
    questions: Folder, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    model = ["--model", "skilled,pretrained=a,skill=50", "--include_path", str(questions.path)]
    assert main(["study", *model, *words]) == 2
    assert said in capsys.readouterr().err


def test_a_group_sample_is_divided_among_the_tasks_of_the_group(folder: Folder) -> None:
    sizes = {"small": 3, "middle": 20, "large": 40}
    for name, size in sizes.items():
        folder.rows(f"{name}.jsonl", [{"n": n} for n in range(size)])
        text = task_file(folder, name).replace("questions.jsonl", f"{name}.jsonl")
        folder.write(f"{name}.yaml", text)
    folder.write(
        "all.yaml",
        "group: all_sizes\ntask: [small, middle, large]\n"
        "aggregate_metric_list: [{metric: acc, weight_by_size: true}]\n",
    )
    folder.rows("questions.jsonl", [{"n": n} for n in range(20)])
    folder.write("quiz.yaml", task_file(folder, "quiz"))
    run = settings_of(folder, "a", 10, tasks=["all_sizes", "quiz"])
    manager = TaskManager(include_path=str(folder.path))
    drawn = draw_documents(run, manager, 14)
    # 2 documents at least; the others share 12 as 20 to 40. Quiz is in no group.
    assert {name: len(numbers) for name, numbers in drawn.items()} == {
        "small": 2,
        "middle": 4,
        "large": 8,
        "quiz": 14,
    }
    assert drawn == draw_documents(run, manager, 14)
    everything = draw_documents(run, manager, 1000)
    assert {name: len(numbers) for name, numbers in everything.items()} == sizes | {"quiz": 20}
    done = study([run], Grid(num_fewshot=[0, 1]), group_sample=14)
    assert {score.task for score in done.scores} == {"all_sizes", "quiz"}
    assert all(score.stderr is not None for score in done.scores)


@pytest.mark.parametrize(
    ("more", "count", "said"),
    [
        ({}, 0, "--group_sample must be 1 or more, not 0"),
        ({"limit": 5}, 10, "give --group_sample or --limit, not both"),
        ({"sample": 5}, 10, "give --group_sample or --sample, not both"),
    ],
)
def test_group_samples_that_cannot_be_drawn_are_refused(
    questions: Folder, more: dict[str, Any], count: int, said: str
) -> None:
    run = settings_of(questions, "a", 10, **more)
    with pytest.raises(ConfigError, match=said):
        study([run], Grid(num_fewshot=[0, 1]), group_sample=count)
