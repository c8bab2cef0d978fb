"""Tests the package metadata: Python versions, dependency versions, extras, backends."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from lm_eval.api.registry import Registry, get_model, model_registry
from lm_eval.config.run import RunConfig
from lm_eval.entry_points import PluginEntry
from lm_eval.errors import UnknownNameError
from lm_eval.models import MODEL_MAPPING, NOT_YET
from lm_eval.models.create import check_model
from lm_eval.models.dummy import DummyLM
from tests.conftest import Command
from tests.test_docs import BLOCK

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "lm_eval"
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT: dict[str, Any] = PYPROJECT["project"]
#: Module names that differ from the distribution's name.
MODULES = {
    "antlr4-python3-runtime": "antlr4",
    "llama-cpp-python": "llama_cpp",
    "scikit-learn": "sklearn",
}
#: Packages that the base install does not have; modules that import them may fail to import.
OPTIONAL = {"accelerate", "torch", "transformers", "triton"}


def read(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def normal(name: str) -> str:
    """Returns a distribution's name in the normalized spelling of constraints files."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement(text: str) -> tuple[str, str, str]:
    """Returns name, operator and version of a requirement such as `numpy>=1.24`."""
    match = re.match(r"([\w.-]+)\s*(?:(>=|==|<)\s*([\w.*]+))?", text)
    assert match is not None, text
    return normal(match[1]), match[2] or "", match[3] or ""


def pins(name: str) -> dict[str, set[str]]:
    """Returns the pinned versions of each distribution in a constraints file."""
    found: dict[str, set[str]] = {}
    for line in read(name).splitlines():
        if line and not line.startswith("#"):
            package, operator, version = requirement(line)
            assert operator == "==", f"{name}: {line}"
            assert "*" not in version, f"{name}: {line}"
            found.setdefault(package, set()).add(version)
    return found


def without_make() -> dict[str, str]:
    """Returns the environment variables without those that `make` passes to its children."""
    told = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"}
    return {name: value for name, value in os.environ.items() if name not in told}


