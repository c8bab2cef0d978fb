"""Tests avg@k, maj@k, pass@k and pass^k, from their names to scores and standard errors."""

from __future__ import annotations

import itertools
import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lm_eval
from lm_eval.cli import main
from lm_eval.errors import ConfigError, DataError, UnknownNameError
from lm_eval.metrics.repeat_metrics import parse_repeat_metric
from lm_eval.models.scripted import ScriptedLM
from lm_eval.stats.repeats import majority_at_k
from tests.library_rows import rows_of, write_mirror

SAMPLED = {"until": ["\n"], "do_sample": True, "temperature": 0.8}


def task_of(folder: Path, answers: Sequence[str], **settings: Any) -> dict[str, Any]:
    """Returns the configuration of a task whose documents have these gold answers."""
    rows = [json.dumps({"number": n, "answer": a}) for n, a in enumerate(answers)]
    (folder / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    return {
        "task": "sums",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "rows.jsonl")}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{number}}:",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": SAMPLED,
        **settings,
    }


EXTRACTING = [
    {
        "name": "number",
        "filter": [
            {"function": "regex", "regex_pattern": "is (\\d+)"},
            {"function": "take_first"},
        ],
    }
]


def scripted(answers: Sequence[Sequence[str]]) -> ScriptedLM:
    """Returns a model that gives these answers, those of each document in turn."""
    left = [list(one) for one in answers]
    return ScriptedLM(generate=lambda context, settings: left[int(context[:-1])].pop(0))


def evaluate(model: Any, task: Any, **settings: Any) -> Any:
    return lm_eval.simple_evaluate(model, tasks=[task], **settings)


#: Two documents with gold answers 4 and 5, and four answers to each.
ANSWERS = [
    ["it is 4", "it is 5", "it is 4", "no idea"],
    ["it is 5", "it is 3", "it is 3", "it is 3"],
]


def test_every_metric_and_its_standard_error_by_hand(tmp_path: Path) -> None:
    names = ["avg@4", "avg@2", "maj@4", "maj@3", "maj@1", "pass@1", "pass@2", "pass^2", "pass^1"]
    task = task_of(tmp_path, ["4", "5"], filter_list=EXTRACTING)
    results = evaluate(scripted(ANSWERS), task, repeats=4, metrics=names)
    row = results["results"]["sums"]
    by_hand = {
        "avg@4": (2 / 4, 1 / 4),
        "avg@2": (2 / 4, 1 / 4),
        "maj@4": (1.0, 0.0),
        # 4 5 4, 4 5 -, 4 4 -, 5 4 -: of the second and fourth, each answer wins half. And of the
        # second document, 5 wins in none: 5 3 3 (three times) and 3 3 3.
        "maj@3": ((1 + 1 / 2 + 1 + 1 / 2) / 4, 0.0),
        "maj@1": (2 / 4, 1 / 4),
        "pass@1": (2 / 4, 1 / 4),
        "pass@2": (1 - 1 / 6, 1 - 3 / 6),  # pairs of wrong answers: 1 of 6, 3 of 6
        "pass^2": (1 / 6, 0.0),
        "pass^1": (2 / 4, 1 / 4),
    }
    for name, (first, second) in by_hand.items():
        assert row[f"{name},number"] == pytest.approx((first + second) / 2), name
        # s / sqrt(2), where s = |difference| / sqrt(2)
        assert row[f"{name}_stderr,number"] == pytest.approx(abs(first - second) / 2), name
    assert not [key for key in row if key.startswith("exact_match")]
    sample = results["samples"]["sums"][0]
    assert sample["repeat_scores"] == {"exact_match": [1.0, 0.0, 1.0, 0.0]}
    assert sample["filtered_repeats"] == [["4", "5", "4", "[invalid]"]]
    assert results["repeats_without_answer"] == {"sums": {"number": 1}}


def brute_majority(votes: Sequence[Any], values: Sequence[float], k: int) -> float:
    """Returns the mean over all draws of `k` answers, counted one by one."""
    found = []
    for drawn in itertools.combinations(range(len(votes)), k):
        counts = Counter(votes[i] for i in drawn if votes[i] is not None)
        most = max(counts.values(), default=0)
        winners = [vote for vote in counts if counts[vote] == most] or [None]
        scores = [
            float(np.mean([v for v, vote in zip(values, votes, strict=True) if vote == winner]))
            for winner in winners
        ]
        found.append(np.mean(scores))
    return float(np.mean(found))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=8), st.data())
