"""Tests that every module can be imported first, in a fresh interpreter, in any order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_import_cycles import ROOT, modules_of
from tests.test_public_names import NAMES

#: Packages that the base installation does not have; modules that need them may fail without them.
OPTIONAL = {"torch", "transformers", "accelerate", "triton", "vllm", "sglang", "llama_cpp"}

#: Runs each import named on standard input in a child process that has no module of lm_eval yet,
#: but the libraries that lm_eval imports: these take seconds, and are the same for all.
RUN_EACH = """
import gc, json, os, sys, traceback

def run(statement):
    try:
        exec(statement, {})
    except ModuleNotFoundError as error:
        return {"missing": error.name or ""}
    except BaseException:
        return {"error": traceback.format_exc(limit=-3)}
    return {}

statements = json.load(sys.stdin)
for statement in statements:
    run(statement)
for module in [name for name in sys.modules if name.partition(".")[0] == "lm_eval"]:
    del sys.modules[module]
gc.disable()
gc.freeze()
for statement in statements:
    if (child := os.fork()) == 0:
        print(json.dumps([statement, run(statement)]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def run_each(statements: list[str]) -> dict[str, dict[str, str]]:
    """Returns by statement what went wrong: nothing, an `error`, or a `missing` module."""
    done = subprocess.run(
        [sys.executable, "-W", "error::ImportWarning", "-c", RUN_EACH],
        input=json.dumps(statements),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))


def public_modules() -> list[str]:
    """Returns the modules that task folders and model classes may import."""
    near = {"lm_eval.api", "lm_eval.models"}
    return sorted(
        name
        for name in modules_of(ROOT)
        if name in NAMES or name.count(".") < 2 or name.rpartition(".")[0] in near
    )


#: Names that modules of published model classes import before any other.
FIRST_NAMES = [
    "from lm_eval.models.utils_hf import pad_and_concat",
    "from lm_eval.models.utils import get_dtype",
    "from lm_eval.models.huggingface import HFLM, get_dtype, stop_sequences_criteria",
]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_every_public_module_can_be_the_first_that_is_imported() -> None:
    statements = [*(f"import {module}" for module in public_modules()), *FIRST_NAMES]
    found = run_each(statements)
    assert sorted(found) == sorted(statements)
    assert {key: outcome for key, outcome in found.items() if "error" in outcome} == {}
    missing = {outcome["missing"].partition(".")[0] for outcome in found.values() if outcome}
    assert missing <= OPTIONAL


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_modules_that_need_each_other_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one_of_two.py").write_text("from two_of_two import b\na = 1\n", encoding="utf-8")
    (tmp_path / "two_of_two.py").write_text("from one_of_two import a\nb = 2\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    found = run_each(["import one_of_two", "import two_of_two", "import no_such_module"])
    assert "circular import" in found["import one_of_two"]["error"]
    assert "circular import" in found["import two_of_two"]["error"]
    assert found["import no_such_module"] == {"missing": "no_such_module"}
