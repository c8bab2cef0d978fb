"""Tests that every YAML example of the guides loads and does what the text describes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.api.group import Group
from lm_eval.api.task import Task
from lm_eval.config.group import AggMetricConfig, GroupConfig
from lm_eval.errors import ConfigError, UnknownNameError
from lm_eval.models.scripted import ScriptedLM
from lm_eval.tasks import TaskManager
from tests.conftest import Folder

COMMON = """\
dataset_path: json
dataset_kwargs: {data_files: {test: questions.jsonl}}
test_split: test
"""


def stand_in(folder: Folder, name: str, count: int = 2, extra: str = "") -> None:
    """Writes a task with `count` documents, whose first choice is always correct."""
    folder.rows(
        f"{name}/questions.jsonl",
        [{"question": f"{name} {i}?", "choices": ["yes", "no"], "answer": 0} for i in range(count)],
    )
    folder.write(
        f"{name}/{name}.yaml",
        f"task: {name}\n{COMMON}output_type: multiple_choice\ndoc_to_text: question\n"
        f"doc_to_choice: choices\ndoc_to_target: answer\nmetadata: {{version: 1.0}}\n{extra}",
    )


@pytest.fixture
def library(folder: Folder) -> Folder:
    """Writes small versions of the tasks that the guides mention."""
    for name, count in (("cb", 1), ("anli_r1", 2), ("rte", 5), ("hellaswag", 2)):
        stand_in(folder, name, count)
    for subject in ("abstract_algebra", "anatomy"):
        stand_in(folder, f"mmlu_{subject}", extra="tag: mmlu_tasks\n")
    folder.write(
        "_mmlu.yaml",
        "group: mmlu\ntask: [mmlu_tasks]\naggregate_metric_list: {metric: acc}\n",
    )
    return folder


def load(folder: Folder, *specs: Any) -> tuple[dict[str, Task], dict[str, Group]]:
    loaded = TaskManager(include_path=folder.path, include_defaults=False).load(list(specs))
    return loaded["tasks"], loaded["groups"]


def evaluate(folder: Folder, *specs: Any, right: str = "cb rte") -> Any:
    """Evaluates with a model that is correct on some tasks only."""

    def judge(context: str, continuation: str) -> tuple[float, bool]:
        knows = context.split(" ")[0] in right.split()
        return (0.0 if (continuation.strip() == "yes") == knows else -1.0, False)

    manager = TaskManager(include_path=folder.path, include_defaults=False)
    lm = ScriptedLM(loglikelihood=judge)
    results = lm_eval.simple_evaluate(lm, tasks=list(specs), task_manager=manager)
    assert results is not None
    return results


NLI = """\
group: nli_tasks
task:
  - cb
  - anli_r1
  - rte
"""


def test_a_basic_group_holds_its_tasks(library: Folder) -> None:
    library.write("_nli.yaml", NLI + "metadata:\n  version: 1.0\n")
    tasks, groups = load(library, "nli_tasks")
    assert list(tasks) == ["cb", "anli_r1", "rte"]
    assert groups["nli_tasks"].child_names == ["cb", "anli_r1", "rte"]
    results = evaluate(library, "nli_tasks")
    assert results["group_subtasks"] == {"nli_tasks": ["cb", "anli_r1", "rte"]}
    assert "groups" not in results  # a header row, without a score
    assert results["versions"]["nli_tasks"] == "1.0"


@pytest.mark.parametrize(
    ("weight", "expected"), [("true", (1 + 0 * 2 + 5) / 8), ("false", (1 + 0 + 1) / 3)]
)
def test_groups_average_over_documents_or_over_tasks(
    library: Folder, weight: str, expected: float
) -> None:
    library.write(
        "_nli.yaml",
        NLI
        + f"""\
aggregate_metric_list:
  - metric: acc
    aggregation: mean
    weight_by_size: {weight}
metadata:
  version: 1.0
