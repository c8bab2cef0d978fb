"""Repositories of tasks, and projects that define tasks in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .support import DOCS, choice, data, generation, lm_class, manager, scores, use, write

UTILS = """\
import random
from lm_eval.api.metrics import mean
from lm_eval.filters.extraction import RegexFilter
from lm_eval.utils import general_detokenize, weighted_f1_score


def process_docs(dataset):
    return dataset.map(lambda doc: {**doc, "query": "Color of " + doc["question"] + "?"})


def doc_to_text(doc):
    return doc["query"]


def process_results(doc, results):
    answer = results[0].strip()
    return {"hit": float(answer == doc["answer"]), "length": len(answer), "pair": (answer, 1)}


def longest(items):
    return max(items)


def share(items):
    return mean([weight for _, weight in items])


class Lowered(RegexFilter):
    def apply(self, resps, docs):
        return [[text.lower() for text in texts] for texts in super().apply(resps, docs)]
"""


@use("a repository of tasks with functions beside the task files")
def task_folder_with_functions(folder: Path) -> Any:
    import lm_eval
    from lm_eval.tasks import TaskManager

    config = generation(folder)
    tasks = write(folder, {**config, "task": "unused"})
    (tasks / "utils.py").write_text(UTILS)
    (tasks / "unused.yaml").unlink()
    (tasks / "mine.yaml").write_text(
        f"""\
task: mine
tag: [mine_all]
dataset_path: json
dataset_kwargs: {config["dataset_kwargs"]}
test_split: test
output_type: generate_until
process_docs: !function utils.process_docs
doc_to_text: !function utils.doc_to_text
doc_to_target: answer
process_results: !function utils.process_results
metric_list:
  - {{metric: hit, aggregation: mean, higher_is_better: true}}
  - {{metric: length, aggregation: !function utils.longest, higher_is_better: false}}
  - {{metric: pair, aggregation: !function utils.share, higher_is_better: true}}
metadata: {{version: 2.0}}
"""
    )
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    results = lm_eval.simple_evaluate(lm_class()(), tasks=["mine_all"], task_manager=manager)
    sample = results["samples"]["mine"][0]
    return [
        scores(results),
        results["versions"]["mine"],
        results["higher_is_better"]["mine"],
        sample["arguments"][0][0],
    ]


@use("a project that registers a metric, an aggregation and a filter")
def project_registers_metric_aggregation_and_filter(folder: Path) -> Any:
    import lm_eval
    from lm_eval.api.filter import Filter
    from lm_eval.api.registry import register_aggregation, register_filter, register_metric

    @register_aggregation("use_sum")
    def total(items: Any) -> Any:
        return sum(items)

    @register_metric(
        metric="use_starts",
        higher_is_better=True,
        output_type="generate_until",
        aggregation="use_sum",
    )
    def starts(references: Any, predictions: Any, **kwargs: Any) -> Any:
        return float(predictions[0][:1] == references[0][: kwargs.get("letters", 1)])

    @register_filter("use_upper_first")
    class UpperFirst(Filter):
        def __init__(self, times: int = 1) -> None:
            self.times = times

        def apply(self, resps: Any, docs: Any) -> Any:
            return [[text.lower() * self.times for text in texts] for texts in resps]

    config = generation(
        folder,
        metric_list=[{"metric": "use_starts", "letters": 1}],
        filter_list=[
            {
                "name": "lowered",
                "filter": [
                    {"function": "use_upper_first", "times": 1},
                    {"function": "take_first"},
                ],
            }
        ],
    )
    results = lm_eval.simple_evaluate(
        lm_class()(), tasks=["written"], task_manager=manager(folder, config)
    )
    return scores(results)


@use("a notebook that makes a task from a dictionary")
def notebook_makes_a_task_from_a_dictionary(folder: Path) -> Any:
    import lm_eval
    from lm_eval.api.task import ConfigurableTask

    task = ConfigurableTask(
        config=generation(
            folder,
            "from_a_dictionary",
            doc_to_text=lambda doc: f"{doc['question']}:",
            process_results=lambda doc, results: {"acc": float(results[0] == doc["answer"])},
            metric_list=[{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        )
    )
    results = lm_eval.evaluate(lm_class()(), {"from_a_dictionary": task}, bootstrap_iters=0)
    return [scores(results), task.OUTPUT_TYPE, task.VERSION, len(task.eval_docs)]


@use("a repository with a task class that only a YAML file names")
def task_class_named_by_a_file(folder: Path) -> Any:
    import lm_eval
    from lm_eval.tasks import TaskManager

    tasks = folder / "tasks"
    tasks.mkdir()
    (tasks / "task.py").write_text(
        f"""\
