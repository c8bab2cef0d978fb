"""README and docs are true: every code block runs, or says what it needs."""

from __future__ import annotations

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
from tests.conftest import Folder

REPOSITORY = Path(__file__).parents[1]
FILES = sorted([REPOSITORY / "README.md", *REPOSITORY.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: What a block may say it needs, and is then not run here.
EXCUSES = {"needs-hub", "needs-gpu", "needs-key", "needs-files", "make", "install"}
GROUP = "group"  # a YAML block that is a group, not a task


def blocks(language: str, mark: str = "") -> list[object]:
    found = []
    for file in FILES:
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
    code: str, colours: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """Written beside the documents they speak of, they load without a warning."""
    file = Folder(colours.path / "example").write("example.yaml", code)
    colours.path.joinpath("colours.jsonl").rename(file.with_name("colours.jsonl"))
    loaded = TaskManager().load(str(file))
    assert [len(task.eval_docs) for task in loaded["tasks"].values()] == [6]
    assert not caplog.records


@pytest.mark.parametrize("code", blocks("yaml", GROUP))
def test_group_blocks_run(code: str, tmp_path: Path) -> None:
    """Members count as the group has them, and the group has a number."""
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


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    reasons = (REPOSITORY / "docs" / "dependencies.md").read_text().lower()
    for requirement in project["dependencies"]:
        name = re.split(r"[<>=\[ ]", requirement)[0].lower()
        assert f"| {name} " in reasons, name
    for extra in project["optional-dependencies"]:
        assert f"`{extra}`" in reasons, extra
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"]), "advised by extras.py"
