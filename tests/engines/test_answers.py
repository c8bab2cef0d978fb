"""Tests that each adapter asks its engine for the right things, and reads its answers rightly.

The engines are fake packages; the values behind them are those of the embedded model, so answers
must be those of `DemoLM`.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.api.instance import Failure, Instance
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.conventions import cut_at_stop
from lm_eval.models.demo import DemoLM
from lm_eval.models.engines import vllm_arguments
from lm_eval.models.engines.gguf_template import GGUFTemplates
from lm_eval.models.planned.repeats import seed_of_prompt
from tests.engines import fake_vllm
from tests.engines.conftest import CLASSES, Create

DATA = Path(lm_eval.__file__).parent / "tasks" / "demo" / "data"
ENGINES = list(CLASSES)
LETTERS = " A", " B", " C", " D"


def rows(name: str, count: int) -> list[dict[str, Any]]:
    """Returns the first documents of a data file of the demo tasks."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[:count]]


def requests(kind: Any, arguments: Sequence[tuple[Any, ...]], repeats: int = 1) -> list[Instance]:
    made = [Instance(kind, {}, some, i, ("trial", i, repeats)) for i, some in enumerate(arguments)]
    return [request for request in made for _ in range(repeats)]


STORIES = [row["text"] for row in rows("stories_test.jsonl", 4)]
LONG = " ".join(STORIES)
QUESTIONS = [
    f"{row['scene']}\nQuestion: {row['question']}\nAnswer:" for row in rows("choice_test.jsonl", 3)
]
PAIRS = [
    *((question, letter) for question in QUESTIONS for letter in LETTERS),
    *((question, " in the kitchen.") for question in QUESTIONS),
    (QUESTIONS[0], " in the garden."),
    *((row["context"], f" {row['word']}") for row in rows("lastword_test.jsonl", 3)),
    ("Ann has a red ", "kite."),
    ("", "Ann has a red kite."),
    ("", "A"),
    ("Ann", ""),
    (LONG, " The end."),
    (LONG, " ."),
]
PROMPTS = [
    *((question, {"until": ["\n"], "max_gen_toks": 12}) for question in QUESTIONS),
    ("Ann has a red", {"until": ["", "zzz", " made"], "max_gen_toks": 20, "temperature": 0.0}),
    ("", {"until": "\n", "max_gen_toks": 6}),
]
SAMPLED = {"do_sample": True, "temperature": 1.5, "max_gen_toks": 6}


def like(lm: Any) -> DemoLM:
    """Returns the embedded model; it cuts long texts as an engine does."""
    return DemoLM(max_length=lm.max_length - 1)


# Answers


@pytest.mark.parametrize("engine", ENGINES)
def test_log_likelihoods_are_those_of_the_model(
    engine: str, create: Create, caplog: pytest.LogCaptureFixture
) -> None:
    lm = create(engine)
    found = lm.loglikelihood(requests("loglikelihood", PAIRS))
    assert "Task trial: 2 requests are longer than max_length" in caplog.text
    expected = like(lm).loglikelihood(requests("loglikelihood", PAIRS))
    for pair, one, other in zip(PAIRS, found, expected, strict=True):
        assert one[0] == pytest.approx(other[0], abs=1e-3), pair
        assert one[1] == other[1], pair
    assert {greedy for _, greedy in found} == {True, False}
    assert lm.run_context.usage.truncated["trial"] == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_rolling_log_likelihoods_are_those_of_the_model(engine: str, create: Create) -> None:
    lm = create(engine)
    asked = requests("loglikelihood_rolling", [(text,) for text in (*STORIES[:2], LONG, "Hi", "")])
    expected = like(lm).loglikelihood_rolling(asked)
    assert lm.loglikelihood_rolling(asked) == pytest.approx(expected, abs=1e-2)


@pytest.mark.parametrize("engine", ENGINES)
def test_greedy_answers_are_those_of_the_model(engine: str, create: Create) -> None:
    lm = create(engine)
    asked = requests("generate_until", PROMPTS)
    assert lm.generate_until(asked) == like(lm).generate_until(asked)