from lm_eval.api.instance import Instance
from lm_eval.api.metrics import mean
from lm_eval.api.task import ConfigurableTask

class Mine(ConfigurableTask):
    VERSION = 3
    DATASET_PATH = "json"
    DATASET_NAME = None

    def __init__(self, config=None):
        super().__init__(config={{"task": "classy", "metadata": {{"version": self.VERSION}},
            "dataset_path": "json", "test_split": "test", "output_type": "generate_until",
            "dataset_kwargs": {data(folder)["dataset_kwargs"]},
            "doc_to_text": "q", "doc_to_target": "a"}})

    def has_training_docs(self): return False
    def has_validation_docs(self): return False
    def has_test_docs(self): return True
    def test_docs(self): return self.dataset["test"]
    def doc_to_text(self, doc, doc_to_text=None): return "Color: " + doc["question"]
    def doc_to_target(self, doc, doc_to_target=None): return " " + doc["answer"]

    def construct_requests(self, doc, ctx, **kwargs):
        kwargs.pop("apply_chat_template", False)
        kwargs.pop("chat_template", False)
        return [Instance(request_type="generate_until", doc=doc,
                         arguments=(ctx, {{"until": ["\\n"], "max_gen_toks": 4}}), idx=0, **kwargs)]

    def process_results(self, doc, results):
        return {{"exact": float(results[0] == doc["answer"])}}

    def aggregation(self): return {{"exact": mean}}
    def higher_is_better(self): return {{"exact": True}}
