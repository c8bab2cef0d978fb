"""Tests our Triton kernels, on a GPU or in Triton's interpreter (`make test-kernels`).

The interpreter runs a kernel in Python, program by program. It shows whether a kernel is right, and
whether all parts around it fit, but neither its speed nor what a GPU's compiler makes of it.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest

from lm_eval.models.conventions import Generation
from lm_eval.models.huggingface import accelerated, onednn
from lm_eval.models.huggingface.attention import AttentionKernels
from lm_eval.models.huggingface.continuous_batching import ContinuousBatch
from tests.huggingface.conftest import ARCHITECTURES, LONGEST, Make, make_model, torch
from tests.huggingface.test_architectures import by_definition, draw_windows
from tests.huggingface.test_continuous_batching import (
    STOPS,
    answered,
    draw_prompts,
    make_batch,
    plainly,
)

if not torch.cuda.is_available() and not os.environ.get("TRITON_INTERPRET"):
    pytest.skip("needs a GPU, or Triton's interpreter: make test-kernels", allow_module_level=True)

from lm_eval.models.huggingface import kernels
from lm_eval.models.huggingface.kernels import attention, layers, page_writing, paged_attention
from tests.huggingface import kernel_trials

interpreted = pytest.mark.skipif(
    kernel_trials.DEVICE != "cpu", reason="needs Triton's interpreter: make test-kernels"
)
SHARING = [name for name in ARCHITECTURES if ARCHITECTURES[name][3]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Returns a dictionary that counts how often each kernel is launched."""
    monkeypatch.setattr(onednn, "is_faster", lambda: False)
    counts: dict[str, int] = {}
    for module in (attention, layers, page_writing, paged_attention):
        for name, kernel in list(vars(module).items()):
            if type(kernel).__name__ == "InterpretedFunction":
                monkeypatch.setattr(module, name, Counted(kernel, name, counts))
    return counts


class Counted:
    """A kernel whose launches are counted."""

    def __init__(self, kernel: Any, name: str, counts: dict[str, int]) -> None:
        self.kernel, self.name, self.counts = kernel, name, counts

    def __getitem__(self, grid: Any) -> Any:
        self.counts[self.name] = self.counts.get(self.name, 0) + 1
        return self.kernel[grid]


@pytest.mark.parametrize("kind", kernel_trials.KINDS)
@pytest.mark.parametrize("trial", kernel_trials.TRIALS)
def test_a_kernel_agrees_with_torch(trial: Any, kind: Any) -> None:
    torch.manual_seed(0)
    trial(kind)


@interpreted
@pytest.mark.parametrize("name", SHARING)
def test_all_architectures_decode_in_pages(name: str, calls: dict[str, int]) -> None:
    model = make_model(*ARCHITECTURES[name][:3])
    prompts, settings = draw_prompts(6), Generation(max_gen_toks=8)
    batch: ContinuousBatch = make_batch(model, prompts, settings, STOPS, max_rows=4)
    found = dict(answered(batch))
    assert {"_write_pages", "_attend_own_pages", "_attend_shared_pages"} <= set(calls)
    assert found == plainly(model, prompts, settings, STOPS)


@interpreted
@pytest.mark.parametrize("name", ["llama", "gemma2", "mistral-window", "gpt-oss"])
def test_scores_are_those_of_the_definition(
    name: str, make_lm: Make, calls: dict[str, int]
) -> None:
    model = make_model(*ARCHITECTURES[name][:3])
    windows = draw_windows()
    lm = make_lm(model, max_length=LONGEST)
    modes = lm.execution_modes
    assert modes.prefix_sharing
    lm._execution_modes = dataclasses.replace(
        modes, attention_kernels=AttentionKernels(tree=True, flash=False)
    )
    found = lm._loglikelihood_tokens([(None, *window) for window in windows])
    assert {"_attend", "_rms_norm"} <= set(calls)
    for (score, greedy), (true, truly) in zip(found, by_definition(model, windows), strict=True):
        assert score == pytest.approx(true, abs=2e-3)
        assert greedy == truly


def test_kernels_run_on_this_device() -> None:
    assert accelerated.can_compile()
    logits = torch.randn(3, 50, device=kernel_trials.DEVICE)
    assert kernels.can_reduce(logits)
    assert not kernels.can_reduce(logits.double())
