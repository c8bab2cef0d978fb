"""Tests that generated text does not depend on batches, interruptions or the generation loop."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from lm_eval.api.instance import Instance
from lm_eval.api.model import CacheHook
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.huggingface import HFLM, kv_cache
from tests.huggingface.conftest import ARCHITECTURES, SHAPE, T5, Make, ask, make_model, torch

DRAWN = {"max_gen_toks": 8, "do_sample": True, "temperature": 1.5}
#: A setting that our own loop does not know and that changes nothing: transformers generates.
THEIRS = {"repetition_penalty": 1.0}


def repeated(text: str, repeats: int) -> Instance:
    return Instance("generate_until", {}, (text, DRAWN), 0, ("a_task", 7, repeats))


@pytest.mark.parametrize("extra", [{}, THEIRS])
def test_a_special_token_among_the_stop_strings_ends_an_answer(
    make_lm: Make, tokenizer: Any, extra: dict[str, Any]
) -> None:
    """Special tokens are not decoded, so the stop string cannot be found in the text."""
    settings = {"max_gen_toks": 30, **extra}
    lm = make_lm()

    def greedy(text: str) -> list[int]:
        context = torch.tensor([lm.tok_encode(text)])
        width = context.shape[1]
        made: list[int] = lm._model_generate(context, width + 30, [])[0, width:].tolist()
        return made

    text, written, place, end = next(
        (text, written, n, token)
        for text in ("Tom has", "Mira", "A bird saw", "The river", "One")
        for written in [greedy(text)]
        for n, token in enumerate(tokenizer.convert_ids_to_tokens(written))
        if n > 1 and token.isalnum() and token.isascii() and written.index(written[n]) == n
    )
    marked = copy.deepcopy(tokenizer)
    marked.add_special_tokens({"additional_special_tokens": [end]})
    assert marked.convert_tokens_to_ids(end) == written[place]
    (found,) = make_lm(tokenizer=marked).generate_until(
        [ask("generate_until", text, {**settings, "until": [end]})]
    )
    assert found == tokenizer.decode(written[:place])


def test_repeats_that_are_left_are_not_those_that_were_drawn_before(make_lm: Make) -> None:
    lm = make_lm()
    request = repeated("Tom has", 5)
    whole = lm.generate_until([request] * 5)
    assert len(set(whole)) == 5
    assert lm.generate_until([request] * 2) == whole[3:]


def test_repeats_are_reported_in_their_order(make_lm: Make) -> None:
    """So an interrupted run has stored the first repeats."""
    lm = make_lm()
    reported: list[str] = []
    lm.set_cache_hook(CacheHook(lambda kind, args, text: reported.append(text)))
    settings = {**DRAWN, "until": ["e", "a"]}
    request = Instance("generate_until", {}, ("Tom has", settings), 0, ("a_task", 7, 9))
    assert lm.generate_until([request] * 9) == reported


def test_repeats_keep_to_the_batch_size(make_lm: Make, monkeypatch: pytest.MonkeyPatch) -> None:

    sizes: list[int] = []
    step = kv_cache.KeyValueCache.step

    def counted(self: Any, network: Any, tokens: Any) -> Any:
        sizes.append(len(tokens))
        return step(self, network, tokens)

    request = repeated("Tom has", 7)
    expected = make_lm().generate_until([request] * 7)
    monkeypatch.setattr(kv_cache.KeyValueCache, "step", counted)
    for options in ({"batch_size": 3}, {"batch_size": "auto", "max_batch_size": 3}):
        sizes.clear()
        assert make_lm(**options).generate_until([request] * 7) == expected
        assert max(sizes) == 3


def test_answers_that_transformers_draws_are_the_same_in_every_run(make_lm: Make) -> None:
    request = ask("generate_until", "Tom has", {**DRAWN, **THEIRS})
    first = make_lm().generate_until([request] * 3)
    torch.manual_seed(99)
    assert make_lm().generate_until([request] * 3) == first
    assert len(set(first)) == 3


@pytest.mark.parametrize("extra", [{}, THEIRS, {"do_sample": True, "temperature": 1.0}])
def test_generating_by_scores_that_are_not_numbers_is_refused(
    make_lm: Make, extra: dict[str, Any]
) -> None:
    model = make_model(*ARCHITECTURES["llama"][:3])
    lm = make_lm(model)
    bad = lm.tok_encode(" seven")[0]
    with torch.no_grad():
        model.model.embed_tokens.weight[bad] = torch.nan
    settings = {"max_gen_toks": 4, **extra}
    asked = [
        ask("generate_until", text, settings, task=task, number=number)
        for text, task, number in [
            ("Mira saw a bird", "good", 1),
            ("Tom has seven apples", "broken", 42),
            ("Tom has", "good", 2),
        ]
    ]
    with pytest.raises(ModelError, match=r"task 'broken', document 42: .*not numbers"):
        lm.generate_until(asked)


@pytest.mark.parametrize("extra", [{}, THEIRS])
def test_nothing_is_written_where_nothing_may_be(make_lm: Make, extra: dict[str, Any]) -> None:
    asked = [ask("generate_until", "Tom has", {"max_gen_toks": 0, **extra})]
    assert make_lm().generate_until(asked) == [""]


@pytest.mark.parametrize("extra", [{}, THEIRS])
def test_tokens_are_counted_for_the_progress_bar(make_lm: Make, extra: dict[str, Any]) -> None:
    lm = make_lm()
    lm.generate_until([ask("generate_until", "Tom has", {"max_gen_toks": 5, **extra})])
    assert lm.run_context.usage.tokens_generated == lm.usage()["tokens_out"] == 5


def test_a_tokenizer_without_an_end_of_text_generates(make_lm: Make, tokenizer: Any) -> None:
    endless = copy.deepcopy(tokenizer)
    endless.eos_token = None
    request = ask("generate_until", "Tom has", {"max_gen_toks": 5})
    assert make_lm(tokenizer=endless).generate_until([request])[0]


def test_an_encoder_decoder_writes_as_many_tokens_as_asked(make_lm: Make) -> None:
    lm = make_lm(make_model("T5ForConditionalGeneration", "T5Config", T5), max_length=64)
    lm.generate_until([ask("generate_until", "Tom has three apples", {"max_gen_toks": 5})])
    assert lm.usage()["tokens_out"] == 5


def test_memory_that_runs_out_where_transformers_generates_halves_the_batch(
    make_lm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = make_lm()
    texts = ["Tom has", "Mira saw a bird", "A", "The river"]
    asked = [ask("generate_until", text, {"max_gen_toks": 5, **THEIRS}) for text in texts]
    expected = lm.generate_until(asked)
    generate = lm.model.generate

    def short_of_memory(input_ids: Any, **settings: Any) -> Any:
        if len(input_ids) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return generate(input_ids=input_ids, **settings)

    monkeypatch.setattr(lm.model, "generate", short_of_memory)
    assert lm.generate_until(asked) == expected


RWKV = {"vocab_size": 1024, "hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32}
GRIFFIN = {**SHAPE, "attention_window_size": 16, "num_hidden_layers": 3}
TEXTS = [
    "Tom has",
    "Mira walked along the river with her brother and saw ducks",
    "A bird",
    "Tom saw",
]


def alone_and_together(make_one: Any) -> tuple[list[str], list[str]]:
    asked = [ask("generate_until", text, {"max_gen_toks": 10}) for text in TEXTS]
    return make_one(batch_size=1).generate_until(asked), make_one().generate_until(asked)


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("Rwkv", RWKV, "Prompts are continued one by one"),
        ("RecurrentGemma", GRIFFIN, "Only prompts of equal length are continued in one batch"),
    ],
)
def test_prompts_go_together_as_far_as_that_changes_nothing(
    name: str,
    settings: dict[str, Any],
    told: str,
    make_lm: Make,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Recurrent states would include padding, and RWKV mixes the rows of a batch."""
    model = make_model(f"{name}ForCausalLM", f"{name}Config", settings)
    alone, together = alone_and_together(lambda **more: make_lm(model, max_length=64, **more))
    assert together == alone
    assert told in caplog.text


