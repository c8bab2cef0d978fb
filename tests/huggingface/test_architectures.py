"""Tests on many architectures that scoring, with or without shared prefixes, is exact."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.huggingface.conftest import (
    ARCHITECTURES,
    GROUPED,
    LONGEST,
    T5,
    VOCABULARY,
    Make,
    make_model,
    torch,
    transformers,
)

Window = tuple[list[int], list[int]]


def draw_windows(seed: int = 0) -> list[Window]:
    """Returns random requests that share prefixes; some are equal, some have one-token answers."""
    rng = random.Random(seed)

    def tokens(count: int) -> list[int]:
        return [rng.randrange(1, VOCABULARY) for _ in range(count)]

    windows = []
    for _ in range(3):
        shots = tokens(rng.randrange(1, 60))
        for _ in range(3):
            context = shots + tokens(rng.randrange(1, 30))
            windows += [(context, tokens(1)) for _ in range(2)]
            windows += [(context, tokens(rng.randrange(2, 9))) for _ in range(2)]
    windows += [windows[5], ([3], tokens(LONGEST)), (tokens(LONGEST), tokens(3))]
    return windows


def by_definition(model: Any, windows: list[Window]) -> list[tuple[float, bool]]:
    """Returns reference scores, one request at a time: the sum of the log-probabilities."""
    answers = []
    for context, continuation in windows:
        whole = (context + continuation)[-(LONGEST + 1) :]
        with torch.no_grad():
            logs = torch.log_softmax(model(torch.tensor([whole[:-1]])).logits[0].double(), dim=-1)
        own, wanted = logs[-len(continuation) :], torch.tensor(continuation)
        total = own.gather(1, wanted[:, None]).sum()
        answers.append((float(total), bool((own.argmax(-1) == wanted).all())))
    return answers


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_every_way_of_scoring_follows_the_definition(name: str, make_lm: Make) -> None:
    *made_of, shares = ARCHITECTURES[name]
    model = make_model(*made_of)
    windows = draw_windows()
    expected = by_definition(model, windows)
    for options in ({}, {"batch_size": 3}, {"prefix_sharing": "off"}):
        lm = make_lm(model, max_length=LONGEST, **options)
        modes = lm.execution_modes
        assert modes.prefix_sharing == (shares and "prefix_sharing" not in options), modes
        lm.budget.tokens = 150  # several batches, so that shared nodes are handed on
        found = lm._loglikelihood_tokens([(None, *window) for window in windows])
        for (score, greedy), (true, truly_greedy) in zip(found, expected, strict=True):
            assert score == pytest.approx(true, abs=2e-3)
            assert greedy == truly_greedy


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral-window", "gemma2", "opt"])
def test_generation_follows_the_definition(name: str, make_lm: Make, tokenizer: Any) -> None:
    """Greedy generation equals a loop without key-value cache, one token at a time."""
    from tests.huggingface.conftest import ask

    model = make_model(*ARCHITECTURES[name][:3])
    lm = make_lm(model, max_length=LONGEST)
    texts = ["Tom has", "Mira saw a bird in the garden. Mira saw a", "Tom has 3 apples and"]
    settings = {"max_gen_toks": 12, "until": []}
    found = lm.generate_until([ask("generate_until", text, settings) for text in texts])
    assert lm.execution_modes.prefix_sharing
    for text, answer in zip(texts, found, strict=True):
        tokens = lm.tok_encode(text)
        written: list[int] = []
        for _ in range(12):
            with torch.no_grad():
                token = int(model(torch.tensor([tokens + written])).logits[0, -1].argmax())
            if token == tokenizer.eos_token_id:
                break
            written.append(token)
        assert answer == tokenizer.decode(written, skip_special_tokens=True)


def test_an_encoder_decoder_scores_what_its_decoder_is_asked_for(make_lm: Make) -> None:
    model = make_model("T5ForConditionalGeneration", "T5Config", T5)
    windows = [w for w in draw_windows() if len(w[1]) < 20]
    expected = []
    for context, continuation in windows:
        with torch.no_grad():
            logits = model(
                input_ids=torch.tensor([context]), labels=torch.tensor([continuation])
            ).logits[0]
        logs, wanted = torch.log_softmax(logits.double(), -1), torch.tensor(continuation)
        expected.append(
            (float(logs.gather(1, wanted[:, None]).sum()), bool((logs.argmax(-1) == wanted).all()))
        )
    for options in ({}, {"batch_size": 1}, {"batch_size": 5}):
        lm = make_lm(model, max_length=LONGEST, **options)
        assert lm.backend == "seq2seq"
        found = lm._loglikelihood_tokens([(None, *window) for window in windows])
        for one, other in zip(found, expected, strict=True):
            assert one[0] == pytest.approx(other[0], abs=2e-3)
            assert one[1] == other[1]


def test_an_encoder_decoder_generates(make_lm: Make) -> None:
    from tests.huggingface.conftest import ask

    lm = make_lm(make_model("T5ForConditionalGeneration", "T5Config", T5), max_length=LONGEST)
    together = lm.generate_until(
        [
            ask("generate_until", text, {"max_gen_toks": 5})
            for text in ("Tom has", "A bird saw Mira")
        ]
    )
    alone = lm.generate_until([ask("generate_until", "Tom has", {"max_gen_toks": 5})])
    assert together[0] == alone[0]


@pytest.mark.parametrize("sharing", ["on", "off"])
def test_long_texts_do_not_turn_the_positions_of_short_ones(make_lm: Make, sharing: str) -> None:
    """Phi-3 has two sets of rotary frequencies; long texts use the second."""
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    settings = {**GROUPED, "pad_token_id": 0, "eos_token_id": 0, "rope_parameters": rope}
    settings["original_max_position_embeddings"] = 64
    model = make_model("Phi3ForCausalLM", "Phi3Config", settings)
    lm = make_lm(model, max_length=LONGEST, prefix_sharing=sharing)
    assert lm.execution_modes.max_batched_length == 64
    windows = draw_windows()
    assert {len(context) > 64 for context, _ in windows} == {True, False}
    found = lm._loglikelihood_tokens([(None, *window) for window in windows])
    for (score, _), (true, _) in zip(found, by_definition(model, windows), strict=True):
        assert score == pytest.approx(true, abs=2e-3)


def test_a_model_that_sees_what_follows_is_run_one_request_at_a_time(make_lm: Make) -> None:
    """XLNet is bidirectional, so it would attend to padding."""
    settings = {"vocab_size": VOCABULARY, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}
    model = make_model("XLNetLMHeadModel", "XLNetConfig", settings)
    lm = make_lm(model, max_length=LONGEST)
    assert lm.execution_modes.one_by_one
    windows = [w for w in draw_windows() if len(w[0]) < 60]
    found = lm._loglikelihood_tokens([(None, *window) for window in windows])
    for (score, _), (true, _) in zip(found, by_definition(model, windows), strict=True):
        assert score == pytest.approx(true, abs=2e-3)


def test_layers_that_look_at_chunks_limit_what_is_shared() -> None:
    from lm_eval.models.huggingface.check import sliding_window

    kinds = {"layer_types": ["chunked_attention", "full_attention"]}
    config = transformers.Llama4TextConfig(attention_chunk_size=8192, num_hidden_layers=2, **kinds)
    assert sliding_window(config) == 8192


def test_without_the_check_a_model_that_ignores_positions_would_be_wrong(make_lm: Make) -> None:
    """Only the start-up check keeps Bloom from sharing prefixes, which changes its scores."""
    from lm_eval.models.huggingface.check import ExecutionModes

    model = make_model(*ARCHITECTURES["bloom"][:3])
    windows = draw_windows()
    lm = make_lm(model, max_length=LONGEST)
    lm._execution_modes = ExecutionModes(separate_head=True, prefix_sharing=True)
    try:
        found = lm._loglikelihood_tokens([(None, *window) for window in windows])
    except Exception:
        return
    expected = by_definition(model, windows)
    assert max(abs(a[0] - b[0]) for a, b in zip(found, expected, strict=True)) > 0.01