""",
    )
    row = evaluate(library, "nli_tasks")["groups"]["nli_tasks"]
    assert row["acc,none"] == pytest.approx(expected)
    assert row["sample_len"] == 8


def test_overrides_reach_the_children_of_a_group(library: Folder) -> None:
    library.write(
        "_mine.yaml",
        """\
group: my_benchmark
task:
  - task: mmlu
    num_fewshot: 5          # Override few-shot count for all MMLU subtasks
  - task: hellaswag
    num_fewshot: 0
""",
    )
    tasks, groups = load(library, "my_benchmark")
    shots = {name: task.config.num_fewshot for name, task in tasks.items()}
    assert shots == {"mmlu_abstract_algebra": 5, "mmlu_anatomy": 5, "hellaswag": 0}
    assert groups["my_benchmark"].child_names == ["mmlu", "hellaswag"]


def test_overrides_reach_grandchildren(library: Folder) -> None:
    library.write("_outer.yaml", "group: outer\ntask: [{task: inner, repeats: 3}]\n")
    library.write("_inner.yaml", "group: inner\ntask: [mmlu]\n")
    tasks, _ = load(library, "outer")
    assert [task.config.repeats for task in tasks.values()] == [3, 3]


NESTED = """\
group: nli_and_mmlu
task:
  - group: nli_tasks
    task:
      - cb
      - anli_r1
      - rte
    aggregate_metric_list:
      - metric: acc
        aggregation: mean
        higher_is_better: true

  - task: mmlu
    num_fewshot: 2
"""


def test_groups_can_be_written_inside_groups(library: Folder) -> None:
    library.write("_both.yaml", NESTED)
    tasks, groups = load(library, "nli_and_mmlu")
    assert set(groups) == {"nli_and_mmlu", "nli_and_mmlu::nli_tasks", "mmlu"}
    assert groups["nli_and_mmlu"].child_names == ["nli_and_mmlu::nli_tasks", "mmlu"]
    assert tasks["mmlu_anatomy"].config.num_fewshot == 2
    assert tasks["cb"].config.num_fewshot is None


def test_python_classes_can_be_members(library: Folder) -> None:
    library.write(
        "scrolls/task.py",
        """\
from lm_eval.api.task import MultipleChoiceTask

class Base(MultipleChoiceTask):
    def download(self, *args, **kwargs): self.dataset = {}
    def has_training_docs(self): return False
    def has_validation_docs(self): return False
    def has_test_docs(self): return True
    def test_docs(self): return [{"choices": ["yes", "no"], "gold": 0}]
    def doc_to_text(self, doc): return type(self).__name__
class Qasper(Base): pass
class QuALITY(Base): pass
""",
    )
    library.write(
        "scrolls/scrolls.yaml",
        """\
group: scrolls
task:
  - task: scrolls_qasper
    class: !function task.Qasper
  - task: scrolls_quality
    class: !function task.QuALITY
