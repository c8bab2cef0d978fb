"""Tests that stored results are loaded as tables and exported to shared formats."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from lm_eval.cli import main
from lm_eval.errors import ConfigError, OutputError
from lm_eval.results import load
from lm_eval.results.export.formats import FORMATS
from tests.comparison_runs import STAMP, published_logs, run, write_tasks
from tests.conftest import Folder
from tests.shared_formats import DOCUMENT, HUB_RESULTS, RECORD

PUBLISHED = Path(__file__).parent / "published" / "dummy"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a run with sample logs and intervals."""
    folder = Folder(tmp_path_factory.mktemp("export"))
    write_tasks(folder)
    names = "by_size,words,stories"
    words = ("--log_samples", "--confidence", "0.9", "--bootstrap_iters", "100")
    return run(folder, "model", range(6), names, *words)


def export(path: Path, name: str, out: Path, *words: str) -> list[Path]:
    assert main(["export", str(path), "--to", name, "-o", str(out), *words]) == 0
    return sorted(file for file in out.rglob("*") if file.is_file())


# -- load -------------------------------------------------------------------------------------


def test_results_are_loaded_from_a_run_its_output_path_or_a_file(stored: Path) -> None:
    file = next(stored.rglob("results_*.json"))
    for path in (stored, file.parent, str(file)):
        found = load(path)
        assert found.file == file
        assert found.results["results"]["numbers"]["acc,none"] == 0.6
        assert found.model == "org/model"
        assert set(found.tasks) == {"numbers", "few", "words", "stories"}


def test_scores_are_a_table_with_one_row_per_metric(stored: Path) -> None:
    columns = load(stored).frame("columns")
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    row = next(row for row in rows if row["name"] == "numbers")
    assert (row["metric"], row["filter"], row["value"], row["documents"]) == (
        "acc",
        "none",
        0.6,
        10,
    )
    assert row["low"] < 0.6 < row["high"]
    assert (row["group"], row["higher_is_better"], row["version"]) == (False, True, 1.0)
    group = next(row for row in rows if row["name"] == "by_size")
    assert (group["group"], group["documents"]) == (True, 14)
    assert group["value"] == pytest.approx((6 + 4) / 14)


def test_samples_are_a_table_with_one_row_per_document(stored: Path) -> None:
    columns = load(stored).samples("numbers", "columns")
    assert columns["doc_id"] == list(range(10))
    assert columns["acc"] == [1.0] * 6 + [0.0] * 4
    assert [doc["number"] for doc in columns["doc"]] == list(range(10))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_are_data_frames_of_an_installed_library(stored: Path, library: Any) -> None:
    pytest.importorskip(library)
    found = load(stored)
    frame = found.frame(library)
    assert type(frame).__module__.startswith(library)
    assert list(frame["value"]) == found.frame("columns")["value"]
    samples = found.samples("words", library)
    assert list(samples["exact_match"]) == [1.0] * 6 + [0.0] * 4