@pytest.mark.parametrize("engine", ENGINES)
def test_scores_and_answers_may_alternate(engine: str, create: Create) -> None:
    """What an engine keeps of earlier requests does not change later answers."""
    lm = create(engine)
    prompt = "Ann has a red"
    asked = requests("generate_until", [(prompt, {"max_gen_toks": 5})])
    expected = like(lm).generate_until(asked)
    for _ in range(2):
        lm.loglikelihood(requests("loglikelihood", [(prompt + " kite and", " a"), (prompt, " c")]))
        assert lm.generate_until(asked) == expected


@pytest.mark.parametrize(
    ("kind", "arguments"), [("recurrent", {}), ("window", {"swa_full": False}), ("window", {})]
)
def test_a_model_whose_state_cannot_be_cut_is_computed_from_the_beginning(
    kind: str, arguments: dict[str, Any], create: Create
) -> None:
    lm = create("llama-cpp", {"kind": kind}, **arguments)
    model = like(lm)
    pairs = requests("loglikelihood", PAIRS)
    expected = model.loglikelihood(pairs)
    prompts = requests("generate_until", [*PROMPTS, (QUESTIONS[0][:-8], {"max_gen_toks": 5})])
    for _ in range(2):
        found = lm.loglikelihood(pairs)
        assert [one for one, _ in found] == pytest.approx([one for one, _ in expected], abs=1e-3)
        assert lm.generate_until(prompts) == model.generate_until(prompts)


@pytest.mark.parametrize("engine", ["vllm", "llama-cpp"])
def test_sampled_repeats_differ_and_are_reproducible(engine: str, create: Create) -> None:
    lm = create(engine, seed=3)
    asked = requests("generate_until", [("Ann has", SAMPLED), ("Tom", SAMPLED)], repeats=3)
    found = lm.generate_until(asked)
    assert len(set(found[:3])) == 3
    assert lm.generate_until(asked) == found
    assert create(engine, seed=4).generate_until(asked) != found
    given = requests("generate_until", [("Ann has", {**SAMPLED, "seed": 4})], repeats=3)
    assert lm.generate_until(given) == create(engine, seed=4).generate_until(asked)[:3]


@pytest.mark.parametrize(("engine", "count"), [("vllm", 2), ("sglang", 2), ("llama-cpp", 6)])
def test_repeats_of_a_prompt_are_one_request_where_the_engine_can(
    engine: str, count: int, create: Create
) -> None:
    lm = create(engine)
    lm.generate_until(
        requests("generate_until", [("Ann has", SAMPLED), ("Tom", SAMPLED)], repeats=3)
    )
    asked = lm.model.llm_engine.asked if engine == "vllm" else lm.model.asked
    assert len(asked) == count


def test_deterministic_sglang_gets_a_seed_for_each_repeat(create: Create) -> None:
    """With deterministic inference, the `n` answers to a request would all be equal."""
    lm = create("sglang", enable_deterministic_inference=True, seed=3)
    asked = requests("generate_until", [("Ann has", SAMPLED)], repeats=3)
    found = lm.generate_until(asked)
    assert len(set(found)) == 3
    first = seed_of_prompt(3, "Ann has")
    seeds = [one["sampling_params"]["sampling_seed"] for one in lm.model.asked]
    assert seeds == [first, first + 1, first + 2]
    assert lm.generate_until(asked) == found


@pytest.mark.parametrize("engine", ENGINES)
def test_repeats_after_stored_ones_have_seeds_of_their_own(engine: str, create: Create) -> None:
    settings = {"enable_deterministic_inference": True} if engine == "sglang" else {}
    request = Instance("generate_until", {}, ("Ann has", SAMPLED), 0, ("trial", 0, 3))
    lm = create(engine, **settings)
    every = lm.generate_until([request] * 3)
    assert lm.generate_until([request] * 2) == every[1:]


# What the engine is asked


def test_letters_are_one_request_per_question_and_use_the_prefix_cache(create: Create) -> None:
    lm = create("vllm")
    prefix = QUESTIONS[0] + " in the garden.\n\n"
    pairs = [(f"{prefix}Where is {n}?", letter) for n in range(5) for letter in LETTERS]
    lm.loglikelihood(requests("loglikelihood", pairs))
    counters = lm.counters()
    assert counters["vllm:request_success"] == 5
    shared = len(lm.tok_encode(prefix)) // 16 * 16
    assert counters["vllm:prefix_cache_hits"] >= 4 * shared
    assert lm.usage()["tokens_shared"] == counters["vllm:prefix_cache_hits"]


