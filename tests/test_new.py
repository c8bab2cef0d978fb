"""`lm-eval new` writes files that are valid and run, and never overwrites any."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import lm_eval
from lm_eval.api.instance import Failure
from lm_eval.config.run import RunConfig
from lm_eval.errors import ConfigError, OutputError
from lm_eval.models.create import create_model
from lm_eval.models.scripted import ScriptedLM
from lm_eval.models.smoke_test import smoke_test
from lm_eval.scaffold import KINDS, OUTPUT_TYPES, create
from lm_eval.tasks import TaskManager
from tests.conftest import Command


@pytest.mark.parametrize("kind", KINDS)
def test_every_suggested_command_succeeds(
    kind: str, lm_eval_command: Command, tmp_path: Path
) -> None:
    done = lm_eval_command("new", kind, f"my_{kind}")
    assert done.returncode == 0, done.stderr
    written, commands = done.stdout.split("Next:\n")
    for file in re.findall(r"wrote (.*)", written):
        assert (tmp_path / "work" / file).is_file()
    for line in commands.strip().splitlines():
        program, *words = line.split()
        assert program == "lm-eval"
        tried = lm_eval_command(*words)
        assert tried.returncode == 0, tried.stdout + tried.stderr
        assert "Traceback" not in tried.stderr
    assert "validate" in commands


@pytest.mark.parametrize("output_type", OUTPUT_TYPES)
def test_a_task_of_each_output_type_is_valid(output_type: str, lm_eval_command: Command) -> None:
    assert lm_eval_command("new", "task", "mine", "--output_type", output_type).returncode == 0
    done = lm_eval_command("validate", "--tasks", "mine", "--include_path", "mine")
    assert (done.returncode, done.stdout) == (0, "mine: no problem found.\n"), done.stdout


@pytest.mark.parametrize(
    ("output_type", "metric"),
    [("loglikelihood", "perplexity"), ("loglikelihood_rolling", "word_perplexity")],
)
def test_the_demo_model_knows_the_texts_of_a_new_task(
    output_type: str, metric: str, tmp_path: Path
) -> None:
    create("task", "mine", tmp_path, output_type)
    manager = TaskManager(include_path=tmp_path)
    results = lm_eval.simple_evaluate("demo", tasks=["mine"], task_manager=manager)
    assert results is not None
    assert results["results"]["mine"][f"{metric},none"] < 10


def test_the_metric_scores_by_distance(tmp_path: Path) -> None:
    create("metric", "nearness", tmp_path)
    results = lm_eval.simple_evaluate(
        ScriptedLM(generate=lambda context, settings: "it is 17"),  # answers: 17, 14, 18, 39
        tasks=["nearness_example"],
        task_manager=TaskManager(include_path=tmp_path),
    )
    assert results is not None
    expected = (1 + 10 / 13 + 10 / 11 + 10 / 32) / 4
    found = results["results"]["nearness_example"]["nearness,last-number"]
    assert found == pytest.approx(expected)


def test_the_filter_extracts_and_counts_what_it_does_not_find(tmp_path: Path) -> None:
    create("filter", "LastNumber", tmp_path)
    results = lm_eval.simple_evaluate(
        ScriptedLM(generate=lambda context, _: "17 or 18" if "Mira" in context else "no idea"),
        tasks=["last_number_example"],
        task_manager=TaskManager(include_path=tmp_path),
    )
    assert results is not None
    row = results["results"]["last_number_example"]
    assert row["exact_match,last_number"] == pytest.approx(1 / 4)
    assert results["extraction_failed"]["last_number_example"]["last_number"] == 3


@pytest.mark.parametrize(
    ("name", "file", "class_name"),
    [
        ("MyModel", "my_model.py", "MyModel"),
        ("my_model", "my_model.py", "MyModel"),
        ("my-model", "my_model.py", "MyModel"),
        ("HTTPModel", "http_model.py", "HTTPModel"),
        ("demo", "demo.py", "Demo"),  # nothing is registered, so the name is free
    ],
)
def test_a_model_is_named_in_snake_and_camel_case(
    name: str, file: str, class_name: str, tmp_path: Path
) -> None:
    created = create("model", name, tmp_path)
    assert created.files == [tmp_path / file]
    text = (tmp_path / file).read_text()
    assert f"class {class_name}(LM):" in text
    assert created.model == f"{tmp_path / file}:{class_name}"
    assert not re.search("name_here|NameHere", text)


def test_suggested_commands_work_in_a_folder_with_spaces(
    lm_eval_command: Command, tmp_path: Path
) -> None:
    for kind in ("task", "model"):
        done = lm_eval_command("new", kind, "mine", "--to", "a folder")
        for line in done.stdout.split("Next:\n")[1].strip().splitlines():
            _, *words = shlex.split(line)
            tried = lm_eval_command(*words)
            assert tried.returncode == 0, tried.stdout + tried.stderr


def test_a_group_with_a_member_in_another_folder_needs_both_folders(
    lm_eval_command: Command, tmp_path: Path
) -> None:
    create("task", "mine", tmp_path / "work")
    (file,) = create("group", "both", tmp_path / "work").files
    file.write_text(file.read_text().replace("  - demo_choice\n", "  - mine\n"))
    run = ("run", "--model", "demo", "--limit", "2", "--tasks", "both", "--include_path", "both")
    for words in (run, ("validate", "--tasks", "both", "--include_path", "both")):
        done = lm_eval_command(*words)
        assert done.returncode != 0
        assert "add that folder with its own --include_path" in done.stdout + done.stderr
    done = lm_eval_command(*run, "--include_path", "mine")
    assert done.returncode == 0, done.stderr
    done = lm_eval_command(*run[:-1], ".")  # a folder above both
    assert done.returncode == 0, done.stderr


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "mine" / "mine.yaml"
    file.parent.mkdir()
    file.write_text("precious")
    with pytest.raises(OutputError, match=r"mine\.yaml exists already; choose another name"):
        create("task", "mine", tmp_path)
    assert [path.name for path in file.parent.iterdir()] == ["mine.yaml"]
    assert file.read_text() == "precious"


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("task", "demo_choice", "already a task, group or tag 'demo_choice'"),
        ("group", "demo_tasks", "already a task, group or tag 'demo_tasks'"),
        ("metric", "acc", "already a metric 'acc'"),
        ("filter", "regex", "already a filter 'regex'"),
        ("task", "../up", "use up to 100 letters, digits"),
        ("task", "a b", "use up to 100 letters, digits"),
        ("task", "x" * 300, "use up to 100 letters, digits"),
        ("task", "-x", "begin with a letter or digit"),
        ("model", "x" * 300, "becomes a Python name"),
        ("metric", "größe", "becomes a Python name"),
        ("model", "None", "becomes a Python name"),
        ("task", "yes", "YAML reads it as True"),
        ("group", "1.0", "YAML reads it as 1.0"),
        ("metric", "abs", "would hide a name"),
        ("model", "json", "would hide a name"),
        ("filter", "not_found", "would hide a name"),
        ("metric", "2fast", "becomes a Python name"),
        ("filter", "class", "becomes a Python name"),
        ("model", "", "becomes a Python name"),
    ],
)
def test_a_name_that_is_taken_or_impossible_is_refused(
    kind: str, name: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        create(kind, name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_if_one_file_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mine_example.yaml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError, match=r"mine_example\.yaml exists already"):
        create("metric", "mine", tmp_path)
    assert [path.name for path in folder.iterdir()] == ["mine_example.yaml"]


def test_a_folder_that_cannot_be_written_is_named(lm_eval_command: Command, tmp_path: Path) -> None:
    (tmp_path / "work" / "file").write_text("")
    done = lm_eval_command("new", "task", "mine", "--to", "file")
    assert done.returncode == 2
    assert done.stderr == (
        "lm-eval: error: file/mine: cannot be written (Not a directory); choose another name or "
        "folder.\n"
    )


def test_the_output_type_is_for_tasks(lm_eval_command: Command) -> None:
    done = lm_eval_command("new", "group", "mine", "--output_type", "generate_until")
    assert (done.returncode, "for tasks only" in done.stderr) == (2, True)


# -- validate --model -----------------------------------------------------------------------------


def test_a_sound_model_has_no_problem() -> None:
    report = smoke_test(create_model(RunConfig("demo")))
    assert report.problems == []
    assert report.lines == [
        "loglikelihood: 3 requests answered.",
        "loglikelihood_rolling: 2 requests answered.",
        "generate_until: 2 requests answered.",
    ]


def test_a_request_type_that_is_missing_is_reported_but_no_problem() -> None:
    report = smoke_test(ScriptedLM(generate=lambda *_: "text"))
    assert report.problems == []
    assert "tasks that need it cannot be run" in report.lines[0]


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({"loglikelihood": lambda *_: (0.5, False)}, "a log-likelihood (a number, at most 0"),
        ({"loglikelihood": lambda *_: (0.05, False)}, "a log-probability is never positive"),
        ({"loglikelihood": lambda *_: (-0.5, "no")}, "gives the continuation (True or False)"),
        ({"loglikelihood": lambda *_: -0.5}, "it must return a pair"),
        ({"rolling": lambda *_: 3.0}, "a log-likelihood (a number, at most 0"),
        ({"generate": lambda *_: "one\ntwo"}, "must end before the stop string"),
        ({"generate": lambda *_: 1 / 0}, "ZeroDivisionError"),
    ],
)
def test_a_wrong_answer_is_a_problem(answers: dict[str, object], problem: str) -> None:
    (found, *_) = smoke_test(ScriptedLM(**answers)).problems  # type: ignore[arg-type]
    assert problem in found


def test_requests_that_fail_are_not_reported_as_answered() -> None:
    report = smoke_test(ScriptedLM(generate=lambda *_: Failure("no server")))  # type: ignore[arg-type,return-value]
    assert report.lines[2] == "generate_until: 2 requests failed."
    assert len(report.problems) == 2
    lm = ScriptedLM(generate=lambda text, _: Failure("long") if "days" in text else "5")  # type: ignore[arg-type,return-value]
    report = smoke_test(lm)
    assert report.lines[2] == "generate_until: 1 request answered, 1 failed."
    assert len(report.problems) == 1


def test_a_model_that_implements_nothing_is_a_problem() -> None:
    assert smoke_test(ScriptedLM()).problems == ["ScriptedLM implements none of the request types."]


def test_rounding_in_another_batch_is_no_problem() -> None:
    draws = iter(range(100))
    lm = ScriptedLM(rolling=lambda text: -float(len(text)) - 1e-4 * next(draws))
    report = smoke_test(lm)
    assert (report.problems, report.lines[1]) == ([], "loglikelihood_rolling: 2 requests answered.")


def test_a_model_that_samples_is_reported_but_no_problem() -> None:
    draws = iter(range(100))
    report = smoke_test(ScriptedLM(generate=lambda *_: f"draw {next(draws)}"))
    assert report.problems == []
    assert "(does it sample?)" in report.lines[2]


def test_answers_in_the_wrong_order_are_a_problem() -> None:
    class Sorting(ScriptedLM):
        def loglikelihood(self, requests: list[object]) -> list[tuple[float, bool]]:
            return sorted(super().loglikelihood(requests))  # type: ignore[arg-type]

    lm = Sorting(loglikelihood=lambda _, text: (-float(len(text)), False))
    (problem,) = smoke_test(lm).problems
    assert "not in the order of the requests" in problem


def test_validate_needs_something_to_check(lm_eval_command: Command) -> None:
    done = lm_eval_command("validate")
    assert (done.returncode, done.stdout) == (2, "")
    assert "give --tasks or --model" in done.stderr


def test_validate_counts_the_problems_of_a_model(lm_eval_command: Command, tmp_path: Path) -> None:
    (file,) = create("model", "odd", tmp_path).files
    file.write_text(file.read_text().replace("return -len(text)", "return len(text)"))
    done = lm_eval_command("validate", "--model", f"{file}:Odd", "--tasks", "demo_choice")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "2 problems found."


def test_validate_reports_the_problems_of_tasks_and_of_a_model_that_cannot_be_created(
    lm_eval_command: Command,
) -> None:
    done = lm_eval_command("validate", "--tasks", "demo_chioce", "--model", "nowhere.py:Model")
    assert done.returncode == 1
    assert "there is no task, group or tag 'demo_chioce'" in done.stdout
    assert "there is no file" in done.stdout
    assert done.stdout.splitlines()[-1] == "2 problems found."


# -- plug-ins -------------------------------------------------------------------------------------

ENTRY_POINTS = """\
[lm_eval.tasks]
colors = colors_plugin.tasks
ghost = colors_plugin.nowhere

