"""Tests `--check_integrity` and `validate`, which check tasks before a model is used."""

from __future__ import annotations

from typing import Any

import pytest

import lm_eval
from lm_eval.errors import ConfigError
from lm_eval.integrity import problems_in_task
from lm_eval.models.scripted import ScriptedLM
from lm_eval.tasks import TaskManager
from tests.conftest import Command, Folder


def problems(folder: Folder, name: str = "colours") -> list[str]:
    tasks = TaskManager(include_path=folder.path).load(name)["tasks"]
    return [problem for task in tasks.values() for problem in problems_in_task(task)]


def change(folder: Folder, old: str, new: str) -> None:
    file = folder.path / "colours.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def test_sound_tasks_of_every_kind_pass(colours: Folder) -> None:
    assert problems(colours) == []
    assert problems(colours, "demo") == []
    change(colours, "  - metric: acc\n", "  - metric: acc\n  - metric: acc_norm\n")
    change(colours, "doc_to_target: answer", "doc_to_target: '{{colours[answer]}}'")
    assert problems(colours) == []


def test_prompts_that_differ_each_time_are_found(colours: Folder) -> None:
    colours.write(
        "text.py",
        "import random, itertools\n"
        "seeded = lambda doc: f'{random.random()}'\n"
        "number = itertools.count()\n"
        "unseeded = lambda doc: f'{next(number)}'\n",
    )
    change(colours, '"Of what colour is {{thing}}?"', "!function text.seeded")
    assert problems(colours) == []  # the run's seed decides
    change(colours, "text.seeded", "text.unseeded")
    (problem,) = problems(colours)
    assert "'colours': its prompts differ when they are built a second time" in problem


def test_scoring_that_would_fail_after_a_night_is_found_before(colours: Folder) -> None:
    colours.write(
        "own.py",
        "def process(doc, results):\n    return {'acc': results[2][0]}\n"
        "def whole(items):\n    return items['all']\n"
        "def none_right(doc, results):\n    return {'acc': 0}\n",
    )
    change(colours, "metric_list:", "process_results: !function own.process\nmetric_list:")
    (problem,) = problems(colours)
    assert "'colours', document 0: scoring it failed: IndexError" in problem
    change(colours, "own.process", "own.none_right")
    assert problems(colours) == []  # how it scores is the task's own affair
    change(colours, "metric: acc\n", "metric: acc\n    aggregation: !function own.whole\n")
    (problem,) = problems(colours)
    assert "TypeError" in problem


def test_a_gold_answer_that_is_no_choice_is_found(colours: Folder) -> None:
    change(colours, "doc_to_target: answer", "doc_to_target: '{{colours[0] | upper}}'")
    (problem,) = problems(colours)
    assert (
        "document 0: the gold answer is none of the choices (6 of the first 20 documents)"
        in problem
    )


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("doc_to_text: 'It is {{hint}}.'", "doc_to_text contains the word None (hint is None"),
        ("doc_to_text: 'One of {{hints}}.'", "doc_to_text contains the word None"),
        ("doc_to_target: '{{hint}}'", "doc_to_target contains the word None (hint is None"),
        ("doc_to_target: hint", "doc_to_target gives None (column 'hint')"),
        ("doc_to_target: hints", "doc_to_target gives ['a', None] (column 'hints')"),
        ("description: '{{hint}}: '", "description contains the word None"),
    ],
)
def test_none_in_a_prompt_or_target_is_found(
    lm_eval_command: Command, folder: Folder, field: str, said: str
) -> None:
    rows = [{"q": "?", "a": "!", "hint": "h", "hints": ["a", "b"]} for _ in range(4)]
    rows[2] |= {"hint": None, "hints": ["a", None]}
    folder.rows("asked.jsonl", rows)
    key, fields = field.partition(":")[0], {"doc_to_text": "q", "doc_to_target": "a"}
    others = "".join(f"{name}: {column}\n" for name, column in fields.items() if name != key)
    text = (
        "task: asked\ndataset_path: json\ntest_split: test\n"
        "dataset_kwargs: {data_files: {test: asked.jsonl}}\n"
    )
    folder.write("asked.yaml", f"{text}{others}")
    if key != "description":
        folder.write("asked.yaml", f"{text}doc_to_text: q\ndoc_to_target: a\n")
    assert problems(folder, "asked") == []
    file = folder.write("asked.yaml", f"{text}{others}{field}\n")
    done = lm_eval_command("validate", "--tasks", file)
    assert done.returncode == 1, done.stdout
    assert f"task 'asked', document 2: {said}" in done.stdout
    assert "(1 of the first 4 documents)" in done.stdout


def test_none_in_an_example_is_found(folder: Folder) -> None:
    folder.rows("rows.jsonl", [{"q": "?", "a": "!"}, {"q": "?", "a": None}])
    folder.rows("test.jsonl", [{"q": "?", "a": "!"}])
    folder.write(
        "asked.yaml",
        "task: asked\ndataset_path: json\ntest_split: test\nfewshot_split: train\n"
        "dataset_kwargs: {data_files: {test: test.jsonl, train: rows.jsonl}}\n"
        "doc_to_text: q\ndoc_to_target: '{{a}}'\nnum_fewshot: 1\n",
    )
    (problem,) = problems(folder, "asked")
    assert "few-shot document 1: doc_to_target contains the word None" in problem


