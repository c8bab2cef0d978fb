"""Tests that the largest logits are found in parts of the vocabulary as in the whole."""

from __future__ import annotations

import pytest

from lm_eval.models.conventions import Generation
from lm_eval.models.huggingface import token_choice
from tests.huggingface.conftest import torch


@pytest.mark.parametrize("width", [1024, 1023, 1100, 5000])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_largest_logits_are_found_in_parts(
    width: int, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bfloat16, many logits are equal."""
    monkeypatch.setattr(token_choice, "MIN_LOGITS_IN_PARTS", 0)
    torch.manual_seed(0)
    logits = torch.randn(40, width).to(kind)
    logits[0] = torch.arange(width).to(kind)  # the largest are in the rest after the last part
    logits[1] = -torch.arange(width).to(kind)
    logits[2, 5:] = -torch.inf
    logits[3] = 1.0
    for count in (1, 3):
        values, indices = token_choice._largest(logits, count)
        assert torch.equal(values, logits.topk(count).values)
        assert torch.equal(values, logits.gather(1, indices))
        assert all(len(set(row)) == count for row in indices.tolist())


def test_sampling_does_not_depend_on_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    logits, draws = 3 * torch.randn(200, 70_000), torch.rand(200)
    logits[7, 123] = torch.nan
    settings = Generation(max_gen_toks=1, temperature=0.7, top_k=50)
    monkeypatch.setattr(token_choice, "MIN_LOGITS_IN_PARTS", 1 << 40)
    expected, is_number = token_choice.choose_tokens(logits, settings, draws)
    monkeypatch.setattr(token_choice, "MIN_LOGITS_IN_PARTS", 0)
    found, still = token_choice.choose_tokens(logits, settings, draws)
    assert is_number.tolist() == still.tolist() == [n != 7 for n in range(200)]
    assert torch.equal(found[is_number], expected[is_number])
    assert len(set(found.tolist())) > 100


def test_few_logits_are_searched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "amax", lambda *given, **named: 1 / 0)
    values, _ = token_choice._largest(torch.arange(9000.0)[None], 2)
    assert values.tolist() == [[8999.0, 8998.0]]
    monkeypatch.setattr(token_choice, "MIN_LOGITS_IN_PARTS", 0)
    with pytest.raises(ZeroDivisionError):
        token_choice._largest(torch.arange(9000.0)[None], 2)