"""
    )
    (tasks / "classy.yaml").write_text("task: classy\nclass: !function task.Mine\n")
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    results = lm_eval.simple_evaluate(lm_class()(), tasks=["classy"], task_manager=manager)
    return [scores(results), results["versions"]]


def documents_task(base: str) -> Any:
    """Returns a task class of an older kind, with the documents in its `download`."""
    import lm_eval.api.task

    class Documents(getattr(lm_eval.api.task, base)):
        VERSION = 1
        DATASET_PATH = "unused"

        def download(self, *args: Any, **kwargs: Any) -> None:
            self.dataset = {"test": DOCS}

        def has_training_docs(self) -> bool:
            return False

        def has_validation_docs(self) -> bool:
            return False

        def has_test_docs(self) -> bool:
            return True

        def test_docs(self) -> Any:
            return map(self._process_doc, self.dataset["test"])

    return Documents


@use("an older project with a MultipleChoiceTask")
def older_multiple_choice_task(folder: Path) -> Any:
    class Colours(documents_task("MultipleChoiceTask")):
        def _process_doc(self, doc: Any) -> Any:
            return {"query": doc["question"], "choices": doc["choices"], "gold": doc["label"]}

        def test_docs(self) -> Any:
            return [self._process_doc(doc) for doc in self.dataset["test"]]

        def doc_to_text(self, doc: Any) -> str:
            return doc["query"]

    task = Colours()
    request = task.construct_requests(task.test_docs()[0], "the prompt")[1]
    scored = task.process_results(task.test_docs()[1], [(-3.0, False), (-1.0, True)])
    return [task.VERSION, list(request.args), request.idx, scored, sorted(task.aggregation())]


@use("an older project with a PerplexityTask")
def older_perplexity_task(folder: Path) -> Any:
    class Texts(documents_task("PerplexityTask")):
        def doc_to_target(self, doc: Any) -> str:
            return f"The color of {doc['question']} is {doc['answer']}."

    task = Texts()
    scored = task.process_results(DOCS[0], (-20.0,))
    combined = {name: f([scored[name]]) for name, f in task.aggregation().items()}
    return [{name: list(value) for name, value in scored.items()}, combined]


@use("a project that overrides how a YAML task is scored")
def subclass_overrides_scoring(folder: Path) -> Any:
    import lm_eval
    from lm_eval.api.task import ConfigurableTask

    class Doubled(ConfigurableTask):
        def process_results(self, doc: Any, results: Any) -> Any:
            return {
                name: 2 * value for name, value in super().process_results(doc, results).items()
            }

    task = Doubled(config=choice(folder, "doubled"))
    results = lm_eval.evaluate(lm_class()(), {"doubled": task}, bootstrap_iters=0)
    return scores(results)


@use("a leaderboard that reports a group of tasks")
def leaderboard_groups_tasks(folder: Path) -> Any:
    import lm_eval

    group = {
        "group": "both",
        "group_alias": "Both",
        "task": ["colours", "colours_too"],
        "aggregate_metric_list": [{"metric": "acc", "weight_by_size": True}],
        "metadata": {"version": 1},
    }
    other = choice(folder, "colours_too", doc_to_text="{{question}}")
    tasks = manager(folder, choice(folder), other, group)
    results = lm_eval.simple_evaluate(lm_class()(), tasks=["both"], task_manager=tasks)
    return [
        {key: value for key, value in sorted(results["groups"]["both"].items()) if "," in key},
        results["group_subtasks"],
        results["versions"],
    ]


@use("a tool that builds groups in Python and writes them to files")
def tool_writes_groups(folder: Path) -> Any:
    from lm_eval.api.group import AggMetricConfig, ConfigurableGroup, Group

    configured = {"group": "g", "task": ["a"], "aggregate_metric_list": {"metric": "acc"}}
    made = Group("with_metric", aggregate_metric_list=[AggMetricConfig("acc")])
    return [
        Group("bare").to_dict(),
        made.to_dict(),
        Group.from_config(configured).to_dict(),
        ConfigurableGroup(config={"group": "older"}).group_name,
    ]


@use("an exporter that reads the metrics of a task")
def exporter_reads_the_metrics_of_a_task(folder: Path) -> Any:
    from lm_eval.api.metrics import mean

    scored = generation(
        folder,
        process_results=lambda doc, results: {"score": 1.0},
        metric_list=[{"metric": "score", "aggregation": "mean", "higher_is_better": True}],
    )
    from lm_eval.api.task import ConfigurableTask

    tasks = [ConfigurableTask(config=choice(folder)), ConfigurableTask(config=scored)]
    return [
        [
            sorted(task._metric_fn_list),
            [callable(function) for function in task._metric_fn_list.values()],
            dict(task._metric_fn_kwargs),
            [function is mean for function in task._aggregation_list.values()],
            dict(task._higher_is_better),
            "bypass" not in getattr(task, "_metric_fn_list", {}),
        ]
        for task in tasks
    ]


@use(
    "an exporter that dumps the configuration of a task",
    difference="published: `json.dumps(task.config)` is {}; here it has every field",
)
def exporter_dumps_a_configuration(folder: Path) -> Any:
    import json

    from lm_eval.api.task import ConfigurableTask, TaskConfig

    task = ConfigurableTask(config=choice(folder))
    dumped = json.loads(json.dumps(task.config))
    plain = json.loads(json.dumps(task.config.to_dict()))
    return [
        dumped.get("task"),
        dumped.get("doc_to_text"),
        plain["task"],
        plain["doc_to_target"],
        TaskConfig(task="x")["task"],
    ]


@use("a browser of tasks that reads the index")
def browser_reads_the_index(folder: Path) -> Any:
    from lm_eval.tasks._index import Kind

    group = {"group": "both", "task": ["colours"]}
    tasks = manager(folder, choice(folder, tag="things"), group)
    found = {}
    for name in ("colours", "both", "things"):
        entry = tasks.task_index[name]
        file = entry.yaml_path.name if entry.yaml_path is not None else None
        content = (entry.cfg or {}).get("doc_to_text")
        found[name] = [entry.kind is Kind.TASK, file, content, sorted(entry.tags)]
    return [found, tasks.all_tasks, tasks.all_groups, tasks.all_tags, tasks.all_subtasks]


@use("a task folder that fills a description from a field of the document")
def description_from_a_field(folder: Path) -> Any:
    from lm_eval.api.task import ConfigurableTask

    task = ConfigurableTask(config=choice(folder, description="About {{question}}. "))
    doc = task.eval_docs[0]
    return [
        task.resolve_field(doc, "question"),
        task.resolve_field(doc, "Say {{answer}}!"),
        task.resolve_field(doc, None),
        task.fewshot_context(doc, 0),
    ]
