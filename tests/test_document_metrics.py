"""Tests that every code block of the guide on custom metrics and filters runs as written."""

from __future__ import annotations

from typing import Any

import pytest

import lm_eval
from lm_eval.api import registry
from lm_eval.api.metrics import Metric
from lm_eval.api.task import Task
from lm_eval.errors import ConfigError, DataError
from lm_eval.metrics.calling import Convention, convention_of
from lm_eval.models.scripted import ScriptedLM
from lm_eval.tasks import TaskManager
from tests.conftest import Folder

TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: questions.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: ["\\n"]
"""


@pytest.fixture(autouse=True)
def _leave_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the names that the blocks register after each test."""
    for kept in (
        registry.metric_registry,
        registry.filter_registry,
        registry.aggregation_registry,
        registry.reduction_registry,
        registry.metric_agg_registry,
        registry.metric_reduction_registry,
        registry.metric_output_registry,
        registry.higher_is_better_registry,
    ):
        len(kept)  # the built-in names first, so that they stay
        monkeypatch.setattr(kept, "_entries", dict(kept._entries))


def run(folder: Folder, text: str, answers: dict[str, list[str]], **settings: Any) -> Any:
    """Evaluates one task; `answers` maps a question to its gold answer and the responses."""
    rows = [{"question": q, "answer": right} for q, (right, *_) in answers.items()]
    folder.rows("my_task/questions.jsonl", rows)
    folder.write("my_task/my_task.yaml", text)
    said = {question: iter(given[1:]) for question, given in answers.items()}
    lm = ScriptedLM(generate=lambda context, settings: next(said[context]))
    manager = TaskManager(include_path=folder.path, include_defaults=False)
    results = lm_eval.simple_evaluate(lm, tasks=["my_task"], task_manager=manager, **settings)
    assert results is not None
    return results


def load(folder: Folder, name: str) -> Task:
    manager = TaskManager(include_path=folder.path, include_defaults=False)
    return manager.load(name)["tasks"][name]


# -- custom metrics ---------------------------------------------------------------------------

REGISTERED = '''\
from lm_eval.api.registry import register_metric

@register_metric(
    metric="my_metric",
    higher_is_better=True,
    output_type="generate_until",  # or "multiple_choice", etc.
    aggregation="mean",
)
def my_metric_fn(references, predictions, **kwargs):
    """Score a single document.

    Args:
        references: Gold-standard reference(s)
        predictions: Model prediction(s)
        **kwargs: Extra arguments from MetricConfig

    Returns:
        float: The metric score for this document
    """
    return 1.0 if predictions == references else 0.0
'''
OVERRIDDEN = """\
metric_list:
  - metric: my_metric
    aggregation: median  # Override the registered default
    higher_is_better: false  # Override
"""


def test_the_chain_goes_from_values_over_reduction_to_aggregation() -> None:
    accuracy: Metric[float, float] = Metric(
        name="accuracy",
        fn=lambda references, predictions: float(references == predictions),
        reduction=lambda references, predictions: max(predictions),
        aggregation=lambda values: sum(values) / len(values),
    )
    first = accuracy.measure("a", ["b", "a"])
    second = accuracy.measure("a", ["b", "c"])
    assert (first, second) == ({"accuracy": 1.0}, {"accuracy": 0.0})
    assert accuracy.aggregation([first["accuracy"], second["accuracy"]]) == 0.5


def test_a_metric_is_registered_with_its_aggregation_and_direction(folder: Folder) -> None:
    folder.write("my_task/utils.py", REGISTERED)
    text = TASK.format(name="my_task") + "metric_list:\n  - metric: my_metric\n"
    results = run(folder, text, {"1": ["a", "a"], "2": ["b", "x"], "3": ["c", "x"]})
    assert results["results"]["my_task"]["my_metric,none"] == pytest.approx(1 / 3)
    assert results["higher_is_better"]["my_task"] == {"my_metric": True}


def test_a_file_overrides_what_was_registered(folder: Folder) -> None:
    folder.write("my_task/utils.py", REGISTERED)
    text = TASK.format(name="my_task") + OVERRIDDEN
    results = run(folder, text, {"1": ["a", "a"], "2": ["b", "x"], "3": ["c", "x"]})
    assert results["results"]["my_task"]["my_metric,none"] == 0.0  # the median of 1, 0, 0
    assert results["higher_is_better"]["my_task"] == {"my_metric": False}