def test_the_majority_is_the_mean_over_all_draws(votes: list[Any], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(votes)))
    worth = {None: 0.25, "a": 1.0, "b": 0.0, "c": 0.5}
    values = [worth[vote] for vote in votes]
    assert majority_at_k(votes, values, k) == pytest.approx(brute_majority(votes, values, k))


def test_many_repeats_do_not_overflow() -> None:
    votes = ["a"] * 1200 + ["b"] * 800
    assert majority_at_k(votes, [float(v == "a") for v in votes], 101) == pytest.approx(
        0.98, abs=1e-2
    )


@pytest.mark.parametrize("name", ["avg@8", "maj@5", "pass@4", "pass^4"])
def test_intervals_cover_the_truth_with_repeats_nested_in_documents(name: str) -> None:
    from benchmarks.repeats import coverage

    # 250 runs: 95 % of them within 4.3 standard deviations of the binomial distribution.
    assert 0.89 <= coverage(60, 8, name, 250) <= 1.0


def test_the_demo_model_with_sampling_agrees_with_a_count_of_its_answers() -> None:
    names = ["avg@5", "maj@5", "maj@3", "pass@2", "pass^2"]
    results = evaluate("demo", "demo_sums", limit=12, metrics=names)
    samples = [s for s in results["samples"]["demo_sums"] if s["filter"] == "first-answer"]
    assert len(samples) == 12
    counted: dict[str, list[float]] = {name: [] for name in names}
    for sample in samples:
        texts, gold = sample["filtered_repeats"][0], sample["target"].split()[-1].rstrip(".")
        right = [float(text == gold) for text in texts]
        votes = [None if text == "[invalid]" else text for text in texts]
        pairs = list(itertools.combinations(right, 2))
        counted["avg@5"].append(sum(right) / 5)
        counted["maj@5"].append(brute_majority(votes, right, 5))
        counted["maj@3"].append(brute_majority(votes, right, 3))
        counted["pass@2"].append(sum(map(max, pairs)) / 10)
        counted["pass^2"].append(sum(map(min, pairs)) / 10)
    row = results["results"]["demo_sums"]
    assert 0 < row["avg@5,first-answer"] < 1
    for name, values in counted.items():
        error = np.std(values, ddof=1) / math.sqrt(12)
        assert row[f"{name},first-answer"] == pytest.approx(np.mean(values)), name
        assert row[f"{name}_stderr,first-answer"] == pytest.approx(error), name
    # The pipeline that votes itself has a score of its own for the repeats.
    assert not [key for key in row if key.endswith(",majority")]


def test_aime_with_32_repeats(tmp_path: Path) -> None:
    mirror, dataset = tmp_path / "mirror", ("gneubig/aime-1983-2024", "default", "train")
    write_mirror(mirror, [dataset])
    rows = rows_of(*dataset)
    golds = {f"Question: {row['Question']}\nAnswer:": str(row["Answer"]) for row in rows}
    given: Counter[str] = Counter()

    def answer(context: str, settings: dict[str, Any]) -> str:
        given[context] += 1
        number, repeat = list(given).index(context), given[context]
        # The first 8 answers to document 0 are correct, and the first 16 to document 1.
        right = golds[context] if repeat <= 8 * (number + 1) else str(repeat % 2 + 1000)
        return f"attempt {repeat}: \\boxed{{{right}}}"

    results = evaluate(
        ScriptedLM(generate=answer),
        "aime",
        limit=2,
        repeats=32,
        metrics=["avg@32", "maj@32", "pass@4", "pass^4"],
        gen_kwargs="do_sample=True,temperature=0.6,top_p=0.95",
        data_dir=str(mirror),
    )
    row = results["results"]["aime"]
    assert set(given.values()) == {32}
    some, half = math.comb(8, 4), math.comb(16, 4)
    by_hand = {
        "avg@32": (8 / 32, 16 / 32),
        "maj@32": (0.0, 1.0),  # 8 against 12 and 12; 16 against 8 and 8
        "pass@4": (1 - math.comb(24, 4) / math.comb(32, 4), 1 - half / math.comb(32, 4)),
        "pass^4": (some / math.comb(32, 4), half / math.comb(32, 4)),
    }
    for name, (first, second) in by_hand.items():
        assert row[f"{name},none"] == pytest.approx((first + second) / 2), name
        assert row[f"{name}_stderr,none"] == pytest.approx(abs(first - second) / 2), name
    assert results["configs"]["aime"]["repeats"] == 32


