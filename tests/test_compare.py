"""Tests comparisons of stored runs against values that are computed by hand."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.cli import main
from lm_eval.comparison.formats import FORMATS
from lm_eval.comparison.rows import Comparison
from lm_eval.comparison.sources import find_source
from lm_eval.comparison.verdicts import verdict
from lm_eval.models.demo.model import WEIGHTS
from lm_eval.stored_requests import Changes
from tests.comparison_runs import published_logs, run, write_tasks
from tests.conftest import Folder

#: Questions 0 to 3 are answered correctly by A alone, question 6 by B alone.
A, B = range(6), (4, 5, 6)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = Folder(tmp_path_factory.mktemp("comparison"))
    write_tasks(folder)
    return folder


NAMES = "by_size,by_task,passages,words,stories"


@pytest.fixture(scope="module")
def runs(tasks: Folder) -> tuple[Path, Path]:
    """Returns two stored runs of all tasks."""
    return run(tasks, "first", A, NAMES), run(tasks, "second", B, NAMES)


@pytest.fixture(scope="module")
def found(runs: tuple[Path, Path]) -> Comparison:
    return lm_eval.compare(*runs)


def test_a_difference_has_the_error_and_the_exact_test_of_paired_scores(found: Comparison) -> None:
    row = found.row("numbers", "acc")
    difference = row.difference
    assert (row.first, row.second) == ("first", "second")
    assert (difference.first, difference.second) == (0.6, 0.3)
    assert difference.value == pytest.approx(0.3)
    stderr = math.sqrt((4 + 1 - 10 * 0.3**2) / 9 / 10)
    assert difference.stderr == pytest.approx(stderr)
    # The quantile of Student's t with 9 degrees of freedom, from a printed table.
    assert difference.interval[1] == pytest.approx(0.3 + 2.262 * stderr, abs=1e-4)
    assert difference.p_value == pytest.approx(2 * (1 + 5) / 2**5)
    assert (difference.test, difference.first_wins, difference.second_wins) == ("McNemar", 4, 1)
    assert row.detectable == pytest.approx((1.959964 + 0.841621) * stderr, rel=1e-5)
    assert row.better is None


def test_documents_of_a_cluster_count_together(found: Comparison) -> None:
    difference = found.row("passages").difference
    # Sums of the five clusters minus their expectation: 1.4, 1.4, -0.6, -1.6, -0.6.
    assert difference.stderr == pytest.approx(math.sqrt(5 / 4 * 7.2) / 10)
    assert difference.clusters == 5
    assert difference.test == "sign flips"
    # Of the 8 combinations of signs of 2, 2 and 1, four have a sum of at least 3.
    assert difference.p_value == pytest.approx(0.5)


def test_groups_are_compared_by_their_own_weights(found: Comparison) -> None:
    tasks = [found.row(name).difference for name in ("numbers", "few")]
    assert tasks[1].value == 1.0
    by_size, by_task = (found.row(name) for name in ("by_size", "by_task"))
    assert by_size.difference.value == pytest.approx((10 * 0.3 + 4 * 1.0) / 14)
    assert by_task.difference.value == pytest.approx((0.3 + 1.0) / 2)
    assert by_size.difference.stderr == pytest.approx(10 / 14 * tasks[0].stderr)
    assert by_size.difference.documents == 14
    assert by_size.group
    assert math.isnan(by_size.p_holm)  # only the tests of tasks are corrected


def test_the_order_of_runs_changes_only_signs(
    runs: tuple[Path, Path], found: Comparison, caplog: pytest.LogCaptureFixture
) -> None:
    """Runs with the same requests share them, and nothing of one model's answers stays behind."""
    for row in lm_eval.compare(*reversed(runs)).rows:
        other = found.row(row.name, row.metric).difference
        assert (row.difference.first, row.difference.second) == (other.second, other.first)
        assert row.difference.value == -other.value
    assert not caplog.records  # the configuration of the second run is known to be unchanged


def test_requests_without_their_answers_are_as_new() -> None:
    def new() -> Instance:
        return Instance("generate_until", {}, ("Why?", {}), 0, ("task", 1, 1))

    used = new()
    used.set_answers(["<think>hm</think>so"])
    used.set_thinking(["hm"], ["so"])
    used.set_tokens(3)
    used.filtered_resps["none"], used.extraction_failed = "so", ("none",)
    used.forget_answers()
    assert used == new()


def test_lower_perplexity_is_better(found: Comparison) -> None:
    row = found.row("stories")
    # Three words each: log-likelihoods of -3 where the model is right and -6 where it is wrong.
    first, second = (math.exp((3 * n + 6 * (10 - n)) / 30) for n in (6, 3))
    assert row.difference.first == pytest.approx(first)
    assert row.difference.second == pytest.approx(second)
    assert row.difference.value < 0
    assert row.difference.test == "bootstrap"
    assert row.higher_is_better is False


