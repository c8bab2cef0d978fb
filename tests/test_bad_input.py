"""Every mistake gets one clear line and exit code 2, and leaves nothing half-written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Command, Folder

GOOD = ("run", "--model", "dummy", "--tasks", "demo_choice", "--limit", "2")


def refused(command: Command, *words: str | Path) -> str:
    """Run a command that must fail politely, and give its message."""
    done = command(*words)
    assert done.returncode == 2, done.stderr
    *warnings, last = done.stderr.strip().splitlines()
    assert last.startswith("lm-eval: error: "), done.stderr
    assert all(line.startswith("lm-eval: ") for line in warnings), done.stderr
    assert done.stdout == ""
    return last


def test_a_good_run_is_not_refused(lm_eval_command: Command) -> None:
    assert lm_eval_command(*GOOD).returncode == 0


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
        ("--num_fewshot", "-1", "num_fewshot must not be negative"),
        ("--batch_size", "0", "batch_size must be 1 or more"),
        ("--batch_size", "many", "'auto' or a number"),
        ("--seed", "1,2", "seed takes one number, or four"),
        ("--seed", "soon", "neither a number nor None"),
        ("--model_args", "pretrained", "not of the form key=value"),
        ("--gen_kwargs", "{broken", "not a JSON object"),
        ("--samples", "nowhere.json", "there is no file nowhere.json"),
        ("--samples", '{"demo_choice": "all"}', "document numbers"),
        ("--include_path", "nowhere", "there is no folder"),
        ("--fewshot_as_multiturn", "true", "needs apply_chat_template"),
    ],
)
def test_a_bad_value_is_named(lm_eval_command: Command, option: str, value: str, said: str) -> None:
    assert said in refused(lm_eval_command, *GOOD[:-2], option, value)


def test_samples_and_limit_exclude_each_other(lm_eval_command: Command) -> None:
    message = refused(lm_eval_command, *GOOD, "--samples", '{"demo_choice": [1]}')
    assert "exclude each other" in message


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


def test_a_failing_run_leaves_no_output_behind(lm_eval_command: Command, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    refused(lm_eval_command, "run", "--model", "dummy", "--tasks", "nope", "--output_path", out)
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


def test_options_not_built_yet_say_so(lm_eval_command: Command) -> None:
    assert "use_cache is not part" in refused(lm_eval_command, *GOOD, "--use_cache", "x")


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
        ("task: t\ninclude: t.yaml\n", "in a circle"),
        ("- task\n", "expected `key: value` lines"),
        ("note: nothing here\n", "defines no task or group"),
        ("task: t\noutput_type: guess\n", "output_type must be one of"),
        ("task: t\ndoc_to_text: !function gone.f\n", "there is no file"),
        ("task: t\nmetric_list: [{metric: acccc}]\n", "unknown metric 'acccc'"),
        ("task: t\nmetric_list: [{aggregation: mean}]\n", "needs a `metric`"),
        ("task: t\nfilter_list: [{name: x}]\n", "needs a `name` and a list"),
        ("task: t\nfewshot_config: {sampl: x}\n", "unknown key 'sampl' in fewshot_config"),
        ("task: t\n", "names no data set"),
        (
            "task: t\ndataset_path: json\ndataset_kwargs: {data_files: {test: gone.jsonl}}\n"
            "test_split: test\n",
            "there is no data file",
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
    """The colours task with one thing about it changed."""
    text = (colours.path / "colours.yaml").read_text()
    assert old in text
    return colours.write("variant.yaml", text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{{thing}}", "{{thng}}", "'thng' is undefined"),
        ("{{thing}}", "{{thing", "template line 1"),
        ("{{thing}}", "{{thing.__class__.__mro__}}", "what it may not have"),
        ("test_split: test", "test_split: tset", "no split 'tset'"),
        ("doc_to_choice: colours", "doc_to_choice: thing", "not a list"),
        ("doc_to_choice: colours", 'doc_to_choice: "{{thing}}"', "should spell a Python list"),
        ("data_files:\n    test: colours.jsonl", "data_files: {test: bad.jsonl}", "bad.jsonl:2"),
        ("metric_list:", "num_fewshot: 6\nmetric_list:", "few-shot examples are needed"),
    ],
)
def test_a_task_that_does_not_fit_its_documents_is_explained(
    lm_eval_command: Command, colours: Folder, old: str, new: str, said: str
) -> None:
    colours.write("bad.jsonl", '{"thing": "x"}\n{"thing": \n')
    file = variant(colours, old, new)
    message = refused(lm_eval_command, "run", "--model", "dummy", "--tasks", file)
    assert said in message
