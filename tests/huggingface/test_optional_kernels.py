"""Tests that everything works without the folder `kernels/`, with the same answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_import_cycles import import_graph, modules_of

pytestmark = pytest.mark.slow

PACKAGE = Path(__file__).parents[2] / "lm_eval"
KERNELS = "models/huggingface/kernels"

EVALUATE = """
import json, sys
import torch, transformers
import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.models.demo.model import WEIGHTS
from lm_eval.models.huggingface import HFLM, accelerated

torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=1024, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
)
model = transformers.LlamaForCausalLM(config).eval()
with torch.no_grad():
    for weight in model.parameters():
        if weight.dim() > 1:
            weight.mul_(4)
lm = HFLM(pretrained=model, tokenizer=transformers.AutoTokenizer.from_pretrained(WEIGHTS), seed=1)

def ask(kind, *arguments):
    return Instance(kind, {}, arguments, 0, ("a_task", 0, 1))

contexts = ["Tom has three apples and", "Tom has three apples. Mira", "A river"]
scored = [ask("loglikelihood", c, f" {w}") for c in contexts for w in ("four", "is long", "a")]
written = [ask("generate_until", c, {"until": [], "max_gen_toks": 12}) for c in contexts]
drawn = {"until": [], "max_gen_toks": 8, "do_sample": True, "temperature": 0.9}
written += [ask("generate_until", c, drawn) for c in contexts]
json.dump({
    "package": lm_eval.__file__,
    "kernels": accelerated.kernels is not None,
    "tree": lm.execution_modes.prefix_sharing,
    "shared": lm.tree_scorer() is not None,
    "loglikelihood": lm.loglikelihood(scored),
    "rolling": lm.loglikelihood_rolling([ask("loglikelihood_rolling", contexts[0])]),
    "written": lm.generate_until(written),
}, sys.stdout)
"""


def run(code: str, root: Path) -> str:
    """Returns what the code prints with the copy of lm_eval in this folder."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def copied(root: Path) -> Path:
    """Returns the folder of kernels in a copy of the package; benchmarks are left out."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        benchmarks = Path(folder) == PACKAGE / "tasks"
        return {n for n in names if n == "__pycache__" or (benchmarks and "." not in n)}

    shutil.copytree(PACKAGE, root / "lm_eval", ignore=left_out)
    return root / "lm_eval" / KERNELS


def test_without_the_folder_of_kernels_answers_are_the_same(tmp_path: Path) -> None:
    shutil.rmtree(copied(tmp_path))
    expected, found = (json.loads(run(EVALUATE, root)) for root in (PACKAGE.parent, tmp_path))
    assert Path(found.pop("package")).parent == tmp_path / "lm_eval"
    assert Path(expected.pop("package")).parent == PACKAGE
    assert (expected.pop("kernels"), found.pop("kernels")) == (True, False)
    assert found.pop("loglikelihood") == [
        [pytest.approx(score, abs=1e-4), greedy] for score, greedy in expected.pop("loglikelihood")
    ]
    assert found.pop("rolling") == pytest.approx(expected.pop("rolling"), abs=1e-4)
    assert found["tree"]
    assert all(found["written"])
    assert found == expected


FIND = "from lm_eval.models.huggingface import accelerated; print(accelerated.kernels)"


def test_a_folder_that_holds_only_compiled_files_is_not_taken_for_the_kernels(
    tmp_path: Path,
) -> None:
    """git leaves `__pycache__` behind when it deletes a folder."""
    folder = copied(tmp_path)
    shutil.rmtree(folder)
    (folder / "__pycache__").mkdir(parents=True)
    assert run(FIND, tmp_path) == "None"


def test_a_module_that_the_kernels_lack_is_not_taken_for_their_absence(tmp_path: Path) -> None:
    (copied(tmp_path) / "layers.py").unlink()
    with pytest.raises(AssertionError, match=r"No module named '.*kernels\.layers'"):
        run(FIND, tmp_path)


def test_one_module_imports_the_kernels() -> None:
    """`accelerated` has a fallback for each kernel; other importers would have none."""
    package = "lm_eval.models.huggingface.kernels"
    graph = import_graph(modules_of(PACKAGE.parent))
    importers = {
        module
        for module, used in graph.items()
        if any(f"{name}.".startswith(f"{package}.") for name in used)
    }
    outside = {module for module in importers if not f"{module}.".startswith(f"{package}.")}
    assert outside == {"lm_eval.models.huggingface.accelerated"}