def release(version: str) -> tuple[int, ...]:
    """Returns a version's numbers without trailing zeros, so that 4.0 equals 4.0.0."""
    numbers = [int(number) for number in version.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


# Pythons


def test_every_module_imports_on_this_python() -> None:
    modules = [
        ".".join(("lm_eval", *path.relative_to(PACKAGE).with_suffix("").parts))
        for path in sorted(PACKAGE.rglob("*.py"))
        # The helpers in benchmark folders need extras; tests of the library import them.
        if path.relative_to(PACKAGE).parts[:1] != ("tasks",) or path.parent.name == "tasks"
    ]
    assert len(modules) > 100
    code = f"""
import importlib
for name in {modules!r}:
    try:
        importlib.import_module(name.removesuffix(".__init__"))
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in {OPTIONAL!r}:
            raise
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_pythons_that_are_claimed_are_the_ones_that_are_tested() -> None:
    prefix = "Programming Language :: Python :: 3."
    minors = [int(c.removeprefix(prefix)) for c in PROJECT["classifiers"] if c.startswith(prefix)]
    oldest, newest = f"3.{min(minors)}", f"3.{max(minors)}"
    assert sorted(minors) == list(range(min(minors), max(minors) + 1))
    assert PROJECT["requires-python"] == f">={oldest}"
    assert PYPROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    ci = read(".ci/run")
    assert f"\nOLDEST={oldest}\n" in ci
    assert f"\nNEWEST={newest}\n" in ci
    assert f"Python {oldest} to {newest}" in read("README.md")


# Versions


def test_every_test_environment_is_installed_under_exact_pins() -> None:
    pinned = pins("constraints/test.txt")
    extras = PROJECT["optional-dependencies"]
    for text in [*PROJECT["dependencies"], *extras["dev"], *extras["ray"]]:
        assert requirement(text)[0] in pinned, f"run `make pins`: {text}"
    for line in read("requirements-test.txt").splitlines():
        if line and not line.startswith("#"):
            assert requirement(line)[0] in pinned, f"run `make pins`: {line}"
    for line in read("requirements-browser.txt").splitlines():
        if line and not line.startswith("#"):
            assert "==" in line or requirement(line)[0] in pinned, line
    installs = re.findall(r"\$\(PIP_QUIET\)((?:.|\\\n)*)--editable", read("Makefile"))
    assert len(installs) == 6
    for arguments in installs:
        assert "--constraint constraints/" in arguments


def test_the_tools_of_the_lint_are_those_of_the_test_environment() -> None:
    pinned = pins("constraints/test.txt")
    for package, versions in pins("requirements-lint.txt").items():
        assert versions == pinned[package], package


def test_the_oldest_versions_that_are_allowed_are_the_ones_that_are_tested() -> None:
    pinned = pins("constraints/lowest.txt")
    extras = PROJECT["optional-dependencies"]
    tested = re.findall(r"--editable '\.\[(dev,[\w,]+)\]'", read("Makefile"))[0].split(",")
    for text in [*PROJECT["dependencies"], *(r for extra in tested for r in extras[extra])]:
        package, operator, version = requirement(text)
        assert operator in (">=", "=="), f"no lower bound: {text}"
        (lowest,) = pinned[package]
        assert release(lowest) == release(version), f"{text}, but tested is {lowest}"


# Extras and back ends


def test_every_extra_has_code_that_imports_it() -> None:
    imported = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.partition(".")[0])
    for extra, requirements in PROJECT["optional-dependencies"].items():
        packages = [requirement(text)[0] for text in requirements]
        modules = {MODULES.get(package, package.replace("-", "_")) for package in packages}
        assert extra == "dev" or modules & imported, f"nothing imports what {extra} brings"


@pytest.mark.parametrize("name", sorted(NOT_YET))
def test_a_back_end_that_is_not_here_yet_says_what_works_today(name: str) -> None:
    assert name not in model_registry
    with pytest.raises(UnknownNameError, match="not available here yet") as caught:
        get_model(name)
    assert f"the model {name!r} of the published harness" in str(caught.value)
    names = ", ".join(sorted(MODEL_MAPPING))
    assert f"Available models: {names}, and custom model classes." in str(caught.value)


def test_a_back_end_that_is_not_here_yet_is_reported_before_tasks_are_loaded(
    lm_eval_command: Command, tmp_path: Path
) -> None:
    done = lm_eval_command(
        "run", "--model", "trtllm", "--tasks", "nonsense", "-o", tmp_path / "out"
    )
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("lm-eval: error: the model 'trtllm' of the published harness is not")
    assert not (tmp_path / "out").exists()


def test_a_registered_plug_in_wins_over_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_registry, "_entries", dict(model_registry._entries))
    model_registry.register("trtllm", target=DummyLM)
    check_model(RunConfig(model="trtllm"))
    assert get_model("trtllm") is DummyLM


def test_an_installed_plug_in_wins_over_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = PluginEntry("sglang", "lm_eval.models.dummy:DummyLM", "a_plug_in")
    monkeypatch.setattr("lm_eval.api.registry.plugin_entries", lambda group: [entry])
    registry: Registry[Any] = Registry("model", "lm_eval.models", "lm_eval.models")
    registry.explain_missing("sglang", "not available here yet")
    assert registry.get("sglang") is DummyLM


# The README's path in


def test_the_install_commands_of_the_readme_lead_to_a_working_next_line(tmp_path: Path) -> None:
    """Runs the README's `install` block, then its next block, in a copy of the checkout.

    pip installs no dependencies and builds with the installed hatchling, so that no network is
    needed: the dependencies are those of the environment that runs this test.
    """
    pytest.importorskip("hatchling", reason="the extra dev brings it")
    checkout = tmp_path / "checkout"
    ignore = shutil.ignore_patterns("__pycache__", "tasks")
    shutil.copytree(PACKAGE, checkout / "lm_eval", ignore=ignore)
    copied = shutil.ignore_patterns("__pycache__", *_benchmarks())
    shutil.copytree(PACKAGE / "tasks", checkout / "lm_eval" / "tasks", ignore=copied)
    shutil.copytree(REPOSITORY / "constraints", checkout / "constraints")
    for name in ("Makefile", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, checkout / name)
    blocks = [(match[2].strip(), match[3]) for match in BLOCK.finditer(read("README.md"))]
    (place,) = (number for number, (mark, _) in enumerate(blocks) if mark == "install")
    following = next(code for mark, code in blocks[place + 1 :] if code.startswith("lm-eval "))
    script = f"set -e\n{blocks[place][1]}\ncommand -v lm-eval\n{following}"
    installed = sysconfig.get_path("purelib")
    environment = {
        **without_make(),
        "PATH": f"/usr/bin:/bin:{os.environ['PATH']}",
        "PYTHON": sys.executable,
        "PYTHONPATH": installed,
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip's spelling of --no-build-isolation
    }
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        cwd=checkout,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The command is .venv/bin/lm-eval" in done.stdout
    assert str(checkout / ".venv" / "bin" / "lm-eval") in done.stdout
    assert "|choice|" in done.stdout


def test_make_demo_ends_with_the_path_of_the_command() -> None:
    words = ["make", "--dry-run", "demo", f"PYTHON={sys.executable}"]
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=REPOSITORY, env=without_make(), check=True
    )
    *_, run, report, where, last = done.stdout.splitlines()
    assert run.startswith(".venv/bin/lm-eval run --model demo --tasks demo ")
    assert report.startswith(".venv/bin/lm-eval report out/demo ")
    assert "out/demo/report.html" in where
    assert "The command is .venv/bin/lm-eval" in last


def _benchmarks() -> set[str]:
    """Returns the benchmark folders that the README's first commands do not use."""
    folders = {path.name for path in (PACKAGE / "tasks").iterdir() if path.is_dir()}
    return folders - {"demo"}
