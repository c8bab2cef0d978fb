"""Tests clean scores: `--decontaminate`, `lm_eval.score(decontaminate=…)` and their results.

Expected scores, standard errors and intervals are computed here from the sample logs.
"""

from __future__ import annotations

import json
import logging
import math
import re
import shutil
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lm_eval
from lm_eval.api.registry import aggregation_registry
from lm_eval.cli import main
from lm_eval.loggers.tracker_formats import flatten_rows, sample_table, score_table
from lm_eval.models.scripted import ScriptedLM
from lm_eval.results.json_schema import results_schema
from lm_eval.results.reader import latest_results, read_results, read_samples
from lm_eval.results.table import make_tables
from lm_eval.stats.intervals import combined_interval, normal_interval
from lm_eval.tasks import TaskManager
from tests.conftest import Folder
from tests.planted_findings import plant

#: The contaminated documents. Documents from 8 on are not evaluated, and count nowhere.
FOUND = {
    "demo_choice": [0, 3, 5, 40],
    "demo_pairs": [],
    "demo_lastword": [1, 2, 7],
    "demo_sums": [2, 4, 7],
    "demo_stories": [1, 6],
}
RUN = ("run", "--model", "demo", "--tasks", "demo", "--limit", "8", "--bootstrap_iters", "50")


@pytest.fixture(scope="module")
def clean_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with a run of the demo group, in `out`, and its findings."""
    folder = tmp_path_factory.mktemp("clean")
    findings = plant(folder / "findings.jsonl", FOUND)
    words = (*RUN, "--log_samples", "-o", str(folder / "out"), "--decontaminate", str(findings))
    words += ("--use_cache", str(folder / "cache"))
    assert main(list(words)) == 0
    return folder


@pytest.fixture(scope="module")
def results(clean_run: Path) -> Any:
    return read_results(latest_results(clean_run / "out"))


@pytest.fixture(scope="module")
def values(clean_run: Path) -> dict[str, list[dict[str, Any]]]:
    """Returns the samples of each task, as lines of its log."""
    return read_samples(latest_results(clean_run / "out"))


def parts(
    samples: Iterable[dict[str, Any]], task: str, metric: str, pipeline: str = "none"
) -> tuple[list[Any], list[Any]]:
    """Returns the values of clean and of contaminated documents, by the planted numbers."""
    own = [s for s in samples if s["filter"] == pipeline]
    return (
        [s[metric] for s in own if s["doc_id"] not in FOUND[task]],
        [s[metric] for s in own if s["doc_id"] in FOUND[task]],
    )


def error_of_mean(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


def wilson(share: float, count: int, z: float) -> tuple[float, float]:
    """Returns the roots of (p - share)² = z² p (1 - p) / count."""
    a, b, c = 1 + z**2 / count, -2 * share - z**2 / count, share**2
    root = math.sqrt(b**2 - 4 * a * c)
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


def newcombe(clean: list[float], found: list[float], level: float) -> list[float]:
    """Returns Newcombe's interval (method 10, 1998) for the difference of two proportions."""
    z = statistics.NormalDist().inv_cdf((1 + level) / 2)
    p, q = statistics.mean(clean), statistics.mean(found)
    (low_p, high_p), (low_q, high_q) = wilson(p, len(clean), z), wilson(q, len(found), z)
    return [
        p - q - math.sqrt((p - low_p) ** 2 + (high_q - q) ** 2),
        p - q + math.sqrt((high_p - p) ** 2 + (q - low_q) ** 2),
    ]