def test_a_function_can_be_a_metric(folder: Folder) -> None:
    folder.write(
        "my_task/utils.py",
        """\
# utils.py (in task directory)
def my_custom_metric(references, predictions, **kwargs):
    return 1.0 if predictions.strip() == references.strip() else 0.0
""",
    )
    text = (
        TASK.format(name="my_task") + "metric_list:\n  - metric: !function utils.my_custom_metric\n"
    )
    results = run(folder, text, {"1": ["a", " a "], "2": ["b", "x"]})
    assert results["results"]["my_task"]["my_custom_metric,none"] == 0.5


MULTIPLE_CHOICE = """\
import sklearn.metrics
from lm_eval.api.registry import register_aggregation, register_metric

@register_aggregation("matthews_corrcoef")
def matthews_corrcoef(items):
    unzipped = list(zip(*items))
    golds = unzipped[0]
    preds = unzipped[1]
    return sklearn.metrics.matthews_corrcoef(golds, preds)

@register_metric(
    metric="mcc",
    higher_is_better=True,
    output_type="multiple_choice",
    aggregation="matthews_corrcoef",
)
def mcc_fn(items):
    return items  # Passthrough — aggregation handles the actual computation

@register_metric(metric="sure", higher_is_better=True, output_type="multiple_choice",
                 aggregation="mean")
def sure_fn(items):
    gold, predicted = items
    return float(gold == predicted) + 10
"""


def test_multiple_choice_metrics_get_gold_and_predicted_labels(colours: Folder) -> None:
    colours.write("colours.py", MULTIPLE_CHOICE)
    namespace: dict[str, Any] = {}
    exec(MULTIPLE_CHOICE, namespace)
    task_file = colours.path / "colours.yaml"
    task_file.write_text(
        task_file.read_text().replace("  - metric: acc\n", "  - metric: mcc\n  - metric: sure\n")
    )
    lm = ScriptedLM(  # calls everything but coal and pigs by the first colour
        loglikelihood=lambda context, colour: (
            float(colour.strip() in ("black", "pink"))
            - 2
            + 0.5 * (colour.strip() in ("green", "white", "blue")) * ("coal" not in context),
            False,
        )
    )
    results = lm_eval.simple_evaluate(
        lm, tasks=["colours"], task_manager=TaskManager(include_path=colours.path)
    )
    assert results is not None
    row = results["results"]["colours"]
    pairs = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 1), (1, 1)]
    assert row["mcc,none"] == pytest.approx(namespace["matthews_corrcoef"](pairs))
    assert row["sure,none"] == pytest.approx(10 + 3 / 6)


# -- aggregations and reductions --------------------------------------------------------------

AGGREGATION = '''\
from lm_eval.api.registry import register_aggregation

@register_aggregation("my_aggregation")
def my_aggregation(items):
    """Aggregate per-document scores into a single value.

    Args:
        items: Sequence of per-document metric values

    Returns:
        float: The aggregated score
    """
    return sum(items) / len(items)  # Simple mean
'''


def test_an_aggregation_can_be_registered(folder: Folder) -> None:
    folder.write("my_task/utils.py", AGGREGATION)
    text = TASK.format(name="my_task")
    text += "metric_list:\n  - metric: exact_match\n    aggregation: my_aggregation\n"
    results = run(folder, text, {"1": ["a", "a"], "2": ["b", "x"]})
    assert results["results"]["my_task"]["exact_match,none"] == 0.5
    assert results["results"]["my_task"]["exact_match_stderr,none"] == "N/A"


def test_an_aggregation_may_ask_for_resampling(folder: Folder) -> None:
    source = AGGREGATION.replace('("my_aggregation")', '("my_aggregation", bootstrap=True)')
    folder.write("my_task/utils.py", source)
    text = TASK.format(name="my_task")
    text += "metric_list:\n  - metric: exact_match\n    aggregation: my_aggregation\n"
    results = run(folder, text, {str(i): ["a", "ab"[i % 2]] for i in range(40)})
    error = results["results"]["my_task"]["exact_match_stderr,none"]
    assert error == pytest.approx(0.5 / 40**0.5, rel=0.1)


