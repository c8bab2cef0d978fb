"""Tests that captured and replayed decoding steps give the plain loop's answers, without a GPU.

`recorded_graphs.py` stands in for CUDA graphs.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lm_eval.models.conventions import Generation
from lm_eval.models.huggingface import (
    accelerated,
    continuous_batching,
    decoding_check,
    decoding_step,
    paged_cache,
    remembered_checks,
)
from lm_eval.models.huggingface.attention import NO_KERNELS
from lm_eval.models.huggingface.check import TOLERANCE
from lm_eval.models.huggingface.continuous_batching import Decoding
from lm_eval.models.huggingface.kernels import paged_attention
from lm_eval.models.huggingface.network import Network
from tests.huggingface.conftest import ARCHITECTURES, VOCABULARY, Make, make_model, torch
from tests.huggingface.recorded_graphs import GARBAGE, RecordedGraph, recorded_graphs
from tests.huggingface.test_continuous_batching import (
    CPU,
    RARE_STOPS,
    answered,
    draw_prompts,
    make_batch,
    plainly,
)

__all__ = ["recorded_graphs"]

SHARING = [name for name in ARCHITECTURES if ARCHITECTURES[name][3]]


@pytest.fixture
def graphs(
    recorded_graphs: type[RecordedGraph], monkeypatch: pytest.MonkeyPatch
) -> type[RecordedGraph]:
    """Lets steps be captured on the CPU, for small batches too."""
    monkeypatch.setattr(continuous_batching, "GRAPH_DEVICES", ("cpu",))
    monkeypatch.setattr(decoding_check, "CONTINUOUS_DEVICES", ("cpu",))
    monkeypatch.setattr(accelerated, "can_compile", lambda: True)
    monkeypatch.setattr(decoding_step, "MIN_BATCH_SIZE", 2)
    monkeypatch.setattr(decoding_step, "MIN_STEPS_TO_CAPTURE", 3)
    monkeypatch.setattr(continuous_batching, "ADMISSION_SHARE", 4)
    return recorded_graphs


def test_a_capture_computes_nothing_and_a_replay_everything(
    graphs: type[RecordedGraph],
) -> None:
    """This tests the stand-in itself: what it is worth depends on it."""
    total, given = torch.zeros(3), torch.arange(3.0)
    with torch.inference_mode():
        graph = graphs()
        graph.capture_begin()
        total += given * 2
        doubled = total.clone()
        graph.capture_end()
        assert total.tolist() == [0, 0, 0]
        assert doubled.tolist() == [GARBAGE] * 3  # memory that was not written yet
        graph.replay()
        given.copy_(torch.ones(3))
        graph.replay()
    assert total.tolist() == doubled.tolist() == [2, 4, 6]


@pytest.mark.parametrize(
    "needs_the_host",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum() > 1),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: x[x > 1],
        lambda x: x.nonzero(),
        lambda x: x.unique(),
        lambda x: torch.tensor([1.0]) + x,
    ],
)
def test_operations_that_need_the_host_cannot_be_captured(
    needs_the_host: Callable[[Any], Any], graphs: type[RecordedGraph]
) -> None:
    """This, too, tests the stand-in."""
    given = torch.arange(3.0)
    with torch.inference_mode():
        graph = graphs()
        graph.capture_begin()
        with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
            needs_the_host(given)
        graph.capture_end()
        assert given[torch.tensor([2])].item() == 2


@pytest.mark.parametrize("name", SHARING)
def test_all_architectures_answer_by_replayed_steps(name: str, graphs: type[RecordedGraph]) -> None:
    model = make_model(*ARCHITECTURES[name][:3])
    prompts, settings = draw_prompts(12), Generation(max_gen_toks=40)
    batch = make_batch(model, prompts, settings, RARE_STOPS, max_rows=6)
    found = dict(answered(batch))
    assert found == plainly(model, prompts, settings, RARE_STOPS)
    assert graphs.captured > 0
    assert graphs.replayed > 20 * graphs.captured


@pytest.mark.parametrize(
    ("settings", "repeats", "options"),
    [
        (Generation(max_gen_toks=60), 1, {}),
        (Generation(max_gen_toks=60), 1, {"decoding": Decoding(cascade=False)}),
        (Generation(max_gen_toks=60, temperature=0.8, top_k=50), 5, {}),
        (Generation(max_gen_toks=100, temperature=1.2, top_p=0.9), 3, {"max_pages": 30}),
    ],
)
def test_a_step_is_captured_for_each_batch_size(
    llama: Any,
    graphs: type[RecordedGraph],
    settings: Generation,
    repeats: int,
    options: dict[str, Any],
) -> None:
    """Answers end and begin, so the batch shrinks and grows; where pages run out, some repeat."""
    prompts = draw_prompts(30 // repeats, repeats)
    batch = make_batch(llama, prompts, settings, RARE_STOPS, max_rows=12, **options)
    found = answered(batch)
    expected = plainly(llama, prompts, settings, RARE_STOPS)
    assert len(found) == len(expected)
    assert dict(found) == expected
    assert len(batch.step._captured) == graphs.captured >= 2
    assert batch.pool.free == batch.cache.pages - 1


def find_decoding(model: Any, tolerance: float = 1e-3) -> Decoding | None:
    network, rng = Network(model), random.Random(0)
    stem = [rng.randrange(1, VOCABULARY) for _ in range(40)]
    texts = [stem + [rng.randrange(1, VOCABULARY) for _ in range(n)] for n in (5, 9, 30)]
    return decoding_check.find_decoding(
        network, lambda tokens: model(tokens).logits, texts, CPU, NO_KERNELS, tolerance, 64
    )


@pytest.mark.parametrize("name", SHARING)
def test_the_check_chooses_graphs_for_all_architectures(
    name: str, graphs: type[RecordedGraph]
) -> None:
    assert find_decoding(make_model(*ARCHITECTURES[name][:3])) == Decoding(True, True)
    assert graphs.replayed > 0


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize(
    ("name", "reason"),
    [("llama", "hooks, which a graph would run only once"), ("mixtral", "cannot be captured")],
)
def test_steps_that_need_the_host_are_launched_one_by_one(
    name: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Transformers' `eager` experts choose on the host; a hook may do anything there."""
    model = make_model(*ARCHITECTURES[name][:3])
    if name == "mixtral":
        model.set_experts_implementation("eager")
    else:
        model.model.register_forward_hook(lambda *given: None)
    with caplog.at_level("INFO", "lm_eval"):
        assert find_decoding(model) == Decoding(cascade=True, graphs=False)
    assert reason in caplog.text
    assert "Decoding by continuous batching with CUDA graphs is not used" in caplog.text


