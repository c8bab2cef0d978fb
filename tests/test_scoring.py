"""Tests scoring: filter pipelines, what is reported with a score, and errors."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lm_eval
from lm_eval.api.registry import aggregation_registry, get_aggregation, metric_registry
from lm_eval.errors import ConfigError, DataError, EvalError, ModelError, UnknownNameError
from lm_eval.metrics import documents
from lm_eval.metrics.functions import anls, exact_match
from lm_eval.metrics.metric import Metric
from lm_eval.metrics.uncertainty import standard_error
from lm_eval.models.scripted import ScriptedLM
from lm_eval.results.table import make_table
from lm_eval.stats.errors import clustered_stderr
from lm_eval.stats.intervals import wilson_interval
from lm_eval.tasks import TaskManager
from tests.conftest import Command, Folder

TASK = """\
task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: sums.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs:
  until: ["\\n"]
"""
NUMBER = r"""
filter_list:
  - name: strict
    filter:
      - {function: regex, regex_pattern: 'answer is (\d+)'}
      - {function: take_first}
  - name: loose
    filter:
      - {function: regex, regex_pattern: '(\d+)'}
      - {function: take_first}
"""


def sums(folder: Folder, text: str = "", count: int = 6) -> Folder:
    rows = [{"question": f"q{i}", "answer": str(i), "part": i // 2} for i in range(count)]
    folder.rows("sums.jsonl", rows)
    folder.write("sums.yaml", TASK + text)
    return folder


def evaluated(folder: Folder, lm: Any, *tasks: str, **settings: Any) -> Any:
    manager = TaskManager(include_path=folder.path, include_defaults=False)
    names = list(tasks or ["sums"])
    results = lm_eval.simple_evaluate(lm, tasks=names, task_manager=manager, **settings)
    assert results is not None
    return results


def says(*answers: str) -> ScriptedLM:
    """Returns a model with a fixed answer to each of the questions q0, q1, …"""
    return ScriptedLM(generate=lambda context, settings: answers[int(context[1:])])


# -- what stands beside a score ---------------------------------------------------------------


def test_documents_without_an_answer_stand_beside_the_score(folder: Folder) -> None:
    lm = says("The answer is 0", "answer: 1", "2", "who knows", "answer is 9", "")
    results = evaluated(sums(folder, NUMBER), lm)
    assert results["results"]["sums"]["exact_match,strict"] == pytest.approx(1 / 6)
    assert results["results"]["sums"]["exact_match,loose"] == pytest.approx(3 / 6)
    assert results["extraction_failed"] == {"sums": {"strict": 4, "loose": 2}}
    assert not any("extraction" in key for key in results["results"]["sums"])
    lines = make_table(results).splitlines()
    assert lines[0].endswith("|No answer|")
    assert "|loose " in lines[2]
    assert lines[2].endswith("|    33.3%|")
    assert lines[3].endswith("|    66.7%|")
    failed = [
        (s["filter"], s["doc_id"], s["extraction_failed"]) for s in results["samples"]["sums"]
    ]
    assert failed[3:5] == [("strict", 3, True), ("strict", 4, False)]


def test_nothing_is_said_where_nothing_is_extracted(colours: Folder) -> None:
    lm = ScriptedLM(loglikelihood=lambda context, continuation: (-1.0, False))
    results = evaluated(colours, lm, "colours")
    assert "extraction_failed" not in results
    assert "extraction_failed" not in results["samples"]["colours"][0]
    assert "No answer" not in make_table(results)


def test_pipelines_may_have_metrics_of_their_own(folder: Folder) -> None:
    text = NUMBER.replace(
        "  - name: loose\n",
        "    metric_list: [{metric: exact_match}, {metric: anls}]\n  - name: loose\n",
    )
    lm = says(*["The answer is 0."] * 6)
    row = evaluated(sums(folder, text), lm)["results"]["sums"]
    assert {key for key in row if "stderr" not in key and "," in key} == {
        "exact_match,strict",
        "anls,strict",
        "exact_match,loose",
    }


def test_pipelines_pick_from_what_a_task_measures_itself(folder: Folder) -> None:
    text = NUMBER.replace(
        "  - name: loose\n", "    metric_list:\n      - {metric: size}\n  - name: loose\n"
    )
    text += "process_results: !function own.score\n"
    folder.write(
        "own.py",
        "def score(doc, results):\n    return {'size': len(results[0]), 'one': 1.0}\n",
    )
    row = evaluated(sums(folder, text), says(*["answer is 12"] * 6))["results"]["sums"]
    assert row["size,strict"] == row["size,loose"] == 2
    assert "one,loose" in row
    assert "one,strict" not in row


@pytest.mark.parametrize("of_task", [True, False])
def test_one_metric_is_aggregated_in_one_way(folder: Folder, of_task: bool) -> None:
    one = "" if of_task else "    metric_list: [{metric: exact_match}]\n"
    other = "    metric_list: [{metric: exact_match, aggregation: median}]\n"
    text = NUMBER.replace("  - name: loose\n", f"{one}  - name: loose\n{other}")
    with pytest.raises(
        ConfigError,
        match="pipelines set a different aggregation or higher_is_better for the metric 'exact_m",
    ):
        evaluated(sums(folder, text), says())


@pytest.mark.parametrize(
    ("text", "of_model"),
    [("think_end_token: '</t>'\n", None), ("think_tags: [<t>, </t>]\n", None), ("", "</t>")],
)
def test_thinking_is_cut_before_extraction_and_kept(
    folder: Folder, text: str, of_model: str | None
) -> None:
    lm = says(*(f"<t>Is it {9 - i}? No.</t>It is {i}." for i in range(6)))
    lm.think_end_token = of_model  # type: ignore[attr-defined]
    results = evaluated(sums(folder, NUMBER + text), lm)
    assert results["results"]["sums"]["exact_match,loose"] == 1.0
    sample = results["samples"]["sums"][0]
    assert sample["resps"] == [["<t>Is it 9? No.</t>It is 0."]]
    assert "Is it 9? No." in sample["thinking"][0][0]


# -- self-consistency, by hand ----------------------------------------------------------------


def test_self_consistency_gives_three_rows_with_the_values_of_its_definition(
    folder: Folder,
) -> None:
    pattern = r"The answer is (\-?[0-9\.\,]*[0-9]+)"
    regex = f"      - function: regex\n        regex_pattern: '{pattern}'\n"
    vote = "      - function: majority_vote\n      - function: take_first\n"
    text = (
        "repeats: 64\nfilter_list:\n"
        f"  - name: score-first\n    filter:\n{regex}      - function: take_first\n"
        f"  - name: maj@64\n    filter:\n{regex}{vote}"
        f"  - name: maj@8\n    filter:\n      - function: take_first_k\n        k: 8\n{regex}{vote}"
    )
    rnd = np.random.default_rng(11)
    said = {
        f"q{i}": [
            "Hm." if n < 0 else f"So. The answer is {i if n < 2 else (i + n) % 7}."
            for n in rnd.integers(-1, 5, 64).tolist()
        ]
        for i in range(12)
    }
    waiting = {question: iter(answers) for question, answers in said.items()}
    lm = ScriptedLM(generate=lambda context, settings: next(waiting[context]))
    results = evaluated(sums(folder, text, count=12), lm)

    def found(answer: str) -> str:
        match = re.search(pattern, answer)
        return match[1] if match else "[invalid]"

    expected = {"score-first": 0, "maj@64": 0, "maj@8": 0}
    for question, answers in said.items():
        votes = [found(answer) for answer in answers]
        right = question[1:]
        expected["score-first"] += votes[0] == right
        expected["maj@64"] += Counter(votes).most_common(1)[0][0] == right
        expected["maj@8"] += Counter(votes[:8]).most_common(1)[0][0] == right
    row = results["results"]["sums"]
    for name, hits in expected.items():
        assert row[f"exact_match,{name}"] == hits / 12
        share = hits / 12
        assert row[f"exact_match_stderr,{name}"] == pytest.approx(
            math.sqrt(share * (1 - share) / 11)
        )
    assert len(set(expected.values())) > 1
    assert len(make_table(results).splitlines()) == 2 + 3
    assert results["n-samples"]["sums"] == {"original": 12, "effective": 12}


# -- uncertainty ------------------------------------------------------------------------------


def test_intervals_are_shown_on_request(folder: Folder) -> None:
    results = evaluated(sums(folder), says("0", "1", "x", "x", "x", "x"), confidence=0.9)
    interval = results["intervals"]["sums"]["exact_match,none"]
    assert interval == pytest.approx(wilson_interval(2 / 6, 6, 0.9))
    head, _, line = make_table(results).splitlines()
    assert head.endswith("|  90% interval |")
    assert line.endswith(f"|{interval[0]:.4f} – {interval[1]:.4f}|")
    assert set(results["results"]["sums"]) == {
        *("name", "alias", "sample_len", "exact_match,none", "exact_match_stderr,none")
    }


@pytest.mark.parametrize("how", ["run", "task", "template"])
def test_documents_can_be_clustered(folder: Folder, how: str) -> None:
    text = {"task": "cluster: part\n", "template": "cluster: 'p{{part}}'\n"}.get(how, "")
    settings = {"cluster": "part"} if how == "run" else {}
    lm = says("0", "1", "x", "x", "4", "5")
    results = evaluated(sums(folder, text), lm, **settings)
    expected = clustered_stderr([1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 2, 2])
    assert results["results"]["sums"]["exact_match_stderr,none"] == pytest.approx(expected)
    assert results["clusters"]["sums"]["count"] == 3


def test_clusters_nobody_has_are_refused_before_the_model_is_asked(folder: Folder) -> None:
    lm = says()
    with pytest.raises(ConfigError, match="no task has documents with a column 'prat'"):
        evaluated(sums(folder), lm, cluster="prat")
    with pytest.raises(ConfigError, match=r"no column 'prat'\. Did you mean 'part'"):
        evaluated(sums(folder, "cluster: prat\n"), lm)
    assert lm.requests == []


def test_groups_count_what_the_limit_left(folder: Folder) -> None:
    sums(folder, count=10)
    folder.write("more.yaml", "include: sums.yaml\ntask: more\n")
    folder.rows("few.jsonl", [{"question": "q0", "answer": "0"}, {"question": "q1", "answer": "x"}])
    folder.write(
        "few.yaml",
        "include: sums.yaml\ntask: few\ndataset_kwargs: {data_files: {test: few.jsonl}}\n",
    )
    joint = "aggregate_metric_list: [{metric: exact_match, weight_by_size: %s}]\n"
    folder.write("inner.yaml", "group: inner\ntask: [sums, few]\n" + joint % "true")
    folder.write("outer.yaml", "group: outer\ntask: [inner, more]\n" + joint % "false")
    lm = says("0", "1", "x", "x")
    results = evaluated(folder, lm, "outer", limit=4, confidence=0.95)["results"]
    # sums and more: 2 of 4 right; few: 1 of its 2 documents.
    assert results["inner"]["exact_match,none"] == pytest.approx((2 + 1) / (4 + 2))
    assert results["inner"]["sample_len"] == 6
    assert results["outer"]["exact_match,none"] == pytest.approx((0.5 + 0.5 + 0.5) / 3)
    errors = [results[name]["exact_match_stderr,none"] for name in ("sums", "few", "more")]
    assert results["outer"]["exact_match_stderr,none"] == pytest.approx(
        math.sqrt(sum(error**2 for error in errors)) / 3
    )


def test_the_command_shows_intervals(lm_eval_command: Command) -> None:
    run = ("run", "--model", "dummy", "--tasks", "demo_choice", "--limit", "8")
    done = lm_eval_command(*run, "--confidence", "0.95")
    assert done.returncode == 0, done.stderr
    assert "95% interval" in done.stdout
    done = lm_eval_command(*run, "--confidence", "95")
    assert done.returncode == 2
    assert "confidence must be between 0 and 1, such as 0.95" in done.stderr


# -- multiple choice, by its definition -------------------------------------------------------

TEXTS = st.text(min_size=0, max_size=6)


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[tuple[float, bool]], list[str], Any]:
    choices = draw(st.lists(TEXTS, min_size=1, max_size=5))
    numbers = st.floats(-50, 0)
    answers = draw(
        st.lists(st.tuples(numbers, st.booleans()), min_size=len(choices), max_size=len(choices))
    )
    index = st.sampled_from([documents.NOT_A_CHOICE, *range(len(choices))])
    gold = draw(st.one_of(index, st.lists(index, min_size=1, max_size=3)))
    return answers, choices, gold


@given(st.lists(questions(), min_size=1, max_size=6))
def test_all_documents_at_once_score_as_each_alone_by_the_definition(batch: Any) -> None:
    answers, choices, golds = (list(column) for column in zip(*batch, strict=True))
    wanted = ("acc", "acc_norm", "acc_bytes", "exact_match", "mcc", "brier_score", "logprob")
    columns = documents.score_choices(answers, choices, golds, wanted)
    for i, (said, offered, gold) in enumerate(batch):
        right = set(gold) if isinstance(gold, list) else {gold}
        values = [loglikelihood for loglikelihood, _ in said]
        assert columns["acc"][i] == float(values.index(max(values)) in right)
        if all(offered):
            for name, size in (("acc_norm", len), ("acc_bytes", documents.count_bytes)):
                scaled = [v / size(c) for v, c in zip(values, offered, strict=True)]
                assert columns[name][i] == float(scaled.index(max(scaled)) in right)
        assert columns["exact_match"][i] == int(any(said[j][1] for j in right if j >= 0))
        assert columns["mcc"][i] == (gold, values.index(max(values)))
        assert sum(columns["brier_score"][i][1]) == pytest.approx(1.0)
        known = [math.exp(values[j]) for j in right if j >= 0]
        if not isinstance(gold, list):
            assert math.exp(columns["logprob"][i]) == pytest.approx(sum(known))
        alone = documents.score_multiple_choice(said, offered, gold, wanted[:5])
        assert alone == {name: columns[name][i] for name in wanted[:5]}


def test_probabilities_of_choices() -> None:
    brier = get_aggregation("brier_score")
    assert brier([(0, [0.75, 0.25]), (1, [0.5, 0.5])]) == pytest.approx((0.125 + 0.5) / 2)
    assert brier([(documents.NOT_A_CHOICE, [0.75, 0.25])]) == pytest.approx(0.625)
    likelihood = get_aggregation("likelihood")
    items = [(0, (math.log(0.5), math.log(0.1))), ([0, 1], (math.log(0.2), math.log(0.2)))]
    assert likelihood(items) == pytest.approx((0.5 + 0.4) / 2)
    judged = [
        (True, {"idx": {"paragraph": p, "question": 0}, "label": label})
        for p, label in ((0, 1), (0, 1), (1, 1), (1, 0))
    ]
    assert get_aggregation("acc_all")(judged) == 0.5
    assert standard_error(get_aggregation("acc_all"), judged, 10) == pytest.approx(0.5)
    assert standard_error(brier, [(0, [1.0, 0.0]), (0, [0.0, 1.0])], 10) == pytest.approx(1.0)


def test_choices_can_be_divided_by_their_tokens(colours: Folder) -> None:
    task = colours.path / "colours.yaml"
    task.write_text(task.read_text().replace("metric: acc\n", "metric: acc_tokens\n"))
    lm = ScriptedLM(loglikelihood=lambda context, continuation: (-1.0, False))
    with pytest.raises(ModelError, match="ScriptedLM has no method _encode_pair to count tokens"):
        evaluated(colours, lm, "colours")
    # The second choice of each pair has a token more, so the same likelihood a token less.
    lm._encode_pair = lambda context, continuation: (  # type: ignore[attr-defined]
        [0],
        [0] * (1 + (continuation.strip() in ("red", "black", "pink"))),
    )
    results = evaluated(colours, lm, "colours")
    assert results["results"]["colours"]["acc_tokens,none"] == 0.5
    assert [r.tokens for r in lm.requests[:2]] == [1, 2]


def test_tokens_are_counted_beside_a_function_of_ones_own(colours: Folder) -> None:
    """With a custom function, documents are scored one by one."""
    colours.write("own.py", "def always(items):\n    return 1.0\n")
    task = colours.path / "colours.yaml"
    metrics = "metric: acc_tokens\n  - metric: !function own.always\n    aggregation: mean\n"
    task.write_text(task.read_text().replace("metric: acc\n", metrics))
    lm = ScriptedLM(loglikelihood=lambda context, continuation: (-1.0, False))
    lm._encode_pair = lambda context, continuation: (  # type: ignore[attr-defined]
        [0],
        [0] * (1 + (continuation.strip() in ("red", "black", "pink"))),
    )
    row = evaluated(colours, lm, "colours")["results"]["colours"]
    assert (row["acc_tokens,none"], row["always,none"]) == (0.5, 1.0)


def test_pipelines_may_keep_the_shape_of_likelihoods(colours: Folder) -> None:
    task = colours.path / "colours.yaml"
    colours.write("keep.py", "def keep(resps, docs):\n    return [list(r) for r in resps]\n")
    text = (
        "filter_list: [{name: k, filter: [{function: custom, filter_fn: !function keep.keep}]}]\n"
    )
    task.write_text(task.read_text() + text + "repeats: 2\n")
    rolling = task.read_text().replace("task: colours\n", "task: rolling\n")
    rolling = rolling.replace("multiple_choice", "loglikelihood_rolling").replace(
        "acc\n", "bits_per_byte\n"
    )
    colours.write(
        "rolling.yaml",
        rolling.replace("doc_to_choice: colours\ndoc_to_target: answer", "doc_to_target: thing"),
    )
    lm = ScriptedLM(
        loglikelihood=lambda context, colour: (-float(len(colour)), False),
        rolling=lambda text: -float(len(text)) * math.log(2),
    )
    results = evaluated(colours, lm, "colours", "rolling")["results"]
    assert results["colours"]["acc,k"] == 3 / 6  # red, being shorter; white and blue, being first
    assert results["rolling"]["bits_per_byte,k"] == pytest.approx(1.0)


# -- every metric -----------------------------------------------------------------------------

PUBLISHED_METRICS = {
    *("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "acc_all", "exact_match", "perplexity"),
    *("word_perplexity", "byte_perplexity", "bits_per_byte", "bypass", "mcc", "f1", "likelihood"),
    *("bleu", "chrf", "chrf++", "ter", "brier_score"),
}
PUBLISHED_AGGREGATIONS = {
    *("bypass", "mean", "nanmean", "median", "perplexity", "weighted_perplexity", "bits_per_byte"),
    *("f1", "matthews_corrcoef", "bleu", "chrf", "chrf++", "ter", "brier_score"),
}


def test_the_published_metrics_are_there() -> None:
    assert set(metric_registry) >= PUBLISHED_METRICS
    assert set(aggregation_registry) >= PUBLISHED_AGGREGATIONS


@given(st.text(), st.text())
def test_metrics_of_text_lie_between_none_and_all(answer: str, gold: str) -> None:
    for metric in (exact_match, anls):
        (value,) = metric([answer], [gold]).values()
        assert 0.0 <= value <= 1.0
        (own,) = metric([gold], [gold]).values()
        assert own == 1.0


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), min_size=1, max_size=4))
def test_translation_metrics_take_any_text(items: list[tuple[str, str]]) -> None:
    for name in ("bleu", "chrf", "chrf++", "ter"):
        value = get_aggregation(name)(items)
        assert math.isfinite(value)
        assert value >= 0
        assert name == "ter" or value <= 100 + 1e-9


@given(st.lists(st.one_of(st.floats(-100, 0), st.just(math.nan)), min_size=1, max_size=6))
def test_aggregations_of_numbers_take_any_number(values: list[float]) -> None:
    for name in ("mean", "nanmean", "perplexity"):
        value = get_aggregation(name)(values)
        known = [v for v in values if not math.isnan(v)]
        assert math.isnan(value) == (not known if name == "nanmean" else len(known) < len(values))
    pairs = [(value, 3) for value in values]
    assert get_aggregation("weighted_perplexity")(pairs) == pytest.approx(
        get_aggregation("perplexity")([value / 3 for value in values]), nan_ok=True
    )


@pytest.mark.parametrize("count", [1, 7])
@pytest.mark.parametrize("right", [True, False])
def test_all_right_and_all_wrong(count: int, right: bool) -> None:
    value = 1.0 if right else 0.0
    assert get_aggregation("mean")([value] * count) == value
    assert get_aggregation("f1")([(1, int(right))] * count) == value
    assert get_aggregation("matthews_corrcoef")([(1, int(right))] * count) == 0.0
    text = "the cat sat on the mat"
    answer = text if right else "zebra"
    assert get_aggregation("bleu")([(text, answer)] * count) == pytest.approx(100 * value)
    assert get_aggregation("chrf")([(text, answer)] * count) == pytest.approx(100 * value, abs=5)
    error = standard_error(get_aggregation("mean"), [value] * count, 10)
    assert error == (None if count == 1 else 0.0)


def test_likeness_of_texts_by_hand() -> None:
    assert anls(["hallo"], ["hello"]) == {"anls": 0.8}
    assert anls(["xyz"], ["hello"]) == {"anls": 0.0}
    assert anls(["Rome"], [["Paris", "rome"]]) == {"anls": 1.0}


# -- the evaluate library ---------------------------------------------------------------------

HOME_MADE = """\
import datasets
import evaluate