REDUCTION = '''\
def my_reduction(references, predictions):
    """Reduce multiple predictions per document to one.

    Args:
        references: Gold reference (same for all repeats)
        predictions: List of predictions (one per repeat)

    Returns:
        The reduced prediction
    """
    # Example: return the most common prediction
    from collections import Counter
    counts = Counter(predictions)
    return counts.most_common(1)[0][0]
'''
REPEATED = """\
repeats: 3
filter_list:
  - name: all
    filter:
      - function: remove_whitespace
metric_list:
  - metric: exact_match
    reduction: {reduction}
"""
#: Right, wrong, wrong; right twice; never right.
TRIES = {"1": ["a", "a ", "x", "x"], "2": ["b", "x", "b", "b"], "3": ["c", "x", "y", "z"]}


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [
        ("!function utils.my_reduction", {"exact_match": 1 / 3}),
        ("take_first", {"exact_match": 1 / 3}),
        ("mean", {"exact_match": (1 / 3 + 2 / 3) / 3}),
        # One of two drawn from three is right: 2 of 3 draws, all draws, none.
        ("{function: pass_at_k, k: 2}", {"pass@2": (2 / 3 + 1 + 0) / 3}),
        ("{function: pass_at_k, kwargs: {k: [1, 3]}}", {"pass@1": 1 / 3, "pass@3": 2 / 3}),
        ("pass_at_k", {"pass@1": 1 / 3}),
        ("pass@3", {"pass@3": 2 / 3}),
        # Both of two are right: 1 of 3 draws for the second document alone.
        ("pass^2", {"pass^2": (0 + 1 / 3 + 0) / 3}),
    ],
)
def test_repeats_are_reduced(folder: Folder, reduction: str, expected: dict[str, float]) -> None:
    folder.write("my_task/utils.py", REDUCTION)
    text = TASK.format(name="my_task") + REPEATED.format(reduction=reduction)
    row = run(folder, text, TRIES)["results"]["my_task"]
    found = {key: value for key, value in row.items() if key.endswith(",all")}
    assert {k.partition(",")[0]: v for k, v in found.items() if "stderr" not in k} == pytest.approx(
        expected
    )
    assert all(row[f"{name}_stderr,all"] >= 0 for name in expected)


def test_a_reduction_can_be_registered_beside_the_task(folder: Folder) -> None:
    source = "from lm_eval.api.registry import register_reduction\n"
    source += "@register_reduction('worst')\n"
    source += "def worst(references, predictions):\n    return min(predictions)\n"
    folder.write("my_task/utils.py", source)
    text = TASK.format(name="my_task") + REPEATED.format(reduction="worst")
    assert run(folder, text, TRIES)["results"]["my_task"]["exact_match,all"] == 0.0


def test_more_tries_than_repeats_are_explained(folder: Folder) -> None:
    text = TASK.format(name="my_task") + REPEATED.format(reduction="pass@4")
    with pytest.raises(
        ConfigError, match=r"my_task.yaml: .* k=4 needs .* `repeats` is 3. Raise `repeats`"
    ):
        run(folder, text, TRIES)


# -- custom filters ---------------------------------------------------------------------------

NORMALIZE = '''\
from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_filter

@register_filter("normalize_answer")
class NormalizeAnswerFilter(Filter):
    """Normalize answers by stripping whitespace and lowercasing."""

    def __init__(self, strip_punct=False):
        self.strip_punct = strip_punct

    def apply(self, resps, docs):
        """Apply the filter to model responses.

        Args:
            resps: list[list[str]] — responses grouped by document.
                Each inner list has one response per repeat.
            docs: list[dict] — corresponding documents

        Returns:
            list[list[str]] — filtered responses, same shape
        """
        filtered = []
        for doc_resps in resps:
            normed = []
            for r in doc_resps:
                r = r.strip().lower()
                if self.strip_punct:
                    r = r.rstrip(".,;:!?")
                normed.append(r)
            filtered.append(normed)
        return filtered
'''
CLEAN_MATCH = """\
filter_list:
  - name: "clean-match"
    filter:
      - function: "normalize_answer"
        kwargs:
          strip_punct: true
      - function: "take_first"
"""


def test_a_filter_is_used_by_its_name(folder: Folder) -> None:
    folder.write("my_task/utils.py", NORMALIZE)
    text = TASK.format(name="my_task") + CLEAN_MATCH
    results = run(folder, text, {"1": ["yes", " Yes!"], "2": ["no", "Nope"]})
    assert results["results"]["my_task"]["exact_match,clean-match"] == 0.5


# -- all together -----------------------------------------------------------------------------

