"""Tests which packages may import which, and that `import lm_eval` loads no heavy modules."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "lm_eval"

FOUNDATION = {
    "errors",
    "entry_points",
    "extras",
    "defaults",
    "folders",
    "launch",
    "logs",
    "markdown",
    "printable",
    "redaction",
    "regexes",
    "signing",
    "_lazy",
    "_version",
}
CONTRACTS = {"api.instance", "api.registry", "api.filter", "api.model", "api.usage", "api.context"}
TASK_CONTRACTS = {"api.task", "api.group"}
BELOW_TASKS = (
    FOUNDATION | CONTRACTS | {"config", "stats", "data", "prompts", "filters", "metrics", "helpers"}
)

#: The packages that each package may import. Imports never go to packages further right.
MAY_USE = {
    "errors": {"extras", "redaction"},
    "extras": set(),
    "defaults": set(),
    "folders": set(),
    "launch": {"errors"},
    "logs": {"launch", "printable", "redaction"},
    "markdown": {"printable"},
    "printable": set(),
    "redaction": set(),
    "regexes": {"errors"},
    "signing": {"folders"},
    "_lazy": set(),
    "_version": set(),
    "entry_points": set(),
    "stats": set(),
    "caching": FOUNDATION,
    "decontamination": FOUNDATION,
    "helpers": FOUNDATION,
    "sandbox": FOUNDATION,
    "code_eval": FOUNDATION | {"sandbox"},
    "config": FOUNDATION | {"api.instance", "sandbox", "code_eval"},
    "api.instance": FOUNDATION,
    "api.usage": FOUNDATION,
    "api.context": FOUNDATION | {"api.usage"},
    "api.registry": FOUNDATION | {"api.filter", "api.model"},
    "api.filter": FOUNDATION | {"api.instance"},
    "api.model": FOUNDATION | {"config", "api.instance", "api.context"},
    "data": FOUNDATION,
    "prompts": FOUNDATION | {"api.registry", "config"},
    "contamination.findings": FOUNDATION,
    "filters": FOUNDATION | CONTRACTS | {"contamination.findings"},
    "metrics": FOUNDATION | CONTRACTS | {"config", "stats", "code_eval"},
    "engine": FOUNDATION | CONTRACTS | {"config"},
    "models": FOUNDATION | CONTRACTS | {"config", "data", "engine"},
    "features": FOUNDATION | {"models"},
    "api.task": BELOW_TASKS,
    "api.group": BELOW_TASKS | TASK_CONTRACTS,
    "tasks": BELOW_TASKS | TASK_CONTRACTS,
    "repeat_scoring": FOUNDATION | CONTRACTS | TASK_CONTRACTS | {"metrics"},
    "code_scoring": FOUNDATION
    | CONTRACTS
    | TASK_CONTRACTS
    | {"config", "engine", "code_eval", "repeat_scoring"},
    "scoring": FOUNDATION
    | CONTRACTS
    | TASK_CONTRACTS
    | {"filters", "engine", "code_scoring", "repeat_scoring"},
    "results": BELOW_TASKS | TASK_CONTRACTS | {"scoring", "engine", "contamination.findings"},
    "runs": FOUNDATION | CONTRACTS | TASK_CONTRACTS | {"config", "engine", "results"},
    "interim": FOUNDATION
    | CONTRACTS
    | TASK_CONTRACTS
    | {"engine", "scoring", "code_scoring", "results", "runs"},
    "integrity": BELOW_TASKS
    | TASK_CONTRACTS
    | {"tasks", "engine", "scoring", "code_eval", "code_scoring", "results"},
    "needed_packages": FOUNDATION | CONTRACTS | TASK_CONTRACTS,
    "preparation": BELOW_TASKS
    | TASK_CONTRACTS
    | {"tasks", "sandbox", "code_scoring", "needed_packages"},
    "evaluator": BELOW_TASKS
    | TASK_CONTRACTS
    | {"tasks", "preparation", "integrity", "interim", "engine", "models", "scoring", "results"}
    | {"runs", "contamination.findings", "code_scoring"},
    "logged_tasks": BELOW_TASKS | TASK_CONTRACTS | {"tasks", "preparation", "results", "runs"},
    "stored_requests": BELOW_TASKS
    | TASK_CONTRACTS
    | {"tasks", "preparation", "engine", "results", "runs"},
    "stored_answers": BELOW_TASKS | TASK_CONTRACTS | {"engine", "runs"},
    "rescore": BELOW_TASKS
    | TASK_CONTRACTS
    | {"tasks", "preparation", "logged_tasks", "engine", "scoring", "results", "runs"}
    | {"stored_requests", "stored_answers", "contamination.findings", "code_scoring"},
    "comparison": FOUNDATION
    | CONTRACTS
    | TASK_CONTRACTS
    | {"config", "rescore", "logged_tasks", "scoring", "metrics", "stats", "results", "runs"}
    | {"stored_requests"},
    "duels": BELOW_TASKS
    | TASK_CONTRACTS
    | {"tasks", "preparation", "engine", "models", "scoring", "results", "runs", "evaluator"},
    "studies": BELOW_TASKS
    | TASK_CONTRACTS
    | {"tasks", "engine", "models", "results", "runs", "evaluator"},
    "sweeps": BELOW_TASKS
    | TASK_CONTRACTS
    | {"tasks", "preparation", "engine", "models", "results", "runs", "evaluator"},
    "live": BELOW_TASKS
    | TASK_CONTRACTS
    | {"tasks", "preparation", "engine", "models", "results", "evaluator"},
    "callback": FOUNDATION | {"live", "sweeps", "results"},
    "report": FOUNDATION
    | {"rescore", "stored_requests", "comparison", "results", "runs", "sweeps"},
    "viewer": FOUNDATION | {"engine", "report", "runs"},
    "evaluator_config": FOUNDATION | {"config", "tasks"},
    "evaluator_utils": FOUNDATION | {"tasks", "preparation", "integrity"},
    "scaffold": FOUNDATION | {"api.registry", "tasks"},
    "contamination": BELOW_TASKS
    | TASK_CONTRACTS
    | {"contamination.findings", "tasks", "engine", "results"},
    "loggers": FOUNDATION | {"config", "results"},
    "cli": BELOW_TASKS
    | TASK_CONTRACTS
    | {"tasks", "preparation", "integrity", "models", "evaluator", "rescore", "results", "loggers"}
    | {"runs", "scaffold", "contamination.findings", "contamination", "comparison", "duels"}
    | {"stored_requests", "studies", "sweeps", "code_scoring", "engine", "report", "viewer"},
    "_cli": FOUNDATION | {"config", "cli"},
}

#: The modules of `contamination` that read and write findings. Other packages may use them.
FINDINGS = {"findings", "finding_types", "merge", "runs", "coverage"}

#: Modules that only re-export names from other modules.
WINDOWS = {"utils", "api.metrics", "api.samplers", "__main__", "__init__", "api.__init__"}


def room_of(module: str) -> str:
    parts = module.split(".")
    if parts[0] == "contamination" and parts[1:2] and parts[1] in FINDINGS:
        return "contamination.findings"
    return ".".join(parts[:2]) if parts[0] == "api" and len(parts) > 1 else parts[0]


def room_of_file(path: Path) -> str:
    return room_of(".".join(path.relative_to(PACKAGE).with_suffix("").parts))


def imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("lm_eval.") for name in names if name.startswith("lm_eval.")}


@pytest.mark.parametrize("room", sorted(MAY_USE))
def test_a_room_uses_only_what_the_plan_allows(room: str) -> None:
    rooms = set(MAY_USE) | WINDOWS
    for file in PACKAGE.rglob("*.py"):
        if room_of_file(file) != room:
            continue
        # Benchmark folders are data with a few helpers; they are written against the public API.
        # So are the files that `lm-eval new` copies.
        if room in ("tasks", "scaffold") and file.parent != PACKAGE / room:
            continue
        used = {room_of(name) for name in imports_of(file)} & rooms
        unplanned = used - MAY_USE[room] - {room, "__init__"}
        assert not unplanned, f"{file.relative_to(PACKAGE)} may not use {sorted(unplanned)}"


def test_every_room_is_on_the_plan() -> None:
    rooms = {room_of_file(path) for path in PACKAGE.rglob("*.py")}
    assert rooms - WINDOWS == set(MAY_USE)


HEAVY = ("torch", "transformers", "datasets", "pandas", "pyarrow", "scipy", "sklearn")


@pytest.mark.parametrize(
    "code",
    [
        "import lm_eval",
        "from lm_eval.cli import main; main([])",
        "from lm_eval.cli import main; main(['ls', 'tasks'])",
        "from lm_eval.cli import main; main(['run', '--model', 'dummy', '--tasks', 'demo_choice'])",
    ],
)
def test_the_door_is_light(code: str) -> None:
    check = f"{code}\nimport sys\nprint('HEAVY', [m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_import_lm_eval_loads_few_modules() -> None:
    code = (
        "import sys; before = set(sys.modules); import lm_eval; print(len(set(sys.modules)-before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40
