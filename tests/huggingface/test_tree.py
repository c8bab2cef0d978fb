"""Tests that the attention kernel gets each chain with its ancestors' keys, by a slow kernel."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval.engine.plan import pad_batch
from lm_eval.models.huggingface import scoring
from lm_eval.models.huggingface.kernels import attention
from lm_eval.models.huggingface.kernels.attention import find_chains
from lm_eval.models.huggingface.scoring import TreeScorer
from tests.demo.test_plan import Request, limits, make, requests
from tests.huggingface.conftest import ARCHITECTURES, LONGEST, Make, make_model
from tests.huggingface.slow_kernels import attend as slow_attend
from tests.huggingface.test_architectures import by_definition, draw_windows


@settings(max_examples=100, deadline=None)
@given(requests.filter(bool), limits, st.integers(1, 5), st.integers(0, 4))
def test_tiles_tell_each_query_its_path(
    found: list[Request], most: int | None, queries: int, spare: int
) -> None:
    for planned in make(found, max_tokens=most):
        batch = pad_batch(planned, len(planned.tokens) - planned.num_cached + spare)
        chained = find_chains(batch)
        told = {}
        for first, count, seen, above, stem, root, listed, own in attention.make_tiles(
            chained, queries
        ).tolist():
            assert count <= queries
            apart = chained.keys[listed : listed + above - stem].tolist()
            for i in range(count):
                keys = [*range(root, root + stem), *apart, *range(own, own + seen + i - above)]
                told[batch.num_cached + first + i] = keys
        nodes = range(batch.num_cached, len(batch.tokens))
        assert told == {node: batch.path(node).tolist() for node in nodes}


def test_a_long_stem_is_not_listed() -> None:
    """Questions share few-shot examples and have several choices: only questions are listed."""
    shots = list(range(1000))
    texts = [[*shots, 2000 + i, 1, 2, 3 + j] for i in range(20) for j in range(4)]
    (batch,) = make([(text, 1) for text in texts])
    assert len(find_chains(batch).keys) <= 20 * 5


@pytest.mark.parametrize("name", ["llama", "mistral-window", "gpt_neox", "gemma2", "gpt-oss"])
@pytest.mark.parametrize("rows", [4, 128])
def test_chains_see_their_ancestors_and_nothing_else(
    name: str, rows: int, make_lm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(*ARCHITECTURES[name][:3])
    lm = make_lm(model, max_length=LONGEST)
    monkeypatch.setattr(attention, "attend", slow_attend)
    monkeypatch.setattr(attention, "TILE_ROWS", rows)
    windows = draw_windows(seed=3)
    fitted = lm._input_limits().fit_all(enumerate(windows))
    lm.budget.tokens = 200
    scorer = TreeScorer(lm._network, *lm._limits(), kernels=True)
    found = dict(scorer.score([fitted]))
    for i, (true, greedy) in enumerate(by_definition(model, windows)):
        assert found[i][0] == pytest.approx(true, abs=2e-3)
        assert found[i][1] == greedy


def test_batches_of_round_sizes_score_the_same(
    monkeypatch: pytest.MonkeyPatch, make_lm: Make
) -> None:
    windows = [(None, *window) for window in draw_windows()]
    lm = make_lm(max_length=LONGEST)
    lm.budget.tokens = 150
    expected = lm._loglikelihood_tokens(windows)
    shared = lm.run_context.usage.tokens_shared
    monkeypatch.setattr(scoring, "ROUNDED_SIZE_DEVICES", ("cpu",))
    sizes = set()
    run = scoring.TreeScorer.run

    def noted(self: Any, tree: Any, wanted: Any) -> Any:
        sizes.add(len(tree.tokens))
        return run(self, tree, wanted)

    monkeypatch.setattr(scoring.TreeScorer, "run", noted)
    found = lm._loglikelihood_tokens(windows)
    assert sizes
    assert all(size == scoring.round_up(size) for size in sizes)
    assert lm.run_context.usage.tokens_shared == 2 * shared
    for (score, greedy), (true, truly) in zip(found, expected, strict=True):
        assert score == pytest.approx(true, abs=1e-4)
        assert greedy == truly


@pytest.mark.parametrize("count", [1, 15, 16, 17, 1000, 24_500, 24_577, 200_001])
def test_round_sizes_are_little_larger(count: int) -> None:
    size = scoring.round_up(count)
    assert count <= size <= count * 9 / 8
    assert size - count < 512
    assert scoring.round_up(size) == size


@pytest.mark.parametrize(
    ("count", "rows"), [(1, 1), (2, 2), (3, 4), (16, 16), (17, 32), (33, 48), (48, 48)]
)
def test_rows_come_in_few_sizes(count: int, rows: int) -> None:
    assert scoring.round_up_to_pieces(count, 16) == rows
