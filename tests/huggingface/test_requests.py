"""Tests tokenization, beginning-of-text tokens, truncation and stop strings of requests."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.huggingface.encoding import (
    TextEncoder,
    common_prefix_length,
    fast_encoder,
    shared_beginnings,
)
from lm_eval.models.tokenizer import Tokenizer
from lm_eval.tasks import TaskManager
from tests.conftest import Folder
from tests.huggingface.conftest import T5, Make, ask, make_model, torch, transformers

LONG = "Mira walked along the river with her brother and counted the ducks. " * 6


def with_beginning(tokenizer: Any, template: str) -> Any:
    """Returns a tokenizer whose template adds the end-of-text token at each `E`."""
    from tokenizers.processors import TemplateProcessing

    core = type(tokenizer.backend_tokenizer).from_str(tokenizer.backend_tokenizer.to_str())
    end = "<|endoftext|>"
    core.post_processor = TemplateProcessing(
        single=template.replace("E", end), special_tokens=[(end, core.token_to_id(end))]
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, bos_token=end, eos_token=end)


@pytest.mark.parametrize("template", ["E $A", "E $A E", "$A"])
def test_a_text_begins_with_one_beginning_whatever_the_tokenizer_adds(
    tokenizer: Any, template: str
) -> None:
    made = with_beginning(tokenizer, template)
    encoder = TextEncoder(made, add_bos_token=None if "E $" in template else True, causal=True)
    end = made.eos_token_id
    for text in ("Tom has", "<|endoftext|>Tom has"):
        assert encoder.encode(text).count(end) == 1
        assert encoder.encode(text)[0] == end
        assert encoder.encode_all([text])[text] == encoder.encode(text)
    assert TextEncoder(made, add_bos_token=False, causal=True).encode("Tom has").count(end) == 0


def test_an_end_that_the_tokenizer_adds_does_not_come_between(tokenizer: Any) -> None:
    made = with_beginning(tokenizer, "E $A E")
    encoder = TextEncoder(made, add_bos_token=None, causal=True)
    ((context, continuation),) = encoder.encode_pairs([("Tom has", " three")], 0, causal=True)
    bare = list(made.encode("Tom has three", add_special_tokens=False))
    assert context + continuation == [made.eos_token_id, *bare]


def test_pairs_are_encoded_together_also_behind_long_contexts(tokenizer: Any) -> None:
    encoder = TextEncoder(tokenizer, add_bos_token=None, causal=True)
    assert encoder.splits_words
    pairs = [
        (LONG + context, rest)
        for context in ("Answer:", "They are ", "She sa")
        for rest in (" yes", "w it", "!")
    ]
    pairs += [("Tom", " has"), ("", "Tom has"), (" ", "Tom")]
    found = encoder.encode_pairs(pairs, 0, causal=True)
    for (context, rest), window in zip(pairs, found, strict=True):
        stripped = context.rstrip()
        whole = tokenizer.encode(context + rest, add_special_tokens=False)
        own = tokenizer.encode(stripped, add_special_tokens=False)
        if not own:
            assert window == ([0], whole)
        else:
            assert window == (own, whole[len(own) :])
    assert encoder._last_cut(LONG)


def test_what_contexts_begin_with_in_common_is_encoded_once(tokenizer: Any) -> None:
    encoder = TextEncoder(tokenizer, add_bos_token=None, causal=True)
    shots = "Question: Tom has three apples. Answer: yes\n\n" * 9
    texts = [f"{shots}Question: Mira saw {i} birds. Answer:" for i in range(40)]
    assert set(shared_beginnings(texts, encoder.splits_at).values()) == {
        len(shots) + len("Question: Mira")
    }
    seen: list[str] = []
    plain = fast_encoder(tokenizer, [])
    encoder._encode = lambda asked: seen.extend(asked) or plain(asked)  # type: ignore[func-returns-value]
    found = encoder.encode_pairs([(text, " yes") for text in texts], 0, causal=True)
    for text, window in zip(texts, found, strict=True):
        own = tokenizer.encode(text, add_special_tokens=False)
        assert window == (
            own,
            tokenizer.encode(text + " yes", add_special_tokens=False)[len(own) :],
        )
    assert sum(shots in text for text in seen) == 1 + 2 * len(texts[::3])  # the sample, both ways


def test_prompts_are_encoded_as_they_are_as_a_whole(tokenizer: Any) -> None:
    shots = "Question: Tom has three apples. Answer: yes\n\n" * 9
    texts = [f"{shots}Question: Mira saw {i} birds. Answer:" for i in range(40)]
    texts += ["", "Tom", texts[3], LONG]
    encoder = TextEncoder(with_beginning(tokenizer, "E $A"), add_bos_token=None, causal=True)
    other = TextEncoder(with_beginning(tokenizer, "E $A"), add_bos_token=None, causal=True)
    expected = other.encode_all(texts)
    assert expected[""] == [tokenizer.eos_token_id]
    for sampled in (16, 2):  # fewer of them are compared with whole texts in later calls
        seen: list[str] = []
        plain = fast_encoder(tokenizer, [])
        encoder._encode = lambda asked, plain=plain, seen=seen: seen.extend(asked) or plain(asked)  # type: ignore[misc]
        assert encoder.encode_contexts(texts) == expected
        assert 1 < sum(shots in text for text in seen) <= 1 + sampled
    assert encoder.splits_words


def test_prompts_are_encoded_as_a_whole_where_parts_give_other_tokens(tokenizer: Any) -> None:
    """The last letter of each text becomes another token, wherever the text ends."""
    encoder = TextEncoder(tokenizer, add_bos_token=None, causal=True)
    plain = fast_encoder(tokenizer, [])
    encoder._encode = lambda asked: [[*tokens[:-1], 7] for tokens in plain(asked)]
    texts = [f"{LONG * 2}They have {i} apples" for i in range(40)]
    found = encoder.encode_contexts(texts)
    assert not encoder.splits_words
    assert found == {text: [*plain([text])[0][:-1], 7] for text in texts}


def test_contexts_that_are_cut_are_compared_also_among_many_others(tokenizer: Any) -> None:
    """The last letter of each text becomes another token, wherever the text ends."""
    encoder = TextEncoder(tokenizer, add_bos_token=None, causal=True)
    plain = fast_encoder(tokenizer, [])
    encoder._encode = lambda asked: [[*tokens[:-1], 7] for tokens in plain(asked)]
    others = [f"{chr(97 + i % 26)}{i} " + LONG for i in range(200)]
    texts = [f"{LONG * 2}They have {i} apples" for i in range(12)]
    found = encoder.encode_contexts(others + texts)
    assert found == {text: [*plain([text])[0][:-1], 7] for text in others + texts}


def test_texts_without_a_common_beginning_are_not_cut(tokenizer: Any) -> None:
    encoder = TextEncoder(tokenizer, add_bos_token=None, causal=True)
    texts = [f"{chr(97 + i)} " + LONG * 2 for i in range(26)]
    assert shared_beginnings(texts, encoder.splits_at) == {}


def test_a_tokenizer_that_differs_from_its_core_is_used_itself(tokenizer: Any) -> None:
    """Also if only the ends of long texts differ."""

    class Closing:
        backend_tokenizer = tokenizer.backend_tokenizer

        def encode(self, text: str, add_special_tokens: bool) -> list[int]:
            found: list[int] = tokenizer.encode(text, add_special_tokens=add_special_tokens)
            return [*found[:-1], 7] if text.endswith("?") else found

    text = "Tom has three apples. " * 90 + "Does he?"
    assert fast_encoder(Closing(), [text])([text])[0][-1] == 7
    assert fast_encoder(Closing(), ["Tom has"])([text])[0][-1] != 7


def test_a_common_beginning_ends_between_two_words_of_every_text(tokenizer: Any) -> None:
    encoder = TextEncoder(tokenizer, add_bos_token=None, causal=True)
    texts = [LONG + f"Then Mira saw {what}" for what in (*"abcdefgh", "“ducks”", "“birds”")]
    cuts = shared_beginnings(texts, encoder.splits_at)
    assert set(cuts.values()) == {len(LONG) + len("Then Mira")}


def test_a_tokenizer_with_steps_in_python_encodes_whole_texts_and_says_so(
    tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from tokenizers.pre_tokenizers import PreTokenizer

    class Whole:
        def pre_tokenize(self, text: Any) -> None: ...

    other = copy.deepcopy(tokenizer)
    other.backend_tokenizer.pre_tokenizer = PreTokenizer.custom(Whole())
    caplog.set_level("INFO", "lm_eval")
    encoder = TextEncoder(other, add_bos_token=None, causal=True)
    assert not encoder.splits_words
    assert "Long contexts are encoded as a whole" in caplog.text


def test_a_tokenizer_that_joins_words_after_all_is_found_out(tokenizer: Any) -> None:
    """The last letter of each text becomes another token, wherever the text ends."""
    encoder = TextEncoder(tokenizer, add_bos_token=None, causal=True)
    plain = fast_encoder(tokenizer, [])
    encoder._encode = lambda asked: [[*tokens[:-1], 7] for tokens in plain(asked)]
    texts = [f"{LONG * 2}They have {i} apples" for i in range(40)]
    found = encoder.encode_pairs([(text, " now") for text in texts], 0, causal=True)
    assert not encoder.splits_words
    (context,) = encoder._encode(texts[-1:])
    (whole,) = encoder._encode([texts[-1] + " now"])
    assert found[-1] == (context, whole[len(context) :])


@pytest.mark.parametrize(
    ("one", "other", "length"),
    [
        ("", "", 0),
        ("a", "", 0),
        ("a", "b", 0),
        ("ab", "abc", 2),
        ("abcd", "abxd", 2),
        ("ab", "ab", 2),
    ],
)
def test_common_length(one: str, other: str, length: int) -> None:
    assert common_prefix_length(one, other) == common_prefix_length(other, one) == length


def test_a_context_of_nothing_is_the_prefix_token(make_lm: Make) -> None:
    lm = make_lm()
    tokens = lm.tok_encode("Tom has")
    ((score, _),) = lm.loglikelihood([ask("loglikelihood", "", "Tom has")])
    ((expected, _),) = lm._loglikelihood_tokens([(None, [lm.prefix_token_id], tokens)])
    assert score == pytest.approx(expected, abs=1e-5)
    other = make_lm(prefix_token_id=5)
    assert other.loglikelihood([ask("loglikelihood", "", "Tom has")])[0][0] != score


def test_what_is_too_long_keeps_its_end_and_is_counted(make_lm: Make) -> None:
    lm = make_lm(max_length=32)
    long, short = ask("loglikelihood", LONG, " ducks"), ask("loglikelihood", "Tom", " has")
    found = lm.loglikelihood([long, short])
    context = lm.tok_encode(LONG.rstrip())
    rest = lm.tok_encode(LONG.rstrip() + "  ducks")[len(context) :]
    kept = context[-(33 - len(rest)) :]
    ((expected, _),) = lm._loglikelihood_tokens([(None, kept, rest)])
    assert found[0][0] == pytest.approx(expected, abs=1e-4)
    assert dict(lm.run_context.usage.truncated) == {"a_task": 1}
    right = make_lm(max_length=32, truncation_side="right")
    assert right.loglikelihood([long])[0][0] != pytest.approx(expected, abs=1e-3)


def test_a_stride_gives_every_token_more_before_it(make_lm: Make) -> None:
    plain, strided = make_lm(max_length=32), make_lm(max_length=32, rolling_stride=8)
    request = ask("loglikelihood_rolling", LONG)
    tokens = plain.tok_encode(LONG)
    context = [plain.prefix_token_id, *tokens]
    expected = 0.0
    for i in range(len(tokens)):  # token i is predicted by the window that ends with its stretch
        end = 32 if i < 32 else min(len(tokens), 32 + ((i - 32) // 8 + 1) * 8)
        begin = end - 32
        with torch.no_grad():
            logs = torch.log_softmax(
                plain.model(torch.tensor([context[begin : i + 1]])).logits[0, -1], -1
            )
        expected += float(logs[tokens[i]])
    assert strided.loglikelihood_rolling([request])[0] == pytest.approx(expected, abs=1e-2)
    assert plain.loglikelihood_rolling([request])[0] != pytest.approx(expected, abs=1e-2)


def test_answers_stop_exactly_before_the_first_stop_string(make_lm: Make) -> None:
    lm = make_lm()
    free = lm.generate_until([ask("generate_until", "Tom has", {"max_gen_toks": 30})])[0]
    assert len(free) > 8
    for stop in (free[3:5], free[5:9], free[7:8]):
        settings = {"max_gen_toks": 30, "until": [stop, "never"]}
        (found,) = lm.generate_until([ask("generate_until", "Tom has", settings)])
        assert found == free[: free.index(stop)]


def test_answers_do_not_depend_on_what_else_is_asked(make_lm: Make) -> None:
    texts = ["Tom has", LONG, "A", "Mira and Tom saw", "The"]
    for settings in (
        {"max_gen_toks": 9, "until": ["e"]},
        {"max_gen_toks": 9, "do_sample": True, "temperature": 0.8},
    ):
        asked = [ask("generate_until", text, settings) for text in texts]
        expected = make_lm(batch_size=1).generate_until(asked)
        assert make_lm().generate_until(asked) == expected
        assert make_lm().generate_until(asked[::-1]) == expected[::-1]
    repeated = make_lm().generate_until([asked[0]] * 6)
    assert len(set(repeated)) > 1
    assert make_lm(seed=5).generate_until([asked[0]] * 6) != repeated


def test_settings_we_do_not_know_are_left_to_transformers(make_lm: Make, llama: Any) -> None:
    lm = make_lm()
    settings = {"max_gen_toks": 6, "num_beams": 3}
    (found,) = lm.generate_until([ask("generate_until", "Tom has", settings)])
    tokens = torch.tensor([lm.tok_encode("Tom has")])
    expected = llama.generate(
        tokens, max_new_tokens=6, num_beams=3, do_sample=False, pad_token_id=0
    )
    assert found == lm.tok_decode(expected[0, tokens.shape[1] :].tolist())


def test_both_ways_of_generating_agree(make_lm: Make) -> None:
    asked = [
        ask("generate_until", text, {"max_gen_toks": 10, "until": ["x"]})
        for text in ("Tom has", LONG, "A bird")
    ]
    assert make_lm(prefix_sharing=False).generate_until(asked) == make_lm().generate_until(asked)


def test_thinking_is_cut_off(make_lm: Make) -> None:
    lm = make_lm()
    request = ask("generate_until", "Tom has", {"max_gen_toks": 20})
    (free,) = lm.generate_until([request])
    mark = free[4:7]
    (found,) = make_lm(think_end_token=mark).generate_until([request])
    assert found == free.split(mark)[-1].lstrip()


def test_no_room_for_a_context_is_said(make_lm: Make) -> None:
    with pytest.raises(ModelError, match="leaves no room for a context"):
        make_lm().generate_until([ask("generate_until", "Tom", {"max_gen_toks": 5000})])


def test_a_subclass_that_replaces_a_published_method_is_asked(llama: Any, tokenizer: Any) -> None:
    from lm_eval.models.huggingface import HFLM

    calls = []

    class Own(HFLM):
        def _model_call(self, inps: Any, attn_mask: Any = None, labels: Any = None) -> Any:
            calls.append(tuple(inps.shape))
            return super()._model_call(inps, attn_mask, labels)

        def tok_encode(self, string: str, *args: Any, **kwargs: Any) -> list[int]:
            return [3, *super().tok_encode(string, add_special_tokens=False)]

    lm = Own(pretrained=llama, tokenizer=tokenizer)
    asked = [ask("loglikelihood", "Tom", " has"), ask("loglikelihood", "Tom", " had")]
    found = lm.loglikelihood(asked)
    assert len(calls) >= 1
    context = lm.tok_encode("Tom")
    assert context[0] == 3
    plain = HFLM(pretrained=llama, tokenizer=tokenizer)
    expected = plain._loglikelihood_tokens(
        [(None, context, lm.tok_encode(f"Tom{rest}")[len(context) :]) for rest in (" has", " had")]
    )
    assert [a for a, _ in found] == pytest.approx([b for b, _ in expected], abs=1e-4)


def test_every_answer_is_reported_as_it_comes(make_lm: Make) -> None:
    lm = make_lm()
    kept: list[tuple[str, Any, Any]] = []
    lm.set_cache_hook(type(lm.cache_hook)(lambda *what: kept.append(what)))
    answers = lm.loglikelihood([ask("loglikelihood", "Tom", " has")])
    assert kept == [("loglikelihood", ("Tom", " has"), answers[0])]


def test_an_encoder_decoder_scores_whole_continuations_that_end_differently(
    make_lm: Make,
) -> None:
    """Also if the context is shorter than the continuations."""
    model = make_model("T5ForConditionalGeneration", "T5Config", T5)
    lm = make_lm(model, max_length=64)
    ends = [" has three apples and four pears", " has three apples and four apples"]
    asked = [ask("loglikelihood", "Tom", end) for end in (*ends, ends[0])]
    alone = [lm.loglikelihood([request])[0][0] for request in asked]
    assert [score for score, _ in lm.loglikelihood(asked)] == pytest.approx(alone, abs=1e-3)


def test_mixed_precision_reaches_encoder_decoders(make_lm: Make) -> None:
    model = make_model("T5ForConditionalGeneration", "T5Config", T5)
    asked = [ask("loglikelihood", "Tom", " has three apples")]
    plain = make_lm(model, max_length=64).loglikelihood(asked)
    mixed = make_lm(model, max_length=64, mixed_precision_dtype="bfloat16").loglikelihood(asked)
    assert mixed[0][0] == pytest.approx(plain[0][0], rel=0.05)
    assert mixed != plain


def test_the_softmax_is_computed_as_precisely_as_asked(llama: Any, make_lm: Make) -> None:
    asked = [ask("loglikelihood", "Tom has", " three apples and four pears")]
    lm = make_lm(softmax_dtype="float64")
    context, rest = lm._encode_pair(*asked[0].args)
    with torch.no_grad():
        logits = llama(torch.tensor([context + rest])).logits[0].double()
    logs = torch.log_softmax(logits, -1)[len(context) - 1 : -1]
    expected = float(logs.gather(1, torch.tensor(rest)[:, None]).sum())
    precise, usual = lm.loglikelihood(asked)[0][0], make_lm().loglikelihood(asked)[0][0]
    assert abs(precise - expected) < 1e-5
    assert precise != usual


def test_scoring_is_refused_while_the_model_is_to_think(make_lm: Make) -> None:
    lm = make_lm(enable_thinking=True, think_end_token="</think>")
    with pytest.raises(ConfigError, match=r"only for tasks that generate text.*a_task"):
        lm.loglikelihood([ask("loglikelihood", "Tom", " has")])


def test_the_chat_template_that_is_named_is_applied(
    make_lm: Make, tokenizer: Any, colours: Folder
) -> None:
    several = copy.deepcopy(tokenizer)
    several.chat_template = {
        "default": "{% for m in messages %}D {{ m['content'] }}{% endfor %}",
        "tool_use": "{% for m in messages %}T {{ m['content'] }}{% endfor %}",
    }
    lm = make_lm(tokenizer=several)

    def prompt(template: bool | str) -> str:
        results: Any = lm_eval.simple_evaluate(
            lm,
            tasks=["colours"],
            task_manager=TaskManager(include_path=colours.path),
            apply_chat_template=template,
            limit=1,
        )
        found: str = results["samples"]["colours"][0]["arguments"][0][0]
        return found

    assert prompt("tool_use").startswith("T Of what colour")
    assert prompt(True).startswith("D Of what colour")
    with pytest.raises(ModelError, match=r"no chat template 'tools'\..*NAME: default, tool_use"):
        prompt("tools")


def test_a_tokenizer_keeps_its_templates_when_one_is_chosen(tokenizer: Any, tmp_path: Path) -> None:
    several = copy.deepcopy(tokenizer)
    several.chat_template = {
        name: f"{name}: {{% for m in messages %}}{{{{ m['content'] }}}}{{% endfor %}}"
        for name in ("default", "tool_use")
    }
    several.save_pretrained(tmp_path)
    alone = Tokenizer(str(tmp_path))
    chat = [{"role": "user", "content": "Tom"}]
    assert alone.apply_chat_template(chat) == "default: Tom"
    alone.choose_template("tool_use")
    assert alone.apply_chat_template(chat) == "tool_use: Tom"
    alone.choose_template("default")
    assert alone.apply_chat_template(chat) == "default: Tom"