def test_repeats_alone_add_the_average(tmp_path: Path) -> None:
    task = task_of(tmp_path, ["4", "5"], filter_list=EXTRACTING)
    row = evaluate(scripted(ANSWERS), task, repeats=4)["results"]["sums"]
    assert row["exact_match,number"] == 1.0  # of the first answers, as without repeats
    assert row["avg@4,number"] == pytest.approx(3 / 8)


def test_metrics_of_repeats_in_a_task_file(tmp_path: Path) -> None:
    task = task_of(
        tmp_path,
        ["a", "b"],
        repeats=2,
        metric_list=[
            {"metric": "exact_match", "ignore_case": True},
            {"metric": "pass@2"},
            {"metric": "avg@2", "of": {"metric": "exact_match", "ignore_case": False}},
            {"metric": "exact_match:pass^2"},
        ],
    )
    row = evaluate(scripted([["A", "x"], ["b", "B"]]), task)["results"]["sums"]
    assert row["exact_match,none"] == 1.0
    assert row["pass@2,none"] == 1.0
    assert row["avg@2,none"] == 0.25
    assert row["exact_match:pass^2,none"] == 0.5


def last_word(text: str) -> str:
    return text.split()[-1]


def test_a_task_that_scores_itself_votes_on_its_filtered_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def process(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
        return {"right": float(last_word(results[0]) == doc["answer"]), "length": 1.0}

    answers = [["so 4", "hence 4", "well 5", "ok 5", "then 4"]]
    own = {"process_results": process, "metric_list": [{"metric": "right"}], "repeats": 5}
    names = ["maj@5", "avg@5"]
    whole = evaluate(scripted(answers), task_of(tmp_path, ["4"], **own), metrics=names)
    row = whole["results"]["sums"]
    assert row["maj@5,none"] == pytest.approx(3 / 5)  # five different texts, one vote each
    assert "maj@5 votes on the whole text" in caplog.text
    caplog.clear()
    task = task_of(tmp_path, ["4"], **own, vote_on=last_word)
    row = evaluate(scripted(answers), task, metrics=names)["results"]["sums"]
    assert (row["maj@5,none"], row["avg@5,none"]) == (1.0, pytest.approx(3 / 5))
    assert "whole text" not in caplog.text
    assert not [key for key in row if key.startswith(("right", "length"))]


def test_stored_answers_are_scored_with_other_metrics_of_repeats(tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings: dict[str, Any] = {"limit": 6, "output_path": str(out), "log_samples": True}
    first = evaluate("demo", "demo_sums", repeats=4, metrics="avg@4", **settings)
    again = lm_eval.score(out, metrics=["avg@4", "pass@3"])
    key = "avg@4,first-answer"
    assert again["results"]["demo_sums"][key] == first["results"]["demo_sums"][key]
    assert "pass@3,first-answer" in again["results"]["demo_sums"]
    with pytest.raises(ConfigError, match="pass@5 needs at least 5 answers"):
        lm_eval.score(out, metrics="pass@5")
    # Without other metrics, those of the run are reported again.
    assert key in lm_eval.score(out)["results"]["demo_sums"]
    logs = tmp_path / "logs"
    logs.mkdir()
    for log in out.rglob("samples_*.jsonl"):
        (logs / log.name).write_bytes(log.read_bytes())
    logged = lm_eval.score(logs, metrics=["avg@4"])
    assert logged["results"]["demo_sums"][key] == first["results"]["demo_sums"][key]


def test_greedy_repeats_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    task = task_of(tmp_path, ["4"], generation_kwargs={"until": ["\n"]})
    with caplog.at_level(logging.WARNING):
        evaluate(scripted([["4", "4"]]), task, repeats=2)
    assert "2 answers per document are generated greedily, so they are all alike" in caplog.text
    caplog.clear()
    task = task_of(tmp_path, ["4"])
    evaluate(scripted([["4", "4"]]), task, repeats=2)
    assert "greedily" not in caplog.text


def never(*arguments: Any) -> str:
    raise AssertionError("the model was asked")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metrics", "pass@5", "--repeats", "2"], "pass@5 needs at least 5 answers per document"),
        (["--metrics", "avg@0"], "avg@0 needs at least 1 answers"),
        (["--metrics", "bleu:avg@5"], "bleu"),
        (["--metrics", "exact_mach:avg@5"], "unknown metric 'exact_mach'"),
        (["--metrics", "avgg@5"], "'avgg@5'. Metrics of repeated answers are avg@K, maj@K"),
        (["--metrics", "pass^k"], "where K is a number of answers, as in avg@32"),
        (["--metrics", "bleu:pass@5"], "Name another metric: METRIC:pass@5."),
        (["--repeats", "0"], "repeats must be a whole number of at least 1"),
        (["--metrics", ","], "metrics must contain at least one name"),
        (["--predict_only", "--output_path", "x", "--metrics", "avg@5"], "cannot be combined"),
    ],
)
def test_what_cannot_be_computed_is_reported_before_the_model_loads(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "broken.py"
    file.write_text("from lm_eval.api.model import LM\nclass Broken(LM):\n    'Has no methods.'\n")
    wrong_model = ["--model", f"{file}:Broken"]
    assert main(["run", *wrong_model, "--tasks", "demo_sums", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_repeats_of_log_likelihood_tasks_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["run", "--model", "demo", "--tasks", "demo_choice", "--repeats", "4"])
    error = capsys.readouterr().err
    assert code == 2
    assert "task 'demo_choice': repeats can be set only for tasks that generate text" in error


def test_a_filter_that_takes_more_repeats_than_there_are_is_refused(tmp_path: Path) -> None:
    pipeline = {"name": "few", "filter": [{"function": "take_first_k", "k": 3}]}
    task = task_of(tmp_path, ["4"], filter_list=[pipeline])
    with pytest.raises(ConfigError, match="take_first_k needs 3 answers per document"):
        evaluate(ScriptedLM(generate=never), task, repeats=2)


def test_an_unlisted_metric_of_a_task_that_scores_itself_is_refused(tmp_path: Path) -> None:
    own: dict[str, Any] = {"process_results": never, "metric_list": [{"metric": "right"}]}
    task = task_of(tmp_path, ["4"], repeats=2, **own)
    with pytest.raises(UnknownNameError, match="reports no metric 'wrong'"):
        evaluate(ScriptedLM(generate=never), task, metrics="wrong:avg@2")


def test_pass_rates_of_parts_of_points_are_refused(tmp_path: Path) -> None:
    def half(references: Any, predictions: Any) -> float:
        return 0.5

    task = task_of(tmp_path, ["4"], repeats=2, metric_list=[{"metric": half}])
    row = evaluate(scripted([["4", "4"]]), task, metrics="avg@2")["results"]["sums"]
    assert row["avg@2,none"] == 0.5
    with pytest.raises(DataError, match=r"document 0.*1 .correct. or 0 .wrong., not 0.5"):
        evaluate(scripted([["4", "4"]]), task, metrics="pass@2")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("avg@32", ("avg@", 32, None)),
        ("exact_match:pass^4", ("pass^", 4, "exact_match")),
        ("pass@k", None),
        ("avg", None),
        ("xavg@3", None),
    ],
)
def test_names_of_repeat_metrics(name: str, parts: tuple[str, int, str | None] | None) -> None:
    found = parse_repeat_metric(name)
    assert (None if found is None else (found.kind, found.k, found.base)) == parts


def test_every_repeat_of_a_code_task_is_run(tmp_path: Path) -> None:
    runs: Callable[..., Any] = evaluate
    task = task_of(
        tmp_path,
        ["assert double(2) == 4"],
        unsafe_code=True,
        filter_list=[{"name": "own", "filter": [{"function": "remove_whitespace"}]}],
        metric_list=[{"metric": _passes, "k": [1]}],
    )
    good, bad = "double = lambda x: 2 * x", "double = lambda x: x * x * x"
    results = runs(
        scripted([[good, bad, good, bad]]),
        task,
        repeats=4,
        metrics=["pass@2", "avg@4"],
        confirm_run_unsafe_code=True,
    )
    row = results["results"]["sums"]
    assert row["avg@4,own"] == 0.5
    assert row["pass@2,own"] == pytest.approx(1 - 1 / 6)
    assert results["programs"]["sums"]["programs"] == 2


def _passes(references: list[str], predictions: list[list[str]], k: list[int]) -> Any:
    from lm_eval.code_eval import pass_at_k

    return pass_at_k(references=references, predictions=predictions, k=k)