# -- scores -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "metric", "pipeline"),
    [
        ("demo_choice", "acc", "none"),
        ("demo_choice", "acc_norm", "none"),
        ("demo_lastword", "acc", "none"),
        ("demo_sums", "exact_match", "first-answer"),
        ("demo_sums", "exact_match", "majority"),
    ],
)
def test_a_clean_mean_has_its_own_error_and_the_difference_newcombes_interval(
    results: Any, values: Any, task: str, metric: str, pipeline: str
) -> None:
    row = results["decontaminated"][task]
    clean, found = parts(values[task], task, metric, pipeline)
    assert (row["sample_len"], row["dropped"]) == (len(clean), len(found))
    assert row[f"{metric},{pipeline}"] == pytest.approx(statistics.mean(clean))
    assert row[f"{metric}_stderr,{pipeline}"] == pytest.approx(error_of_mean(clean))
    difference = row["difference"][f"{metric},{pipeline}"]
    assert difference["contaminated"] == pytest.approx(statistics.mean(found))
    assert difference["difference"] == pytest.approx(
        statistics.mean(clean) - statistics.mean(found)
    )
    errors = error_of_mean(clean), error_of_mean(found)
    assert difference["stderr"] == pytest.approx(math.hypot(*errors))
    assert difference["interval"] == pytest.approx(newcombe(clean, found, 0.95))


def test_a_corpus_metric_is_aggregated_over_the_clean_documents(results: Any, values: Any) -> None:
    row = results["decontaminated"]["demo_lastword"]
    clean, found = parts(values["demo_lastword"], "demo_lastword", "perplexity")
    assert row["perplexity,none"] == pytest.approx(math.exp(-statistics.mean(clean)))
    difference = row["difference"]["perplexity,none"]
    assert difference["contaminated"] == pytest.approx(math.exp(-statistics.mean(found)))
    middle = difference["difference"]
    assert middle == pytest.approx(row["perplexity,none"] - difference["contaminated"])
    margin = statistics.NormalDist().inv_cdf(0.975) * difference["stderr"]
    assert difference["interval"] == pytest.approx([middle - margin, middle + margin])
    assert difference["stderr"] > row["perplexity_stderr,none"] > 0

    row = results["decontaminated"]["demo_stories"]
    clean, _ = parts(values["demo_stories"], "demo_stories", "bits_per_byte")
    likelihoods, sizes = zip(*clean, strict=True)
    expected = -sum(likelihoods) / sum(sizes) / math.log(2)
    assert row["bits_per_byte,none"] == pytest.approx(expected)


def test_a_group_has_the_mean_of_the_clean_scores_weighted_by_clean_documents(
    results: Any, values: Any
) -> None:
    tasks = ("demo_choice", "demo_pairs", "demo_lastword")
    split = {task: parts(values[task], task, "acc") for task in tasks}
    row = results["decontaminated"]["demo::accuracy"]
    every = [value for clean, _ in split.values() for value in clean]
    assert row["acc,none"] == pytest.approx(statistics.mean(every))
    assert (row["sample_len"], row["dropped"]) == (len(every), 24 - len(every))
    assert isinstance(row["acc_stderr,none"], float)
    # The tasks with both kinds of documents have 8 documents each, so the same weight.
    both = [(clean, found) for clean, found in split.values() if found]
    gaps = [statistics.mean(clean) - statistics.mean(found) for clean, found in both]
    difference = row["difference"]["acc,none"]
    assert difference["difference"] == pytest.approx(statistics.mean(gaps))
    errors = [error_of_mean(part) for one in both for part in one]
    assert difference["stderr"] == pytest.approx(math.hypot(*errors) / 2)
    ends = [newcombe(clean, found, 0.95) for clean, found in both]
    low = math.hypot(*(gap - one[0] for gap, one in zip(gaps, ends, strict=True))) / 2
    assert difference["interval"][0] == pytest.approx(statistics.mean(gaps) - low)
    assert "demo" not in results["decontaminated"]  # a group without aggregated scores


def test_combined_intervals_of_normal_ones_are_normal() -> None:
    first, second = normal_interval(3.0, 0.3, 0.9), normal_interval(1.0, 0.4, 0.9)
    expected = normal_interval(2.0, 0.5, 0.9)
    assert combined_interval((1, -1), (3.0, 1.0), (first, second)) == pytest.approx(expected)


def test_confidence_sets_the_level_of_the_differences(clean_run: Path, values: Any) -> None:
    found = lm_eval.score(clean_run / "out", tasks=["demo_choice"], confidence=0.8)
    assert found["decontaminated_with"]["confidence"] == 0.8
    own = found["decontaminated"]["demo_choice"]["difference"]["acc,none"]["interval"]
    expected = newcombe(*parts(values["demo_choice"], "demo_choice", "acc"), 0.8)
    assert own == pytest.approx(expected)