def shifted(kind: str) -> Any:
    """Returns attention over pages with a mistake."""
    plain = paged_cache.attend_pages_by_torch

    def attend(q: Any, k: Any, v: Any, keys: Any, values: Any, rows: Any, settings: Any) -> Any:
        if kind == "a page is not read":
            rows = rows._replace(table=torch.where(rows.table == 1, 0, rows.table))
        elif kind == "the window is too short":
            settings = settings._replace(window=30)
        elif kind == "rows are mixed up":
            rows = rows._replace(table=rows.table.roll(1, 0))
        return plain(q, k, v, keys, values, rows, settings)

    return attend


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize(
    "kind", ["a page is not read", "the window is too short", "rows are mixed up"]
)
def test_mistakes_are_noticed_among_the_rounding_errors_of_bfloat16(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(*ARCHITECTURES["llama"][:3]).bfloat16()
    tolerance = TOLERANCE[torch.bfloat16]
    assert find_decoding(model, tolerance) == Decoding(True, True)
    monkeypatch.setattr(paged_cache, "attend_pages_by_torch", shifted(kind))
    assert find_decoding(model, tolerance) is None


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize("least", [6, 20])
def test_mistakes_that_only_larger_batches_make_are_noticed(
    least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU, they are decoded by other kernels."""
    model = make_model(*ARCHITECTURES["llama"][:3])
    plain = paged_cache.attend_pages_by_torch

    def attend(q: Any, *given: Any) -> Any:
        return plain(q, *given) * (1.0 if len(q) < least else 1.01)

    monkeypatch.setattr(paged_cache, "attend_pages_by_torch", attend)
    monkeypatch.setattr(decoding_check, "TRIAL_PROGRAMS", (12, 40))
    assert find_decoding(model) is None
    monkeypatch.setattr(decoding_check, "TRIAL_PROGRAMS", (2, 1000))  # 500 rows: more than on a CPU
    assert find_decoding(model) == Decoding(True, True)


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize(("name", "heads"), [("llama", 2), ("gpt2", 4), ("opt", 4)])
def test_the_check_tries_all_kernels(
    name: str, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all architectures name their key heads."""
    middle, most = decoding_check.TRIAL_PROGRAMS
    assert paged_attention.PROGRAMS <= middle < paged_attention.MANY_PROGRAMS <= most
    monkeypatch.setattr(decoding_check, "TRIAL_PROGRAMS", (12, 100))
    tried: list[int] = []
    trial = decoding_check.make_batch

    def counted(network: Any, prompts: Any, *given: Any) -> Any:
        tried.append(len(prompts) * heads)
        return trial(network, prompts, *given)

    monkeypatch.setattr(decoding_check, "make_batch", counted)
    assert find_decoding(make_model(*ARCHITECTURES[name][:3])) == Decoding(True, True)
    assert sorted(set(tried))[-2:] == [12, 100]


@pytest.mark.usefixtures("graphs")
def test_a_large_batch_that_does_not_fit_is_not_tried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The run halves its batches if memory runs out; a model that fits can be loaded."""
    plain = paged_cache.attend_pages_by_torch

    def attend(q: Any, *given: Any) -> Any:
        if len(q) >= 20:
            raise torch.OutOfMemoryError("out of memory")
        return plain(q, *given)

    monkeypatch.setattr(paged_cache, "attend_pages_by_torch", attend)
    monkeypatch.setattr(decoding_check, "TRIAL_PROGRAMS", (12, 40))
    with caplog.at_level("INFO", "lm_eval"):
        assert find_decoding(make_model(*ARCHITECTURES["llama"][:3])) == Decoding(True, True)
    assert "A batch of 20 rows was not tried: OutOfMemoryError: out of memory." in caplog.text


def test_small_mistakes_are_noticed_on_models_with_small_rounding_errors() -> None:
    """The tolerance of a dtype holds for all models, but most differ by much less."""
    assert decoding_check.allowed_difference(0.15, 0.001) == pytest.approx(0.015)
    assert decoding_check.allowed_difference(0.15, 0.02) == pytest.approx(0.06)
    assert decoding_check.allowed_difference(0.15, 0.1) == 0.15


def test_the_difference_of_rows_is_a_mean_over_likely_tokens() -> None:
    true = torch.randn(3, 500)
    assert decoding_check.logprob_difference(true + 7.0, true) < 1e-5
    noise = 0.1 * torch.randn(3, 500)
    assert 0.07 < decoding_check.logprob_difference(true + noise, true) < 0.14
    other = true.clone()
    other[1] = true[1].roll(1)
    assert decoding_check.logprob_difference(other, true) > 1.0
    other[1, 0] = torch.nan
    assert decoding_check.logprob_difference(other, true) == float("inf")


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("fails_early", [False, True])
def test_torch_does_not_go_on_allocating_for_a_failed_capture(
    llama: Any,
    graphs: type[RecordedGraph],
    monkeypatch: pytest.MonkeyPatch,
    fixed: bool,
    fails_early: bool,
) -> None:
    """Otherwise `empty_cache` fails. Versions of torch that have ended it themselves complain."""
    ended: list[Any] = []

    def end(device: int, pool: Any) -> None:
        ended.append((device, pool))
        if fixed:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")

    def capture_end(self: Any) -> None:
        plain_end(self)
        raise RuntimeError("operation failed due to a previous error during capture")

    plain_end = graphs.capture_end
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end, raising=False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(graphs, "capture_end", capture_end)
    step = decoding_step.DecodingStep._step

    def broken(self: Any, size: int) -> None:
        step(self, size)
        if fails_early and torch.utils._python_dispatch._get_current_dispatch_mode():
            self.token.sum().item()

    monkeypatch.setattr(decoding_step.DecodingStep, "_step", broken)
    prompts, settings = draw_prompts(6), Generation(max_gen_toks=40)
    batch = make_batch(llama, prompts, settings, max_rows=6)
    assert dict(answered(batch)) == plainly(llama, prompts, settings)
    assert ended == [(3, (0, 0))]
    assert not batch.step.graphs


def test_steps_with_and_without_common_pages_are_captured_separately(
    llama: Any, graphs: type[RecordedGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replayed step launches the kernels with which it was captured."""
    plain = paged_cache.attend_pages_by_torch

    def attend(q: Any, k: Any, v: Any, keys: Any, values: Any, rows: Any, settings: Any) -> Any:
        """Cannot read shared pages if there are no tiles, like the kernels."""
        found = plain(q, k, v, keys, values, rows, settings)
        if len(rows.tile_count):
            return found
        return torch.where((rows.shared > 0)[:, None, None], torch.nan, found)

    monkeypatch.setattr(paged_cache, "attend_pages_by_torch", attend)
    prompts, settings = draw_prompts(20), Generation(max_gen_toks=80)
    batch = make_batch(llama, prompts, settings, RARE_STOPS, max_rows=8)
    launch, count = batch._launch_steps, itertools.count()

    def alternating(*given: Any) -> None:
        batch.min_pages_saved = 1 if next(count) // 3 % 2 else 1 << 30
        launch(*given)

    batch._launch_steps = alternating  # type: ignore[method-assign]
    assert dict(answered(batch)) == plainly(llama, prompts, settings, RARE_STOPS)
    kinds = {has_groups for _, has_groups in batch.step._captured}
    assert kinds == {True, False}
    assert graphs.replayed > 0


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list to which the size of each step is appended that is not captured."""
    sizes: list[int] = []
    step = decoding_step.DecodingStep._step

    def counted(self: Any, size: int) -> None:
        if torch.utils._python_dispatch._get_current_dispatch_mode() is None:
            sizes.append(size)
        step(self, size)

    monkeypatch.setattr(decoding_step.DecodingStep, "_step", counted)
    return sizes


def test_a_step_is_captured_before_it_runs(
    llama: Any, graphs: type[RecordedGraph], launched: list[int]
) -> None:
    """The host captures while the device reads prompts."""
    prompts, settings = draw_prompts(6), Generation(max_gen_toks=40)
    batch = make_batch(llama, prompts, settings, max_rows=6)
    assert dict(answered(batch)) == plainly(llama, prompts, settings)
    assert graphs.captured == 1
    assert not launched


class Preparing:
    """The forward function of a layer that makes a table when it decodes for the first time.

    It looks at the positions on the host then, which cannot be captured.
    """

    def __init__(self, model: Any) -> None:
        self.layer = model.model.layers[0]
        self.table: Any = None
        self.plain = type(self.layer).forward
        self.layer.forward = self

    def __call__(self, hidden: Any, *rest: Any, **more: Any) -> Any:
        if hidden.shape[1] == 1 and self.table is None:
            self.table = torch.ones(1)
            hidden.sum().item()
        found = self.plain(self.layer, hidden, *rest, **more)
        return found if self.table is None else found * self.table


def test_code_that_prepares_something_runs_before_it_is_captured(
    graphs: type[RecordedGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(*ARCHITECTURES["llama"][:3])
    monkeypatch.setattr(decoding_check, "has_hooks", lambda network: False)
    layer = Preparing(model)
    assert find_decoding(model) == Decoding(True, True)
    assert layer.table.tolist() == [1.0]
    prompts, settings = draw_prompts(6), Generation(max_gen_toks=40)
    captured = graphs.captured
    batch = make_batch(model, prompts, settings, max_rows=6)
    assert dict(answered(batch)) == plainly(model, prompts, settings)
    assert graphs.captured == captured + 1


def test_a_step_is_launched_if_the_check_is_remembered(
    make_lm: Make,
    graphs: type[RecordedGraph],
    launched: list[int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """What a step prepares is lost with the process of the check."""
    monkeypatch.setenv("LMEVAL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(remembered_checks, "MIN_SECONDS", 0.0)
    first = make_lm(make_model(*ARCHITECTURES["llama"][:3])).execution_modes
    assert first.decoding == Decoding(True, True)
    launched.clear()
    captured = graphs.captured
    assert make_lm(make_model(*ARCHITECTURES["llama"][:3])).execution_modes == first
    assert launched == [1]
    assert graphs.captured == captured


def test_a_run_goes_on_if_a_step_of_another_size_cannot_be_captured(
    llama: Any,
    graphs: type[RecordedGraph],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    step = decoding_step.DecodingStep._step

    def broken(self: Any, size: int) -> None:
        step(self, size)
        if graphs.captured and torch.utils._python_dispatch._get_current_dispatch_mode():
            self.token.sum().item()

    monkeypatch.setattr(decoding_step.DecodingStep, "_step", broken)
    prompts, settings = draw_prompts(20), Generation(max_gen_toks=60)
    batch = make_batch(llama, prompts, settings, RARE_STOPS, max_rows=12)
    found = dict(answered(batch))
    assert found == plainly(llama, prompts, settings, RARE_STOPS)
    assert len(batch.step._captured) == 1
    assert "Decoding steps are not captured as CUDA graphs: RuntimeError" in caplog.text