""",
    )
    tasks, _ = load(library, "scrolls")
    assert list(tasks) == ["scrolls::scrolls_qasper", "scrolls::scrolls_quality"]
    assert [type(task).__name__ for task in tasks.values()] == ["Qasper", "QuALITY"]
    results = evaluate(library, "scrolls", right="Qasper")
    assert results["results"]["scrolls::scrolls_qasper"]["acc,none"] == 1.0
    assert results["results"]["scrolls::scrolls_quality"]["acc,none"] == 0.0


def test_a_path_leads_into_a_group(library: Folder) -> None:
    library.write("_bench.yaml", NESTED.replace("nli_and_mmlu", "my_benchmark"))
    tasks, groups = load(library, "mmlu::mmlu_anatomy")
    assert (list(tasks), groups) == (["mmlu_anatomy"], {})
    assert list(load(library, "my_benchmark::nli_tasks::cb")[0]) == ["cb"]
    tasks, groups = load(library, "my_benchmark::nli_tasks")
    assert (set(tasks), set(groups)) == ({"cb", "anli_r1", "rte"}, {"my_benchmark::nli_tasks"})
    deep = load(library, "my_benchmark::mmlu::mmlu_anatomy")[0]["mmlu_anatomy"]
    assert deep.config.num_fewshot == 2  # the group's override is on the way


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("mmlu::mmlu_anatmy", "no member 'mmlu_anatmy'"),
        ("nowhere::cb", "no task, group or tag 'nowhere::cb'"),
        ("cb::rte", "no task, group or tag 'cb::rte'"),
    ],
)
def test_a_path_that_leads_nowhere_is_explained(library: Folder, path: str, said: str) -> None:
    with pytest.raises(UnknownNameError, match=said):
        load(library, path)


INLINE = """\
    dataset_path: json
    dataset_kwargs: {data_files: {test: cb/questions.jsonl}}
    test_split: test
    doc_to_text: question
    doc_to_target: answer
    doc_to_choice: choices
"""


def test_formats_apply_in_groups(library: Folder) -> None:
    library.write(
        "_bench.yaml",
        f"group: my_benchmark\ntask:\n  - task: subtask_a@mcqa\n{INLINE}"
        f"  - task: subtask_b\n    formats: generate\n{INLINE}".replace(
            "cb/", f"{library.path}/cb/"
        ),
    )
    tasks, _ = load(library, "my_benchmark")
    lettered, generated = tasks.values()
    doc = lettered.eval_docs[0]
    assert lettered.task_name == "my_benchmark::subtask_a@mcqa"
    assert lettered.OUTPUT_TYPE == "multiple_choice"
    assert lettered.doc_to_text(doc) == "Question: cb 0?\nA. yes\nB. no\nAnswer:"
    assert lettered.doc_to_choice(doc) == ["A", "B"]  # type: ignore[attr-defined]
    assert lettered.doc_to_target(doc) == 0
    assert generated.task_name == "my_benchmark::subtask_b"
    assert generated.OUTPUT_TYPE == "generate_until"
    assert generated.doc_to_target(doc) == "A"


def test_aliases_are_shown_and_names_stay(library: Folder) -> None:
    library.write(
        "_mmlu.yaml",
        """\
group: mmlu
group_alias: "MMLU"
task:
  - task: mmlu_abstract_algebra
    task_alias: "Abstract Algebra"
  - task: mmlu_anatomy
    task_alias: "Anatomy"
""",
    )
    rows = evaluate(library, "mmlu")["results"]
    assert {name: row["alias"] for name, row in rows.items()} == {
        "mmlu": "MMLU",
        "mmlu_abstract_algebra": "Abstract Algebra",
        "mmlu_anatomy": "Anatomy",
    }


# -- document 002 -----------------------------------------------------------------------------


def test_an_aggregate_entry_is_made_regular() -> None:
    assert AggMetricConfig("acc") == AggMetricConfig("acc", None, "mean", True)
    assert AggMetricConfig("acc", filter_list="none").filter_list == ["none"]  # type: ignore[arg-type]
    assert callable(AggMetricConfig("acc", aggregation=max).aggregation)
    with pytest.raises(ValueError, match="neither 'mean' nor a function"):
        AggMetricConfig("acc", aggregation="median")


def test_a_group_file_is_made_regular() -> None:
    group = GroupConfig("g", task="cb", aggregate_metric_list={"metric": "acc"})  # type: ignore[arg-type]
    assert group.task == ["cb"]
    assert group.aggregate_metric_list == [AggMetricConfig("acc")]
    metric = {"metric": "acc", "filter_list": None, "aggregation": "mean", "weight_by_size": True}
    assert group.to_dict() == {
        "group": "g",
        "group_alias": None,
        "task": ["cb"],
        "aggregate_metric_list": [metric],
        "metadata": None,
    }


def test_the_reference_example_loads(library: Folder) -> None:
    stand_in(library, "mmlu_biology")
    stand_in(library, "mmlu_elementary_chemistry")
    stand_in(library, "some_other_task")
    library.write(
        "_mmlu.yaml",
        """\