[lm_eval.models]
colors-model = colors_plugin.models:ColorsModel

[lm_eval.metrics]
nearness = colors_plugin.metrics:nearness

[lm_eval.filters]
last_number = colors_plugin.filters:LastNumber
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A folder like `site-packages`, in which a plug-in package is installed."""
    site = tmp_path / "site"
    package, metadata = site / "colors_plugin", site / "colors_plugin-0.1.dist-info"
    create("task", "colors", package / "tasks")
    create("model", "ColorsModel", package)
    (package / "colors_model.py").rename(package / "models.py")
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: colors-plugin\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return site


def with_plugin(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(site)!r}); from lm_eval.cli import main"
    return subprocess.run(
        [sys.executable, "-c", f"{code}; sys.exit(main())", *words],
        capture_output=True,
        text=True,
        cwd=site.parent,
        check=False,
    )


def test_a_plug_in_is_listed_without_being_imported(plugin: Path) -> None:
    done = with_plugin(plugin, "ls", "tasks", "colors", "--json")
    assert [entry["name"] for entry in json.loads(done.stdout)] == ["colors"], done.stderr
    assert "names no folder of task files" in done.stderr  # the entry point `ghost`
    assert "ghost = 'colors_plugin.nowhere' of the package colors-plugin" in done.stderr
    for kind, name, place in (
        ("models", "colors-model", "colors_plugin.models:ColorsModel"),
        ("metrics", "nearness", "colors_plugin.metrics:nearness"),
        ("filters", "last_number", "colors_plugin.filters:LastNumber"),
    ):
        done = with_plugin(plugin, "ls", kind, name)
        assert re.search(rf"\|{name} *\|.*{place}", done.stdout), done.stdout + done.stderr


def test_the_tasks_and_models_of_a_plug_in_run(plugin: Path) -> None:
    (plugin / "colors_plugin" / "__init__.py").write_text("")
    for task in ("colors", "colors:colors"):
        done = with_plugin(plugin, "run", "--model", "colors-model", "--tasks", task)
        assert done.returncode == 0, done.stderr
        assert "|colors|" in done.stdout


def test_a_task_of_the_library_keeps_its_name_beside_a_plug_in(plugin: Path) -> None:
    tasks = plugin / "colors_plugin" / "tasks" / "colors"
    file = tasks / "colors.yaml"
    file.write_text(file.read_text().replace("task: colors", "task: demo_choice"))
    done = with_plugin(plugin, "ls", "tasks", "demo_choice", "--json")
    (entry,) = json.loads(done.stdout)
    assert "colors_plugin" not in entry["path"]
    done = with_plugin(plugin, "ls", "tasks", "colors:demo_choice", "--json")
    (entry,) = json.loads(done.stdout)
    assert "colors_plugin" in entry["path"]


def test_a_broken_plug_in_is_reported_only_when_it_is_used(plugin: Path) -> None:
    for words in (("ls", "tasks", "demo"), ("run", "--model", "dummy", "--tasks", "demo_choice")):
        assert with_plugin(plugin, *words).returncode == 0
    done = with_plugin(plugin, "run", "--model", "colors-model", "--tasks", "demo_choice")
    assert done.returncode == 2
    assert "the model 'colors-model' of an installed package cannot be imported" in done.stderr
    assert "RuntimeError: imported (__init__.py:1)" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("[some.other.group]\ngarbage\n", "package colors-plugin cannot be read"),
        ("[lm_eval.tasks]\nmain = __main__.tasks\n", "names no folder of task files"),
        ("[lm_eval.tasks]\nempty = \n", "names no folder of task files"),
    ],
)
def test_broken_entry_points_do_not_break_other_commands(
    text: str, warning: str, plugin: Path
) -> None:
    (file,) = plugin.glob("*.dist-info/entry_points.txt")
    file.write_text(text)
    done = with_plugin(plugin, "run", "--model", "dummy", "--tasks", "demo_choice", "--limit", "2")
    assert done.returncode == 0, done.stderr
    assert warning in done.stderr


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("colors_plugin.models:Nothing", "AttributeError: .* has no attribute 'Nothing'"),
        ("colors_plugin.models:math", "is not a class derived from lm_eval.api.model.LM"),
        ("colors_plugin.nowhere:Model", "needs the package 'colors_plugin.nowhere'"),
        ("", "cannot be imported from : ValueError"),
        ("colors_plugin.models:ColorsModel [extra]", ""),
        ("colors_plugin.models:ColorsModel.mro", "is not a class derived from"),
    ],
)
def test_a_model_entry_point_is_loaded_or_explained(value: str, message: str, plugin: Path) -> None:
    (plugin / "colors_plugin" / "__init__.py").write_text("")
    (file,) = plugin.glob("*.dist-info/entry_points.txt")
    file.write_text(f"[lm_eval.models]\nmine = {value}\n")
    done = with_plugin(plugin, "run", "--model", "mine", "--tasks", "demo_choice", "--limit", "2")
    assert done.returncode == (2 if message else 0), done.stderr
    assert re.search(message, done.stderr), done.stderr
    assert "--debug" not in done.stderr


def test_a_plug_in_does_not_replace_a_built_in_name(plugin: Path) -> None:
    (file,) = plugin.glob("*.dist-info/entry_points.txt")
    file.write_text("[lm_eval.models]\ndemo = colors_plugin.models:ColorsModel\n")
    done = with_plugin(plugin, "ls", "models", "demo")
    assert "lm_eval.models.demo:DemoLM" in done.stdout
    assert "is ignored: demo is already the model lm_eval.models.demo:DemoLM" in done.stderr


def test_an_edited_model_of_a_plug_in_gets_no_stored_answers(plugin: Path, tmp_path: Path) -> None:
    (plugin / "colors_plugin" / "__init__.py").write_text("")
    run = ("run", "--model", "colors-model", "--tasks", "colors", "--output_path", "out")
    stored = "12 of 12 answers"
    assert stored not in with_plugin(plugin, *run).stderr
    assert stored in with_plugin(plugin, *run).stderr
    models = plugin / "colors_plugin" / "models.py"
    models.write_text(models.read_text() + "# changed\n")
    assert stored not in with_plugin(plugin, *run).stderr


def test_a_pack_cannot_take_the_name_of_a_plug_in(
    plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMEVAL_PACKS_DIR", str(tmp_path / "packs"))
    source = plugin / "colors_plugin" / "tasks"
    done = with_plugin(plugin, "packs", "add", str(source), "--name", "colors")
    assert done.returncode == 2
    assert "there is an installed plug-in 'colors'; give the pack another --name" in done.stderr
    done = with_plugin(plugin, "packs", "add", str(source), "--name", "other")
    assert "the plug-in colors also has 1 of these names" in done.stdout


def test_options_for_tasks_are_refused_for_registered_names(lm_eval_command: Command) -> None:
    done = lm_eval_command("ls", "metrics", "--include_path", "somewhere")
    assert (done.returncode, "--include_path is for tasks" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("models", "demo"),
        ("metrics", "bleu"),
        ("aggregations", "mean"),
        ("reductions", "pass_at_k"),
        ("filters", "regex"),
        ("samplers", "first_n"),
        ("formats", "mcqa"),
    ],
)
def test_registered_names_are_listed_with_their_module(
    kind: str, name: str, lm_eval_command: Command
) -> None:
    done = lm_eval_command("ls", kind, name)
    assert re.search(rf"\|{name} *\|.*lm_eval\.\w+\.\w+", done.stdout), done.stdout
    listed = json.loads(lm_eval_command("ls", kind, name, "--json").stdout)
    assert name in [entry["name"] for entry in listed]
    assert all(entry["kind"] == kind.removesuffix("s") for entry in listed)
