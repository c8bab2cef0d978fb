"""Tests results: how they are assembled, their schema, and that reading inverts writing."""

from __future__ import annotations

import json
import math
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lm_eval
from lm_eval import __version__
from lm_eval.cli import main
from lm_eval.errors import OutputError
from lm_eval.models.scripted import ScriptedLM
from lm_eval.results import json_schema
from lm_eval.results.assemble import assemble
from lm_eval.results.files import save
from lm_eval.results.json_schema import FILE, results_schema, with_tables
from lm_eval.results.reader import latest_results, read_results, read_samples
from lm_eval.results.schema import FORMAT
from lm_eval.results.serialize import hash_json, sanitize_list, to_json_data
from lm_eval.results.table import heading, make_table, make_tables
from lm_eval.tasks import TaskManager
from tests.conftest import Folder
from tests.test_rescore import PUBLISHED

REPOSITORY = Path(__file__).parents[1]
SHORTEST = ScriptedLM(loglikelihood=lambda context, continuation: (-len(continuation), False))

#: Options by kind of run.
RUNS = {
    "plain": ("run", "--model", "demo", "--tasks", "demo_choice,demo_sums", "--limit", "4"),
    "grouped": ("run", "--model", "demo", "--tasks", "demo", "--limit", "4", "--log_samples"),
    "intervals": (
        *("run", "--model", "demo", "--tasks", "demo_pairs,demo_stories", "--limit", "4"),
        *("--confidence", "0.9", "--bootstrap_iters", "20"),
    ),
    "predict_only": (
        *("run", "--model", "dummy", "--model_args", "x=1", "--tasks", "demo_sums"),
        *("--limit", "3", "--predict_only"),
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Returns the results files of several kinds of run."""
    root = tmp_path_factory.mktemp("runs")
    for kind, words in RUNS.items():
        assert main([*words, "-o", str(root / kind)]) == 0
    words = ("-o", str(root / "rescored"), "--log_samples", "--cluster", "answer")
    assert main(["score", str(root / "grouped"), *words]) == 0
    return {kind: latest_results(root / kind) for kind in (*RUNS, "rescored")}


KINDS = [*RUNS, "rescored"]


@pytest.fixture
def odd(colours: Folder) -> Any:
    """Returns in-memory results with functions, numpy numbers, a NaN and numbers as keys."""
    colours.write(
        "own.py",
        "import numpy as np\n"
        "def process(doc, results):\n"
        "    return {'acc': np.int64(doc['answer']), 'odd': 1.0}\n"
        "def mean(values):\n    return np.float32(np.mean(values))\n"
        "def nothing(values):\n    return float('nan')\n",
    )
    text = (colours.path / "colours.yaml").read_text()
    metrics = (
        "process_results: !function own.process\n"
        "metric_list:\n"
        "  - {metric: acc, aggregation: !function own.mean, higher_is_better: true}\n"
        "  - {metric: odd, aggregation: !function own.nothing, higher_is_better: false}\n"
        "metadata: {version: 1.0, 3: three}\n"
    )
    text = text.replace("task: colours", "task: odd").partition("metric_list:")[0] + metrics
    colours.write("odd.yaml", text)
    manager = TaskManager(include_path=str(colours.path))
    return lm_eval.simple_evaluate(SHORTEST, tasks=["odd"], task_manager=manager, confidence=0.9)


def types_of(value: Any) -> set[type]:
    if isinstance(value, dict):
        return {dict, *(type(key) for key in value)}.union(*map(types_of, value.values()))
    return {list}.union(*map(types_of, value)) if isinstance(value, list) else {type(value)}


# -- the assembler ------------------------------------------------------------------------------


def test_what_simple_evaluate_returns_is_plain_json_data_and_samples(odd: Any) -> None:
    samples = odd.pop("samples")
    assert types_of(odd) <= {dict, list, str, int, float, bool, type(None)}
    assert odd["configs"]["odd"]["metadata"]["3"] == "three"
    assert math.isnan(odd["results"]["odd"]["odd,none"])
    assert list(samples) == ["odd"] == list(odd["task_hashes"])


def test_a_result_holds_the_parts_it_was_given_and_no_others() -> None:
    summary: Any = {"results": {"t": {"name": "t", "alias": "t"}}}
    assert assemble(summary) == {**summary, "format": FORMAT, "task_hashes": {}}
    part: Any = {"hashes": {"t": {"config": "1"}}}
    whole: Any = assemble(summary, inputs=part, scored_from={"run": "out"})
    assert whole == {**assemble(summary), **part, "scored_from": {"run": "out"}}
    assert assemble(assemble(summary, inputs=part), scored_from={"run": "out"}) == whole


def test_every_kind_of_result_has_the_format_number(runs: dict[str, Path], odd: Any) -> None:
    assert {read_results(file)["format"] for file in runs.values()} == {FORMAT} == {odd["format"]}


def test_a_hash_does_not_depend_on_the_order_of_keys_of_any_type() -> None:
    assert hash_json({3: 1, "a": 2}) == hash_json({"a": 2, 3: 1})
    assert hash_json({(1, 2): 1, "a": 2}) == hash_json({"a": 2, (1, 2): 1})
    assert hash_json({3: 1, "a": 2}) != hash_json({3: 2, "a": 2})


# -- the reader -----------------------------------------------------------------------------------


def test_reading_is_the_inverse_of_writing(odd: Any, tmp_path: Path) -> None:
    samples = odd.pop("samples")
    assert read_results(save(odd, tmp_path, "m", samples)) == odd
    assert read_results(save(odd, tmp_path / "without samples", "m")) == odd


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_read_is_written_as_it_was(
    runs: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    results: Any = read_results(runs[kind])
    assert save(results, tmp_path, "m").read_text() == runs[kind].read_text()


TEXT = st.text(st.characters(exclude_categories=()), max_size=5)
NUMBERS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.integers(-9, 9).map(np.int64)
)
LEAVES = st.one_of(
    *(TEXT, NUMBERS, st.floats().map(np.float64), st.booleans().map(np.bool_)),
    *(st.just(len), st.binary(max_size=3), st.frozensets(st.integers(), max_size=2)),
)
KEYS = st.one_of(TEXT, NUMBERS, st.tuples(TEXT, st.integers()))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(KEYS, inner, max_size=3),
    ),
    max_leaves=8,
)
ROWS = st.dictionaries(TEXT, st.dictionaries(TEXT, VALUES, max_size=4), max_size=3)


@settings(max_examples=200, deadline=None)
@given(rows=ROWS, configs=st.dictionaries(TEXT, VALUES, max_size=3), settings=VALUES)
def test_anything_that_is_assembled_is_read_back(rows: Any, configs: Any, settings: Any) -> None:
    summary: Any = {"results": rows, "configs": configs}
    results = assemble(summary, reproduction={"settings": settings, "directory": "/"})
    with tempfile.TemporaryDirectory() as folder:
        assert read_results(save(results, folder, "m")) == results


@pytest.mark.parametrize("format", ["jsonl", "zst", "parquet"])
def test_samples_are_read_back(format: str, tmp_path: Path) -> None:
    results: Any = lm_eval.simple_evaluate("demo", tasks=["demo"], limit=2, bootstrap_iters=0)
    samples = results.pop("samples")
    expected = to_json_data(samples)
    if format == "jsonl":  # as published: answers and targets are text
        for name, logged in expected.items():
            for sample, original in zip(logged, samples[name], strict=True):
                sample["target"] = str(original["target"])
                sample["resps"] = sanitize_list(sample["resps"])
                sample["filtered_resps"] = sanitize_list(sample["filtered_resps"])
    assert read_samples(save(results, tmp_path, "m", samples, format)) == expected


def test_samples_with_thinking_are_read_back(tmp_path: Path) -> None:
    one = {
        **{"doc_id": 0, "doc": {"a": 1}, "target": None, "arguments": [["p", "x"]]},
        **{"resps": [["r"]], "filtered_resps": ["r"], "filter": "none", "metrics": ["acc"]},
        **{"doc_hash": "1", "prompt_hash": "2", "target_hash": "3", "acc": 1.0},
    }
    samples = {"t": [one, {**one, "doc_id": 1, "thinking": ["hm"]}]}
    for kind in ("zst", "parquet"):
        assert read_samples(save({"results": {}}, tmp_path, "m", samples, kind)) == samples


def test_tasks_whose_names_share_a_file_name_keep_their_samples(tmp_path: Path) -> None:
    one = {"doc_hash": "1", "prompt_hash": "2", "target_hash": "3", "arguments": [["p"]]}
    one |= {"resps": [["r"]], "filtered_resps": ["r"], "target": "t", "doc_id": 0}
    samples = {name: [{**one, "doc": name}] for name in ("a:b", "a/b")}
    file = save({"results": {}}, tmp_path, "m", samples)
    assert {name: logged[0]["doc"] for name, logged in read_samples(file).items()} == {
        name: name for name in samples
    }


def test_results_without_samples_have_none_to_read(runs: dict[str, Path], tmp_path: Path) -> None:
    assert read_samples(runs["plain"]) == {}
    alone = tmp_path / runs["grouped"].name
    alone.write_bytes(runs["grouped"].read_bytes())
    with pytest.raises(OutputError, match=r"sample log of task 'demo_choice'.* not beside it"):
        read_samples(alone)


def test_a_newer_format_is_refused_with_its_version_and_a_remedy(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    content = {"format": FORMAT + 1, "lm_eval_version": "7.8.9", "results": []}
    file.write_text(json.dumps(content))
    with pytest.raises(OutputError) as refused:
        read_results(file)
    assert str(refused.value) == (
        f"{file}: was written by lm_eval 7.8.9 in format {FORMAT + 1}; this version "
        f"({__version__}) reads formats up to {FORMAT}. Install lm_eval 7.8.9 or newer to read it."
    )


def test_reproduce_refuses_a_newer_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"format": FORMAT + 1, "results": {}}))
    assert main(["reproduce", str(file)]) == 2
    assert "a newer version of lm_eval" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ['"1"', "0", "true", "null"])
def test_a_format_that_is_no_number_is_refused(tmp_path: Path, wrong: str) -> None:
    file = tmp_path / "results.json"
    file.write_text(f'{{"format": {wrong}, "results": {{}}}}')
    with pytest.raises(OutputError, match=r"results\.json: is not a results file: its `format`"):
        read_results(file)


def test_an_unknown_field_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"format": FORMAT, "results": {}, "energy": 3}))
    assert dict(read_results(file))["energy"] == 3


def test_a_published_file_is_read_as_it_is() -> None:
    (file,) = PUBLISHED.rglob("results_2*.json")
    assert read_results(file) == json.loads(file.read_text())
    assert "format" not in read_results(file)


# -- the schema -----------------------------------------------------------------------------------


def problems(content: Any) -> list[str]:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json.loads(FILE.read_text(encoding="utf-8")))
    return [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(content)]


def test_the_shipped_schema_is_that_of_the_declared_fields() -> None:
    assert json.loads(FILE.read_text(encoding="utf-8")) == results_schema()


def test_the_schema_is_one() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(results_schema())


@pytest.mark.parametrize("kind", KINDS)
def test_results_conform_to_the_schema(runs: dict[str, Path], kind: str) -> None:
    results = json.loads(runs[kind].read_text(encoding="utf-8"))
    assert not set(results) - set(results_schema()["properties"])
    assert not problems(results)


def test_results_of_python_conform_to_the_schema(odd: Any, colours: Folder) -> None:
    manager = TaskManager(include_path=str(colours.path))
    loaded = manager.load("colours")
    evaluated: Any = lm_eval.evaluate(SHORTEST, loaded)
    for results in (odd, evaluated):
        del results["samples"]
        assert not set(results) - set(results_schema()["properties"])
        assert not problems(results)


def test_the_schema_refuses_what_is_wrong_and_allows_new_fields(runs: dict[str, Path]) -> None:
    results: Any = read_results(runs["intervals"])
    assert not problems({**results, "energy": 3})
    assert problems({**results, "format": "1"})
    assert problems({key: value for key, value in results.items() if key != "configs"})
    assert problems({**results, "intervals": {"demo_pairs": {"acc,none": ["low", "high"]}}})
    assert problems({**results, "results": {"t": {"name": "t", "alias": "t", "sample_len": "3"}}})
    row = {"name": "t", "alias": "t", "sample_len": 3, "acc,none": 1.0, "acc_stderr,none": None}
    assert problems({**results, "results": {"t": row}})
    assert not problems({**results, "results": {"t": {**row, "acc_stderr,none": "N/A"}}})


def test_the_documented_tables_are_those_of_the_declared_fields() -> None:
    text = (REPOSITORY / "docs" / "results.md").read_text(encoding="utf-8")
    assert with_tables(text) == text, "python -m lm_eval.results.json_schema writes them anew"
    properties = results_schema()["properties"]
    rows = {
        part: properties[part]["additionalProperties"]["properties"]
        for part in ("results", "decontaminated")
    }
    before, clean, after = re.split("### Clean rows|## Data and prompts", text)
    for key in (*properties, *rows["results"]):
        assert (before + after).count(f"\n| `{key}` |") == 1, key
    for key in rows["decontaminated"]:
        assert clean.count(f"\n| `{key}` |") == 1, key


def test_fields_are_absent_where_their_part_says_so(runs: dict[str, Path]) -> None:
    """Compares the last column of the schema's table with runs of those kinds."""
    whole, rescored = (set(read_results(runs[kind])) for kind in ("grouped", "rescored"))
    for part in json_schema.PARTS:
        for name, (_, _, absent) in json_schema._declared(part):
            words = absent or ""
            assert ("rescored" in words) <= (name not in rescored), name
            kinds = ("tokenizer", "all documents were scored", "no task runs programs")
            optional = any(kind in words for kind in kinds)
            if part.__name__ not in ("OptionalScores", "Scores") and not optional:
                assert name in whole, name


# -- what is printed ------------------------------------------------------------------------------


def test_predictions_that_were_not_scored_show_no_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--model", "dummy", "--tasks", "demo", "--limit", "2", "--predict_only")
    assert main(["run", *words, "-o", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "999" not in printed
    assert "|bypass|   |not scored|   |      |" in printed
    results: Any = read_results(latest_results(tmp_path))
    assert results["results"]["demo_pairs"]["bypass,none"] == 999  # as published
    assert "  999|" in make_table(results)  # what library users print stays as published
    assert "999" not in make_tables(results)


@pytest.mark.parametrize("command", ["run", "resume", "score"])
def test_a_printed_table_is_headed_by_its_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    words = ["run", "--model", "dummy", "--model_args", "pretrained=some/weights"]
    words += ["--tasks", "demo_pairs", "--limit", "2", "-o", str(tmp_path)]
    assert main(words) == 0
    if command != "run":
        capsys.readouterr()
        assert main([command, str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = next(number for number, line in enumerate(lines) if line.startswith("|Tasks"))
    assert lines[table - 1] == "Model: some/weights (dummy)"


def test_a_heading_says_what_is_known_of_the_model() -> None:
    assert heading({"model_name": "demo", "model_source": "demo"}) == "Model: demo"
    assert heading({"config": {"model": "hf"}}) == "Model: hf"
    assert heading({"results": {}}) == "Model: not recorded"