def test_raw_scores_and_their_table_do_not_change(clean_run: Path, results: Any) -> None:
    raw = lm_eval.score(clean_run / "out", decontaminate=None, log_samples=False)
    assert not {"decontaminated", "decontaminated_with"} & raw.keys()
    for key in ("results", "groups", "n-samples", "higher_is_better", "versions"):
        assert raw[key] == results[key]  # type: ignore[literal-required]
    with_clean, without = make_tables(results), make_tables(raw)
    assert with_clean.startswith(without)
    table = with_clean.removeprefix(without)
    assert f"{clean_run / 'findings.jsonl'} lists as contaminated" in table
    assert re.search(
        r"\|  - choice +\|none +\|acc +\|↑  \|0\.\d{4}\|±  \|0\.\d{4}\| +5\| +3\|", table
    )
    assert "none dropped" in table  # demo_pairs


def test_the_results_name_the_findings(clean_run: Path, results: Any) -> None:
    described = results["decontaminated_with"]
    assert described["findings"] == str(clean_run / "findings.jsonl")
    assert re.fullmatch("[0-9a-f]{64}", described["fingerprint"])
    assert (described["ngram"], described["threshold"]) == (13, 0.0)
    assert (described["corpus"], described["confidence"]) == ("corpus", 0.95)