def test_more_choices_than_vllm_returns_by_default_are_scored(create: Create) -> None:
    lm = create("vllm")
    words = [lm.token_coder.decode([token]) for token in range(300, 900)]
    context = lm.tok_encode("Ann has")
    whole = [word for word in words if lm.tok_encode(f"Ann has{word}")[:-1] == context][:200]
    assert len(whole) > 150
    pairs = [("Ann has", word) for word in whole]
    found = lm.loglikelihood(requests("loglikelihood", pairs))
    expected = like(lm).loglikelihood(requests("loglikelihood", pairs))
    assert [one for one, _ in found] == pytest.approx([one for one, _ in expected], abs=1e-3)
    sizes = [len(params.logprob_token_ids) for _, _, params, _ in lm.model.llm_engine.asked]
    assert sizes == [128, len(whole) - 128]


@pytest.mark.parametrize("shortens", [False, True])
def test_the_contexts_of_texts_are_found_in_the_prefix_cache(
    shortens: bool, create: Create
) -> None:
    """The second prompt ends in the middle of a block that contains its continuation."""
    lm = create("vllm")
    engine = lm.model.llm_engine
    engine.shortens = shortens
    pairs = [(question, f" in the {word}.") for question in QUESTIONS for word in ("box", "sea")]
    expected = like(lm).loglikelihood(requests("loglikelihood", pairs))
    for _ in range(2):
        found = lm.loglikelihood(requests("loglikelihood", pairs))
        assert [one for one, _ in found] == pytest.approx([one for one, _ in expected], abs=1e-3)
        assert [one for _, one in found] == [one for _, one in expected]
    contexts = [len(lm.tok_encode(question)) for question in QUESTIONS]
    assert lm.counters()["vllm:prefix_cache_hits"] >= 3 * sum(c // 16 * 16 for c in contexts)


@pytest.mark.parametrize("shortens", [False, True])
@pytest.mark.parametrize(("shared", "asks_tokens"), [(1, True), (7, True), (8, False), (40, False)])
def test_tokens_of_texts_that_are_in_the_prefix_cache_are_scored(
    shared: int, asks_tokens: bool, shortens: bool, create: Create
) -> None:
    """A few are asked for as next tokens; otherwise the text is computed again."""
    lm = create("vllm")
    lm.model.llm_engine.shortens = shortens
    tokens = lm.tok_encode(LONG)[:64]  # four blocks of the cache
    context, begun = tokens[:-shared], tokens[-shared:]
    asked: Any = [(None, context, begun + [end] * 2) for end in (300, 301, 302)]
    expected = like(lm)._loglikelihood_tokens(asked)
    found = lm._loglikelihood_tokens(asked)
    assert [one for one, _ in found] == pytest.approx([one for one, _ in expected], abs=1e-3)
    assert [one for _, one in found] == [one for _, one in expected]
    again = lm.model.llm_engine.asked[3:]
    # The token after the cached ones is predicted by the last of them, so it is missing, too.
    assert len(again) == (shared + 1 if asks_tokens else 2)
    assert {params.logprob_token_ids is not None for _, _, params, _ in again} == {asks_tokens}


def test_sglang_returns_scores_from_the_end_of_the_context_on(create: Create) -> None:
    lm = create("sglang")
    lm.loglikelihood(requests("loglikelihood", [("Ann has a red", " kite and a ball")]))
    (asked,) = lm.model.asked
    assert asked["logprob_start_len"] == len(lm.tok_encode("Ann has a red")) - 1


@pytest.mark.parametrize("engine", ENGINES)
def test_equal_prefixes_of_scored_texts_are_neighbours(engine: str, create: Create) -> None:
    lm = create(engine)
    pairs = [(QUESTIONS[n % 3], f" in the {word}.") for n, word in enumerate(["box", "sea"] * 3)]
    lm.loglikelihood(requests("loglikelihood", pairs))
    if engine == "llama-cpp":
        whole = sum(len(lm.tok_encode("".join(pair))) - 1 for pair in pairs)
        assert lm.model._ctx.computed < 0.6 * whole
    else:
        asked = (
            [
                tokens
                for _, tokens, params, _ in lm.model.llm_engine.asked
                if params.prompt_logprobs == 0
            ]
            if engine == "vllm"
            else [one["input_ids"] for one in lm.model.asked]
        )
        assert asked == sorted(asked)


@pytest.mark.parametrize("engine", ENGINES)
def test_answers_are_reported_as_the_engine_finishes_them(engine: str, create: Create) -> None:
    lm = create(engine, **({"max_batch_size": 2} if engine == "vllm" else {}))
    sizes: list[int] = []
    hook = lm_eval.api.model.CacheHook(
        on_batch=lambda kind, asked, answers: sizes.append(len(asked))
    )
    lm.set_cache_hook(hook)
    lm.loglikelihood(requests("loglikelihood", [(text, " in a box.") for text in QUESTIONS]))
    assert sum(sizes) == 3
    if engine != "sglang":
        assert len(sizes) >= 2


def test_a_second_call_uses_the_engine_again(create: Create) -> None:
    lm = create("vllm")
    for _ in range(2):
        lm.generate_until(requests("generate_until", PROMPTS[:2]))
    names = [name for name, *_ in lm.model.llm_engine.asked]
    assert len(set(names)) == len(names)


# Generation settings


@pytest.mark.parametrize("engine", ENGINES)
def test_stop_strings_do_not_end_thoughts(engine: str, create: Create) -> None:
    """The answer is cut at a stop string after the thoughts."""
    free = create(engine).generate_until(
        requests("generate_until", [(QUESTIONS[0], {"until": [], "max_gen_toks": 30})])
    )[0]
    mark = free.split()[3]  # a word of the answer serves as the end of the thoughts
    before, after = free.rsplit(mark, 1)
    stop = before.split()[0]
    settings = {"until": [stop, after[2:4]], "max_gen_toks": 30}
    lm = create(engine, think_end_token=mark)
    (found,) = lm.generate_until(requests("generate_until", [(QUESTIONS[0], settings)]))
    assert stop in found.reasoning
    assert found.reasoning == before.strip()
    assert found == cut_at_stop(after.lstrip(), settings["until"])
    assert found.reasoning_tokens > 0


@pytest.mark.parametrize("engine", ENGINES)
def test_thoughts_are_cut_after_their_budget(engine: str, create: Create) -> None:
    """The embedded model never writes the mark, so the thought is what it writes first."""
    settings = {"until": [], "max_gen_toks": 24}
    asked = [(question, settings) for question in QUESTIONS[:3]]
    (free, *_) = create(engine).generate_until(
        requests("generate_until", [(QUESTIONS[0], {"until": [], "max_gen_toks": 6})])
    )
    lm = create(engine, think_end_token="|", thinking_budget=6)
    found = lm.generate_until(requests("generate_until", asked))
    assert len(found) == 3
    for one in found:
        assert one.reasoning_tokens == 6
        assert one.tokens <= 23  # the mark is one more
        assert "|" not in one
    assert found[0].reasoning == free.strip()
    again = create(engine, think_end_token="|").generate_until(
        requests("generate_until", [(f"{QUESTIONS[0]}{free}|", {"until": [], "max_gen_toks": 17})])
    )
    assert found[0] == again[0].lstrip()
    with pytest.raises(ConfigError, match="leaves no room for an answer"):
        lm.generate_until(
            requests("generate_until", [(QUESTIONS[0], {"until": [], "max_gen_toks": 7})])
        )


@pytest.mark.parametrize("engine", ENGINES)
def test_an_unknown_generation_setting_is_refused_with_the_nearest_name(
    engine: str, create: Create
) -> None:
    lm = create(engine)
    asked = requests("generate_until", [*PROMPTS, ("x", {"max_gen_toks": 4, "top_pp": 0.5})])
    with pytest.raises(ConfigError, match=r"has no 'top_pp'\. Did you mean 'top_p'"):
        lm.generate_until(asked)
    assert not (lm.model.llm_engine.asked if engine == "vllm" else lm.model.asked)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_beam_is_no_beam_search(engine: str, create: Create) -> None:
    asked = requests("generate_until", [("x", {"max_gen_toks": 4, "num_beams": 1})])
    assert create(engine).generate_until(asked)
    asked = requests("generate_until", [("x", {"max_gen_toks": 4, "num_beams": 2})])
    with pytest.raises(ConfigError, match="has no 'num_beams'"):
        create(engine).generate_until(asked)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["n", "stop"])