group: mmlu
group_alias: MMLU
task:
  - mmlu_anatomy
  - mmlu_biology
  - group: mmlu_chemistry
    task:
      - mmlu_elementary_chemistry
  - task: some_other_task
aggregate_metric_list:
  - metric: acc
    filter_list: ["none"]
    aggregation: mean
    weight_by_size: true
metadata:
  version: 1.0
""",
    )
    row = evaluate(library, "mmlu", right="mmlu_biology")["groups"]["mmlu"]
    assert row["acc,none"] == 2 / 8


@pytest.mark.parametrize(
    "include",
    ["include: shared_defaults.yaml", 'include:\n  num_fewshot: 5\n  doc_to_text: "{{question}}!"'],
)
def test_group_defaults_go_to_every_child(library: Folder, include: str) -> None:
    library.write("shared_defaults.yaml", 'num_fewshot: 5\ndoc_to_text: "{{question}}!"\n')
    library.write("_bench.yaml", f"group: my_bench\n{include}\ntask:\n  - cb\n  - rte\n")
    tasks, _ = load(library, "my_bench")
    assert [task.config.num_fewshot for task in tasks.values()] == [5, 5]
    assert tasks["cb"].doc_to_text(tasks["cb"].eval_docs[0]) == "cb 0?!"


def test_filters_are_found_where_none_are_named(library: Folder) -> None:
    twice = "filter_list: [{name: a, filter: [{function: take_first}]}, "
    twice += "{name: b, filter: [{function: take_first}]}]\n"
    stand_in(library, "double", extra=twice)
    library.write("_g.yaml", "group: g\ntask: [double]\naggregate_metric_list: [{metric: acc}]\n")
    row = evaluate(library, "g", right="double")["groups"]["g"]
    assert {key for key in row if key.startswith("acc,")} == {"acc,a", "acc,b"}


def test_a_function_can_join_scores(library: Folder) -> None:
    library.write("joins.py", "def best(values, sizes):\n    return max(values)\n")
    library.write(
        "_g.yaml",
        "group: g\ntask: [cb, anli_r1]\n"
        "aggregate_metric_list: [{metric: acc, aggregation: !function joins.best}]\n",
    )
    assert evaluate(library, "g")["groups"]["g"]["acc,none"] == 1.0


def test_metadata_sets_the_shown_number_of_examples(library: Folder) -> None:
    stand_in(library, "prompted", extra="")
    library.write("_g.yaml", "group: g\ntask: [cb]\nmetadata: {version: 1.0, num_fewshot: 3}\n")
    assert evaluate(library, "g")["n-shot"]["g"] == 3


# -- document 001 -----------------------------------------------------------------------------


def test_a_file_can_build_on_another(library: Folder) -> None:
    base = (library.path / "cb" / "cb.yaml").read_text().replace("task: cb\n", "")
    library.write("cb/_base", base)
    library.write("cb/loud.yaml", 'include: _base\ntask: loud\ndoc_to_text: "{{question}}!"\n')
    library.write(
        "far/quiet.yaml",
        "include: ../cb/loud.yaml\ntask: quiet\ndataset_kwargs: "
        "{data_files: {test: ../cb/questions.jsonl}}\n",
    )
    library.write("far/full.yaml", f"include: {library.path}/far/quiet.yaml\ntask: full\n")
    tasks, _ = load(library, "loud", "quiet", "full")
    assert {task.doc_to_text(task.eval_docs[0]) for task in tasks.values()} == {"cb 0?!"}


def test_functions_stand_beside_the_file(library: Folder) -> None:
    library.write(
        "cb/helpers.py",
        """\
