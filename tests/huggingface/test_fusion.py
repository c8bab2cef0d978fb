"""Tests that kernels replace only modules they agree with, and only during our forward passes."""

from __future__ import annotations

from typing import Any

import pytest

from lm_eval.models.huggingface import onednn
from lm_eval.models.huggingface.check import ExecutionModes, check_execution_modes
from lm_eval.models.huggingface.kernels import fusion
from lm_eval.models.huggingface.network import Network
from tests.huggingface.conftest import ARCHITECTURES, LONGEST, VOCABULARY, Make, make_model, torch
from tests.huggingface.slow_kernels import apply_rotary, gated_activation, rms_norm
from tests.huggingface.test_architectures import by_definition, draw_windows


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Replaces the GPU kernels by slow ones that run on a CPU."""
    monkeypatch.setattr(onednn, "is_faster", lambda: False)
    monkeypatch.setattr(fusion, "can_run_on", lambda device: True)
    for kernel in (rms_norm, gated_activation, apply_rotary):
        monkeypatch.setattr(fusion, kernel.__name__, kernel)
    return monkeypatch


#: Modules of two layers: attention, norms around it (and of queries and keys), gated layers.
FUSED = {
    "llama": 2 + 5 + 2,
    "qwen2": 2 + 5 + 2,
    "qwen3": 2 + 5 + 4 + 2,
    "gemma": 2 + 5 + 2,
    "gemma3": 2 + 9 + 4 + 2,
    "mistral-window": 2 + 5 + 2,
    "mixtral": 2 + 5,
    "gpt_neox": 2,
    "gpt2": 0,
    "opt": 0,
    "mamba": 3,
}


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("name", sorted(FUSED))
def test_modules_are_known_by_what_they_compute(name: str, make_lm: Make) -> None:
    model = make_model(*ARCHITECTURES[name][:3])
    windows = draw_windows()
    lm = make_lm(model, max_length=LONGEST)
    assert len(lm._network.replaced.forwards) == FUSED[name]
    found = lm._loglikelihood_tokens([(None, *window) for window in windows])
    for (score, greedy), (true, truly) in zip(found, by_definition(model, windows), strict=True):
        assert score == pytest.approx(true, abs=2e-3)
        assert greedy == truly


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "gemma", "gemma2", "gemma3", "qwen3"])
def test_in_half_precision_another_activation_is_not_taken_for_rounding(
    name: str, kind: Any
) -> None:
    """With small weights, all activation functions give nearly the same small numbers."""
    model = make_model(*ARCHITECTURES[name][:3])
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(0.2)
    model = model.to(kind)
    forwards = fusion.fuse(model)
    gated = [module for module in forwards if hasattr(module, "gate_proj")]
    assert len(gated) == 2
    for module in gated:
        for scale in (1, 30, 300):
            x = scale * torch.randn(50, module.gate_proj.in_features).to(kind)
            found, expected = forwards[module](x).double(), module(x).double()
            assert (found - expected).norm() <= torch.finfo(kind).eps * expected.norm()


@pytest.mark.usefixtures("kernels")
def test_the_model_is_left_as_it_is(make_lm: Make, llama: Any) -> None:
    lm = make_lm()
    forwards = lm._network.replaced.forwards
    with lm._network.replaced.active():
        assert all(vars(module)["forward"] is forward for module, forward in forwards.items())
    assert not any("forward" in vars(module) for module in llama.modules())
    with pytest.raises(ZeroDivisionError), lm._network.replaced.active():
        raise ZeroDivisionError
    assert not any("forward" in vars(module) for module in llama.modules())


@pytest.mark.usefixtures("kernels")
def test_the_check_returns_a_network_with_kernels_and_changes_none(llama: Any) -> None:
    given = Network(llama)
    modes, found = check_execution_modes(
        given,
        lambda tokens: llama(tokens).logits,
        llama.device,
        llama.dtype,
        VOCABULARY,
        LONGEST,
        max_rows=64,
    )
    assert modes.prefix_sharing
    assert len(found.replaced.forwards) == FUSED["llama"]
    assert given.replaced.forwards == {}


def test_a_kernel_that_disagrees_is_not_used(kernels: pytest.MonkeyPatch, make_lm: Make) -> None:
    kernels.setattr(fusion, "rms_norm", lambda x, *_, **__: 1.01 * x)
    kernels.setattr(fusion, "apply_rotary", lambda *_: 1 / 0)
    lm = make_lm()
    found = {type(module).__name__ for module in lm._network.replaced.forwards}
    assert found == {"LlamaMLP"}


def test_kernels_that_are_wrong_together_are_found_out_at_the_start(
    kernels: pytest.MonkeyPatch, make_lm: Make
) -> None:
    """The kernel is right on the rows of its own trial and wrong on all others."""

    def wrong(x: Any, *rest: Any, **more: Any) -> Any:
        return rms_norm(x, *rest, **more) * (1 if len(x) == len(fusion.TRIAL_MAGNITUDES) else 3)

    kernels.setattr(fusion, "rms_norm", wrong)
    lm = make_lm()
    assert lm._network.replaced.forwards == {}
    assert lm.execution_modes == ExecutionModes(separate_head=True, prefix_sharing=True)


class Centred(torch.nn.Module):
    """Looks like a root-mean-square norm, but subtracts the mean."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((width,), 0.5))
        self.eps = 1e-6

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.layer_norm(x, x.shape[-1:], self.weight, None, self.eps)