def test_corpus_metrics_are_compared_by_a_paired_bootstrap(found: Comparison) -> None:
    """The error agrees with a bootstrap that is written out here."""
    difference = found.row("stories").difference
    generator = np.random.default_rng(5)
    sums = [np.array([3.0 if i in numbers else 6.0 for i in range(10)]) for numbers in (A, B)]
    chosen = generator.integers(0, 10, (20_000, 10))
    drawn = [np.exp(values[chosen].sum(axis=1) / 30) for values in sums]
    differences = drawn[0] - drawn[1]
    assert difference.stderr == pytest.approx(differences.std(), rel=0.05)
    assert difference.interval == pytest.approx(np.quantile(differences, [0.025, 0.975]), abs=0.25)
    tail = min((differences <= 0).mean(), (differences >= 0).mean())
    assert difference.p_value == pytest.approx(2 * tail, abs=0.02)
    assert difference.first_wins is None


def test_bleu_is_compared_as_one_score_of_all_answers(found: Comparison) -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    answers = [
        ["yes it is right" if i in numbers else "no it is left" for i in range(10)]
        for numbers in (A, B)
    ]
    scores = [sacrebleu.corpus_bleu(one, [["yes it is right"] * 10]).score for one in answers]
    difference = found.row("words", "bleu").difference
    assert (difference.first, difference.second) == pytest.approx(tuple(scores))
    assert difference.test == "bootstrap"
    assert difference.interval[0] < difference.value < difference.interval[1]


def test_f1_of_all_documents_is_compared_by_resampling_clusters(found: Comparison) -> None:
    """Every correct answer is "yes": the precision is 1, and the recall is the accuracy."""
    difference = found.row("passages", "f1").difference
    assert difference.first == pytest.approx(2 * 0.6 / 1.6)
    assert difference.second == pytest.approx(2 * 0.3 / 1.3)
    assert (difference.test, difference.documents, difference.clusters) == ("bootstrap", 10, 5)
    assert difference.interval[0] < difference.value < difference.interval[1]


def test_p_values_of_many_tasks_are_corrected(found: Comparison) -> None:
    rows = [row for row in found.rows if not row.group]
    smallest = min(rows, key=lambda row: row.difference.p_value)
    assert smallest.p_holm == pytest.approx(min(1, smallest.difference.p_value * len(rows)))
    assert all(row.p_holm >= row.p_bh >= row.difference.p_value for row in rows)


