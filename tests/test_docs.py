"""Tests that every code block of README and docs runs, or states what it needs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import lm_eval
from lm_eval.config.task import TASK_FIELDS
from lm_eval.extras import EXTRAS
from lm_eval.tasks import TaskManager
from tests.conftest import Command, Folder
from tools.docs_hooks import on_page_markdown

REPOSITORY = Path(__file__).parents[1]
FILES = sorted(
    [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *REPOSITORY.glob("docs/**/*.md")]
)
#: Its blocks depend on each other; tests/test_tutorials.py runs them in order.
TUTORIALS = REPOSITORY / "docs" / "extending.md"
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: What a block may say it needs, and is then not run here.
EXCUSES = {"needs-hub", "needs-gpu", "needs-key", "needs-files", "needs-cluster", "make", "install"}
#: Documents of the tasks in YAML blocks.
COLORS = [
    {"thing": "grass", "colors": ["green", "red"], "answer": 0},
    {"thing": "coal", "colors": ["white", "black"], "answer": 1},
]
GROUP = "group"  # a YAML block that is a group, not a task


def blocks(language: str, mark: str = "") -> list[object]:
    found = []
    for file in FILES:
        if file == TUTORIALS:
            continue
        text = file.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            kind, excuse, code = match[1], match[2].strip(), match[3]
            assert not excuse or excuse in {*EXCUSES, GROUP}, (
                f"{file.name}: unknown excuse {excuse!r}"
            )
            line = text[: match.start()].count("\n") + 1
            if kind == language and excuse == mark:
                name = f"{file.relative_to(REPOSITORY)}:{line}"
                found.append(pytest.param(code, id=name))
    return found


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("code", blocks("bash"))
def test_shell_blocks_run(code: str, tmp_path: Path) -> None:
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        assert words[0] == "lm-eval", f"only lm-eval commands are run here: {line}"
        done = subprocess.run(
            [sys.executable, "-m", "lm_eval", *words[1:]],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.parametrize("code", blocks("yaml"))
def test_yaml_blocks_are_tasks_that_load(
    code: str, folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """With the documents that they refer to, the YAML blocks load without a warning."""
    file = folder.write("example.yaml", code)
    folder.rows("colors.jsonl", COLORS * 3)
    loaded = TaskManager().load(str(file))
    assert [len(task.eval_docs) for task in loaded["tasks"].values()] == [6]
    assert not caplog.records


def test_the_task_of_the_readme_runs_with_the_command_beside_it(
    lm_eval_command: Command, tmp_path: Path
) -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (document,) = re.findall(r"`(\{.+\})` in `colors/colors.jsonl`", text)
    assert json.loads(document) in COLORS
    (task,) = [code for kind, _, code in BLOCK.findall(text) if kind == "yaml"]
    folder = Folder(tmp_path / "work" / "colors")
    folder.write("colors.yaml", task)
    folder.rows("colors.jsonl", COLORS)
    (command,) = re.findall(r"^lm-eval (.* --include_path colors)$", text, re.MULTILINE)
    done = lm_eval_command(*command.split())
    assert done.returncode == 0, done.stderr
    assert "|colors|" in done.stdout


@pytest.mark.parametrize("code", blocks("yaml", GROUP))
def test_group_blocks_run(code: str, tmp_path: Path) -> None:
    """The group's members have the settings of the group, and the group has a score."""
    Folder(tmp_path).write("example.yaml", code)
    results = lm_eval.simple_evaluate(
        "demo", tasks=["my_suite"], limit=4, task_manager=TaskManager(include_path=str(tmp_path))
    )
    assert results is not None
    assert "acc,none" in results["groups"]["my_suite"]
    assert "acc,none" not in results["groups"].get("my_suite::writing", {})
    assert results["n-shot"]["demo_choice"] == 3
    assert {"demo_pairs", "demo_lastword", "demo_stories"} < set(results["results"])


def test_every_key_of_a_task_is_explained() -> None:
    explained = (REPOSITORY / "docs" / "tasks.md").read_text(encoding="utf-8")
    for key in TASK_FIELDS:
        assert f"`{key}`" in explained


def test_links_lead_somewhere() -> None:
    for file in FILES:
        for target in re.findall(r"\]\(([^)#]+)\)", file.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (file.parent / target).exists(), f"{file.name}: {target}"


def headings(page: Path) -> list[str]:
    """Returns the headings of a page without those in code blocks; the first is its title."""
    text = BLOCK.sub("", on_page_markdown(page.read_text(encoding="utf-8")))
    return [heading.strip() for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]


def anchor(heading: str) -> str:
    """Returns the anchor of a heading, as GitHub and mkdocs make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_the_text_of_a_link_to_a_page_is_its_title() -> None:
    """A link to a part of a page may have the heading of that part instead."""
    for file in [*FILES, REPOSITORY / "CHANGELOG.md"]:
        links = re.findall(
            r"\[([^]]+)\]\(([\w/]+\.md)(?:#([\w-]+))?\)", file.read_text(encoding="utf-8")
        )
        for text, target, part in links:
            title, *parts = headings(file.parent / target)
            named = [heading for heading in parts if anchor(heading) == part]
            assert not part or named, f"{file.name}: {target} has no heading {part!r}"
            assert " ".join(text.split()) in [title, *named], (
                f"{file.name}: {text!r} links to {title!r}"
            )


def test_the_site_has_the_pages_that_included_files_link_to() -> None:
    for name in ("contributing.md", "changelog.md"):
        page = (REPOSITORY / "docs" / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", on_page_markdown(page)):
            assert (REPOSITORY / "docs" / target).is_file(), f"{name}: {target}"


def test_every_environment_variable_is_explained() -> None:
    explained = (REPOSITORY / "docs" / "environment.md").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in REPOSITORY.glob("lm_eval/**/*.py")]
    variables = set(re.findall(r"\bLMEVAL_[A-Z_]+", "".join(sources)))
    assert "LMEVAL_DATA_DIR" in variables
    for variable in variables:
        assert f"`{variable}`" in explained, variable


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    reasons = (REPOSITORY / "docs" / "dependencies.md").read_text().lower()
    for requirement in project["dependencies"]:
        name = re.split(r"[<>=\[ ]", requirement)[0].lower()
        assert f"| {name} " in reasons, name
    for extra in project["optional-dependencies"]:
        assert f"`{extra}`" in reasons, extra
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"]), "advised by extras.py"