def test_settings_that_the_adapter_makes_itself_are_refused(
    engine: str, name: str, create: Create
) -> None:
    asked = requests("generate_until", [("x", {"max_gen_toks": 4, name: 2})])
    with pytest.raises(ConfigError, match=f"has no '{name}'"):
        create(engine).generate_until(asked)


@pytest.mark.parametrize("engine", ENGINES)
def test_known_generation_settings_are_passed_on(engine: str, create: Create) -> None:
    lm = create(engine)
    lm.generate_until(requests("generate_until", [("x", {**SAMPLED, "top_p": 0.5, "top_k": 7})]))
    if engine == "vllm":
        sent = lm.model.llm_engine.asked[0][2].given
    else:
        sent = lm.model.asked[0]
        sent = sent["sampling_params"] if engine == "sglang" else sent
    assert (sent["top_p"], sent["top_k"]) == (0.5, 7)
    if engine != "llama-cpp":
        assert sent["skip_special_tokens"] is False


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_wrong_value_is_reported_with_the_words_of_the_engine(
    engine: str, create: Create
) -> None:
    lm = create(engine)
    asked = requests("generate_until", [*PROMPTS, ("x", {**SAMPLED, "top_p": 2.0})])
    with pytest.raises(ConfigError, match=r"top_p must be in \(0, 1\], got 2.0"):
        lm.generate_until(asked)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_answer_that_leaves_no_room_is_refused_before_anything_is_computed(
    engine: str, create: Create
) -> None:
    lm = create(engine)
    asked = requests("generate_until", [*PROMPTS, ("x", {"max_gen_toks": 300})])
    with pytest.raises(ModelError, match="task 'trial': max_gen_toks=300 leaves no room"):
        lm.generate_until(asked)
    assert not (lm.model.llm_engine.asked if engine == "vllm" else lm.model.asked)