def text(doc): return doc["question"].upper()
def target(doc): return 1
def choices(doc): return ["a", "b", "c"]
def halve(items): return sum(items) / 2
""",
    )
    library.write(
        "cb/own.yaml",
        "include: cb.yaml\ntask: own\ndoc_to_text: !function helpers.text\n"
        "doc_to_target: !function helpers.target\ndoc_to_choice: !function helpers.choices\n"
        "metric_list:\n  - metric: acc\n    aggregation: !function helpers.halve\n"
        "    higher_is_better: true\n",
    )
    task = load(library, "own")[0]["own"]
    doc = task.eval_docs[0]
    assert task.doc_to_text(doc) == "CB 0?"
    assert task.doc_to_target(doc) == 1
    assert task.doc_to_choice(doc) == ["a", "b", "c"]  # type: ignore[attr-defined]
    assert task.aggregation()["acc"]([1.0]) == 0.5


def test_metric_arguments_reach_the_metric(library: Folder) -> None:
    library.write(
        "cb/exact.yaml",
        """\
include: cb.yaml
task: exact
output_type: generate_until
doc_to_choice: null
doc_to_target: "1000"
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
    ignore_case: true
    ignore_punctuation: false
    regexes_to_ignore:
      - ","
      - "\\\\$"
""",
    )
    lm = ScriptedLM(generate=lambda context, settings: "$1,000")
    manager = TaskManager(include_path=library.path)
    results = lm_eval.simple_evaluate(lm, tasks=["exact"], task_manager=manager)
    assert results is not None
    assert results["results"]["exact"]["exact_match,none"] == 1.0


def test_self_consistency_gives_three_rows(library: Folder) -> None:
    number = r'"The answer is (\\-?[0-9\\.\\,]*[0-9]+)"'
    vote = f"""\
      - function: "regex"
        regex_pattern: {number}
      - function: "majority_vote"
      - function: "take_first"
"""
    library.write(
        "cb/consistent.yaml",
        f"""\
include: cb.yaml
task: consistent
output_type: generate_until
doc_to_choice: null
doc_to_target: "7"
repeats: 64
filter_list:
  - name: "score-first"
    filter:
      - function: "regex"
        regex_pattern: {number}
      - function: "take_first"
  - name: "maj@64"
    filter:
{vote}
  - name: "maj@8"
    filter:
      - function: "take_first_k"
        k: 8
{vote}
""",
    )
    # First says 5. Of the first eight, five say 7. Of all sixty-four, thirty-nine say 5.
    said = iter(["5"] + ["7"] * 5 + ["5"] * 2 + ["7"] * 20 + ["5"] * 36)
    lm = ScriptedLM(generate=lambda context, settings: f"So. The answer is {next(said)}.")
    manager = TaskManager(include_path=library.path)
    results = lm_eval.simple_evaluate(lm, tasks=["consistent"], task_manager=manager)
    assert results is not None
    row = results["results"]["consistent"]
    assert row["exact_match,score-first"] == 0.0
    assert row["exact_match,maj@8"] == 1.0
    assert row["exact_match,maj@64"] == 0.0


# -- beyond the examples ----------------------------------------------------------------------


def test_one_task_can_be_in_several_groups_differently(library: Folder) -> None:
    library.write("_a.yaml", "group: a\ntask: [{task: cb, num_fewshot: 0}, rte]\n")
    library.write("_b.yaml", "group: b\ntask: [{task: cb, repeats: 2}, rte]\n")
    tasks, groups = load(library, "a", "b")
    assert list(tasks) == ["cb", "rte", "b::cb"]
    assert groups["b"].child_names == ["b::cb", "rte"]
    assert groups["a"].get("rte") is groups["b"].get("rte")
    assert tasks["b::cb"].config.repeats == 2
    assert tasks["b::cb"].config.task_alias == "cb"


def test_the_same_task_twice_with_other_settings_is_refused(library: Folder) -> None:
    with pytest.raises(ConfigError, match="'cb' is selected twice"):
        load(library, "cb", {"task": "cb", "num_fewshot": 3})


def test_a_task_may_be_asked_for_by_tag_pattern_path_or_dictionary(library: Folder) -> None:
    for spec in ("mmlu_tasks", "mmlu_a*"):
        assert sorted(load(library, spec)[0]) == ["mmlu_abstract_algebra", "mmlu_anatomy"]
    assert list(load(library, str(library.path / "cb" / "cb.yaml"))[0]) == ["cb"]
    mine = {"task": "mine", "dataset_path": "json", "test_split": "test", "doc_to_text": "question"}
    files = {"data_files": {"test": str(library.path / "cb" / "questions.jsonl")}}
    assert list(load(library, {**mine, "dataset_kwargs": files, "doc_to_target": "x"})[0]) == [
        "mine"
    ]


def test_a_format_may_be_asked_for_by_name(library: Folder) -> None:
    tasks, groups = load(library, "cb@cloze", "mmlu@mcqa")
    assert list(tasks) == ["cb@cloze", "mmlu_abstract_algebra@mcqa", "mmlu_anatomy@mcqa"]
    assert list(groups) == ["mmlu"]


FORMATS = """\
include: cb.yaml
task: formatted
formats:
  mcqa:
    instruction: "Pick one of {{_choice_list_or}}."
    choice_labels: numbers
  short:
    type: cloze
    question_prefix: "Q: "
