"""What runs with workers must do, wherever the workers are."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.tasks import TaskManager
from tests.workers import lms

MODEL = f"{lms.__file__}:LogLM"
ROOT = Path(__file__).parents[2]


def demo_results(limit: int, **executor: Any) -> Mapping[str, Any]:
    """Returns the results of the embedded model on the embedded tasks."""
    found = lm_eval.simple_evaluate(
        "demo", tasks=["demo"], limit=limit, log_samples=False, bootstrap_iters=0, **executor
    )
    assert found is not None
    return found


def assert_same_scores(one: Mapping[str, Any], two: Mapping[str, Any]) -> None:
    """Compares all scores: equal, apart from the rounding of sums in another order."""
    assert one["results"].keys() == two["results"].keys()
    for task, scores in one["results"].items():
        for name, value in scores.items():
            other = two["results"][task][name]
            if isinstance(value, float):
                same = math.isclose(value, other, rel_tol=1e-6) or value != value
                assert same, (task, name, value, other)
            else:
                assert value == other, (task, name)


def log_results(log: Path | None, **settings: Any) -> Mapping[str, Any]:
    """Returns the results of `LogLM` on 600 requests in two tasks."""
    arguments = {"log": str(log), **settings.pop("model_args", {})} if log is not None else {}
    found = lm_eval.simple_evaluate(
        MODEL,
        model_args=arguments,
        tasks=["demo_choice", "demo_pairs"],
        log_samples=False,
        bootstrap_iters=0,
        **settings,
    )
    assert found is not None
    return found


def reference(folder: Path) -> Path:
    """Returns the log of a run of `log_results` in one process."""
    log = folder / "reference"
    log_results(log)
    return log


def request_text(task: str, document: int, index: int) -> str:
    """Returns the text of one request of a task: its context and its continuation."""
    found = TaskManager().load(task)["tasks"][task]
    found.set_config("num_fewshot", 0)
    found.build_all_requests(limit=document + 1)
    (one,) = [r for r in found.instances if (r.doc_id, r.idx) == (document, index)]
    return "".join(one.args)


def command(*words: str) -> list[str]:
    """Returns the command line of `lm-eval`."""
    return [sys.executable, "-m", "lm_eval", *words]


def environment(**more: str) -> dict[str, str]:
    """Returns the environment of a command."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def failed(*words: str, **more: str) -> str:
    """Runs a command that must end with exit code 2; returns its only line of error."""
    done = subprocess.run(
        command(*words), capture_output=True, text=True, env=environment(**more), timeout=120
    )
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("lm-eval: error")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


def saved(folder: Path) -> Mapping[str, Any]:
    """Returns the results file below an output path."""
    (file,) = folder.rglob("results_*.json")
    found: Mapping[str, Any] = json.loads(file.read_text())
    return found