MATH_UTILS = """\
# my_task/utils.py
from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_filter, register_metric, register_aggregation

@register_filter("extract_number")
class ExtractNumberFilter(Filter):
    def apply(self, resps, docs):
        import re
        return [
            [re.search(r"(\\d+)", r).group(1) if re.search(r"(\\d+)", r) else ""
             for r in doc_resps]
            for doc_resps in resps
        ]

@register_metric(
    metric="numeric_match",
    higher_is_better=True,
    output_type="generate_until",
    aggregation="mean",
)
def numeric_match(references, predictions, tolerance=0):
    try:
        ref = float(references)
        pred = float(predictions)
        return 1.0 if abs(ref - pred) <= tolerance else 0.0
    except (ValueError, TypeError):
        return 0.0
"""
#: As written, but for the data set, which is no real one.
MATH_TASK = """\
# my_task/my_task.yaml
task: my_math_task
dataset_path: json
dataset_kwargs: {data_files: {test: problems.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "Solve: {{problem}}\\nAnswer:"
doc_to_target: "{{answer}}"
generation_kwargs:
  until: ["\\n"]
filter_list:
  - name: "numeric"
    filter:
      - function: "extract_number"
      - function: "take_first"
metric_list:
  - metric: numeric_match
    tolerance: 0.01
"""


def test_my_math_task(folder: Folder) -> None:
    folder.write("my_task/utils.py", MATH_UTILS)
    folder.write("my_task/my_task.yaml", MATH_TASK)
    answers = {"1+1": 2, "2+1": 3, "half of 4": "2.005", "2-2": 0}
    folder.rows("my_task/problems.jsonl", [{"problem": p, "answer": a} for p, a in answers.items()])
    lm = ScriptedLM(
        generate=lambda context, settings: "none" if "2-2" in context else "It is 2, I think."
    )
    manager = TaskManager(include_path=folder.path, include_defaults=False)
    results = lm_eval.simple_evaluate(lm, tasks=["my_math_task"], task_manager=manager)
    assert results is not None
    assert lm.requests[0].args == ("Solve: 1+1\nAnswer:", {"until": ["\n"]})
    row = results["results"]["my_math_task"]
    assert row["numeric_match,numeric"] == 2 / 4  # 2 is 2, and 2.005 within the tolerance
    assert results["higher_is_better"]["my_math_task"] == {"numeric_match": True}


# -- how functions are called -----------------------------------------------------------------


def by_lists(references, predictions, k=None):  # type: ignore[no-untyped-def]
    predictions = predictions[0]
    return predictions.strip() == references[0]


def by_zip(references, predictions):  # type: ignore[no-untyped-def]
    return sum(p.strip() == r for p, r in zip(predictions, references, strict=True))


def by_value(references, predictions):  # type: ignore[no-untyped-def]
    return predictions.lower() == references


def by_pair(items):  # type: ignore[no-untyped-def]
    return items


@pytest.mark.parametrize(
    ("function", "convention"),
    [
        (by_lists, Convention.LISTS),
        (by_zip, Convention.LISTS),
        (by_value, Convention.VALUES),
        (by_pair, Convention.PAIR),
        (len, Convention.PAIR),
        (lambda references, predictions: references == predictions, Convention.LISTS),
    ],
)
def test_a_functions_own_text_says_how_to_call_it(function: Any, convention: Convention) -> None:
    assert convention_of(function) is convention


def test_published_functions_see_all_repeats_at_once(folder: Folder) -> None:
    """As in published code benchmarks: lists of one item, which has all filtered responses."""
    source = "def tries(references, predictions):\n"
    source += "    return {'tries': float(len(predictions[0])), 'of': float(len(references))}\n"
    folder.write("my_task/utils.py", source)
    text = TASK.format(name="my_task") + REPEATED.partition("metric_list")[0]
    text += "metric_list:\n  - metric: !function utils.tries\n"
    row = run(folder, text, TRIES)["results"]["my_task"]
    assert (row["tries,all"], row["of,all"]) == (3.0, 1.0)


def test_a_function_that_did_not_expect_lists_is_told_so(folder: Folder) -> None:
    source = "def clean(text):\n    return text.strip()\n"
    source += "def hidden(references, predictions):\n    return clean(predictions) == references\n"
    folder.write("my_task/utils.py", source)
    text = TASK.format(name="my_task") + "metric_list:\n  - metric: !function utils.hidden\n"
    with pytest.raises(DataError, match=r"document 0: .* use references\[0\] and predictions\[0\]"):
        run(folder, text, {"1": ["a", "a"]})
