"""Tests that guessed tokens do not change greedy answers, and that guesses are used."""

from __future__ import annotations

from typing import Any

import pytest

from lm_eval.models.huggingface import answering, kv_cache
from lm_eval.models.huggingface.generation import Prompt
from lm_eval.models.huggingface.lookup_decoding import GuessedAnswer, NgramIndex
from lm_eval.models.partial_answers import GrowingAnswer, StopConditions
from tests.huggingface.conftest import ARCHITECTURES, LONGEST, Make, ask, make_model, torch

TEXTS = [
    "Tom has 3 apples. Mira has 3 apples. Tom has 3",
    "A bird",
    "Mira saw a bird in the garden. Mira saw a bird in the",
    "Tom has 3 apples. Mira",
]


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if ARCHITECTURES[name][3]])
def test_guesses_do_not_change_answers(
    name: str, make_lm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(*ARCHITECTURES[name][:3])
    asked = [
        ask("generate_until", text, {"max_gen_toks": 40, "until": stops})
        for stops in (["e"], [])
        for text in TEXTS
    ]
    checked: list[int] = []
    extend = kv_cache.KeyValueCache.extend

    def counted(self: Any, network: Any, tokens: Any, device: Any) -> Any:
        checked.extend(len(part) - 1 for part in tokens)
        return extend(self, network, tokens, device)

    monkeypatch.setattr(kv_cache.KeyValueCache, "extend", counted)
    lm = make_lm(model)
    assert lm.execution_modes.prefix_sharing
    found = lm.generate_until(asked)
    assert sum(checked) > 0
    monkeypatch.setattr(answering, "LOOKUP_DEVICES", ())
    plain = make_lm(model)
    assert plain.generate_until(asked) == found
    assert plain.usage() == lm.usage()


def test_no_position_beyond_the_longest_answer_is_computed(
    make_lm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPT-2 has no embeddings for later positions, so too many guesses would be an error."""
    model = make_model(*ARCHITECTURES["gpt2"][:3])
    with torch.no_grad():  # the last token is repeated
        for weight in model.transformer.h.parameters():
            weight.zero_()
        model.transformer.wpe.weight.zero_()
    positions: list[int] = []
    lm = make_lm(model)
    hidden = type(lm._network).hidden

    def counted(self: Any, tokens: Any, position: Any) -> Any:
        positions.append(int(position.max()))
        return hidden(self, tokens, position)

    monkeypatch.setattr(type(lm._network), "hidden", counted)
    text = "Mira saw a bird. " * 200  # is truncated, so that the answer ends where the model does
    settings = {"max_gen_toks": 50, "until": []}
    (found,) = lm.generate_until([ask("generate_until", text, settings)])
    assert found
    assert max(positions) == LONGEST - 2  # the last token is not read
    assert len(positions) < 20  # several tokens were guessed at once


def test_text_that_followed_is_guessed_to_follow_again() -> None:
    prompt = Prompt("", [5, 6, 7, 8, 9, 5, 6, 7], (0,))
    answer = GrowingAnswer(str, StopConditions(frozenset(), ()), 100)
    row = GuessedAnswer(prompt, answer, NgramIndex())
    assert row.guess() == [7, 8]
    assert row.check([8, 9]) == [8, 9]
    assert row.guess() == [9, 5, 6, 7]
    assert row.check([5, 1, 2, 3]) == [5, 1]
    assert row.guess() == [1]
    assert row.check([4]) == [4]


def test_other_answers_are_looked_up_too() -> None:
    shared = NgramIndex()
    conditions = StopConditions(frozenset(), ())
    one, two = (
        GuessedAnswer(Prompt("", tokens, (0,)), GrowingAnswer(str, conditions, 9), shared)
        for tokens in ([1, 2, 3], [1, 2, 3])
    )
    one.guess()
    one.check([4])
    assert two.guess() == [3, 4]