def test_nor_where_a_subclass_drops_the_mask(llama: Any, tokenizer: Any) -> None:
    class Maskless(HFLM):
        def _model_generate(
            self, context: Any, max_length: int, stop: list[str], **generation_kwargs: Any
        ) -> Any:
            generation_kwargs.pop("attention_mask")
            mask = torch.ones_like(context)
            return super()._model_generate(
                context, max_length, stop, attention_mask=mask, **generation_kwargs
            )

    alone, together = alone_and_together(
        lambda **more: Maskless(pretrained=llama, tokenizer=tokenizer, **more)
    )
    assert together == alone
    assert together == HFLM(pretrained=llama, tokenizer=tokenizer).generate_until(
        [ask("generate_until", text, {"max_gen_toks": 10}) for text in TEXTS]
    )


def test_a_model_whose_defaults_change_draws_is_left_to_transformers(
    make_lm: Make, llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama.generation_config, "min_p", 1.0)  # the likeliest token alone is left
    lm = make_lm()
    drawn = lm.generate_until([ask("generate_until", "Tom has", DRAWN)] * 2)
    greedy = lm.generate_until([ask("generate_until", "Tom has", {"max_gen_toks": 8})])
    assert drawn == greedy * 2


def asked_all(lm: Any, **settings: Any) -> list[str]:
    texts = ("Tom has", "The river", "A bird saw the")
    found: list[str] = lm.generate_until(
        [ask("generate_until", text, {"max_gen_toks": 10, **settings}) for text in texts]
    )
    return found


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"num_return_sequences": 2},
            "'a_task': .* num_return_sequences is not supported.*`repeats`",
        ),
        ({"return_dict_in_generate": True}, "return_dict_in_generate is not supported"),
        ({"stop": ["e"]}, "stop is not supported: use `until` for stop strings"),
        ({"until": 5}, "until must be a string or a list of strings, not 5"),
        ({"until": ["e", 3]}, r"until must be a string or a list of strings, not \['e', 3\]"),
    ],
)
def test_settings_that_would_change_what_comes_back_are_refused(
    make_lm: Make, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        asked_all(make_lm(), **settings)


def test_several_sequences_by_default_do_not_shift_the_answers(
    make_lm: Make, llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = asked_all(make_lm(), num_beams=2)
    monkeypatch.setattr(llama.generation_config, "num_beams", 2)
    monkeypatch.setattr(llama.generation_config, "num_return_sequences", 2)
    assert asked_all(make_lm()) == expected


def test_a_subclass_that_gives_too_many_answers_is_told(llama: Any, tokenizer: Any) -> None:
    class Twice(HFLM):
        def _model_generate(self, *args: Any, **kwargs: Any) -> Any:
            return super()._model_generate(*args, **kwargs).repeat(2, 1)

    with pytest.raises(ModelError, match=r"Twice\._model_generate returned \d answers to \d"):
        asked_all(Twice(pretrained=llama, tokenizer=tokenizer))


def test_beams_that_stop_early_without_an_end_token_are_cut(
    make_lm: Make, llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers pads these rows with -1."""
    monkeypatch.setattr(llama.generation_config, "eos_token_id", None)
    for stop in "etao":
        alone = asked_all(make_lm(batch_size=1), num_beams=2, until=[stop])
        assert asked_all(make_lm(batch_size=8), num_beams=2, until=[stop]) == alone


def test_the_end_that_a_request_names_replaces_the_models(
    make_lm: Make, llama: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text, *_) = asked_all(make_lm())
    tokens = tokenizer.encode(text, add_special_tokens=False)
    monkeypatch.setattr(llama.generation_config, "eos_token_id", [tokens[2]])
    assert asked_all(make_lm())[0] == tokenizer.decode(tokens[:2])
    unused = next(token for token in range(900, 1000) if token not in tokens)
    assert asked_all(make_lm(), eos_token_id=unused)[0] == text


def test_stop_strings_of_the_models_own_are_heard(
    make_lm: Make, llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = asked_all(make_lm(), until=["e", "a"])
    assert expected != asked_all(make_lm())
    assert asked_all(make_lm(), stop_strings=["e", "a"]) == expected
    monkeypatch.setattr(llama.generation_config, "stop_strings", ["e", "a"])
    assert asked_all(make_lm()) == expected


def test_settings_that_we_set_ourselves_may_be_set(make_lm: Make) -> None:
    assert asked_all(make_lm(), use_cache=False, pad_token_id=3) == asked_all(make_lm())