def test_a_class_with_methods_of_its_own_is_tried_too(folder: Folder) -> None:
    folder.rows("rows.jsonl", [{"q": "?", "a": "!", "hint": None}])
    folder.write(
        "code.py",
        "from lm_eval.api.task import ConfigurableTask\n"
        "class Own(ConfigurableTask):\n"
        "    def doc_to_text(self, doc):\n"
        "        return 'asked: ' + doc['q']\n",
    )
    folder.write(
        "asked.yaml",
        "task: asked\ndataset_path: json\ntest_split: test\nclass: !function code.Own\n"
        "dataset_kwargs: {data_files: {test: rows.jsonl}}\n"
        "doc_to_text: '{{hint}}'\ndoc_to_target: a\n",
    )
    assert problems(folder, "asked") == []


def test_code_that_fails_on_an_example_is_found(folder: Folder) -> None:
    folder.rows("rows.jsonl", [{"q": "?", "a": "!"}, {"q": "?", "a": ""}])
    folder.rows("test.jsonl", [{"q": "?", "a": "!"}])
    folder.write("code.py", "def answer(doc):\n    return {'!': 'yes'}[doc['a']]\n")
    folder.write(
        "asked.yaml",
        "task: asked\ndataset_path: json\ntest_split: test\nfewshot_split: train\n"
        "dataset_kwargs: {data_files: {test: test.jsonl, train: rows.jsonl}}\n"
        "fewshot_config: {sampler: first_n}\n"
        "doc_to_text: q\ndoc_to_target: !function code.answer\nnum_fewshot: 1\n",
    )
    (problem,) = problems(folder, "asked")
    assert "few-shot document 1: doc_to_target fails: KeyError: '' (code.py:2)" in problem


def test_a_misspelt_generation_setting_is_a_problem(
    lm_eval_command: Command, colours: Folder
) -> None:
    change(colours, "metric_list:", "generation_kwargs:\n  temprature: 0.5\nmetric_list:")
    for rest in ((), ("--no-build",)):
        done = lm_eval_command("validate", "--tasks", colours.path / "colours.yaml", *rest)
        assert done.returncode == 1, done.stdout
        assert "colours.yaml:" in done.stdout
        assert "unknown generation setting 'temprature'. Did you mean 'temperature'?" in done.stdout


def test_a_metric_by_which_the_right_answer_is_wrong_is_found(
    colours: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval.metrics import documents

    monkeypatch.setattr(documents.Choices, "hits", lambda docs, said: [0.0] * len(docs.golds))
    (problem,) = problems(colours)
    assert "acc counts its gold answer as wrong" in problem


def test_nothing_is_asked_of_a_task_that_is_not_sound(colours: Folder) -> None:
    asked: list[str] = []

    def painter(context: str, continuation: str) -> tuple[float, bool]:
        asked.append(context)
        return -float(len(continuation)), False

    def evaluated(check: bool) -> Any:
        lm = ScriptedLM(loglikelihood=painter)
        manager = TaskManager(include_path=colours.path)
        return lm_eval.simple_evaluate(
            lm, tasks=["colours"], task_manager=manager, num_fewshot=1, check_integrity=check
        )

    change(colours, "test_split: test", "test_split: test\nfewshot_split: test")
    before = evaluated(check=False)
    prompts = list(asked)
    after = evaluated(check=True)
    assert asked == prompts * 2  # the check has left no trace in what is asked
    assert after["hashes"] == before["hashes"]
    change(colours, "version: 1.0", "version: 1.0\ndoc_to_tex: x")
    change(colours, "doc_to_target: answer", "doc_to_target: '{{colours[0] | upper}}'")
    with pytest.raises(
        ConfigError, match=r"2 problems, so the model was not run: .*doc_to_tex.*\| "
    ):
        evaluated(check=True)
    assert asked == prompts * 2


def test_the_command_takes_the_option(lm_eval_command: Command, colours: Folder) -> None:
    words = ("run", "--model", "dummy", "--tasks", colours.path / "colours.yaml")
    done = lm_eval_command(*words, "--check_integrity")
    assert done.returncode == 0
    assert "check_integrity: colours: no problems found." in done.stderr
    colours.write("own.py", "def process(doc, results):\n    raise KeyError('x')\n")
    change(colours, "metric_list:", "process_results: !function own.process\nmetric_list:")
    for word in ("run", "validate"):
        rest = ("--check_integrity",) if word == "run" else ()
        model = ("--model", "dummy") if word == "run" else ()
        done = lm_eval_command(word, *model, "--tasks", colours.path / "colours.yaml", *rest)
        assert done.returncode == (2 if word == "run" else 1)
        assert "KeyError: 'x' (own.py:2)" in done.stderr + done.stdout
