"""Tests that scores and answers through every kind of server are those of the model behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.api.instance import Failure, Instance
from lm_eval.errors import ModelError
from lm_eval.models.demo import DemoLM
from lm_eval.models.demo.model import END_OF_TEXT, WEIGHTS
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.models.planned.repeats import seed_of_prompt
from lm_eval.models.served.model import ServedLM
from tests.served.fake_dialects import (
    CONTEXT,
    TGI,
    VLLM,
    ListedBOS,
    LlamaCppPython,
    LlamaServer,
    Ollama,
    OpenAILegacy,
    SGLang,
    Together,
    TransformersServe,
    render,
)
from tests.served.fake_server import FakeServer, fake_model, serving

DATA = Path(lm_eval.__file__).parent / "tasks" / "demo" / "data"
CLOSE = 1e-3
"""How much log-probabilities may differ, per token."""


@dataclass(frozen=True)
class Kind:
    """A kind of server, and what is known about it.

    Attributes:
        make: creates the server.
        arguments: arguments of the model, besides address and name.
        prefix: what the server puts before every prompt.
        scores: whether log-likelihoods can be measured.
        tokens: whether it takes token ids.
        first_token: whether the first token of a text has a value.
        samples: whether one request may ask for several answers.
    """

    make: Callable[[], FakeServer]
    arguments: dict[str, Any] = field(default_factory=dict)
    prefix: str = ""
    scores: bool = True
    tokens: bool = True
    first_token: bool | None = None
    samples: bool = True

    @property
    def scores_first_token(self) -> bool:
        """Whether the first token of a text has a value; so with all servers of token ids."""
        return self.tokens if self.first_token is None else self.first_token


FOLDER = {"tokenizer": str(WEIGHTS)}
KINDS = {
    "vllm": Kind(VLLM),
    "older vllm": Kind(lambda: VLLM(version="0.20.1")),
    "vllm elsewhere": Kind(lambda: VLLM(root="org/demo"), {"custom_prefix_token_id": 0}),
    "sglang": Kind(SGLang),
    "llama-cpp-python": Kind(LlamaCppPython, {}, END_OF_TEXT, tokens=False, samples=False),
    "llama-server": Kind(LlamaServer),
    "openai legacy": Kind(OpenAILegacy, {**FOLDER, "max_length": CONTEXT}),
    "together": Kind(Together, FOLDER, tokens=False),
    "listed BOS": Kind(ListedBOS, FOLDER, END_OF_TEXT, first_token=True, tokens=False),
    "transformers serve": Kind(TransformersServe, scores=False, tokens=False, samples=False),
    "tgi": Kind(TGI, FOLDER, scores=False, tokens=False, samples=False),
    "ollama": Kind(Ollama, {}, "template", scores=False, tokens=False, samples=False),
}
SCORING = [name for name, kind in KINDS.items() if kind.scores]
WITH_TOKENS = [name for name in SCORING if KINDS[name].tokens]
FIRST_TOKEN = [name for name in SCORING if KINDS[name].scores_first_token]
NEXT_TOKENS = ["vllm", "vllm elsewhere", "sglang", "llama-server"]
"""Kinds that return the log-probabilities of chosen next tokens."""


@dataclass(frozen=True)
class Served:
    """A running server, a model that uses it, and how its prompts are read there."""

    server: FakeServer
    lm: ServedLM
    kind: Kind

    def seen(self, context: str) -> str:
        """Returns the prompt as the model behind the server gets it."""
        if self.kind.prefix == "template":
            return render([{"role": "user", "content": context}])
        return self.kind.prefix + context


@pytest.fixture(scope="module")
def all_served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Served]]:
    """Returns servers of all kinds, started and probed when they are first asked for."""
    with ExitStack() as stack:
        started: dict[str, Served] = {}

        class Starting(dict[str, Served]):
            def __missing__(self, name: str) -> Served:
                kind = KINDS[name]
                server = stack.enter_context(serving(kind.make()))
                lm = LocalCompletionsAPI(server.url, model=server.name, **kind.arguments)
                assert lm.certificate.can_score is kind.scores, lm.certificate.no_scores
                started[name] = self[name] = Served(server, lm, kind)
                return self[name]

        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("LMEVAL_CACHE_DIR", str(tmp_path_factory.mktemp("servers")))
        yield Starting()


@pytest.fixture
def served(all_served: dict[str, Served], request: pytest.FixtureRequest) -> Served:
    """Returns the server of the kind that the test is parametrized with; nothing is counted yet."""
    found = all_served[request.param]
    found.server.forget()
    return found


MakeModel = Callable[..., ServedLM]


@pytest.fixture
def served_with() -> MakeModel:
    """Returns a function that creates a model with other arguments; probed, and counts are zero."""

    def make(served: Served, **arguments: Any) -> ServedLM:
        url, name = served.server.url, served.server.name
        lm = LocalCompletionsAPI(url, model=name, **{**served.kind.arguments, **arguments})
        assert lm.certificate.can_score is served.kind.scores
        served.server.forget()
        return lm

    return make


@pytest.fixture(scope="module")
def demo() -> DemoLM:
    """Returns the model of `--model demo`, which cuts long texts where a server with CONTEXT does.

    One token of the context is generated, and one stands before a text.
    """
    return DemoLM(max_length=CONTEXT - 2)


def on(*names: str) -> Any:
    """Returns the decorator of a test that runs on servers of these kinds."""
    return pytest.mark.parametrize("served", names, indirect=True)


def rows(name: str, count: int) -> list[dict[str, Any]]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[:count]]


def asked(kind: Any, arguments: Sequence[tuple[Any, ...]]) -> list[Instance]:
    return [Instance(kind, {}, some, i, ("trial", i, 1)) for i, some in enumerate(arguments)]


QUESTIONS = [
    (f"{row['scene']}\nQuestion: {row['question']}\nAnswer:", row["choices"])
    for row in rows("choice_test.jsonl", 2)
]
STORIES = [row["text"] for row in rows("stories_test.jsonl", 4)]
ENDING = STORIES[1]
"""A text after which the model generates the end-of-text token."""
LONG = " ".join(STORIES)
"""A text that does not fit into the context."""
ONE_TOKEN = [" kite", " ball", " box", " hat"]
PAIRS = [
    *((question, f" {choice}") for question, choices in QUESTIONS for choice in choices),
    *(("Ann has a red", word) for word in ONE_TOKEN),
    ("Ann has a red", " kite. Greta is"),  # what the model itself would say
    ("Ann has a red ", "kite."),
    ("a", " kite"),
    ("Ann has a red", ""),
    (ENDING.removesuffix(" Celia."), " Celia."),
    (ENDING, " Then"),
    ("Grüße aus Köln, 世界 ", "naïve 🙂"),
]


def scores(lm: Any, pairs: Sequence[tuple[str, str]]) -> list[Any]:
    return list(lm.loglikelihood(asked("loglikelihood", pairs), disable_tqdm=True))


def assert_equal(found: Sequence[Any], expected: Sequence[Any], tokens: Sequence[int]) -> None:
    """Asserts that scores are equal up to `CLOSE` per token, and the same ones are greedy."""
    for one, other, count in zip(found, expected, tokens, strict=True):
        assert one[0] == pytest.approx(other[0], abs=CLOSE * max(1, count))
        assert one[1] is other[1]


def lengths(lm: DemoLM, texts: Sequence[str]) -> list[int]:
    return [len(lm.tok_encode(text)) for text in texts]


# Log-likelihoods


@on(*SCORING)
def test_log_likelihoods_are_those_of_the_model(served: Served, demo: DemoLM) -> None:
    expected = scores(demo, [(served.seen(context), rest) for context, rest in PAIRS])
    assert {greedy for _, greedy in expected} == {True, False}
    assert_equal(scores(served.lm, PAIRS), expected, lengths(demo, [rest for _, rest in PAIRS]))


@on(*FIRST_TOKEN)
def test_log_likelihoods_without_context_are_those_of_the_model(
    served: Served, demo: DemoLM
) -> None:
    pairs = [("", row[kind]) for row in rows("pairs_test.jsonl", 3) for kind in ("good", "bad")]
    pairs += [("", "The"), ("", "")]
    expected = scores(demo, pairs)
    assert_equal(scores(served.lm, pairs), expected, lengths(demo, [rest for _, rest in pairs]))


@on("llama-cpp-python", "together")
def test_a_server_of_text_gives_the_first_token_no_score(served: Served) -> None:
    (failed,) = scores(served.lm, [("", "The proud cat.")])
    assert isinstance(failed, Failure)
    assert "the first token of a text" in failed.reason
    assert served.server.posts == served.server.counts["POST /extras/tokenize"]


@on("vllm elsewhere")
def test_the_prefix_token_must_be_given_if_the_server_does_not_tell_it(served: Served) -> None:
    lm = LocalCompletionsAPI(served.server.url, model=served.server.name)
    with pytest.raises(ModelError, match="custom_prefix_token_id=ID"):
        scores(lm, [("", "The proud cat.")])


@on(*WITH_TOKENS)
def test_long_contexts_are_cut_as_for_the_model_itself(served: Served, demo: DemoLM) -> None:
    pairs = [(LONG, " kite."), (LONG, " and")]
    assert_equal(scores(served.lm, pairs), scores(demo, pairs), [2, 2])


@on(*FIRST_TOKEN)
def test_perplexities_are_those_of_the_model(served: Served, served_with: MakeModel) -> None:
    """A text is divided into windows, and a window that the model would end is scored as well."""
    length = 32 if served.kind.tokens else CONTEXT  # a server of text needs the text as a whole
    texts = [STORIES[0], ENDING[-80:], "Ann", ""]
    requests = asked("loglikelihood_rolling", [(text,) for text in texts])
    lm, demo = served_with(served, max_length=length), DemoLM(max_length=length - 2)
    found = lm.loglikelihood_rolling(requests, disable_tqdm=True)
    expected = demo.loglikelihood_rolling(requests, disable_tqdm=True)
    for one, other, count in zip(found, expected, lengths(demo, texts), strict=True):
        assert one == pytest.approx(other, abs=CLOSE * max(1, count))


@on("llama-cpp-python", "together")
def test_perplexities_are_refused_by_a_server_of_text(served: Served) -> None:
    assert "first token" in str(served.lm.cannot_measure("loglikelihood_rolling"))
    with pytest.raises(ModelError, match="no log-probability of the first token"):
        served.lm.loglikelihood_rolling(asked("loglikelihood_rolling", [("Ann",)]))


@on("transformers serve", "tgi", "ollama")
def test_a_server_without_log_probabilities_is_refused(served: Served) -> None:
    with pytest.raises(ModelError, match="returns no log-probabilities of a prompt"):
        scores(served.lm, PAIRS)
    assert served.server.posts == 0


def test_llama_server_scores_tokens_that_follow_instead_of_a_part_of_a_character(
    demo: DemoLM,
) -> None:
    """Such a server returns no log-probabilities if the generated token is no whole character."""
    pairs = [("Ann has a red", word) for word in ONE_TOKEN]
    with serving(LlamaServer(parts=[" kite"])) as server:
        lm = LocalCompletionsAPI(server.url, model=server.name)
        assert_equal(scores(lm, pairs), scores(demo, pairs), [1] * len(pairs))


# The number of requests


@on(*NEXT_TOKENS)
def test_all_one_token_choices_of_a_context_cost_one_request(served: Served) -> None:
    contexts = ["Ann has a red", "Tom has a blue", "Mira saw the"]
    scores(served.lm, [(context, word) for context in contexts for word in ONE_TOKEN])
    assert served.server.posts - served.server.counts["POST /tokenize"] == len(contexts)


@on("vllm", "sglang", "llama-server")
def test_contexts_with_the_same_choices_share_a_request(
    served: Served, served_with: MakeModel, demo: DemoLM
) -> None:
    pairs = [(c, word) for c in ("Ann has a red", "Mira saw the") for word in ONE_TOKEN]
    lm = served_with(served, batch_size=2)
    assert_equal(scores(lm, pairs), scores(demo, pairs), [1] * len(pairs))
    assert served.server.posts - served.server.counts["POST /tokenize"] == 1


@on("vllm", "openai legacy", "together", "llama-cpp-python")
def test_every_text_is_scored_once_however_often_it_occurs(served: Served) -> None:
    pair = ("Ann has a red", " kite made of tin.")
    first, *others = scores(served.lm, [pair] * 5)
    assert others == [first] * 4
    assert served.server.counts["POST /v1/completions"] == 1


@on("vllm")
def test_more_next_tokens_than_a_request_may_name_cost_two(served: Served, demo: DemoLM) -> None:
    texts = [demo.tok_decode([token]) for token in range(400, 700)]
    words = [text for text in texts if text.startswith(" ") and text.isascii()][:130]
    pairs = [("Ann has a red", word) for word in words]
    assert lengths(demo, words) == [1] * 130
    assert_equal(scores(served.lm, pairs), scores(demo, pairs), [1] * len(pairs))
    assert served.server.posts == 2


class ShorterThanSaid(VLLM):
    """A server whose context is shorter than it says."""

    def models(self, _: Any) -> Any:
        listed = super().models(_)
        return {**listed, "data": [{**listed["data"][0], "max_model_len": CONTEXT}]}


def test_one_refused_prompt_of_a_list_does_not_fail_the_others(demo: DemoLM) -> None:
    long = " ".join(STORIES[0].split()[:60])
    pairs = [("Ann has a red", " kite made."), (long, " kite made."), ("Tom has", " a ball.")]
    prompts = [(context, {"until": ["."], "max_gen_toks": 8}) for context, _ in pairs]
    with serving(ShorterThanSaid(length=64)) as server:
        lm = LocalCompletionsAPI(server.url, model=server.name, batch_size=4)
        scored = scores(lm, pairs)
        answered = lm.generate_until(asked("generate_until", prompts), disable_tqdm=True)
    assert isinstance(scored[1], Failure)
    assert "maximum context length is 64 tokens" in scored[1].reason
    assert isinstance(answered[1], Failure)
    assert_equal(scored[::2], scores(demo, pairs[::2]), [3, 3])
    assert answered[::2] == answers(demo, prompts[::2])


@on("older vllm", "openai legacy")
def test_without_named_next_tokens_every_choice_costs_a_request(served: Served) -> None:
    scores(served.lm, [("Ann has a red", word) for word in ONE_TOKEN])
    assert served.server.counts["POST /v1/completions"] == len(ONE_TOKEN)


@on("sglang")
def test_sglang_is_asked_for_the_continuation_only_so_that_its_prefix_cache_is_used(
    served: Served, demo: DemoLM
) -> None:
    context = "Ann has a red"
    scores(served.lm, [(context, " kite made of tin.")])
    (body,) = served.server.bodies
    assert body["logprob_start_len"] == len(demo.tok_encode(context)) - 1


# Generation


PROMPTS = [
    *((question, {"until": ["\n"], "max_gen_toks": 24}) for question, _ in QUESTIONS),
    ("Ann has a red", {"until": [], "max_gen_toks": 20, "do_sample": False}),
    # More stop strings than most servers accept; the last one ends the answer.
    ("Ann has a red", {"until": [*"QXYZJ", " Greta"], "max_gen_toks": 20, "temperature": 0.0}),
    # A stop string that begins inside a token.
    ("Ann has a red", {"until": [". Gre"], "max_gen_toks": 20}),
    ("Q: 2 + 3\nA:", {"until": ["\n", "Q:"], "max_gen_toks": 24}),
    ("Grüße aus Köln", {"until": ["."], "max_gen_toks": 12}),
]


def answers(lm: Any, prompts: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    requests = asked("generate_until", prompts)
    return [str(answer) for answer in lm.generate_until(requests, disable_tqdm=True)]


@on(*KINDS)
def test_greedy_answers_are_those_of_the_model(served: Served, demo: DemoLM) -> None:
    expected = answers(demo, [(served.seen(context), settings) for context, settings in PROMPTS])
    assert answers(served.lm, PROMPTS) == expected


@on("vllm", "sglang", "llama-server", "openai legacy")
def test_greedy_answers_of_a_list_of_prompts_are_the_same(
    served: Served, served_with: MakeModel, demo: DemoLM
) -> None:
    prompts = [(context, {"until": ["."], "max_gen_toks": 12}) for context, _ in PROMPTS[:4]]
    lm = served_with(served, batch_size=4, tokenizer=str(WEIGHTS))
    assert answers(lm, prompts) == answers(demo, prompts)
    assert served.server.posts == 1


@on(*(name for name in KINDS if name != "transformers serve"))
def test_repeats_are_sampled_with_different_seeds_and_repeatably(served: Served) -> None:
    """Each repeat has the next seed, whether one request asks for all of them or for one."""
    prompt, settings = "Ann has a red", {"until": ["."], "max_gen_toks": 12, "temperature": 1.0}
    request = Instance("generate_until", {}, (prompt, settings), 0, ("trial", 0, 3))
    found = served.lm.generate_until([request] * 3, disable_tqdm=True)
    model = fake_model()
    tokens = model.encode(served.seen(prompt))
    first = seed_of_prompt(1234, prompt)
    expected = [model.generate(tokens, 12, 1.0, first + i, ["."]).text for i in range(3)]
    assert found == expected
    assert len(set(found)) > 1
    sent = served.server.posts - served.server.counts["POST /tokenize"]
    assert sent == (1 if served.kind.samples else 3)


@on("vllm", "sglang", "llama-server", "llama-cpp-python", "transformers serve")
def test_an_answer_that_was_cut_off_says_so(served: Served) -> None:
    prompts = [
        ("Ann has a red", {"until": [], "max_gen_toks": 4}),
        ("Ann has a red", {"until": ["."], "max_gen_toks": 40}),
    ]
    requests = asked("generate_until", prompts)
    cut, stopped = served.lm.generate_until(requests, disable_tqdm=True)
    assert (cut.finish_reason, stopped.finish_reason) == ("length", "stop")


# Whole runs


@on("vllm")
def test_a_run_of_demo_tasks_gives_the_scores_of_the_demo_model(served: Served) -> None:
    tasks, limit = ["demo_choice", "demo_pairs", "demo_lastword", "demo_stories"], 3
    arguments = {"base_url": served.server.url, "model": served.server.name}
    common: dict[str, Any] = {"tasks": tasks, "limit": limit, "bootstrap_iters": 0}
    found = lm_eval.simple_evaluate(model="local-completions", model_args=arguments, **common)
    expected = lm_eval.simple_evaluate(model="demo", **common)
    assert found is not None
    assert expected is not None
    for task in tasks:
        for name, value in expected["results"][task].items():
            if isinstance(value, float):
                assert found["results"][task][name] == pytest.approx(value, rel=1e-3), (task, name)
