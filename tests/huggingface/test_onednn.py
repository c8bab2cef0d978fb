"""Tests that linear layers computed by oneDNN give what the layers themselves give."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lm_eval.models.huggingface import onednn
from tests.huggingface.conftest import ARCHITECTURES, LONGEST, Make, make_model, torch
from tests.huggingface.test_architectures import by_definition, draw_windows

nn = torch.nn


@pytest.fixture
def _fresh_answer() -> Iterator[None]:
    """Forgets what a test has simulated of this machine, also if it fails."""
    yield
    onednn._is_faster_here.cache_clear()


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Makes all products with oneDNN, whatever the CPU and their size; returns their shapes."""
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this build of torch has no oneDNN")
    found: list[tuple[int, ...]] = []
    plain = onednn.multiply

    def multiply(x: Any, weight: Any, bias: Any) -> Any:
        found.append((*x.shape, len(weight)))
        return plain(x, weight, bias)

    monkeypatch.setattr(onednn, "is_faster", lambda: True)
    monkeypatch.setattr(onednn, "MIN_MULTIPLICATIONS", 1)
    monkeypatch.setattr(onednn, "multiply", multiply)
    return found


def layers() -> dict[str, Any]:
    from transformers.pytorch_utils import Conv1D

    torch.manual_seed(0)
    return {
        "bias": nn.Linear(24, 40),
        "no bias": nn.Linear(24, 40, bias=False),
        "transposed": Conv1D(40, 24),
    }


@pytest.mark.parametrize("name", sorted(layers()))
@pytest.mark.parametrize("shape", [(5, 24), (2, 5, 24), (1, 4, 24), (2, 2, 5, 24)])
def test_a_layer_gives_the_same(name: str, shape: tuple[int, ...], products: list[Any]) -> None:
    layer = layers()[name]
    (forward,) = onednn.linear_forwards([layer]).values()
    with torch.no_grad():
        x = torch.randn(shape)
        torch.testing.assert_close(forward(x), layer(x), rtol=1e-5, atol=1e-5)
        other_strides = torch.randn(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)
        expected = layer(other_strides.contiguous())
        torch.testing.assert_close(forward(other_strides), expected, rtol=1e-5, atol=1e-5)
        assert products == [(*shape, 40)] * 2
        layer.weight.mul_(2)  # a model that is trained on
        torch.testing.assert_close(forward(x), layer(x), rtol=1e-5, atol=1e-5)


def half(layer: Any, x: Any) -> Any:
    layer.half()
    return x.half()


def strided_weights(layer: Any, x: Any) -> Any:
    layer.weight = nn.Parameter(torch.randn(40, 48)[:, ::2])
    return x


def strided_bias(layer: Any, x: Any) -> Any:
    layer.bias = nn.Parameter(torch.randn(80)[::2])
    return x


@pytest.mark.parametrize("change", [half, strided_weights, strided_bias, lambda layer, x: x[0]])
def test_a_layer_of_another_kind_uses_its_own_function(
    change: Callable[[Any, Any], Any], products: list[Any]
) -> None:
    layer = nn.Linear(24, 40)
    x = change(layer, torch.randn(5, 24))
    (forward,) = onednn.linear_forwards([layer]).values()
    with torch.no_grad():
        assert torch.equal(forward(x), layer(x))
    assert not products


def test_gradients_and_autocast_use_the_layers_own_function(products: list[Any]) -> None:
    layer = nn.Linear(24, 40)
    (forward,) = onednn.linear_forwards([layer]).values()
    x = torch.randn(5, 24)
    forward(x).sum().backward()
    assert layer.weight.grad is not None
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert forward(x).dtype == torch.bfloat16
    assert not products