def test_tables_are_columns_if_no_library_is_installed(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert isinstance(load(stored).frame(), dict)


def test_files_of_the_published_harness_are_loaded(tmp_path: Path) -> None:
    found = load(published_logs(tmp_path / "logs", (0, 1), "0.4.13"))
    assert found.frame("columns")["value"] == [0.2]
    assert found.samples("numbers", "columns")["acc"] == [1.0, 1.0] + [0.0] * 8
    recorded = load(PUBLISHED)
    assert recorded.frame("columns")["metric"][:2] == ["acc", "acc_norm"]
    (score,) = [r.value for r in recorded.scores() if (r.name, r.metric) == ("rec_choice", "acc")]
    values = recorded.samples("rec_choice", "columns")["acc"]
    assert sum(values) / len(values) == pytest.approx(score)


def test_what_cannot_be_loaded_is_an_error(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="does not exist"):
        load(tmp_path / "missing")
    with pytest.raises(OutputError, match="no results file"):
        load(tmp_path)
    with pytest.raises(ConfigError, match="Did you mean 'numbers'"):
        load(stored).samples("number")
    with pytest.raises(ConfigError, match="must be one of"):
        load(stored).frame("numpy")  # type: ignore[arg-type]
    file = tmp_path / "results_2025-01-01T00-00-00.000000.json"
    file.write_text(next(stored.rglob("results_*.json")).read_text())
    with pytest.raises(OutputError, match=r"no sample log .* --log_samples"):
        load(file).samples("numbers")


def changed_results(stored: Path, tmp_path: Path, **fields: Any) -> Path:
    """Returns a copy of a results file with other fields."""
    content = json.loads(next(stored.rglob("results_*.json")).read_text())
    content.pop("checksum", None)
    file = tmp_path / "results_2025-01-01T00-00-00.000000.json"
    file.write_text(json.dumps({**content, **fields}))
    return file


@pytest.mark.parametrize(
    "field", ["configs", "group_subtasks", "higher_is_better", "intervals", "task_hashes"]
)
def test_a_field_of_another_type_is_named(stored: Path, tmp_path: Path, field: str) -> None:
    for value in (5, "text", [1], True):
        with pytest.raises(OutputError, match=f"damaged: its `{field}`"):
            load(changed_results(stored, tmp_path, **{field: value}))
    assert load(changed_results(stored, tmp_path, **{field: None})).scores()


def test_unusable_values_of_a_task_count_as_missing(stored: Path, tmp_path: Path) -> None:
    rows = {"words": {"alias": "words", "bleu,none": 10**400, "exact_match,none": 0.5}}
    file = changed_results(
        stored,
        tmp_path,
        results=rows,
        intervals={"words": {"exact_match,none": [0.1]}, "few": 5},
        configs={"words": "text"},
        datasets={"words": [1]},
        date=1e300,
    )
    found = load(file)
    (score,) = found.scores()
    assert (score.metric, score.value, score.low, score.high) == ("exact_match", 0.5, None, None)
    assert time.gmtime(found.date or 0).tm_year in (2024, 2025)  # the time in the file name
    export(file, "every-eval-ever", tmp_path / "out")


# -- csv and lm-eval --------------------------------------------------------------------------


def test_csv_has_every_score_with_all_digits(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file,) = export(stored, "csv", tmp_path)
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [float(row["value"]) for row in rows] == load(stored).frame("columns")["value"]
    assert {row["model"] for row in rows} == {"org/model"}
    capsys.readouterr()
    assert main(["export", str(stored), "--to", "csv"]) == 0
    assert capsys.readouterr().out == file.read_text()


def test_the_export_to_lm_eval_has_only_published_fields_and_the_same_logs(
    stored: Path, tmp_path: Path
) -> None:
    files = export(stored, "lm-eval", tmp_path)
    results = load(tmp_path)
    own = load(stored).results
    assert not {"format", "hashes", "intervals", "settings", "directory"} & set(results.results)
    assert results.results["results"] == own["results"]
    assert results.results["config"] == own["config"]
    for task in ("numbers", "words"):
        (written,) = [f for f in files if f.name.startswith(f"samples_{task}_")]
        (before,) = stored.rglob(f"samples_{task}_*.jsonl")
        lines = [json.loads(line) for line in before.read_text().splitlines()]
        for line in lines:
            del line["checksum"]
        assert [json.loads(line) for line in written.read_text().splitlines()] == lines


# -- every-eval-ever --------------------------------------------------------------------------


def test_every_eval_ever_records_have_the_fields_of_the_format(
    stored: Path, tmp_path: Path
) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    words = ("--organization", "us", "--relationship", "first_party")
    files = export(stored, "every-eval-ever", tmp_path, *words)
    records = {f: json.loads(f.read_text()) for f in files if f.suffix == ".json"}
    assert len(records) == 5  # four tasks and a group
    for file, record in records.items():
        jsonschema.Draft202012Validator(RECORD).validate(record)
        assert re.fullmatch(r"data/\w+/org/model/[0-9a-f-]+\.json", str(file.relative_to(tmp_path)))
        about = record.get("detailed_evaluation_results")
        if about is None:
            continue
        samples = tmp_path / about["file_path"]
        assert samples.name == f"{file.stem}_samples.jsonl"
        assert hashlib.sha256(samples.read_bytes()).hexdigest() == about["checksum"]
        lines = [json.loads(line) for line in samples.read_text().splitlines()]
        assert len(lines) == about["total_rows"]
        ids = {result["evaluation_result_id"] for result in record["evaluation_results"]}
        for line in lines:
            jsonschema.Draft202012Validator(DOCUMENT).validate(line)
            assert line["evaluation_id"] == record["evaluation_id"]
            assert line["evaluation_result_id"] in ids


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("schema_version",), "0.2.2"),
        (("retrieved_timestamp",), "2026-01-01"),
        (("source_metadata", "evaluator_relationship"), "friend"),
        (("model_info", "additional_details", "deployment_type"), "somewhere"),
        (("model_info", "additional_details", "parameters"), 7),
        (("evaluation_results", 0, "source_data", "source_type"), "elsewhere"),
        (("evaluation_results", 0, "source_data", "hf_repo"), "a/b"),  # of data on the hub alone
        (("evaluation_results", 0, "metric_config", "min_score"), None),
        (("evaluation_results", 0, "score_details", "score"), "0.5"),
        (("detailed_evaluation_results", "file_path"), "data/a/b/c/samples.jsonl"),
        (("unknown",), "field"),
    ],
)
def test_the_description_of_the_format_refuses_mistakes(
    stored: Path, tmp_path: Path, place: tuple[Any, ...], value: Any
) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    files = export(stored, "every-eval-ever", tmp_path)
    (file,) = [f for f in files if f.suffix == ".json" and "/numbers/" in str(f)]
    record = json.loads(file.read_text())
    inside = record
    for key in place[:-1]:
        inside = inside[key]
    if value is None:
        del inside[place[-1]]
    else:
        inside[place[-1]] = value
    assert not jsonschema.Draft202012Validator(RECORD).is_valid(record)


