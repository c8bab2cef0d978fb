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
    merged = projections.merge_projections(network.trunk, 1 << 30)
    attentions = sum(hasattr(module, "k_proj") for module in network.trunk.modules())
    gated = sum(hasattr(module, "gate_proj") for module in network.trunk.modules())
    assert len(merged) == 3 * attentions + 2 * gated
    assert bool(attentions) == (name != "gpt2")
    assert bool(gated) == (name not in ("gpt2", "opt"))
    tokens = torch.arange(3, 33).reshape(2, 15)
    with torch.inference_mode():
        expected = network.hidden(tokens)
        found: Any = network.with_more_forwards(merged).hidden(tokens)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("on_cpu")
def test_copies_of_weights_take_at_most_the_given_memory() -> None:
    """Attention comes first: its copies are smaller, and save more."""
    model = make_model(*ARCHITECTURES["llama"][:3])

    def sized(*names: str) -> int:
        return sum(w.nbytes for name, w in model.named_parameters() if name.split(".")[-2] in names)

    attention, gated = sized("q_proj", "k_proj", "v_proj"), sized("gate_proj", "up_proj")
    assert min(attention, gated) > 0
    for most, expected in ((attention - 1, 0), (attention, 3), (attention + gated, 5)):
        merged = projections.merge_projections(model, most)
        assert len(merged) == expected * len(model.model.layers)


def test_nothing_is_merged_on_a_cpu() -> None:
    assert projections.merge_projections(make_model(*ARCHITECTURES["llama"][:3]), 1 << 30) == {}