"""


def test_a_task_may_offer_several_formats(library: Folder) -> None:
    library.write("cb/formatted.yaml", FORMATS)
    tasks, _ = load(library, "formatted", "formatted@short")
    first, second = tasks.values()
    doc = first.eval_docs[0]
    assert first.doc_to_text(doc) == "Pick one of 1 or 2.\nQuestion: cb 0?\n1. yes\n2. no\nAnswer:"
    assert second.doc_to_text(doc) == "Q: cb 0?\nAnswer:"
    assert second.doc_to_choice(doc) == ["yes", "no"]  # type: ignore[attr-defined]


def test_later_folders_win_and_say_so(
    library: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = Folder(tmp_path / "other")
    stand_in(other, "cb", 7)
    manager = TaskManager(include_path=[library.path, other.path], include_defaults=False)
    assert len(manager.load("cb")["tasks"]["cb"].eval_docs) == 7
    assert any("replaces the one" in record.message for record in caplog.records)


def test_a_tag_that_replaces_something_is_said(
    library: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise `--tasks cb` would silently select other tasks."""
    other = Folder(tmp_path / "other")
    stand_in(other, "mine", 2)
    file = other.path / "mine" / "mine.yaml"
    file.write_text(file.read_text() + "tag: cb\n")
    manager = TaskManager(include_path=[library.path, other.path], include_defaults=False)
    assert list(manager.load("cb")["tasks"]) == ["mine"]
    assert f"cb from a tag in {other.path} replaces the one from" in caplog.text


def test_code_in_a_folder_can_import_its_neighbours(library: Folder) -> None:
    library.write("cb/words.py", 'GREETING = "Hello, "\n')
    library.write(
        "cb/polite.py",
        "from lm_eval.tasks.cb.words import GREETING\n"
        "def text(doc): return GREETING + doc['question']\n",
    )
    library.write("cb/p.yaml", "include: cb.yaml\ntask: p\ndoc_to_text: !function polite.text\n")
    task = load(library, "p")[0]["p"]
    assert task.doc_to_text(task.eval_docs[0]) == "Hello, cb 0?"


