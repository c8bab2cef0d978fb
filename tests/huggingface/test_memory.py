"""Tests that running out of memory shrinks batches, and that unscored positions need no memory."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from lm_eval.errors import ModelError
from tests.huggingface.conftest import Make, ask, torch

REQUESTS = [
    ask("loglikelihood", f"Tom has {n} apples and Mira has", f" {n + k}")
    for n in range(20)
    for k in range(4)
]


@pytest.mark.parametrize("sharing", [True, False])
def test_running_out_of_memory_halves_the_budget_and_goes_on(
    make_lm: Make, sharing: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = make_lm(prefix_sharing=sharing).loglikelihood(REQUESTS)
    lm = make_lm(prefix_sharing=sharing)
    lm.budget.tokens = 256
    seen: list[int] = []
    plain = lm._network.hidden

    def small(tokens: Any, position: Any = None) -> Any:
        seen.append(tokens.numel())
        if tokens.numel() > 70:
            raise torch.OutOfMemoryError("CUDA out of memory, or so")
        return plain(tokens, position)

    monkeypatch.setattr(lm._network, "hidden", small)
    with caplog.at_level(logging.WARNING):
        found = lm.loglikelihood(REQUESTS)
    assert [a for a, _ in found] == pytest.approx([b for b, _ in expected], abs=1e-4)
    assert max(seen) > 70
    assert lm.budget.tokens == 64
    assert "Memory ran out" in caplog.text


def test_memory_that_never_suffices_is_an_error(
    make_lm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = make_lm()
    lm.budget.tokens = 4

    def never(*args: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(lm._network, "hidden", never)
    with pytest.raises(ModelError, match="even with one request at a time"):
        lm.loglikelihood(REQUESTS[:2])


def test_generation_goes_on_with_fewer_rows(make_lm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [ask("generate_until", f"Tom has {n}", {"max_gen_toks": 4}) for n in range(9)]
    expected = make_lm().generate_until(asked)
    lm = make_lm()
    plain = lm._network.hidden

    def small(tokens: Any, position: Any = None) -> Any:
        if tokens.shape[0] > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(tokens, position)

    monkeypatch.setattr(lm._network, "hidden", small)
    assert lm.generate_until(asked) == expected


def test_only_scored_positions_are_projected_and_each_prefix_is_read_once(
    make_lm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = make_lm()
    read, projected = [], []
    hidden, logits = lm._network.hidden, lm._network.logits
    monkeypatch.setattr(
        lm._network, "hidden", lambda t, p=None: read.append(t.numel()) or hidden(t, p)
    )
    monkeypatch.setattr(lm._network, "logits", lambda h: projected.append(len(h)) or logits(h))
    shots = "Mira counted the ducks on the river. " * 3
    asked = [
        ask("loglikelihood", f"{shots}Tom has {n} apples. Yes or no?", f" {w}")
        for n in range(9)
        for w in ("yes", "no")
    ]
    windows = lm.text_encoder.encode_pairs([r.args for r in asked], lm.prefix_token_id, causal=True)
    prefixes = {tuple((c + w)[: i + 1]) for c, w in windows for i in range(len(c + w) - 1)}
    lm.loglikelihood(asked)
    assert sum(read) == len(prefixes)
    scored = {tuple((c + w)[: len(c) + i]) for c, w in windows for i in range(len(w))}
    assert sum(projected) == len(scored)