# Chats


CHAT = [{"role": "user", "content": "Where is Ann?"}]
BEGUN = [*CHAT, {"role": "assistant", "content": "Ann is "}]


def test_the_chat_template_of_a_gguf_file_is_applied(create: Create) -> None:
    lm = create("llama-cpp")
    assert lm.apply_chat_template(CHAT) == "user: Where is Ann?\nassistant: "
    begun = lm.apply_chat_template(BEGUN, add_generation_prompt=False)
    assert begun == "user: Where is Ann?\nassistant: Ann is "
    assert "add_generation_prompt" in lm.chat_template(True)
    assert lm.chat_template(False) is None


TEMPLATES = {
    "raise_exception": "{% for m in messages %}{% if m.role == 'system' %}"
    "{{ raise_exception('no system') }}{% endif %}{{ m.content }}|{% endfor %}",
    "strftime_now": "{{ strftime_now('%Y') | length }} {{ messages[0].content }}",
    "loop controls": "{% for m in messages %}{{ m.content }}{% break %}{% endfor %}",
    "tojson": "{{ messages[0] | tojson }} {{ messages[0].content | trim }}",
    "tokens": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_of_gguf_files_are_rendered_as_transformers_renders_them(name: str) -> None:
    utilities = pytest.importorskip("transformers.utils.chat_template_utils")
    chat = [{"role": "user", "content": "Is 1 < 2 & é? "}]
    templates = GGUFTemplates({"tokenizer.chat_template": TEMPLATES[name]}, "<s>", "</s>")
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    ((expected,), _) = utilities.render_jinja_template(
        [chat], chat_template=TEMPLATES[name], **tokens
    )
    assert templates.apply_chat_template(chat, add_generation_prompt=False) == expected


@pytest.mark.parametrize("content", ["Ann is", "Ann is ", "Ann"])
@pytest.mark.parametrize("form", ["{{ m.content }}", "{{ m.content | trim }}"])
def test_a_begun_message_is_left_open_as_transformers_leaves_it(content: str, form: str) -> None:
    utilities = pytest.importorskip("transformers.utils.chat_template_utils")
    source = "{% for m in messages %}<" + form + ">{% endfor %}"
    chat = [{"role": "user", "content": "Ann?"}, {"role": "assistant", "content": content}]
    ((expected,), _) = utilities.render_jinja_template(
        [chat], chat_template=source, continue_final_message=True, add_generation_prompt=False
    )
    templates = GGUFTemplates({"tokenizer.chat_template": source}, "", "")
    found = templates.apply_chat_template(
        chat, add_generation_prompt=False, continue_final_message=True
    )
    assert found == expected


def test_named_templates_of_a_gguf_file_can_be_chosen() -> None:
    metadata = {"tokenizer.chat_template": "default", "tokenizer.chat_template.tools": "tools"}
    templates = GGUFTemplates(metadata, "", "")
    assert templates.chat_template == {"default": "default", "tools": "tools"}
    assert templates.apply_chat_template(CHAT) == "default"
    assert GGUFTemplates({}, "", "").chat_template is None


@pytest.mark.parametrize("engine", ENGINES)
def test_a_model_without_a_chat_template_says_so(
    engine: str, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine != "llama-cpp":
        pytest.importorskip("transformers")
    lm = create(engine)
    monkeypatch.setattr(lm.tokenizer, "chat_template", None)
    with pytest.raises(ModelError, match="has no chat template; run without --apply_chat_template"):
        lm.apply_chat_template(CHAT)


# Failures


def test_the_prompt_that_vllm_scores_at_a_time_is_limited_on_a_gpu(
    create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log-probabilities of 100 tokens take 8 bytes for each token of the vocabulary."""
    pytest.importorskip("transformers")
    monkeypatch.setattr(vllm_arguments, "SCORE_BYTES", 8 * 1024 * 100)
    assert "long_prefill_token_threshold" not in create("vllm").model.given
    monkeypatch.setattr(fake_vllm.Platform, "on_cpu", False)
    assert create("vllm").model.given["long_prefill_token_threshold"] == 100
    assert "long_prefill_token_threshold" not in create("vllm", max_model_len=90).model.given
    given = create("vllm", long_prefill_token_threshold=7).model.given
    assert given["long_prefill_token_threshold"] == 7


def test_an_engine_that_dies_is_reported_with_its_own_error(create: Create) -> None:
    lm = create("vllm", max_batch_size=2)
    lm.model.llm_engine.dies_after = 1
    reported: list[Any] = []
    lm.set_cache_hook(
        lm_eval.api.model.CacheHook(on_batch=lambda kind, asked, answers: reported.extend(asked))
    )
    pattern = r"^vLLM failed: EngineDeadError: EngineCore encountered an issue.*Run the same"
    with pytest.raises(ModelError, match=pattern):
        lm.loglikelihood(requests("loglikelihood", [(text, " in a box.") for text in QUESTIONS]))
    assert len(reported) == 2


def test_requests_that_are_left_in_vllm_are_ended(create: Create) -> None:
    lm = create("vllm", max_batch_size=1)

    def interrupt(*_: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    lm.set_cache_hook(lm_eval.api.model.CacheHook(on_batch=interrupt))
    with pytest.raises(KeyboardInterrupt):
        lm.generate_until(requests("generate_until", PROMPTS))
    assert lm.model.llm_engine.unfinished() == 0
    lm.set_cache_hook(lm_eval.api.model.CacheHook())
    asked = requests("generate_until", PROMPTS[:2])
    assert lm.generate_until(asked) == like(lm).generate_until(asked)


def test_sglang_that_fails_is_reported_with_its_own_error(create: Create) -> None:
    lm = create("sglang")
    lm.model.fails_after = 1
    with pytest.raises(ModelError, match="SGLang failed: RuntimeError: The scheduler is dead"):
        lm.loglikelihood(requests("loglikelihood", [(text, " in a box.") for text in QUESTIONS]))


def test_an_aborted_request_of_sglang_is_a_failure(
    create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = create("sglang")

    async def abort(**_: Any) -> Any:
        reason = {"type": "abort", "message": "out of memory", "status_code": None}
        return {"text": "", "output_ids": [], "meta_info": {"finish_reason": reason}}

    monkeypatch.setattr(lm.model, "async_generate", abort)
    (found,) = lm.generate_until(requests("generate_until", PROMPTS[:1]))
    assert isinstance(found, Failure)
    assert "out of memory" in str(found)


def test_a_lora_adapter_is_part_of_every_request(create: Create, tmp_path: Path) -> None:
    lm = create("vllm", lora_local_path=str(tmp_path))
    assert lm.model.given["enable_lora"] is True
    lm.generate_until(requests("generate_until", PROMPTS[:1]))
    ((_, _, _, adapter),) = lm.model.llm_engine.asked
    assert adapter.lora_path == str(tmp_path)