def test_few_rows_of_transposed_weights_and_small_products_use_the_layers_own_function(
    products: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    forwards = {name: onednn.linear_forwards([layer]) for name, layer in layers().items()}
    with torch.no_grad():
        for of_layer in forwards.values():
            for forward in of_layer.values():
                forward(torch.randn(3, 24))
        assert len(products) == 2
        monkeypatch.setattr(onednn, "MIN_MULTIPLICATIONS", 24 * 40 * 10)
        for rows in (9, 10):
            for forward in forwards["bias"].values():
                forward(torch.randn(rows, 24))
    assert products[2:] == [(10, 24, 40)]


def test_parameters_have_the_names_of_the_layers_own(products: list[Any]) -> None:
    made = layers()
    x = torch.randn(5, 24)
    with torch.no_grad():
        for name, parameter in (("bias", "input"), ("transposed", "x")):
            (forward,) = onednn.linear_forwards([made[name]]).values()
            torch.testing.assert_close(forward(**{parameter: x}), made[name](**{parameter: x}))
    assert len(products) == 2


def test_other_modules_keep_their_functions(products: list[Any]) -> None:
    class Own(nn.Linear):  # type: ignore[misc, name-defined]
        pass

    modules = [nn.LayerNorm(4), nn.Embedding(4, 4), Own(4, 4), nn.ReLU()]
    assert onednn.linear_forwards(modules) == {}


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "phi", "mixtral", "granite", "opt"])
def test_scores_of_a_model_follow_the_definition(
    name: str, products: list[Any], make_lm: Make
) -> None:
    model = make_model(*ARCHITECTURES[name][:3])
    windows = draw_windows()
    expected = by_definition(model, windows)
    for options in ({}, {"prefix_sharing": "off"}):
        lm = make_lm(model, max_length=LONGEST, **options)
        assert lm._network.replaced.forwards
        products.clear()
        found = lm._loglikelihood_tokens([(None, *window) for window in windows])
        for (score, greedy), (true, truly_greedy) in zip(found, expected, strict=True):
            assert score == pytest.approx(true, abs=2e-3)
            assert greedy == truly_greedy
        heads = [shape for shape in products if shape[-1] == model.config.vocab_size]
        assert 0 < len(heads) < len(products), "the layers or the output head did not use it"
    assert not [m for m in model.modules() if "forward" in vars(m)], "the model was changed"


def test_a_wrong_product_is_found_by_the_start_up_check(
    products: list[Any], make_lm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(*ARCHITECTURES["llama"][:3])
    monkeypatch.setattr(onednn, "multiply", lambda x, weight, bias: 2 * (x @ weight.t()))
    lm = make_lm(model, max_length=LONGEST)
    assert lm.execution_modes.prefix_sharing
    assert not lm._network.replaced.forwards


def test_a_model_that_cannot_share_prefixes_is_checked_once(
    products: list[Any], make_lm: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        lm = make_lm(make_model(*ARCHITECTURES["bloom"][:3]), max_length=LONGEST)
    assert lm._network.replaced.forwards
    assert caplog.text.count("is not exact on this model") == 1


@pytest.mark.usefixtures("_fresh_answer")
def test_intel_cpus_and_functions_that_changed_leave_products_to_torch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, products: list[Any]
) -> None:
    monkeypatch.undo()

    def is_faster() -> bool:
        onednn._is_faster_here.cache_clear()
        return onednn.is_faster()

    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(onednn, "_cpu_description", lambda: "vendor_id : AuthenticAMD")
    assert is_faster()
    for kind in (torch.float64, torch.float16):
        torch.set_default_dtype(kind)
        try:
            assert is_faster(), "it does not depend on the default number format"
        finally:
            torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        assert is_faster(), "it does not depend on the default device"
    with monkeypatch.context() as here:
        here.setattr(torch.backends.mkldnn, "enabled", False)
        assert not is_faster()
    with monkeypatch.context() as here:
        here.setattr(onednn, "_cpu_description", lambda: "vendor_id : GenuineIntel")
        assert not is_faster()
    with monkeypatch.context() as here:
        here.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
        assert not is_faster()
    with monkeypatch.context() as here:
        here.setattr(onednn, "multiply", lambda x, weight, bias: x @ weight.t())
        assert not is_faster()

    def changed(*given: Any) -> Any:
        raise RuntimeError("expected at most 5 arguments")

    monkeypatch.setattr(onednn, "multiply", changed)
    assert not is_faster()
    assert "oneDNN is not used for matrix products: expected at most 5" in caplog.text


MEMORY = """
import resource, torch
from lm_eval.models.huggingface import onednn
onednn._limit_cached_products()
layer = torch.nn.Linear(192, 192)
onednn.is_faster = lambda: True
(forward,) = onednn.linear_forwards([layer]).values()
with torch.no_grad():
    for rows in range(100, 130):
        forward(torch.zeros(rows, 192))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for rows in range(130, 730):
        forward(torch.zeros(rows, 192))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in other units")
@pytest.mark.usefixtures("products")
def test_batches_of_many_sizes_leave_no_memory_behind() -> None:
    """oneDNN compiles a product for each size, and would keep a thousand of 1 MB."""
    names = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, env=environment
    )
    assert int(done.stdout) < 250