def test_the_results_follow_the_schema(results: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(results_schema())
    assert not list(check.iter_errors(results))
    row = {**results["decontaminated"]["demo_choice"], "dropped": "three"}
    wrong = {**results, "decontaminated": {"demo_choice": row}}
    (error,) = check.iter_errors(wrong)
    assert list(error.path) == ["decontaminated", "demo_choice", "dropped"]


def clustered_error(values: list[float], clusters: list[Any]) -> float:
    mean, sums = statistics.mean(values), {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    count = len(sums)
    return math.sqrt(count / (count - 1) * sum(s**2 for s in sums.values())) / len(values)


NUMBERS = """\
task: numbers
dataset_path: json
dataset_kwargs: {data_files: {test: numbers.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
metadata: {version: 2}
"""


def numbers(folder: Folder, text: str = "", count: int = 12) -> TaskManager:
    """Returns a manager of the task `numbers`, whose right answers are the numbers of documents."""
    rows = [{"question": f"q{i}", "answer": str(i), "part": i // 3} for i in range(count)]
    folder.rows("numbers.jsonl", rows)
    folder.write("numbers.yaml", NUMBERS + text)
    return TaskManager(include_path=folder.path)


def right_on(*numbers: int) -> ScriptedLM:
    """Returns a model that answers these questions right."""
    return ScriptedLM(generate=lambda text, _: text[1:] if int(text[1:]) in numbers else "x")


def evaluate(folder: Folder, found: list[int], lm: ScriptedLM, **settings: Any) -> Any:
    findings = plant(folder.path / "f.jsonl", {"numbers": found}, folder.path)
    manager = TaskManager(include_path=folder.path)
    return lm_eval.simple_evaluate(
        lm, tasks=["numbers"], task_manager=manager, decontaminate=str(findings), **settings
    )


def test_clusters_count_in_the_error_of_clean_scores(folder: Folder) -> None:
    numbers(folder)
    found = [1, 5, 6]
    row = evaluate(folder, found, right_on(0, 1, 2, 3, 7, 11), cluster="part")["decontaminated"]
    clean = [i for i in range(12) if i not in found]
    scores = [float(i in (0, 1, 2, 3, 7, 11)) for i in clean]
    expected = clustered_error(scores, [i // 3 for i in clean])
    assert row["numbers"]["exact_match_stderr,none"] == pytest.approx(expected)


def test_document_numbers_count_also_if_only_chosen_documents_are_evaluated(
    folder: Folder,
) -> None:
    numbers(folder)
    got = evaluate(folder, [8, 9], right_on(8, 9), samples={"numbers": [3, 8, 9, 10]})
    row = got["decontaminated"]["numbers"]
    assert (row["sample_len"], row["dropped"], row["exact_match,none"]) == (2, 2, 0.0)
    assert row["difference"]["exact_match,none"]["difference"] == -1.0
    flags = {s["doc_id"]: s["contaminated"] for s in got["samples"]["numbers"]}
    assert flags == {3: False, 8: True, 9: True, 10: False}


@pytest.mark.parametrize(("found", "text"), [([], "none dropped"), (range(12), "all dropped")])
def test_none_or_all_documents_dropped_is_said_in_words(
    folder: Folder, found: list[int], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    numbers(folder)
    got = evaluate(folder, list(found), right_on(1, 2))
    assert text in make_tables(got)
    row = got["decontaminated"]["numbers"]
    assert "difference" not in row
    assert ("exact_match,none" in row) is (text == "none dropped")
    json.dumps({k: v for k, v in got.items() if k != "samples"}, allow_nan=False)
    warned = "all documents (12) are contaminated, so it has no clean scores" in caplog.text
    assert warned is (text == "all dropped")


def test_one_document_of_a_kind_gives_a_difference_without_an_interval(folder: Folder) -> None:
    numbers(folder)
    got = evaluate(folder, [4], right_on(4), cluster="part")
    assert got["decontaminated"]["numbers"]["difference"]["exact_match,none"] == {
        "contaminated": 1.0,
        "difference": -1.0,
        "stderr": "N/A",
    }
    assert "-1.0000" in make_tables(got)


def test_a_score_that_the_clean_documents_do_not_have_is_left_out(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def all_twelve(items: list[float]) -> float:
        if len(items) < 12:
            raise ValueError("too few")
        return float(np.mean(items))

    monkeypatch.setitem(aggregation_registry._entries, "all_twelve", all_twelve)
    numbers(folder, "metric_list: [{metric: exact_match, aggregation: all_twelve}]\n")
    got = evaluate(folder, [4], right_on(4))
    assert got["results"]["numbers"]["exact_match,none"] == pytest.approx(1 / 12)
    assert "exact_match,none" not in got["decontaminated"]["numbers"]
    assert "of the clean documents cannot be computed and is left out" in caplog.text
    assert "no score" in make_tables(got)


def test_loaded_tasks_get_clean_scores(folder: Folder) -> None:
    loaded = numbers(folder).load(["numbers"])
    findings = plant(folder.path / "f.jsonl", {"numbers": [0, 1, 2]}, folder.path)
    got: Any = lm_eval.evaluate(right_on(0, 1, 2, 3), loaded, decontaminate=str(findings))
    row = got["decontaminated"]["numbers"]
    assert (row["sample_len"], row["dropped"], row["exact_match,none"]) == (9, 3, 1 / 9)


def test_trackers_get_clean_scores_and_flags_of_samples(folder: Folder) -> None:
    numbers(folder)
    got = evaluate(folder, [0, 1, 2], right_on(0, 1, 2, 3))
    logged = flatten_rows(got)
    assert logged["numbers/exact_match"] == pytest.approx(4 / 12)
    assert logged["numbers/clean/exact_match"] == pytest.approx(1 / 9)
    assert (logged["numbers/clean/sample_len"], logged["numbers/clean/dropped"]) == (9, 3)
    assert logged["numbers/clean_minus_contaminated/exact_match"] == pytest.approx(1 / 9 - 1)
    [row] = score_table(got, "decontaminated")
    assert (row[0], row[4], float(row[5])) == ("numbers", "exact_match", pytest.approx(1 / 9))
    columns = sample_table(got["samples"]["numbers"], got["configs"]["numbers"])
    assert columns["contaminated"] == [number < 3 for number in range(12)]
    assert columns["contamination_overlap"][3:] == [0.0] * 9


def test_a_prompt_format_has_the_documents_of_its_task(tmp_path: Path) -> None:
    findings = plant(tmp_path / "f.jsonl", {"demo_choice": [0, 1]})
    got = lm_eval.simple_evaluate(
        "dummy", tasks=["demo_choice@mcqa"], limit=5, decontaminate=str(findings)
    )
    assert got is not None
    assert got["decontaminated"]["demo_choice@mcqa"]["dropped"] == 2


def test_a_group_of_which_a_task_is_not_covered_has_no_clean_score(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    findings = plant(tmp_path / "f.jsonl", {"demo_choice": [0, 1]})
    got = lm_eval.simple_evaluate("dummy", tasks=["demo"], limit=3, decontaminate=str(findings))
    assert got is not None
    assert list(got["decontaminated"]) == ["demo_choice"]
    assert "group demo::accuracy: has no clean score" in caplog.text
    assert "demo_pairs, demo_lastword" in caplog.text


def test_the_documents_that_a_scan_finds_are_dropped(clean_run: Path, tmp_path: Path) -> None:
    docs = TaskManager().load(["demo_choice"])["tasks"]["demo_choice"].eval_docs
    planted = [docs[i]["scene"] + " " + docs[i]["question"] for i in (1, 2, 6, 20)]
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("Nothing to see here.\n\n" + "\n\n".join(planted), encoding="utf-8")
    findings = tmp_path / "f.jsonl"
    words = ("--tasks", "demo_choice", "-o", str(findings), "--workers", "1")
    assert main(["contamination", "scan", str(corpus), *words]) == 0
    got = lm_eval.score(clean_run / "out", tasks=["demo_choice"], decontaminate=str(findings))
    samples = got["samples"]["demo_choice"]
    assert [s["doc_id"] for s in samples if s["contaminated"]] == [1, 2, 6]
    assert all(s["contamination_overlap"] > 0.5 for s in samples if s["contaminated"])
    clean = [s["acc"] for s in samples if not s["contaminated"]]
    row = got["decontaminated"]["demo_choice"]
    assert row["acc,none"] == pytest.approx(statistics.mean(clean))
    assert (row["sample_len"], row["dropped"]) == (5, 3)


def test_a_group_without_clean_documents_has_no_scores_and_one_warning_per_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    every = {name: [0, 1] for name in ("demo_choice", "demo_pairs", "demo_lastword")}
    findings = plant(tmp_path / "f.jsonl", every)
    got = lm_eval.simple_evaluate("dummy", tasks=["demo"], limit=2, decontaminate=str(findings))
    assert got is not None
    row = got["decontaminated"]["demo::accuracy"]
    assert row == {"alias": "accuracy", "name": "demo::accuracy", "sample_len": 0, "dropped": 6}
    assert [r.getMessage()[:20] for r in caplog.records].count("task demo_choice: al") == 1
    assert "aggregate_metric_list" not in caplog.text
    assert make_tables(got).count("all dropped") == 4


# -- sample logs ------------------------------------------------------------------------------


def test_samples_tell_clean_from_contaminated(values: Any) -> None:
    for task, found in FOUND.items():
        for sample in values[task]:
            contaminated = sample["doc_id"] in found
            assert sample["contaminated"] is contaminated
            assert sample["contamination_overlap"] == (0.5 if contaminated else 0.0)


@pytest.mark.parametrize("samples_format", ["zst", "parquet"])
def test_compact_sample_logs_keep_the_flags(
    clean_run: Path, tmp_path: Path, samples_format: str
) -> None:
    words = ("--tasks", "demo_sums", "-o", str(tmp_path), "-s", "--samples_format", samples_format)
    assert main(["score", str(clean_run / "out"), *words]) == 0
    read = read_samples(latest_results(tmp_path))["demo_sums"]
    scored = lm_eval.score(clean_run / "out", tasks=["demo_sums"])["samples"]["demo_sums"]
    assert read == json.loads(json.dumps(scored))
    assert {sample["contaminated"] for sample in read} == {True, False}


def test_samples_of_a_run_without_the_option_have_no_flags(clean_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow.parquet

    got = lm_eval.score(clean_run / "out", tasks=["demo_sums"], decontaminate=None)
    assert not {"contaminated", "contamination_overlap"} & set(got["samples"]["demo_sums"][0])
    from lm_eval.results.files import save_samples

    file = save_samples(tmp_path, "t", "s", got["samples"]["demo_sums"], "parquet")
    assert "contaminated" not in pyarrow.parquet.read_schema(file).names


# -- other commands ---------------------------------------------------------------------------


def test_score_gives_the_clean_scores_of_the_run(clean_run: Path, results: Any) -> None:
    findings = str(clean_run / "findings.jsonl")
    from_answers = lm_eval.score(clean_run / "out", decontaminate=findings)
    logs = latest_results(clean_run / "out").parent
    from_logs = lm_eval.score(next(logs.glob("samples_demo_choice_*")), decontaminate=findings)
    assert from_answers["decontaminated"] == results["decontaminated"]
    assert from_answers["decontaminated_with"] == results["decontaminated_with"]
    assert from_logs["decontaminated"]["demo_choice"] == results["decontaminated"]["demo_choice"]


def test_findings_of_other_documents_than_those_of_a_log_are_refused(
    clean_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = next(latest_results(clean_run / "out").parent.glob("samples_demo_choice_*"))
    findings = tmp_path / "f.jsonl"
    text = (clean_run / "findings.jsonl").read_text()
    findings.write_text(text.replace('"doc_hash": "', '"doc_hash": "0'))
    assert main(["score", str(log), "--decontaminate", str(findings)]) == 2
    assert "other documents than the log of task 'demo_choice': document 0" in (
        capsys.readouterr().err
    )


def test_a_run_whose_findings_are_gone_is_still_scored(
    clean_run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(clean_run / "out", tmp_path / "out")
    record = tmp_path / "out" / "demo" / "run.json"
    record.write_text(record.read_text().replace("findings.jsonl", "gone.jsonl"))
    got = lm_eval.score(tmp_path / "out", tasks=["demo_choice"])
    assert "decontaminated" not in got
    assert re.search(r"gone.jsonl, which no longer exists, so there are no clean", caplog.text)


def test_resume_and_reproduce_compute_the_clean_scores_again(
    clean_run: Path, results: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(clean_run / "out", tmp_path / "out")
    resumed = lm_eval.resume(tmp_path / "out")
    assert resumed is not None
    assert resumed["decontaminated"] == results["decontaminated"]
    file = latest_results(tmp_path / "out")
    cache = ("--use_cache", str(clean_run / "cache"))
    assert main(["reproduce", str(file), *cache]) == 0
    printed = capsys.readouterr().out
    count = sum(
        "," in key
        for part in ("results", "decontaminated")
        for row in results[part].values()
        for key in row
    )
    assert f"identical: all {count} numbers" in printed
    changed = json.loads(file.read_text())
    changed["decontaminated"]["demo_choice"]["acc,none"] = 0.123
    file.write_text(json.dumps(changed))
    assert main(["reproduce", str(file), *cache]) == 1
    assert "demo_choice (clean): acc,none was 0.123" in capsys.readouterr().out


def test_a_config_file_may_set_it(tmp_path: Path) -> None:
    findings = plant(tmp_path / "f.jsonl", {"demo_choice": [0, 1]})
    config = tmp_path / "run.yaml"
    config.write_text(
        f"model: dummy\ntasks: demo_choice\nlimit: 4\ndecontaminate: {findings}\n"
        f"output_path: {tmp_path / 'out'}\n"
    )
    assert main(["run", "--config", str(config)]) == 0
    got = read_results(latest_results(tmp_path / "out"))
    assert got["decontaminated"]["demo_choice"]["dropped"] == 2


# -- warnings ---------------------------------------------------------------------------------


def test_a_task_that_asks_for_it_and_is_not_covered_gets_a_warning(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    manager = numbers(folder, "should_decontaminate: true\n")
    findings = plant(folder.path / "f.jsonl", {"demo_choice": [0]})
    with caplog.at_level(logging.WARNING):
        lm_eval.simple_evaluate("dummy", tasks=["numbers"], task_manager=manager)
        assert "decontaminate" not in caplog.text
        lm_eval.simple_evaluate(
            "dummy",
            tasks=["numbers", "demo_choice", "demo_pairs"],
            task_manager=manager,
            limit=2,
            decontaminate=str(findings),
        )
    warned = [r.getMessage() for r in caplog.records if "does not cover" in r.getMessage()]
    assert len(warned) == 1
    assert "task numbers: sets should_decontaminate" in warned[0]


# -- bad input --------------------------------------------------------------------------------


def broken_line(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[-1][:40]]))


def edit_header(path: Path, **changes: Any) -> None:
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(first), **changes}), *rest]))


def edit_task(path: Path, **changes: Any) -> None:
    header = json.loads(path.read_text().splitlines()[0])
    edit_header(path, tasks={"demo_choice": {**header["tasks"]["demo_choice"], **changes}})


def without_task_field(path: Path) -> None:
    header = json.loads(path.read_text().splitlines()[0])
    del header["tasks"]["demo_choice"]["fingerprint"]
    edit_header(path, tasks=header["tasks"])


MISTAKES: dict[str, tuple[Any, str]] = {
    "no file": (Path.unlink, "f.jsonl cannot be read: No such file"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "cannot be read: Is a directory"),
    "an empty file": (lambda path: path.write_text(""), "f.jsonl:1: this line"),
    "not JSON": (lambda path: path.write_text("hello\n"), "f.jsonl:1: this line"),
    "binary": (lambda path: path.write_bytes(b"\x80\xff\x00"), "f.jsonl:1: this line"),
    "another JSON file": (lambda path: path.write_text("{}\n"), "not a findings file"),
    "a newer format": (lambda path: edit_header(path, format=9), "reads formats up to 1"),
    "a broken header": (lambda path: edit_header(path, tasks=[3]), "f.jsonl:1: this line"),
    "a field missing": (without_task_field, "f.jsonl:1: this line"),
    "a cut line": (broken_line, "f.jsonl:4: this line"),
    "other rows": (lambda path: edit_task(path, fingerprint="f" * 64), "other rows than task"),
    "another version": (lambda path: edit_task(path, version=0.1), "of version 0.1 of task"),
    "other number": (lambda path: edit_task(path, documents=999), "of 999 documents of task"),
    "another task": (
        lambda path: plant(path, {"demo_pairs": [1]}),
        "cover none of the tasks of this run (demo_choice), only demo_pairs",
    ),
}


@pytest.mark.parametrize("command", ["run", "score"])
@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_bad_findings_are_refused_before_the_model_and_before_writing(
    clean_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    mistake: str,
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a model was made")

    monkeypatch.setattr("lm_eval.evaluator.create_model", refuse)
    change, said = MISTAKES[mistake]
    findings = plant(tmp_path / "f.jsonl", {"demo_choice": [0, 3]})
    change(findings)
    out = tmp_path / "out"
    words = ["--tasks", "demo_choice", "--decontaminate", str(findings), "-o", str(out)]
    first = ["run", "--model", "demo"] if command == "run" else ["score", str(clean_run / "out")]
    assert main([*first, *words]) == 2
    printed = capsys.readouterr()
    (line,) = [one for one in printed.err.splitlines() if one.startswith("lm-eval: error: ")]
    assert said in line
    assert re.search(r"[Ss]can|Pass|Install", line), line  # the remedy
    assert printed.out == ""
    assert not any(path.is_file() for path in out.rglob("*") if not path.name.startswith("."))


def test_it_is_refused_together_with_predict_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--predict_only", "--decontaminate", "f.jsonl", "-o", str(tmp_path))
    assert main(["run", "--model", "dummy", "--tasks", "demo_choice", *words]) == 2
    assert "lm-eval score DIR --decontaminate FINDINGS" in capsys.readouterr().err


def test_a_path_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(lm_eval.errors.ConfigError, match="path of a findings file, not 3"):
        lm_eval.simple_evaluate("dummy", tasks=["demo_choice"], decontaminate=3)  # type: ignore[arg-type]
