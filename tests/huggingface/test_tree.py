"""Flash kernels are given every chain with its ancestors' keys: checked with a slow kernel."""

from __future__ import annotations

from typing import Any

import pytest

from lm_eval.models.huggingface import tree
from lm_eval.models.huggingface.attention import Form
from lm_eval.models.huggingface.continuations import Continuations
from lm_eval.models.huggingface.scoring import TreeScorer
from tests.huggingface.conftest import ARCHITECTURES, LONGEST, Make, make_model, torch
from tests.huggingface.test_architectures import by_definition, draw_windows


def slow_kernel(
    q: Any, k: Any, v: Any, starts: Any, key_starts: Any, longest: int, most: int, form: Form
) -> Any:
    """What a variable-length flash kernel computes, sequence by sequence."""
    mixed = []
    for i in range(len(starts) - 1):
        queries = q[starts[i] : starts[i + 1]].transpose(0, 1)
        keys, values = (x[key_starts[i] : key_starts[i + 1]].transpose(0, 1) for x in (k, v))
        assert queries.shape[1] <= longest
        assert keys.shape[1] <= most
        groups = len(queries) // len(keys)
        keys, values = keys.repeat_interleave(groups, 0), values.repeat_interleave(groups, 0)
        scores = queries @ keys.transpose(1, 2) * form.scale
        place = torch.arange(keys.shape[1])
        last = place[-queries.shape[1] :, None]
        seen = place[None] <= last
        if form.window is not None:
            seen &= place[None] > last - form.window
        mixed.append((scores.masked_fill(~seen, -torch.inf).softmax(-1) @ values).transpose(0, 1))
    return torch.cat(mixed)


@pytest.mark.parametrize("name", ["llama", "mistral-window", "gpt_neox"])
@pytest.mark.parametrize("gathered", [100, 1 << 18])
def test_chains_see_their_ancestors_and_nothing_else(
    name: str, gathered: int, make_lm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(*ARCHITECTURES[name][:3])
    lm = make_lm(model, max_length=LONGEST)
    monkeypatch.setattr(tree, "flash_attention", slow_kernel)
    monkeypatch.setattr(tree, "GATHERED_KEYS", gathered)
    windows = draw_windows(seed=3)
    fitted = Continuations(lm).fit_all(enumerate(windows))
    lm.budget.tokens = 200
    scorer = TreeScorer(lm._network, *lm._limits(), flash=True)
    found = dict(scorer.score([fitted]))
    for i, (true, greedy) in enumerate(by_definition(model, windows)):
        assert found[i][0] == pytest.approx(true, abs=2e-3)
        assert found[i][1] == greedy