class Padded(Centred):
    """A norm that adds epsilon outside the square root instead of inside."""

    def forward(self, x: Any) -> Any:
        return self.weight * x / (x.square().mean(-1, keepdim=True).sqrt() + 1e-3)


class Halved(Centred):
    """A norm that uses only the first half of the row."""

    def forward(self, x: Any) -> Any:
        half = x[..., : x.shape[-1] // 2].float()
        return self.weight * (x * torch.rsqrt(half.square().mean(-1, keepdim=True) + self.eps)).to(
            x.dtype
        )


class Clamped(torch.nn.Module):
    """A gated layer that clamps large values."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (torch.nn.Linear(width, 2 * width) for _ in range(2))
        self.down_proj, self.act_fn = torch.nn.Linear(2 * width, width), torch.nn.SiLU()

    def forward(self, x: Any) -> Any:
        gate = self.act_fn(self.gate_proj(x).clamp(max=7))
        return self.down_proj(gate * self.up_proj(x).clamp(-7, 7))


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("made", [Centred, Padded, Halved, Clamped])
def test_what_only_looks_like_it_is_left_alone(made: Any, kind: Any) -> None:
    module = torch.nn.Sequential(made(1024).to(kind))
    assert fusion.fuse(module) == {}


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
def test_the_nearest_of_two_is_taken(kind: Any) -> None:
    """With large weights, adding one to them nearly vanishes in half precision."""
    model = make_model(*ARCHITECTURES["gemma"][:3])
    norm = model.model.norm
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0, 280, len(norm.weight)))
    model = model.to(kind)
    x = torch.randn(9, len(norm.weight)).to(kind)
    assert torch.equal(fusion.fuse(model)[norm](x), norm(x))


@pytest.mark.usefixtures("kernels")
def test_hooks_on_an_activation_are_heard(make_lm: Make) -> None:
    model = make_model(*ARCHITECTURES["llama"][:3])
    lm = make_lm(model)
    heard = []
    model.model.layers[1].mlp.act_fn.register_forward_hook(lambda *_: heard.append(1))
    lm._loglikelihood_tokens([(None, [5, 6, 7], [8])])
    assert heard


@pytest.mark.usefixtures("kernels")
def test_a_forward_set_after_the_check_is_used_and_kept(make_lm: Make) -> None:
    model = make_model(*ARCHITECTURES["llama"][:3])
    lm = make_lm(model)
    norm, called = model.model.norm, []
    own = norm.forward
    norm.forward = lambda x: called.append(1) or own(x)
    lm._loglikelihood_tokens([(None, [5, 6, 7], [8])])
    assert called
    assert "forward" in vars(norm)


def test_a_rotation_that_breaks_the_tree_costs_fusion_not_sharing(
    kernels: pytest.MonkeyPatch, make_lm: Make
) -> None:
    """A rotary embedding that is wrong only for a single row, as in a tree; batches are right."""

    def wrong(q: Any, k: Any, cosine: Any, sine: Any) -> Any:
        factor = 1 if q.shape[2] == 5 or q.shape[0] > 1 else 1.5
        return tuple(x * factor for x in apply_rotary(q, k, cosine, sine))

    kernels.setattr(fusion, "apply_rotary", wrong)
    lm = make_lm()
    assert lm.execution_modes.prefix_sharing
    assert lm._network.replaced.forwards == {}


@pytest.mark.usefixtures("kernels")
def test_what_others_have_replaced_stays_replaced(make_lm: Make) -> None:
    model = make_model(*ARCHITECTURES["llama"][:3])
    norm = model.model.norm
    own = norm.forward
    norm.forward = lambda x: own(x)
    lm = make_lm(model)
    assert norm not in lm._network.replaced.forwards
    lm._loglikelihood_tokens([(None, [5, 6, 7], [8])])
    assert "forward" in vars(norm)


@pytest.mark.usefixtures("kernels")
def test_extra_arguments_and_other_formats_go_to_the_module_itself() -> None:
    model = make_model(*ARCHITECTURES["llama"][:3])
    forwards = fusion.fuse(model)
    norm = model.model.norm
    x = torch.randn(3, len(norm.weight)).to(torch.bfloat16)
    assert forwards[norm](x).dtype == norm(x).dtype == torch.float32
    with pytest.raises(TypeError):
        forwards[norm](x.float(), "more")
    with pytest.raises(TypeError):
        forwards[model.model.layers[0].mlp](x.float(), "more")