def test_identical_runs_differ_by_exactly_zero_and_are_never_significant(
    tasks: Folder, runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(runs[0], copy)
    capsys.readouterr()
    assert main(["compare", str(runs[0]), str(copy), "--gate", "margin=0"]) == 0
    printed = capsys.readouterr().out
    assert "have the same score on every document (10)" in printed
    for row in lm_eval.compare(runs[0], copy).rows:
        assert row.difference.value == 0.0
        assert row.difference.stderr == 0.0
        assert row.difference.interval == (0.0, 0.0)
        assert row.difference.p_value == 1.0
        assert row.better is None


@pytest.mark.parametrize(
    ("numbers", "code", "said"),
    [(A, 0, "passes"), (B, 3, "is undecided: more documents"), ((), 1, "fails")],
)
def test_the_exit_code_of_a_gate_tells_whether_the_candidate_is_worse(
    tasks: Folder,
    runs: tuple[Path, Path],
    numbers: range,
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = run(tasks, f"candidate{len(numbers)}", numbers, "numbers")
    capsys.readouterr()
    assert main(["compare", str(runs[0]), str(other), "--gate", "margin=0.01"]) == code
    assert f"the gate {said}" in capsys.readouterr().err


def test_a_gate_knows_that_lower_is_better(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The first run has the lower perplexity, so the second may be worse, but not by 40."""
    words = ["--tasks", "stories"]
    assert main(["compare", *map(str, runs), *words, "--gate", "margin=40"]) == 0
    assert main(["compare", *map(str, reversed(runs)), *words, "--gate", "margin=1"]) == 0
    assert main(["compare", *map(str, runs), *words, "--gate", "margin=1"]) == 3


@pytest.mark.parametrize("text", ["0.01", "margin=", "margin=-1", "margin=nan", "size=3"])
def test_a_gate_without_a_margin_is_an_error(
    runs: tuple[Path, Path], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *map(str, runs), "--gate", text]) == 2
    assert "write margin=M" in capsys.readouterr().err


def test_flips_are_shown_in_both_directions_with_prompt_and_answers(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *map(str, runs), "--tasks", "numbers", "--flips", "2"]) == 0
    printed = capsys.readouterr().out
    found = re.findall(r"numbers, document (\d+), acc: first (\d), second (\d)", printed)
    assert found == [("0", "1", "0"), ("1", "1", "0"), ("6", "0", "1")]
    first = "first: ' no' (log-likelihood -2), before ' yes' (-3)"
    second = "second: ' yes' (log-likelihood -1), before ' no' (-2)"
    assert f"Question 6:\n  {first}\n  {second}" in printed


def test_the_documents_for_a_wanted_difference_are_printed(
    runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *map(str, runs), "--tasks", "numbers", "--detect", "0.05"]) == 0
    needed = math.ceil((1.959964 + 0.841621) ** 2 * (4.1 / 9) / 0.05**2)
    assert f"numbers, acc: {needed} documents find a difference of 0.05" in capsys.readouterr().out


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "1e-200"])
def test_a_difference_that_no_documents_can_find_is_an_error(
    runs: tuple[Path, Path], given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *map(str, runs), f"--detect={given}"]) == 2
    assert "--detect must be a difference of 1e-09 or more" in capsys.readouterr().err


def test_an_output_file_that_cannot_be_written_is_an_error_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (tmp_path, tmp_path / "missing" / "file.txt"):
        assert main(["compare", "not read", "either", "-o", str(file)]) == 2
        assert f"--output_path must name a file, but {file} is" in capsys.readouterr().err


def test_a_gate_for_a_single_document_is_undecided(
    tasks: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (run(tasks, f"single{i}", range(i), "numbers", "--limit", "1") for i in (0, 1))
    capsys.readouterr()
    assert main(["compare", str(one), str(two), "--gate", "margin=0.01"]) == 3
    message = capsys.readouterr().err
    assert "undecided: the standard error of 1 document is not known" in message
    assert "nan" not in message


def test_no_model_is_better_if_the_direction_of_the_metric_is_not_known(found: Comparison) -> None:
    row = found.row("stories")
    difference = replace(row.difference, value=2.0, interval=(1.0, 3.0), p_value=0.001)
    row = replace(row, difference=difference)
    assert row.better == "second"
    row = replace(row, higher_is_better=None)
    assert row.better is None
    sentence = verdict(row, 0.999)
    assert "undecided" not in sentence
    assert "first scores higher by" in sentence
    assert "(99.9%, " in sentence


def test_equal_scores_on_different_documents_are_not_called_higher(tasks: Folder) -> None:
    one, two = (run(tasks, f"half{i}", range(i, i + 5), "numbers,words") for i in (0, 3))
    found = lm_eval.compare(one, two)
    row = found.row("numbers", "acc")
    assert (row.difference.first, row.difference.second) == (0.5, 0.5)
    assert row.difference.first_wins == row.difference.second_wins == 3
    sentence = verdict(row, 0.95)
    low, high = (100 * end for end in row.difference.interval)
    assert "undecided" in sentence
    assert f"between {low:.2g} points and {high:.2g} points" in sentence
    assert "higher" not in sentence


def test_bleu_below_one_is_not_a_share(found: Comparison) -> None:
    row = found.row("words", "bleu")
    low = replace(row, difference=replace(row.difference, first=0.5, second=0.3, value=0.2))
    assert "points" not in verdict(low, 0.95)
    assert "points" in verdict(replace(low, metric="f1"), 0.95)


def test_a_run_in_a_folder_with_a_hash_sign_is_found(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "a#b"
    shutil.copytree(runs[0], folder)
    found = find_source(folder, Changes()).run
    assert found is not None
    assert find_source(f"{folder}#{found.record.id}", Changes()).run == found


def test_a_verdict_is_a_sentence_to_quote(found: Comparison) -> None:
    sentence = verdict(found.row("numbers"), 0.95)
    assert sentence == (
        "numbers, acc: undecided. first scores higher by 30 ± 48 points (95%, 10 documents, "
        "p = 0.38); differences under 60 points could not have been seen reliably."
    )


def test_a_verdict_about_a_corpus_metric_has_both_ends_of_the_interval(found: Comparison) -> None:
    row = found.row("stories")
    low, high = row.difference.interval
    sentence = verdict(row, 0.95)
    assert f"second scores higher by 1.4 [{-high:.2g} to {-low:.2g}] (95%, 10 documents" in sentence


def test_every_format_has_every_row(
    runs: tuple[Path, Path], found: Comparison, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    printed = {name: written(found) for name, written in FORMATS.items()}
    names = [row.name for row in found.rows]
    records = list(csv.DictReader(io.StringIO(printed["csv"])))
    assert [record["name"] for record in records] == names
    assert [float(r["difference"]) for r in records] == [r.difference.value for r in found.rows]
    content = json.loads(printed["json"])
    assert [row["name"] for row in content["rows"]] == names
    assert content["rows"][0]["p_value"] == found.rows[0].difference.p_value
    assert [run["label"] for run in content["runs"]] == ["first", "second"]
    assert printed["markdown"].count("\n|") == len(names) + 1
    lines = printed["latex"].splitlines()
    assert lines[0].startswith(r"\begin{tabular}{")
    assert lines[-1] == r"\end{tabular}"
    assert len(lines) == len(names) + 3
    assert r"word\_perplexity" in printed["latex"]
    assert not re.search(r"(?<!\\)[_%#]", printed["latex"])
    assert printed["text"].startswith("A: first\nB: second\n")
    file, words = tmp_path / "compared.csv", ["--tasks", "numbers", "--format", "csv"]
    assert main(["compare", *map(str, runs), *words, "-o", str(file)]) == 0
    capsys.readouterr()
    assert main(["compare", *map(str, runs), *words]) == 0
    assert file.read_text() == capsys.readouterr().out


def test_each_run_is_compared_with_the_first_or_with_every_other(
    tasks: Folder, runs: tuple[Path, Path]
) -> None:
    third = run(tasks, "third", range(3), "numbers")
    rows = lm_eval.compare(*runs, third).rows
    assert [(row.first, row.second) for row in rows] == [("first", "second"), ("first", "third")]
    rows = lm_eval.compare(*runs, third, all_pairs=True).rows
    assert [row.second for row in rows] == ["second", "third", "third"]
    # A gate is about the first run alone: of the others, one may be worse than the other by 0.78.
    words = ["--all_pairs", "--gate", "margin=0.6", "--tasks", "numbers"]
    assert main(["compare", str(third), *map(str, runs), *words]) == 0
    # The smallest p-value is that of the first two rows; three tests are corrected for.
    assert rows[0].p_holm == pytest.approx(min(1, 3 * min(r.difference.p_value for r in rows)))


FORMS = ("0.4.0", "0.4.2", "0.4.3", "0.4.13")


@pytest.mark.parametrize("form", FORMS)
def test_logs_of_the_published_harness_are_compared_like_runs(
    tasks: Folder, runs: tuple[Path, Path], tmp_path: Path, form: str, found: Comparison
) -> None:
    logs = [published_logs(tmp_path / n, x, form) for n, x in (("one", A), ("two", B))]
    (row,) = lm_eval.compare(*logs, include_path=[str(tasks.path)]).rows
    assert row.difference == found.row("numbers").difference
    assert (row.first, row.second) == ("one", "two")
    (row,) = lm_eval.compare(runs[0], logs[1], include_path=[str(tasks.path)]).rows
    assert row.difference == found.row("numbers").difference


def test_our_sample_logs_are_compared_like_the_run(
    tasks: Folder, runs: tuple[Path, Path], tmp_path: Path, found: Comparison
) -> None:
    assert main(["score", str(runs[0]), "--log_samples", "-o", str(tmp_path / "logs")]) == 0
    rows = lm_eval.compare(tmp_path / "logs", runs[1], include_path=[str(tasks.path)]).rows
    assert {(r.name, r.metric): r.difference for r in rows} == {
        (r.name, r.metric): r.difference for r in found.rows
    }


def noised_copy(folder: Path, noise: float) -> Path:
    """Writes the demo model with noise added to its weights."""
    from safetensors.numpy import load_file, save_file

    shutil.copytree(WEIGHTS, folder)
    generator = np.random.default_rng(0)
    weights = {
        name: (value + noise * value.std() * generator.normal(size=value.shape)).astype(value.dtype)
        for name, value in load_file(WEIGHTS / "model.safetensors").items()
    }
    save_file(weights, folder / "model.safetensors")
    return folder


def test_a_model_is_better_than_a_noised_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = noised_copy(tmp_path / "noised", 1.0)
    words = ["--model", "demo", "--tasks", "demo_pairs", "--limit", "40", "--bootstrap_iters", "0"]
    for name, more in (("own", []), ("other", ["--model_args", f"pretrained={weights}"])):
        assert main(["run", *words, *more, "-o", str(tmp_path / name)]) == 0
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "own"), str(tmp_path / "other")]) == 0
    assert "demo_pairs, acc: demo is better than noised by" in capsys.readouterr().out
    (row,) = lm_eval.compare(tmp_path / "own", tmp_path / "other").rows
    assert row.better == "demo"
    assert row.difference.p_value < 0.05