def test_every_eval_ever_records_have_scores_and_answers(stored: Path, tmp_path: Path) -> None:
    files = export(stored, "every-eval-ever", tmp_path)
    (file,) = [f for f in files if f.suffix == ".json" and "/numbers/" in str(f)]
    record = json.loads(file.read_text())
    (result,) = record["evaluation_results"]
    assert result["score_details"]["score"] == 0.6
    assert result["score_details"]["uncertainty"]["confidence_interval"]["confidence_level"] == 0.9
    assert result["metric_config"]["lower_is_better"] is False
    lines = file.with_name(f"{file.stem}_samples.jsonl").read_text().splitlines()
    first, last = json.loads(lines[0]), json.loads(lines[-1])
    assert first["input"]["reference"] == [" yes"]
    assert first["answer_attribution"][0]["extracted_value"] == " yes"
    assert first["evaluation"] == {"score": 1.0, "is_correct": True}
    assert last["answer_attribution"][0]["extracted_value"] == " no"
    assert last["evaluation"] == {"score": 0.0, "is_correct": False}


# -- hf-eval-results --------------------------------------------------------------------------


@pytest.fixture
def hub_results(tmp_path: Path) -> Path:
    """Returns a results file of tasks with data on the Hub and elsewhere."""
    hub = {"dataset_path": "openai/gsm8k", "dataset_name": "main", "test_split": "test"}
    content = {
        "results": {
            "gsm8k": {"exact_match,strict": 0.5, "exact_match,flexible": 0.6, "f1,strict": 0.7},
            "own": {"acc,none": 0.5},
        },
        "configs": {"gsm8k": hub, "own": {"dataset_path": "json"}},
        "n-shot": {"gsm8k": 5, "own": 0},
        "date": 1735689600.0,
        "lm_eval_version": "0.5.0",
    }
    file = tmp_path / f"results_{STAMP}.json"
    file.write_text(json.dumps(content))
    return file


def test_tasks_with_data_on_the_hub_are_exported_for_model_pages(
    hub_results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--source_url", "https://example.org/logs")
    (file,) = export(hub_results, "hf-eval-results", tmp_path / "out", *words)
    assert file.relative_to(tmp_path / "out") == Path(".eval_results/gsm8k.yaml")
    content = yaml.safe_load(file.read_text())
    pytest.importorskip("jsonschema").Draft202012Validator(HUB_RESULTS).validate(content)
    (entry,) = content
    assert entry["dataset"] == {"id": "openai/gsm8k", "task_id": "main"}
    assert entry["value"] == 0.5
    assert entry["date"] == "2025-01-01T00:00:00Z"
    assert entry["source"]["url"] == "https://example.org/logs"
    assert entry["notes"] == "5-shot, exact_match (strict), task gsm8k, lm_eval 0.5.0"
    assert (
        "task own is left out: its data is not on the Hugging Face Hub" in capsys.readouterr().err
    )
    (file,) = export(hub_results, "hf-eval-results", tmp_path / "f1", "--metrics", "f1")
    assert yaml.safe_load(file.read_text())[0]["value"] == 0.7


def test_an_export_stays_in_its_folder(stored: Path, tmp_path: Path) -> None:
    file = changed_results(stored, tmp_path, model_name_sanitized="../../outside")
    out = tmp_path / "one" / "two"
    export(file, "lm-eval", out)
    assert all(one.is_relative_to(out) for one in tmp_path.rglob("*.json") if one != file)


@pytest.mark.parametrize("name", ["every-eval-ever", "lm-eval"])
@pytest.mark.parametrize("field", ["doc_id", "target", "resps", "filtered_resps"])
def test_a_sample_without_a_field_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, name: str
) -> None:
    logs = published_logs(tmp_path / "logs", (0, 1), "0.4.13")
    (log,) = logs.rglob("samples_*.jsonl")
    lines = log.read_text().splitlines()
    sample = json.loads(lines[2])
    del sample[field]
    lines[2] = json.dumps(sample)
    log.write_text("\n".join(lines))
    assert main(["export", str(logs), "--to", name, "-o", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert f"sample 3 in the log of task 'numbers' has no usable `{field}`" in message
    log.unlink()
    assert export(logs, name, tmp_path / "out")


def test_exports_without_content_or_folder_are_errors(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in [
        (("--to", "hf-eval-results", "-o", str(tmp_path)), "no task can be exported"),
        (("--to", "every-eval-ever", "-o", str(tmp_path), "--metrics", "x"), "no scores to export"),
        (("--to", "lm-eval"), "give a folder with --output_path"),
    ]:
        capsys.readouterr()
        assert main(["export", str(stored), *words]) == 2
        assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_every_format_is_an_option_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    assert "{" + ",".join(FORMATS) + "}" in capsys.readouterr().out
