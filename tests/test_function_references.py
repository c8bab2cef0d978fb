"""Tests that `!function` finds Python files by their path, and never a file of the same name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from lm_eval.cli import main
from lm_eval.errors import ConfigError
from lm_eval.tasks import TaskManager, packs
from tests.conftest import Command, Folder

TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: !function {function}
doc_to_target: x
"""


@pytest.fixture(autouse=True)
def _importable_folders_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    import lm_eval.tasks

    monkeypatch.setattr(lm_eval.tasks, "__path__", list(lm_eval.tasks.__path__))


@pytest.fixture
def tree(tmp_path: Path) -> Folder:
    """Returns a folder with a `utils.py` at every level, whose function returns its folder."""
    made = Folder(tmp_path / "tree")
    made.rows("rows.jsonl", [{"q": "a"}])
    for folder in (".", "family", "family/leaf", "family/sub", "shared", "family/leaf/pkg/sub"):
        made.write(f"{folder}/utils.py", f"def f(doc):\n    return {folder!r}\n")
    return made


def add_task(folder: Folder, path: str, function: str) -> str:
    """Writes a task file; returns the task's name, which is the name of the file."""
    name = Path(path).stem
    data = folder.path / "rows.jsonl"
    folder.write(path, TASK.format(name=name, function=function, data=data))
    return name


def prompt(name: str | Path, include_path: Path | None = None) -> Any:
    """Returns what a task's `doc_to_text` returns."""
    manager = TaskManager(include_path=include_path, include_defaults=False)
    (task,) = manager.load([str(name)])["tasks"].values()
    return task.config.doc_to_text({})


FORMS = [
    ("utils.f", "family/leaf"),
    ("./utils.f", "family/leaf"),
    ("../utils.f", "family"),
    ("../../utils.f", "."),
    ("../sub/utils.f", "family/sub"),
    ("../../shared/utils.f", "shared"),
    ("pkg/sub/utils.f", "family/leaf/pkg/sub"),
    ("pkg.sub.utils.f", "family/leaf/pkg/sub"),
    ("./pkg.sub.utils.f", "family/leaf/pkg/sub"),
    ("..utils.f", "family"),
]


@pytest.mark.parametrize(("function", "found"), FORMS)
def test_a_module_is_found_relative_to_the_file(tree: Folder, function: str, found: str) -> None:
    name = add_task(tree, "family/leaf/t.yaml", function)
    assert prompt(name, tree.path) == found
    assert prompt(tree.path / "family" / "leaf" / "t.yaml") == found


def test_a_module_of_an_included_file_is_relative_to_that_file(tree: Folder) -> None:
    tree.write("family/base.yaml", "doc_to_text: !function ./utils.f\n")
    name = add_task(tree, "family/leaf/t.yaml", "utils.f")
    text = (tree.path / "family/leaf/t.yaml").read_text().replace("doc_to_text", "include")
    tree.write("family/leaf/t.yaml", text.replace("!function utils.f", "../base.yaml"))
    assert prompt(name, tree.path) == "family"
    assert prompt(tree.path / "family" / "leaf" / "t.yaml") == "family"


def test_a_folder_with_a_dot_in_its_name_is_found(tree: Folder) -> None:
    tree.write("v1.0/utils.py", "from .other import g as f\n")
    tree.write("v1.0/other.py", "def g(doc):\n    return 'dotted'\n")
    assert prompt(add_task(tree, "family/t.yaml", "../v1.0/utils.f"), tree.path) == "dotted"


@pytest.mark.parametrize("by_path", [False, True])
def test_a_module_outside_the_included_folder_is_refused_with_the_folder(
    tree: Folder, by_path: bool
) -> None:
    add_task(tree, "family/leaf/t.yaml", "../../shared/utils.f")
    file, root = tree.path / "family/leaf/t.yaml", tree.path / "family"
    with pytest.raises(ConfigError) as error:
        prompt(file if by_path else "t", root)
    assert str(error.value).startswith(
        f"{file}:6: !function ../../shared/utils.f: {tree.path / 'shared' / 'utils.py'} is outside "
        f"{root}, the folder of task files"
    )