class Shared(evaluate.Metric):
    def _info(self):
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description="", citation="", inputs_description="",
            features=datasets.Features({"predictions": text, "references": text}),
        )

    def _compute(self, predictions, references, bonus=0.0):
        pairs = list(zip(predictions, references))
        return {"shared": sum(p[:1] == r[:1] for p, r in pairs) / len(pairs) + bonus}
"""


def test_metrics_come_from_the_evaluate_library_where_asked(folder: Folder) -> None:
    script = folder.write("metrics/shared/shared.py", HOME_MADE)
    text = f"metric_list:\n  - metric: {script.parent}\n    hf_evaluate: true\n    bonus: 1.0\n"
    row = evaluated(sums(folder, text), says("0", "11", "22", "x", "x", "x"))["results"]["sums"]
    assert row["shared,none"] == pytest.approx(1.0 + 3 / 6)


def test_a_missing_library_is_named_with_its_remedy(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    command = r"pip install -e '\.\[metrics\]'"
    for entry, package in (
        ("{metric: wer}", "`evaluate` library, which is not installed"),
        ("{metric: accuracy, hf_evaluate: true}", "`evaluate` library, which is not installed"),
        ("{metric: bleu}", "bleu needs the package sacrebleu, which is not installed"),
    ):
        with pytest.raises(ConfigError, match=rf"{package}\. Install it with: {command}"):
            evaluated(sums(folder, f"metric_list: [{entry}]\n"), says())


def test_a_metric_the_library_does_not_have_is_explained(folder: Folder) -> None:
    text = "metric_list: [{metric: ./nowhere/to_be_found, hf_evaluate: true}]\n"
    with pytest.raises(DataError, match="could not be loaded from the `evaluate` library"):
        evaluated(sums(folder, text), says())


# -- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("metric_list: [{metric: exact_mtach}]\n", UnknownNameError, "mean 'exact_match'"),
        (
            "metric_list: [{metric: acc}]\n",
            ConfigError,
            "acc cannot be computed for output_type gen",
        ),
        ("metric_list: [{metric: perplexity}]\n", ConfigError, "only for loglikelihood"),
        ("metric_list: [{metric: exact_match, reduction: maen}]\n", UnknownNameError, "'mean'"),
        ("metric_list: [{metric: exact_match, reduction: 3}]\n", ConfigError, "`reduction` must"),
        ("metric_list: [{metric: exact_match, aggregation: men}]\n", UnknownNameError, "'mean'"),
        ("metric_list: acc\n", ConfigError, "metric_list must be a list"),
        ("think_tags: [1]\n", ConfigError, "think_tags must be true"),
    ],
)
def test_mistakes_are_told_before_the_model_is_asked(
    folder: Folder, text: str, error: type[EvalError], said: str
) -> None:
    lm = says()
    with pytest.raises(error, match=said) as told:
        evaluated(sums(folder, text), lm)
    assert "sums" in str(told.value)
    assert lm.requests == []


def test_validate_finds_mistakes_in_the_lists_of_pipelines(
    lm_eval_command: Command, folder: Folder
) -> None:
    text = NUMBER.replace(
        "  - name: loose\n",
        "    metric_list: [{metric: exact_match, reduction: maen}]\n  - name: loose\n",
    )
    sums(folder, text)
    done = lm_eval_command("validate", "--tasks", "sums", "--include_path", folder.path)
    assert done.returncode == 1
    assert "unknown reduction 'maen'. Did you mean 'mean'" in done.stdout + done.stderr


@pytest.mark.parametrize("metric", ["exact_mtach", "bleu", "word_perplexity", "anls"])
def test_metrics_that_do_not_fit_choices_are_refused(colours: Folder, metric: str) -> None:
    task = colours.path / "colours.yaml"
    task.write_text(task.read_text().replace("metric: acc\n", f"metric: {metric}\n"))
    with pytest.raises((ConfigError, UnknownNameError), match=metric):
        evaluated(colours, ScriptedLM(), "colours")


BROKEN = {
    "raises": (
        "metric_list: [{metric: !function own.fails}]\n",
        "def fails(references, predictions):\n"
        "    return {'3': 1 / 0}.get(predictions[0]) if predictions[0] == '3' else 1.0\n",
        "task 'sums', document 3: scoring it failed: ZeroDivisionError: division by zero",
    ),
    "nothing": (
        "metric_list: [{metric: exact_match, aggregation: !function own.none}]\n",
        "def none(items):\n    pass\n",
        "task 'sums': the aggregation of exact_match returned None; it must return a number",
    ),
    "filter": (
        "filter_list: [{name: f, filter: [{function: custom, filter_fn: !function own.f}]}]\n",
        "def f(resps, docs):\n    raise KeyError('x')\n",
        "task 'sums': filtering its answers failed: KeyError: 'x'",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_no_answer_is_lost_to_code_that_fails(folder: Folder, kind: str) -> None:
    text, source, said = BROKEN[kind]
    folder.write("own.py", source)
    with pytest.raises(EvalError, match=re.escape(said)) as told:
        evaluated(sums(folder, text), says(*"012345"))
    answers = told.value.answers
    assert answers is not None
    assert [(line["doc_id"], line["resps"]) for line in answers["sums"]] == [
        (i, [str(i)]) for i in range(6)
    ]


def test_answers_that_could_not_be_scored_wait_in_the_runs_folder(
    lm_eval_command: Command, folder: Folder
) -> None:
    folder.write("own.py", "def joined(items):\n    pass\n")
    sums(folder, "metric_list: [{metric: exact_match, aggregation: !function own.joined}]\n")
    words = ("--model", "dummy", "--tasks", "sums", "--include_path", folder.path)
    done = lm_eval_command("run", *words, "--output_path", folder.path / "out")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    (kept,) = re.findall(r"All answers are stored in (\S+)\. Fix the error", done.stderr)
    assert Path(kept) == folder.path / "out" / "dummy"
    assert not list(Path(kept).glob("results_*"))
    folder.write("own.py", "def joined(items):\n    return sum(items)\n")
    again = lm_eval_command("resume", folder.path / "out")
    assert again.returncode == 0, again.stderr
    assert "6 of 6 answers were found in the store" in again.stderr
    assert "changed since the earlier run: its configuration or code" in again.stderr
    assert len(list(Path(kept).glob("results_*"))) == 1


def test_answers_that_could_not_be_scored_are_kept_where_no_folder_was_named(
    lm_eval_command: Command, folder: Folder
) -> None:
    folder.write("own.py", "def none(items):\n    pass\n")
    sums(folder, "metric_list: [{metric: exact_match, aggregation: !function own.none}]\n")
    done = lm_eval_command(
        *("run", "--model", "dummy", "--tasks", "sums", "--include_path", folder.path)
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    (kept,) = re.findall(r"All answers are stored in (\S+)\. Fix", done.stderr)
    (file,) = Path(kept).glob("samples_sums_*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["doc"]["question"] for line in lines] == [f"q{i}" for i in range(6)]
    assert all(line["resps"] for line in lines)
    assert not list(Path(kept).glob("results*"))
    shutil.rmtree(kept)


def test_a_metric_measures_what_the_filters_left() -> None:
    kept: Metric[Any, Any] = Metric("n", lambda references, predictions: len(predictions[0]))
    assert kept.measure("gold", ["a", "b", "c"]) == {"n": 3}
