"""Tests that every mistake gives a one-line error and exit code 2, and leaves no partial files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import lm_eval
from lm_eval.config.task import TaskConfig
from lm_eval.errors import DataError, ModelError
from lm_eval.models.scripted import ScriptedLM
from lm_eval.tasks import TaskManager
from tests.conftest import Command, Folder

GOOD = ("run", "--model", "dummy", "--tasks", "demo_choice", "--limit", "2")


def refused(command: Command, *words: str | Path) -> str:
    """Runs a command that must fail with exit code 2; returns its error message."""
    done = command(*words)
    assert done.returncode == 2, done.stderr
    *warnings, last = done.stderr.strip().splitlines()
    assert last.startswith("lm-eval: error: "), done.stderr
    assert all(line.startswith("lm-eval: ") for line in warnings), done.stderr
    assert done.stdout == ""
    return last


def test_a_good_run_is_not_refused(lm_eval_command: Command) -> None:
    assert lm_eval_command(*GOOD).returncode == 0


@pytest.mark.parametrize("option", ["--workers", "--max_restarts"])
def test_resume_refuses_settings_of_workers_without_an_executor(
    lm_eval_command: Command, option: str
) -> None:
    message = refused(lm_eval_command, "resume", "folder", option, "3")
    assert f"{option} needs --executor" in message


def test_unknown_task_offers_the_nearest(lm_eval_command: Command) -> None:
    message = refused(lm_eval_command, "run", "--model", "dummy", "--tasks", "demo_chioce")
    assert "'demo_chioce'" in message
    assert "Did you mean 'demo_choice'" in message


def test_unknown_model_lists_the_known(lm_eval_command: Command) -> None:
    message = refused(lm_eval_command, "run", "--model", "demmo", "--tasks", "demo_choice")
    assert "'demmo'" in message
    assert "'demo'" in message


def test_misspelt_model_argument_offers_the_nearest(lm_eval_command: Command) -> None:
    message = refused(
        lm_eval_command,
        *("run", "--model", "demo", "--tasks", "demo_choice"),
        *("--model_args", "max_lenght=12"),
    )
    assert "'max_lenght'" in message
    assert "'max_length'" in message


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--limit", "-3", "limit must be positive"),
        ("--limit", "0", "limit must be positive"),
        ("--limit", "nan", "limit must be a number"),
        ("--limit", "inf", "limit must be a number"),
        ("--seed", "-1", "is not between 0 and"),
        ("--batch_size", "nan", "'auto' or a number"),
        ("--samples", "{}", "document numbers"),
        ("--samples", '{"demo_choice": []}', "document numbers"),
        ("--samples", '{"demo_choice": [true]}', "document numbers"),
        ("--samples", '{"demo_choise": [0]}', "'demo_choise' is none of the tasks"),
        ("--tasks", "demo_choice@", "no task, group or tag 'demo_choice@'"),
        ("--tasks", "demo_choice@mcqa@cloze", "no task, group or tag"),
        ("--num_fewshot", "-1", "num_fewshot must be 0 or more, not -1"),
        ("--batch_size", "0", "batch_size must be 1 or more"),
        ("--batch_size", "many", "'auto' or a number"),
        ("--seed", "1,2", "seed must be one number, or four"),
        ("--seed", "soon", "neither a number nor None"),
        ("--model_args", "pretrained", "not of the form key=value"),
        ("--gen_kwargs", "{broken", "not a JSON object"),
        ("--gen_kwargs", "temprature=0.3", "Did you mean 'temperature'?"),
        ("--verbosity", "loud", "invalid choice: 'LOUD'"),
        ("--limt", "3", "unrecognized arguments: --limt 3. Did you mean '--limit'"),
        ("--samples", "nowhere.json", "there is no file nowhere.json"),
        ("--samples", '{"demo_choice": "all"}', "document numbers"),
        ("--include_path", "nowhere", "there is no folder"),
        ("--fewshot_as_multiturn", "true", "needs apply_chat_template"),
    ],
)
def test_a_bad_value_is_named(lm_eval_command: Command, option: str, value: str, said: str) -> None:
    assert said in refused(lm_eval_command, *GOOD[:-2], option, value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("shw", "demo_choice"), "Did you mean 'show'?"),
        (("ls", "taks"), "Did you mean 'tasks'"),
        (("run", "--model", "hf", "--tasks", "demo_pairs"), "--model_args pretrained=…"),
        (
            ("run", "--model", "hf", "--tasks", "demo_pairs", "--model_args", "pretraned=x"),
            "You passed 'pretraned'; did you mean 'pretrained'?",
        ),
    ],
)
def test_what_is_misspelt_or_missing_is_offered(
    lm_eval_command: Command, words: tuple[str, ...], said: str
) -> None:
    if "hf" in words:
        pytest.importorskip("transformers", minversion="5.0")
    assert said in refused(lm_eval_command, *words)


def test_samples_and_limit_exclude_each_other(lm_eval_command: Command) -> None:
    message = refused(lm_eval_command, *GOOD, "--samples", '{"demo_choice": [1]}')
    assert "cannot be combined" in message


def test_samples_beyond_the_documents_are_named(lm_eval_command: Command) -> None:
    message = refused(lm_eval_command, *GOOD[:-2], "--samples", '{"demo_choice": [0, 99999]}')
    assert "'demo_choice'" in message
    assert "99999" in message


@pytest.mark.parametrize("words", [("--tasks",), ("--tasks", ","), ()])
def test_an_empty_task_list_is_refused(lm_eval_command: Command, words: tuple[str, ...]) -> None:
    assert "no tasks were given" in refused(lm_eval_command, "run", "--model", "dummy", *words)


def test_unwritable_output_is_found_before_the_model_runs(
    lm_eval_command: Command, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    message = refused(lm_eval_command, *GOOD, "--output_path", tmp_path / "file" / "out")
    assert "cannot be written" in message
    assert "Nothing has been run" in message


def test_log_samples_needs_somewhere_to_write(lm_eval_command: Command) -> None:
    assert "--output_path" in refused(lm_eval_command, *GOOD, "--log_samples")


@pytest.mark.parametrize("late", [("nope",), ("demo_choice", "--cluster", "nope")])
def test_a_failing_run_leaves_no_output_behind(
    lm_eval_command: Command, tmp_path: Path, late: tuple[str, ...]
) -> None:
    out = tmp_path / "new" / "out"
    refused(lm_eval_command, "run", "--model", "dummy", "--output_path", out, "--tasks", *late)
    assert not (tmp_path / "new").exists()


def test_unknown_key_in_a_config_file_is_named_with_its_line(
    lm_eval_command: Command, folder: Folder
) -> None:
    config = folder.write("run.yaml", "model: dummy\ntask: demo_choice\n")
    message = refused(lm_eval_command, "run", "--config", config)
    assert f"{config}:2" in message
    assert "'task'" in message
    assert "'tasks'" in message


def test_a_missing_config_file_is_named(lm_eval_command: Command) -> None:
    assert "nowhere.yaml" in refused(lm_eval_command, "run", "--config", "nowhere.yaml")


def test_debug_shows_the_traceback(lm_eval_command: Command) -> None:
    done = lm_eval_command("run", "--model", "dummy", "--tasks", "nope", "--debug")
    assert "Traceback" in done.stderr


def test_a_chat_template_the_model_has_not_is_explained(lm_eval_command: Command) -> None:
    message = refused(lm_eval_command, *GOOD, "--apply_chat_template")
    assert "chat template" in message


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("task: t\n  dataset_path: [", "not valid YAML"),
        ("task: t\ninclude: gone.yaml\n", "there is no file"),
        ("task: t\ninclude: t.yaml\n", "in a cycle"),
        ("- task\n", "expected `key: value` lines"),
        ("note: nothing here\n", "defines no task or group"),
        ("task: t\noutput_type: guess\n", "output_type must be one of"),
        ("task: t\ndoc_to_text: !function gone.f\n", "there is no file"),
        ("task: t\nmetric_list: [{metric: acccc}]\n", "unknown metric 'acccc'"),
        ("task: t\nmetric_list: [{aggregation: mean}]\n", "needs a `metric`"),
        ("task: t\nfilter_list: [{name: x}]\n", "needs a `name` and a list"),
        ("task: t\nfewshot_config: {sampl: x}\n", "unknown key 'sampl' in fewshot_config"),
        ("task: t\n", "names no dataset"),
        (
            "task: t\ndataset_path: json\ndataset_kwargs: {data_files: {test: gone.jsonl}}\n"
            "test_split: test\n",
            "there is no data file gone.jsonl. Searched: ",
        ),
    ],
)
def test_a_bad_task_file_is_explained(
    lm_eval_command: Command, folder: Folder, yaml: str, said: str
) -> None:
    file = folder.write("t.yaml", yaml)
    message = refused(lm_eval_command, "run", "--model", "dummy", "--tasks", file)
    assert said in message
    assert str(file) in message


def variant(colours: Folder, old: str, new: str) -> Path:
    """Writes a variant of the task `colours` with one setting changed."""
    text = (colours.path / "colours.yaml").read_text()
    assert old in text
    return colours.write("variant.yaml", text.replace(old, new))


TAKE = "filter: [{function: take_first}]"
FILTERS = f"filter_list: [{{name: a, {TAKE}}}, {{name: a, {TAKE}}}]\n"
BROKEN = "filter_list: [{name: a, filter: [{function: regex, regex_pattern: '('}]}]\n"
FAILING = "filter_list: [{name: a, filter: [{function: custom, filter_fn: !function f.boom2}]}]\n"
FUNCTIONS = """\
import sys
def text(doc): return doc["thing"] if doc["thing"] != "the sea" else 1 / 0
def leave(doc): sys.exit(3)
def score(doc, results): return {"acc": 1.0} if doc["answer"] == 0 else {}["gone"]
def boom(items): raise KeyError("kaboom")
def none(items): return None
def boom2(resps, docs): raise ValueError("two\\nlines")
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("answer\n", "odd\n", "document 2: the gold answer is None"),
        (
            "answer\n",
            "beyond\n",
            "document 4: the gold answer is number 7, but there are 2 choices",
        ),
        (
            "doc_to_choice: colours",
            "doc_to_choice: gone",
            "document 3: doc_to_choice returned no choices",
        ),
        ("metadata:", "num_fewshot: -1\nmetadata:", "num_fewshot must be 0 or more"),
        ("metadata:", "repeats: 0\nmetadata:", "repeats must be 1 or more"),
        ('doc_to_text: "Of', "doc_to_text: !function f.text #", "document 4: making its prompt"),
        ('doc_to_text: "Of', "doc_to_text: !function f.leave #", "SystemExit"),
        ("metadata:", "process_results: !function f.score\nmetadata:", "document 1: scoring it"),
        ("metric: acc", "metric: acc\n    aggregation: !function f.boom", "aggregating acc failed"),
        ("metric: acc", "metric: acc\n    aggregation: !function f.none", "returned None; it must"),
        ("metadata:", f"{FILTERS}metadata:", "two pipelines are called 'a'"),
        ("metadata:", f"{BROKEN}metadata:", "filter 'regex' of pipeline 'a'"),
        ("metadata:", f"{FAILING}metadata:", "filtering its answers failed: ValueError: two lines"),
        ("{{thing}}", "{{thng}}", "yaml:8: task 'colours', document 0: 'thng' is undefined"),
        ("{{thing}}", "\\n{{thng}}", "in line 2 of the template"),
        ("{{thing}}", "{{thing", "has a syntax error in line 1"),
        ("{{thing}}", "{{thing.__class__.__mro__}}", "accesses something that is not allowed"),
        ("test_split: test", "test_split: tset", "no split 'tset'"),
        ("doc_to_choice: colours", "doc_to_choice: thing", "it must return a list"),
        ("doc_to_choice: colours", "doc_to_choice: colors", "Did you mean 'colours'? The columns"),
        ("doc_to_choice: colours", 'doc_to_choice: "{{thing}}"', "must render as a Python list"),
        ("data_files:\n    test: colours.jsonl", "data_files: {test: bad.jsonl}", "bad.jsonl:2"),
        ("metric_list:", "num_fewshot: 6\nmetric_list:", "few-shot examples are needed"),
    ],
)
def test_a_task_that_does_not_fit_its_documents_is_explained(
    lm_eval_command: Command, colours: Folder, old: str, new: str, said: str
) -> None:
    colours.write("bad.jsonl", '{"thing": "x"}\n{"thing": \n')
    colours.write("f.py", FUNCTIONS)
    rows = [json.loads(line) for line in (colours.path / "colours.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        row["odd"] = None if number == 2 else 0
        row["beyond"] = 7 if number == 4 else 0
        row["gone"] = [] if number == 3 else row["colours"]
    colours.rows("colours.jsonl", rows)
    file = variant(colours, old, new)
    message = refused(lm_eval_command, "run", "--model", "dummy", "--tasks", file)
    assert said in message


def test_a_gold_answer_that_is_no_choice_is_said_once(
    lm_eval_command: Command, colours: Folder
) -> None:
    file = variant(colours, "doc_to_target: answer", 'doc_to_target: "purple"')
    done = lm_eval_command("run", "--model", "dummy", "--tasks", file)
    assert done.returncode == 0
    assert "gold answer of 6 documents is none of their choices" in done.stderr


def test_a_reader_who_has_had_enough_is_no_error() -> None:
    command = f"{sys.executable} -m lm_eval ls tasks | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.split()[1] == "Group"
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_odd_characters_can_be_written_and_shown(
    lm_eval_command: Command, colours: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = (colours.path / "colours.jsonl").read_text().replace("grass", "gr\\ud800ss")
    colours.write("colours.jsonl", data)
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    out = colours.path / "out"
    done = lm_eval_command(
        *("run", "--model", "dummy", "--tasks", colours.path / "colours.yaml"),
        *("--output_path", out, "--log_samples"),
    )
    assert done.returncode == 0, done.stderr
    (log,) = out.rglob("samples_*.jsonl")
    assert json.loads(log.read_text().splitlines()[0])["doc"]["thing"] == "gr\ud800ss"


def test_an_empty_group_is_refused(lm_eval_command: Command, folder: Folder) -> None:
    file = folder.write("g.yaml", "group: g\ntask: []\n")
    message = refused(lm_eval_command, "run", "--model", "dummy", "--tasks", file)
    assert f"{file}: group 'g' has no members" in message


def test_a_model_that_cannot_be_made_is_named(lm_eval_command: Command) -> None:
    words = (
        "run",
        "--model",
        "demo",
        "--tasks",
        "demo_pairs",
        "--model_args",
        "pretrained=nowhere",
    )
    assert "the model 'demo' could not be created" in refused(lm_eval_command, *words)


def test_a_misspelt_generation_setting_of_a_task_is_doubted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is a warning, not an error: a third-party backend may know the setting."""
    TaskConfig(task="t", generation_kwargs={"max_gen_tok": 3, "until": ["x"]})
    assert "Did you mean 'max_gen_toks'?" in caplog.text


def test_generation_settings_a_model_cannot_use_are_named(lm_eval_command: Command) -> None:
    words = ("run", "--model", "demo", "--tasks", "demo_sums", "--limit", "1")
    message = refused(lm_eval_command, *words, "--gen_kwargs", "temperature=hot")
    assert "hot" in message


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (None, "must return a list"),
        ([None] * 12, "returned None for a request of task 'colours', document 0"),
        ([(float("nan"), False)] * 12, "returned \\(nan, False\\)"),
    ],
)
def test_answers_of_the_wrong_shape_are_named(colours: Folder, answers: object, said: str) -> None:
    class Odd(ScriptedLM):
        def loglikelihood(self, requests: object) -> object:  # type: ignore[override]
            return answers

    manager = TaskManager(include_path=colours.path)
    with pytest.raises(ModelError, match=said):
        lm_eval.simple_evaluate(Odd(), tasks=["colours"], task_manager=manager)


def test_a_sample_with_an_infinite_document_number_is_refused(tmp_path: Path) -> None:
    from lm_eval.results.sample_log import read_log

    log = tmp_path / "samples_x_2026-01-01T00-00-00.jsonl"
    log.write_text('{"doc_id": 1e999, "doc": {}, "arguments": [["a"]], "resps": [["b"]]}\n')
    with pytest.raises(DataError, match=r"jsonl:1: is not a sample: OverflowError"):
        read_log(log)