def test_a_groups_settings_are_each_tasks_own(library: Folder) -> None:
    for name, delimiter in (("ta", "\\n\\n"), ("tb", "\\n")):
        extra = f'fewshot_delimiter: "{delimiter}"\n'
        stand_in(library, name, extra=extra)
        file = library.path / name / f"{name}.yaml"
        file.write_text(file.read_text().replace("multiple_choice", "generate_until"))
    given = {"do_sample": False}
    library.write("_gg.yaml", "group: gg\ngeneration_kwargs: {do_sample: false}\ntask: [ta, tb]\n")
    tasks, _ = load(library, "gg", {"task": "cb", "generation_kwargs": given})
    untils = {name: (task.config.generation_kwargs or {})["until"] for name, task in tasks.items()}
    assert untils == {"ta": ["\n\n"], "tb": ["\n"], "cb": ["\n\n"]}
    assert given == {"do_sample": False}


def test_a_group_may_hold_one_task_in_several_settings(library: Folder) -> None:
    members = ", ".join(f"{{task: cb, num_fewshot: {n}}}" for n in range(3))
    library.write("_h.yaml", f"group: h\ntask: [{members}]\n")
    tasks, groups = load(library, "h")
    shots = {name: task.config.num_fewshot for name, task in tasks.items()}
    assert shots == {"cb": 0, "h::cb": 1, "h::cb_2": 2}
    assert groups["h"].child_names == list(tasks)


def test_two_inline_tasks_of_one_name_are_refused(library: Folder) -> None:
    files = {"data_files": {"test": str(library.path / "cb" / "questions.jsonl")}}
    mine = {
        "task": "mine",
        "dataset_path": "json",
        "dataset_kwargs": files,
        "test_split": "test",
        "doc_to_text": "question",
        "doc_to_target": "x",
    }
    with pytest.raises(ConfigError, match="'mine' is selected twice"):
        load(library, mine, {**mine, "description": "Other. "})


SQUAD_LIKE = """\
from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask

class Extractive(ConfigurableTask):
    \"\"\"Shaped like the reading tasks of published folders: two kinds of request a document.\"\"\"
    VERSION = 3
    DATASET_PATH = "json"

    def __init__(self, config=None):
        super().__init__(config={"metadata": {"version": self.VERSION}, "test_split": "test",
            "doc_to_text": "question", "doc_to_target": "x", "task": "reading",
            "dataset_path": "json", "dataset_kwargs": config["dataset_kwargs"]})
    def construct_requests(self, doc, ctx, chat_template=None, apply_chat_template=False, **kwargs):
        return [
            Instance(request_type="generate_until", doc=doc, arguments=(ctx, {"until": ["."]}),
                     idx=0, **kwargs),
            Instance(request_type="loglikelihood", doc=doc, arguments=(ctx, " unanswerable"),
                     idx=0, **kwargs),
        ]
    def process_results(self, doc, results):
        text, (logprob, _) = results
        return {"words": len(text.split()), "no_answer": logprob}
    def aggregation(self):
        return {"words": max, "no_answer": min}
    def higher_is_better(self):
        return {"words": True, "no_answer": False}
"""


def test_a_class_from_a_file_runs_as_published_ones_are_written(library: Folder) -> None:
    library.write("reading/task.py", SQUAD_LIKE)
    library.write(
        "reading/reading.yaml",
        "task: reading\nclass: !function task.Extractive\nrecipe: kept.for.the.class\n"
        f"dataset_kwargs: {{data_files: {{test: {library.path}/rte/questions.jsonl}}}}\n",
    )
    lm = ScriptedLM(
        loglikelihood=lambda context, continuation: (-float(len(context)), False),
        generate=lambda context, settings: "two words",
    )
    manager = TaskManager(include_path=library.path, include_defaults=False)
    results = lm_eval.simple_evaluate(lm, tasks=["reading"], task_manager=manager)
    assert results is not None
    row = results["results"]["reading"]
    assert (row["words,none"], row["no_answer,none"]) == (2, -6.0)
    assert results["versions"] == {"reading": 3}
    with pytest.raises(
        ConfigError, match="is a Python class, to which no prompt format can be applied"
    ):
        manager.load("reading@mcqa")
