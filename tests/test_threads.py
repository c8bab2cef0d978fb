"""Tests that numpy uses one thread during an evaluation, however it is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

#: Prints how many threads numpy's BLAS uses, before, during and after `{call}`.
SCRIPT = """\
import json, numpy, sys
from threadpoolctl import threadpool_info
from lm_eval.models.dummy import DummyLM

def threads():
    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

during = []
class Watching(DummyLM):
    def loglikelihood(self, requests, disable_tqdm=False):
        during.append(threads())
        return super().loglikelihood(requests)

def watched(function):
    def wrapper(*arguments, **options):
        during.append(threads())
        return function(*arguments, **options)
    return wrapper

before = threads()
{call}
print("SAID", json.dumps([before, during, threads()]))
"""
CALLS = {
    "simple_evaluate": """
import lm_eval
lm_eval.simple_evaluate(Watching(), tasks=["demo_pairs"], limit=2)
""",
    "evaluate": """
import lm_eval
from lm_eval.tasks import TaskManager
lm_eval.evaluate(Watching(), TaskManager().load(["demo_pairs"]), limit=2)
""",
    "command line": """
from lm_eval.api.registry import register_model
from lm_eval.cli import main
register_model("watching")(Watching)
assert main(["run", "--model", "watching", "--tasks", "demo_pairs", "--limit", "2"]) == 0
""",
    "rescore": """
from lm_eval import rescore
from lm_eval.cli import main
rescore.summarize = watched(rescore.summarize)
run = ["run", "--model", "dummy", "--tasks", "demo_pairs", "--limit", "2", "--output_path", "out"]
assert main(run) == 0
rescore.score("out")
""",
}


def said_by(code: str, folder: Path, **environment: str) -> Any:
    """Returns the output of a script in a new process, without variables that limit threads."""
    unset = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**kept, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("SAID ")]
    return json.loads(line.removeprefix("SAID "))


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one thread is all there is")
@pytest.mark.parametrize("call", CALLS)
def test_numpy_has_one_thread_during_an_evaluation_and_as_many_as_before_after_it(
    call: str, tmp_path: Path
) -> None:
    before, during, after = said_by(SCRIPT.format(call=CALLS[call]), tmp_path)
    assert min(before) > 1
    assert during == [[1] * len(before)]
    assert after == before


@pytest.mark.parametrize("name", ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"])
def test_a_number_of_threads_that_the_user_has_set_is_kept(name: str, tmp_path: Path) -> None:
    code = SCRIPT.format(call=CALLS["simple_evaluate"])
    before, during, after = said_by(code, tmp_path, **{name: "2"})
    assert during == [before]
    assert after == before


def test_torch_keeps_its_threads(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = f"import torch\nbefore_torch = torch.get_num_threads()\n{SCRIPT}\n".format(
        call="from lm_eval.engine.threads import numpy_on_one_thread\n"
        "with numpy_on_one_thread():\n"
        "    assert torch.get_num_threads() == before_torch\n"
        "    during.append(threads())\n"
    )
    before, during, after = said_by(code, tmp_path)
    assert (during, after) == ([[1] * len(before)], before)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one thread is all there is")
def test_evaluations_side_by_side_in_threads_restore_the_number(tmp_path: Path) -> None:
    call = """
import threading
from lm_eval.engine.threads import numpy_on_one_thread
second_in, first_out = threading.Event(), threading.Event()

def second():
    with numpy_on_one_thread():
        during.append(threads())
        second_in.set()
        first_out.wait(10)

other = threading.Thread(target=second)
with numpy_on_one_thread():
    other.start()
    assert second_in.wait(10)
first_out.set()
other.join()
"""
    before, during, after = said_by(SCRIPT.format(call=call), tmp_path)
    assert during == [[1] * len(before)]
    assert after == before


@pytest.mark.parametrize(
    "code",
    ["import lm_eval", "from lm_eval.cli import main; main([])", "main(['ls', 'tasks'])"],
)
def test_threadpoolctl_is_imported_only_to_evaluate(code: str, tmp_path: Path) -> None:
    imports = "from lm_eval.cli import main\n" if code.startswith("main") else ""
    check = "import json, sys; print('SAID', json.dumps('threadpoolctl' in sys.modules))"
    assert said_by(f"{imports}{code}\n{check}", tmp_path) is False
