"""Tests the numpy model against a plain implementation of the Llama architecture."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from safetensors.numpy import load_file

from lm_eval.engine.plan import SortedSequences, plan
from lm_eval.errors import ModelError
from lm_eval.models.conventions import Generation
from lm_eval.models.demo import DemoLM
from lm_eval.models.demo.generate import Prompt, read_prompts
from lm_eval.models.demo.llama import Decoder, Llama
from lm_eval.models.demo.model import WEIGHTS
from lm_eval.models.sampling import choose_tokens
from tests.demo.conftest import (
    choice_requests,
    documents,
    instance,
    pair_requests,
    story_requests,
    sum_requests,
    word_requests,
)

SAMPLED = {"do_sample": True, "temperature": 0.8, "until": ["\n"], "max_gen_toks": 24}
GREEDY = {"until": ["\n"], "max_gen_toks": 24}


class Naive:
    """A reference implementation in float64: one token and one head at a time, without caching."""

    def __init__(self) -> None:
        self.config = json.loads((WEIGHTS / "config.json").read_text())
        weights = load_file(WEIGHTS / "model.safetensors")
        self.weights = {name: value.astype(np.float64) for name, value in weights.items()}

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        scale = np.sqrt((x * x).mean() + self.config["rms_norm_eps"])
        return x / scale * self.weights[f"model.{name}.weight"]

    def turn(self, x: np.ndarray, position: int) -> np.ndarray:
        half = len(x) // 2
        out = np.empty_like(x)
        for i in range(half):
            angle = position * self.config["rope_theta"] ** (-2 * i / len(x))
            out[i] = x[i] * np.cos(angle) - x[i + half] * np.sin(angle)
            out[i + half] = x[i + half] * np.cos(angle) + x[i] * np.sin(angle)
        return out

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        config = self.config
        width, heads = config["head_dim"], config["num_attention_heads"]
        group = heads // config["num_key_value_heads"]
        xs = [self.weights["model.embed_tokens.weight"][token] for token in tokens]
        for n in range(config["num_hidden_layers"]):
            w = {
                name.split(".")[-2]: value
                for name, value in self.weights.items()
                if name.startswith(f"model.layers.{n}.")
            }
            normed = [self.norm(x, f"layers.{n}.input_layernorm") for x in xs]
            q, k, v = ([w[f"{c}_proj"] @ x for x in normed] for c in "qkv")
            for t in range(len(xs)):
                mixed = []
                for head in range(heads):
                    mine = slice(head * width, (head + 1) * width)
                    theirs = slice(head // group * width, (head // group + 1) * width)
                    asked = self.turn(q[t][mine], t)
                    scores = np.array(
                        [asked @ self.turn(k[s][theirs], s) / width**0.5 for s in range(t + 1)]
                    )
                    shares = np.exp(scores - scores.max())
                    shares /= shares.sum()
                    mixed.append(sum(p * v[s][theirs] for s, p in enumerate(shares)))
                xs[t] = xs[t] + w["o_proj"] @ np.concatenate(mixed)
            for t, x in enumerate(xs):
                y = self.norm(x, f"layers.{n}.post_attention_layernorm")
                gate = w["gate_proj"] @ y
                xs[t] = x + w["down_proj"] @ (gate / (1 + np.exp(-gate)) * (w["up_proj"] @ y))
        final = np.array([self.norm(x, "norm") for x in xs])
        return final @ self.weights["model.embed_tokens.weight"].T


@pytest.fixture(scope="module")
def naive() -> Naive:
    return Naive()


def tokens_of(demo: DemoLM, text: str) -> list[int]:
    return demo.tok_encode(text)


def test_a_forward_pass_agrees_with_a_naive_one(llama: Llama, demo: DemoLM, naive: Naive) -> None:
    tokens = tokens_of(demo, "Mira the baker is in the mill. She has 12 figs.")
    (batch,) = plan(SortedSequences.of([tokens], [len(tokens)]))
    hidden, _ = llama.read(batch)
    np.testing.assert_allclose(llama.logits(hidden), naive.logits(tokens), atol=2e-4)


def test_requests_in_one_tree_agree_with_each_alone(
    llama: Llama, demo: DemoLM, naive: Naive
) -> None:
    texts = ["Tom has a kite.", "Tom has a kettle and", "Tom is here", "Tom has", "Ana"]
    sequences = [tokens_of(demo, text) for text in texts]
    (batch,) = plan(SortedSequences.of(sequences, [len(s) for s in sequences]))
    logits = llama.logits(llama.read(batch)[0])
    for place, request in enumerate(batch.requests):
        alone = naive.logits(sequences[request])
        np.testing.assert_allclose(logits[batch.nodes_of(place)], alone, atol=2e-4)


def test_trees_that_hand_nodes_on_agree_with_the_whole(llama: Llama, demo: DemoLM) -> None:
    scene = tokens_of(demo, documents("choice_test")[0]["scene"])
    ends = [tokens_of(demo, text) for text in ("\nQuestion: Where", "\nQuestion: Who", " Then")]
    ordered = SortedSequences.of([scene + end for end in ends], [len(end) for end in ends])
    (whole,) = plan(ordered)
    expected = llama.logits(llama.read(whole)[0])
    given = None
    for number, part in enumerate(plan(ordered, max_requests=1)):
        assert part.num_cached >= len(scene) * (number > 0)
        hidden, cache = llama.read(part, given)
        given = cache.take(part.kept_for_next)
        request = int(part.requests[0])
        place = whole.requests.tolist().index(request)
        found = llama.logits(hidden[part.scored - part.num_cached])
        np.testing.assert_allclose(found, expected[whole.nodes_of(place)], atol=1e-4)


def test_decoding_with_a_cache_agrees_with_reading_it_all(llama: Llama, demo: DemoLM) -> None:
    prompts = [tokens_of(demo, t) for t in ("Tom has a", "Mira the baker is in the", "Ana")]
    added = np.random.default_rng(0).integers(1, 500, (3, 2, 5))
    caches = read_prompts(llama, [Prompt("", prompt, (0,)) for prompt in prompts], 100)
    decoder = Decoder(llama, caches, answers=2, max_tokens=6)
    inputs = np.concatenate([np.array([[[p[-1]]] * 2 for p in prompts]), added], axis=2)
    steps = [decoder.step(inputs[:, :, i].reshape(-1)).reshape(3, 2, -1) for i in range(4)]
    decoder.keep(np.array([0, 2]))
    steps += [decoder.step(inputs[[0, 2], :, i].reshape(-1)).reshape(2, 2, -1) for i in (4, 5)]
    for p, prompt in enumerate(prompts):
        for r in range(2):
            whole = prompt + added[p, r].tolist()
            (batch,) = plan(SortedSequences.of([whole], [6]))
            expected = llama.logits(llama.read(batch)[0][batch.scored])
            for i in range(4 if p == 1 else 6):
                row = p if i < 4 else p // 2
                np.testing.assert_allclose(steps[i][row, r], expected[i], atol=1e-4)


def some_requests() -> list[object]:
    return [
        *choice_requests(documents("choice_test")[:12]),
        *pair_requests(documents("pairs_test")[:20]),
        *word_requests(documents("lastword_test")[:12]),
    ]


def test_scores_do_not_depend_on_batch_size_or_sharing() -> None:
    requests = some_requests()
    expected = DemoLM(prefix_sharing=False, batch_size=1).loglikelihood(requests)
    for options in (
        {},
        {"batch_size": 1},
        {"batch_size": 7},
        {"batch_size": 64},
        {"prefix_sharing": False},
    ):
        found = DemoLM(**options).loglikelihood(requests)
        np.testing.assert_allclose(
            [score for score, _ in found], [score for score, _ in expected], rtol=1e-6, atol=2e-5
        )
        assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]


def test_two_runs_agree_to_the_bit() -> None:
    requests = some_requests()
    assert DemoLM().loglikelihood(requests) == DemoLM().loglikelihood(requests)


def test_rolling_scores_do_not_depend_on_batch_size(demo: DemoLM) -> None:
    requests = story_requests(documents("stories_test")[:5])
    expected = DemoLM(batch_size=1).loglikelihood_rolling(requests)
    np.testing.assert_allclose(demo.loglikelihood_rolling(requests), expected, rtol=1e-6)


def test_a_text_longer_than_the_context_is_scored_window_by_window(demo: DemoLM) -> None:
    text = documents("stories_test")[3]["text"]
    tokens = demo.tok_encode(text)
    short = DemoLM(max_length=len(tokens) // 2 + 5)
    first, rest = tokens[: short.max_length], tokens[short.max_length :]
    context = tokens[len(tokens) - short.max_length - 1 : short.max_length]
    parts = short._loglikelihood_tokens([(("", ""), [0], first), (("", ""), context, rest)])
    (whole,) = short.loglikelihood_rolling([instance("loglikelihood_rolling", text)])
    assert whole == pytest.approx(parts[0][0] + parts[1][0], rel=1e-9)


def test_sampled_answers_do_not_depend_on_what_else_is_asked(demo: DemoLM) -> None:
    requests = [r for r in sum_requests(documents("sums_test")[:8], SAMPLED) for _ in range(3)]
    expected = demo.generate_until(requests)
    assert len(set(expected)) > 8
    assert demo.generate_until(requests) == expected
    assert DemoLM(batch_size=1).generate_until(requests) == expected
    assert demo.generate_until(requests[9:12]) == expected[9:12]
    backwards = demo.generate_until([requests[i] for i in range(0, 24, 3)][::-1])
    assert backwards == expected[::3][::-1]


def test_another_seed_gives_other_answers(demo: DemoLM) -> None:
    requests = [r for r in sum_requests(documents("sums_test")[:8], SAMPLED) for _ in range(3)]
    assert DemoLM(seed=1).generate_until(requests) != demo.generate_until(requests)


def test_greedy_answers_are_what_scoring_calls_greedy(demo: DemoLM) -> None:
    requests = sum_requests(documents("sums_test")[:6], GREEDY)
    answers = demo.generate_until(requests)
    assert all("\n" not in answer for answer in answers)
    scored = demo.loglikelihood(
        [
            instance("loglikelihood", request.args[0], answer)
            for request, answer in zip(requests, answers, strict=True)
        ]
    )
    assert all(greedy for _, greedy in scored)


def test_answers_end_at_their_limit_and_long_contexts_keep_their_end(demo: DemoLM) -> None:
    settings = {"max_gen_toks": 3}
    long = documents("stories_test")[3]["text"] * 3 + " Then Mira and"
    kept = demo.tok_decode(demo.tok_encode(long)[-(demo.max_length - 3) :])
    first, second = demo.generate_until(
        [instance("generate_until", long, settings), instance("generate_until", kept, settings)]
    )
    assert first == second
    assert 0 < len(demo.tok_encode(first)) <= 3


def test_an_empty_context_is_generated_from_the_prefix_token(demo: DemoLM) -> None:
    (answer,) = demo.generate_until([instance("generate_until", "", {"max_gen_toks": 5})])
    assert answer


def test_an_answer_that_leaves_no_room_for_a_context_is_refused(demo: DemoLM) -> None:
    with pytest.raises(ModelError, match="leaves no room for a context"):
        demo.generate_until([instance("generate_until", "Tom", {"max_gen_toks": 5000})])


def test_an_empty_continuation_is_certain(demo: DemoLM) -> None:
    assert demo.loglikelihood([instance("loglikelihood", "Tom has", "")]) == [(0.0, True)]


def test_every_answer_is_reported_as_it_comes() -> None:
    demo = DemoLM()
    kept: list[tuple[str, object, object]] = []
    demo.set_cache_hook(type(demo.cache_hook)(lambda *what: kept.append(what)))
    requests = choice_requests(documents("choice_test")[:2])
    answers = demo.loglikelihood(requests)
    asked = {request.args: answer for request, answer in zip(requests, answers, strict=True)}
    assert {arguments: answer for _, arguments, answer in kept} == asked
    assert {kind for kind, _, _ in kept} == {"loglikelihood"}


@pytest.mark.parametrize(
    ("settings", "possible"),
    [
        (Generation(temperature=1.0, top_k=1), {2}),
        (Generation(temperature=1.0, top_k=2), {1, 2}),
        (Generation(temperature=1.0, top_p=0.1), {2}),
        (Generation(temperature=1.0, top_p=0.7), {1, 2}),
        (Generation(temperature=1.0), {0, 1, 2, 3}),
    ],
)
def test_sampling_keeps_to_the_tokens_it_may_choose_tokens(
    settings: Generation, possible: set[int]
) -> None:
    logits = np.log(np.array([[0.1, 0.25, 0.6, 0.05]], dtype=np.float32))
    draws = np.linspace(0, 1, 200, endpoint=False)
    drawn = choose_tokens(np.repeat(logits, 200, axis=0), settings, draws)
    assert set(drawn.tolist()) == possible


def test_sampling_follows_the_distribution() -> None:
    logits = np.log(np.array([[0.1, 0.25, 0.6, 0.05]], dtype=np.float32))
    draws = (np.arange(1000) + 0.5) / 1000
    drawn = choose_tokens(np.repeat(logits, 1000, axis=0), Generation(temperature=1.0), draws)
    assert np.bincount(drawn).tolist() == pytest.approx([100, 250, 600, 50], abs=1)


def test_repeats_that_are_left_are_not_those_that_were_drawn_before(demo: DemoLM) -> None:
    """If four of eight repeats are stored already, the run generates the last four."""
    request = instance("generate_until", "Tom has", SAMPLED)
    request.repeats = 8
    every = demo.generate_until([request] * 8)
    assert demo.generate_until([request] * 4) == every[4:]
