"""Runs `mlx_lm.evaluate`, mlx-lm's own evaluation, with this package in place of the published one.

Its model class, command line and results files are mlx-lm's; only `import lm_eval` is ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from tests.servers.environments import ROOT, python_of

TASKS = ("demo_choice", "demo_sums")
LIMIT = 10


@pytest.fixture(scope="session")
def mlx_python() -> Path:
    """Returns the Python of an environment with mlx-lm; skips the test if there can be none."""
    if sys.version_info < (3, 11):
        pytest.skip("mlx-lm needs Python 3.11")
    try:
        return python_of("mlx")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"mlx-lm cannot be installed here: {error}")


def evaluated_by_mlx(
    python: Path, model: Path, folder: Path, tasks: tuple[str, ...], *options: str
) -> dict[str, Any]:
    """Returns the results file that `mlx_lm.evaluate` writes for the tasks."""
    # mlx-lm names the file after the version of the installed package `lm_eval`.
    metadata = folder / f"lm_eval-{lm_eval.__version__}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Name: lm_eval\nVersion: {lm_eval.__version__}\n", encoding="utf-8")
    out = folder / "out"
    subprocess.run(
        [
            *(python, "-m", "mlx_lm", "evaluate", "--model", model, "--tasks", *tasks),
            *("--limit", str(LIMIT), "--output-dir", out, *options),
        ],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "HF_HUB_OFFLINE": "1"},
        check=True,
        cwd=folder,
    )
    (file,) = out.iterdir()
    assert lm_eval.__version__ in file.name
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def test_mlx_lm_evaluates_with_this_package(
    mlx_python: Path, demo_folder: Path, tmp_path: Path
) -> None:
    found = evaluated_by_mlx(mlx_python, demo_folder, tmp_path, TASKS, "--no-apply-chat-template")
    # mlx-lm decodes greedily whatever a task asks for, and seeds the examples with its own default.
    expected: Any = lm_eval.simple_evaluate(
        "demo",
        tasks=list(TASKS),
        limit=LIMIT,
        gen_kwargs={"do_sample": False, "temperature": 0.0},
        fewshot_random_seed=123,
    )
    assert set(found) == set(TASKS)
    for task in TASKS:
        scores = {k: v for k, v in expected["results"][task].items() if "," in k}
        assert {k: v for k, v in found[task].items() if "," in k} == pytest.approx(scores)


def test_mlx_lm_applies_its_chat_template_to_our_prompts(
    mlx_python: Path, demo_folder: Path, tmp_path: Path
) -> None:
    options = ("--num-shots", "1", "--fewshot-as-multiturn")
    found = evaluated_by_mlx(mlx_python, demo_folder, tmp_path, ("demo_sums",), *options)
    assert found["demo_sums"]["sample_len"] == LIMIT
