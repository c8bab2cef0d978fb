"""Tests that merged projections give what the separate ones give, without a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from lm_eval.models.huggingface.kernels import projections
from lm_eval.models.huggingface.network import Network
from tests.huggingface.conftest import ARCHITECTURES, make_model, torch


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets projections be merged on a CPU."""
    monkeypatch.setattr(projections, "can_run_on", lambda device: True)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma2", "opt", "gpt2"])
def test_merged_projections_change_nothing(name: str) -> None:
    network = Network(make_model(*ARCHITECTURES[name][:3]))
    merged = projections.merge_projections(network.trunk)
    layers = sum(hasattr(module, "k_proj") for module in network.trunk.modules())
    assert len(merged) == 3 * layers
    assert bool(merged) == (name != "gpt2")
    tokens = torch.arange(3, 33).reshape(2, 15)
    with torch.inference_mode():
        expected = network.hidden(tokens)
        found: Any = network.with_more_forwards(merged).hidden(tokens)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_nothing_is_merged_on_a_cpu() -> None:
    assert projections.merge_projections(make_model(*ARCHITECTURES["llama"][:3])) == {}