def test_a_module_outside_a_pack_is_refused(
    tree: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMEVAL_PACKS_DIR", str(tmp_path / "packs"))
    add_task(tree, "family/leaf/inside.yaml", "../utils.f")
    add_task(tree, "family/leaf/outside.yaml", "../../../../out.f")
    (tmp_path / "packs" / "out.py").parent.mkdir()
    (tmp_path / "packs" / "out.py").write_text("raise SystemExit\n")
    pack = packs.add(str(tree.path), "theirs")
    assert prompt("theirs:inside") == "family"
    with pytest.raises(ConfigError, match=rf"out\.py is outside {pack.tasks}"):
        prompt("theirs:outside")


def test_a_missing_module_is_named_by_its_file(tree: Folder) -> None:
    add_task(tree, "family/t.yaml", "../gone/utils.f")
    with pytest.raises(ConfigError, match=f"there is no file {tree.path / 'gone' / 'utils.py'}"):
        prompt(tree.path / "family" / "t.yaml")


@pytest.mark.parametrize("function", ["../utils", "utils", "../.f", "./"])
def test_a_reference_without_a_name_is_explained(tree: Folder, function: str) -> None:
    add_task(tree, "family/t.yaml", function)
    with pytest.raises(ConfigError, match=r"t.yaml:6: !function .*: write it as file.name"):
        prompt(tree.path / "family" / "t.yaml")


def test_validate_finds_mistakes_in_paths_without_running_them(
    tree: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.write("family/loud.py", "raise SystemExit('was run')\ndef f(): ...\n")
    add_task(tree, "family/leaf/good.yaml", "../loud.f")
    add_task(tree, "family/leaf/misspelled.yaml", "../loud.g")
    add_task(tree, "family/leaf/missing.yaml", "../gone.f")
    add_task(tree, "family/leaf/outside.yaml", "../../utils.f")
    words = ("misspelled", "missing", "outside", "--include_path", str(tree.path / "family"))
    assert main(["validate", *words]) == 1
    said = capsys.readouterr().out
    assert "loud.py has no 'g'" in said
    assert f"there is no file {tree.path / 'family' / 'gone.py'}" in said
    assert f"is outside {tree.path / 'family'}" in said
    assert main(["ls", "tasks", "--include_path", str(tree.path / "family")]) == 0
    assert "was run" not in said


def test_a_module_imports_its_siblings_up_to_the_root(tree: Folder) -> None:
    tree.write("family/near.py", "def g(doc):\n    return 'near'\n")
    tree.write("far.py", "def g(doc):\n    return 'far'\n")
    code = "from .near import g as near\nfrom ..far import g as far\n"
    tree.write("family/both.py", code + "def f(doc):\n    return near(doc), far(doc)\n")
    name = add_task(tree, "family/leaf/t.yaml", "../both.f")
    assert prompt(name, tree.path) == ("near", "far")
    # named directly, the nearest folder that holds the file and all that it names is the root
    file = tree.path / "family" / "leaf" / "t.yaml"
    target = "doc_to_target: !function ../../utils.f"
    file.write_text(file.read_text().replace("doc_to_target: x", target))
    assert prompt(file) == ("near", "far")


def test_a_sibling_imported_by_its_bare_name_is_explained(tree: Folder) -> None:
    tree.write("family/near.py", "")
    tree.write("family/both.py", "import near\nf = near\n")
    add_task(tree, "family/t.yaml", "both.f")
    with pytest.raises(ConfigError, match=r"write `from \.near import …`"):
        prompt(tree.path / "family" / "t.yaml")


def test_modules_of_one_name_in_two_roots_are_not_mixed_up(tmp_path: Path) -> None:
    for root in ("one", "two"):
        folder = Folder(tmp_path / root)
        folder.rows("rows.jsonl", [{"q": "a"}])
        folder.write("fam/utils.py", "from .helper import g\ndef f(doc):\n    return g()\n")
        folder.write("fam/helper.py", f"def g():\n    return {root!r}\n")
        add_task(folder, f"fam/{root}.yaml", "utils.f")
    folders = [tmp_path / "one", tmp_path / "two"]
    manager = TaskManager(include_path=folders, include_defaults=False)
    tasks = manager.load(["one", "two"])["tasks"]
    found = [tasks[name].config.doc_to_text({}) for name in ("one", "two")]
    assert found == ["one", "two"]


def test_a_task_folder_does_not_replace_modules_of_the_catalog(
    lm_eval_command: Command, tree: Folder
) -> None:
    for name in ("build", "check", "recorded", "scorer"):
        tree.write(f"{name}.py", "raise SystemExit('hidden')\n")
    add_task(tree, "t.yaml", "utils.f")
    words = ("--tasks", "t", "--include_path", tree.path, "--model", "dummy")
    done = lm_eval_command("run", *words)
    assert done.returncode == 0, done.stderr


def test_listing_runs_no_code_of_a_folder(tree: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    tree.write("family/loud.py", "import sys\nsys.modules['was_run'] = sys\ndef f(doc): ...\n")
    add_task(tree, "family/leaf/loud.yaml", "../loud.f")
    assert main(["ls", "tasks", "loud", "--include_path", str(tree.path)]) == 0
    assert "loud.yaml" in capsys.readouterr().out
    assert "was_run" not in sys.modules
