"""Tests of `from_logits` with numpy functions: no torch, no transformers."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from lm_eval.api.instance import Failure, Instance
from lm_eval.engine.plan import SortedSequences, plan
from lm_eval.errors import ConfigError, ModelError
from lm_eval.evaluator import simple_evaluate
from lm_eval.models import from_logits
from lm_eval.models.demo import DemoLM

LETTERS = "\0abcdefghijklmnopqrstuvwxyz ."


class Letters:
    """A tokenizer with nothing but two methods; token 0 is the end of text."""

    def encode(self, text: str) -> list[int]:
        return [LETTERS.index(letter) for letter in text]

    def decode(self, tokens: Any) -> str:
        return "".join(LETTERS[token] for token in tokens)


#: The logits of the next letter, which depend on the last letter and on how many came before.
TABLE = np.random.default_rng(0).normal(0, 2, (len(LETTERS), len(LETTERS)))


class Bigrams:
    """A model that remembers how it was called."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, int]] = []

    def __call__(self, tokens: Any) -> Any:
        assert tokens.dtype == np.int64
        self.shapes.append(tokens.shape)
        return TABLE[tokens] + np.cumsum(tokens, axis=1)[..., None] % 7 * TABLE[0]


def expected_score(context: str, rest: str) -> tuple[float, bool]:
    """Returns log P(rest | context) by the definition; the context is read without a prefix."""
    tokens = Letters().encode(context + rest) if context else [0, *Letters().encode(rest)]
    logits = Bigrams()(np.array([tokens]))[0]
    found = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    places = range(len(tokens) - len(rest) - 1, len(tokens) - 1)
    wanted = tokens[-len(rest) :]
    return (
        float(sum(found[place, token] for place, token in zip(places, wanted, strict=True))),
        all(found[place].argmax() == token for place, token in zip(places, wanted, strict=True)),
    )


def ask(kind: Any, *arguments: Any) -> list[Instance]:
    return [Instance(kind, {}, args, 0, ("a_task", 0, 1)) for args in arguments]


def letters_lm(forward: Any = None, **settings: Any) -> Any:
    settings = {"max_length": 64, "eos_token_id": 0, "array_type": "numpy", **settings}
    return from_logits(forward or Bigrams(), Letters(), **settings)


PAIRS = [
    ("tom has", " a hat"),
    ("tom has", " a"),
    ("tom has", " b"),
    ("tom has a", " hat."),
    ("", "once upon a time"),
    ("the cat sat on the mat and", " x"),
]


def test_continuations_are_scored_by_the_definition() -> None:
    found = letters_lm().loglikelihood(ask("loglikelihood", *PAIRS))
    for (score, greedy), pair in zip(found, PAIRS, strict=True):
        assert (score, greedy) == (
            pytest.approx(expected_score(*pair)[0]),
            expected_score(*pair)[1],
        )


def test_the_most_likely_continuation_is_greedy_and_is_generated() -> None:
    lm = letters_lm()
    (text,) = lm.generate_until(ask("generate_until", ("tom", {"max_gen_toks": 5})))
    by_hand = "tom"
    for _ in range(5):
        logits = Bigrams()(np.array([Letters().encode(by_hand)]))[0, -1]
        by_hand += LETTERS[int(logits.argmax())]
    assert text == by_hand[3:].split("\0")[0]
    ((_, greedy), (_, other)) = lm.loglikelihood(ask("loglikelihood", ("tom", text), ("tom", "zz")))
    assert (greedy, other) == (True, False)


def test_a_text_is_scored_in_windows_that_fit() -> None:
    lm = letters_lm(max_length=8)
    text = "the cat sat on the mat."
    (found,) = lm.loglikelihood_rolling(ask("loglikelihood_rolling", (text,)))
    tokens = [0, *Letters().encode(text)]
    total = 0.0
    for begin in range(0, len(text), 8):  # as many new letters as fit, after all that fits before
        end = min(len(text), begin + 8)
        read = tokens[max(0, end - 8) : end]
        scores = Bigrams()(np.array([read]))[0]
        scores = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
        wanted = tokens[begin + 1 : end + 1]
        total += sum(scores[len(read) - len(wanted) + i, token] for i, token in enumerate(wanted))
    assert found == pytest.approx(total)


def test_what_requests_have_in_common_is_read_once() -> None:
    forward = Bigrams()
    lm = letters_lm(forward, batch_size=100)
    asked = ask("loglikelihood", *[("tom has", rest) for rest in " abcdef"], ("tom has", " a hat"))
    found = lm.loglikelihood([*asked, *asked])
    assert len(forward.shapes) == 4  # the trial, and one call
    # "tom has" is read for all single letters, and as the beginning of "tom has a ha".
    assert forward.shapes[-1] == (1, len("tom has a ha"))
    assert found[: len(asked)] == found[len(asked) :]
    scores = [score for score, _ in found[:7]]
    assert scores == pytest.approx([expected_score("tom has", rest)[0] for rest in " abcdef"])
    assert lm.usage()["tokens_shared"] == lm.usage()["tokens_in"] - len("tom has a ha")


@pytest.mark.parametrize("batch_size", [1, 2, None])
def test_answers_do_not_depend_on_the_batch(batch_size: int | None) -> None:
    settings = {"max_gen_toks": 6, "until": ["e"]}
    asked = ask("generate_until", *[(text, settings) for text in ("tom", "a hat and", "x")])
    alone = [letters_lm().generate_until([one])[0] for one in asked]
    lm = letters_lm(batch_size=batch_size)
    assert lm.generate_until(asked) == alone
    assert all("e" not in answer for answer in alone)
    found = lm.loglikelihood(ask("loglikelihood", *PAIRS))
    assert [score for score, _ in found] == pytest.approx([expected_score(*p)[0] for p in PAIRS])


def test_sampled_answers_follow_the_seed_and_the_distribution() -> None:
    settings = {"max_gen_toks": 1, "do_sample": True, "temperature": 1.0}
    asked = ask("generate_until", ("tom", settings))
    drawn = [letters_lm(seed=seed).generate_until(asked)[0] for seed in range(300)]
    assert drawn[0] == letters_lm(seed=0).generate_until(asked)[0]
    logits = Bigrams()(np.array([Letters().encode("tom")]))[0, -1]
    shares = np.exp(logits) / np.exp(logits).sum()
    likely = int(shares.argmax())
    assert drawn.count(LETTERS[likely]) / 300 == pytest.approx(shares[likely], abs=0.1)
    best = ask("generate_until", ("tom", {**settings, "top_k": 1}))
    assert {letters_lm(seed=seed).generate_until(best)[0] for seed in range(9)} == {LETTERS[likely]}


def test_a_function_that_takes_one_text_is_called_with_one(caplog: Any) -> None:
    def single(tokens: Any) -> Any:
        assert len(tokens) == 1, "one text only"
        return Bigrams()(tokens)

    lm = letters_lm(single)
    found = lm.loglikelihood(ask("loglikelihood", *PAIRS))
    assert [score for score, _ in found] == pytest.approx([expected_score(*p)[0] for p in PAIRS])
    assert "one text at a time" in caplog.text
    assert "one text only" in caplog.text


def test_a_function_that_reads_padding_is_called_with_one_text(caplog: Any) -> None:
    def mixing(tokens: Any) -> Any:
        return Bigrams()(tokens) + (len(tokens) - 1) * TABLE[1]

    found = letters_lm(mixing).loglikelihood(ask("loglikelihood", *PAIRS))
    assert [score for score, _ in found] == pytest.approx([expected_score(*p)[0] for p in PAIRS])
    assert "change with the other texts" in caplog.text


def test_a_function_that_looks_ahead_is_not_used_for_prefixes(caplog: Any) -> None:
    def ahead(tokens: Any) -> Any:
        return Bigrams()(tokens) + tokens.sum() * TABLE[1]

    lm = letters_lm(ahead)
    pairs = [("tom", " a"), ("tom", " a hat")]
    found = lm.loglikelihood(ask("loglikelihood", *pairs))
    alone = [letters_lm(ahead).loglikelihood(ask("loglikelihood", pair))[0] for pair in pairs]
    assert found == alone
    assert "change with the tokens after it" in caplog.text


def test_what_is_wrong_with_a_function_is_told() -> None:
    pairs = ask("loglikelihood", *PAIRS)
    with pytest.raises(ModelError, match=r"shape \(1, 31\).*\(batch, length, vocabulary\)"):
        letters_lm(lambda tokens: np.zeros((1, 31))).loglikelihood(pairs)
    with pytest.raises(ConfigError, match=r"does not fit.*5 tokens"):
        letters_lm(lambda tokens: np.zeros((*tokens.shape, 5))).loglikelihood(pairs)
    with pytest.raises(ConfigError, match="must be a function"):
        letters_lm("a/name")
    with pytest.raises(ConfigError, match="max_length"):
        letters_lm(max_length=0)
    with pytest.raises(ConfigError, match="from_logits has no 'repetition_penalty'"):
        letters_lm().generate_until(ask("generate_until", ("a", {"repetition_penalty": 2.0})))
    with pytest.raises(ModelError, match="no room for a context"):
        letters_lm().generate_until(ask("generate_until", ("a", {"max_gen_toks": 64})))
    with pytest.raises(ModelError, match="beginning-of-text token"):
        letters_lm(eos_token_id=None).loglikelihood(ask("loglikelihood", ("", "a")))


def test_logits_that_are_not_numbers_fail_their_requests_only() -> None:
    def broken(tokens: Any) -> Any:
        logits = Bigrams()(tokens)
        logits[tokens == LETTERS.index("x")] = math.nan
        return logits

    lm = letters_lm(broken)
    good, bad = lm.loglikelihood(ask("loglikelihood", ("tom", " a"), ("tom x", "a")))
    assert good[0] == pytest.approx(expected_score("tom", " a")[0])
    assert isinstance(bad, Failure)
    settings = {"max_gen_toks": 3}
    good, bad = lm.generate_until(ask("generate_until", ("tom", settings), ("a x", settings)))
    assert good == letters_lm().generate_until(ask("generate_until", ("tom", settings)))[0]
    assert isinstance(bad, Failure)


def test_a_model_can_be_pickled_with_its_function() -> None:
    lm = letters_lm()
    before = lm.loglikelihood(ask("loglikelihood", *PAIRS))
    copied = pickle.loads(pickle.dumps(lm))
    assert copied.loglikelihood(ask("loglikelihood", *PAIRS)) == before


def test_an_identity_that_is_given_tells_models_apart() -> None:
    from lm_eval.config.run import RunConfig
    from lm_eval.models.identity import model_identity

    def identity_of(**settings: Any) -> str:
        lm = letters_lm(**settings)
        return model_identity(RunConfig(model=lm, tasks=["demo_choice"]), lm)

    assert identity_of(identity={"step": 1}) == identity_of(identity={"step": 1})
    assert identity_of(identity={"step": 1}) != identity_of(identity={"step": 2})
    assert identity_of(identity={"step": 1}) != identity_of(identity={"step": 1}, max_length=32)


def demo_forward(demo: DemoLM) -> Any:
    """Returns the embedded model as a function from tokens to logits."""

    def forward(tokens: Any) -> Any:
        rows = []
        for row in tokens:
            ((batch),) = plan(SortedSequences.of([row.tolist()], [1]))
            hidden, _ = demo.model.read(batch, None)
            rows.append(demo.model.logits(hidden))
        return np.stack(rows)

    return forward


def test_the_embedded_model_as_a_function_gives_the_same_results() -> None:
    demo = DemoLM()
    end = demo.eot_token_id
    lm = from_logits(
        demo_forward(demo),
        demo.tokenizer,
        max_length=demo.max_length,
        eos_token_id=end,
        array_type="numpy",
    )
    tasks = ["demo_choice", "demo_lastword", "demo_stories", "demo_sums"]
    ours, theirs = (
        simple_evaluate(model=model, tasks=tasks, limit=3, log_samples=False)["results"]
        for model in (lm, DemoLM())
    )
    for task in tasks:
        for name, value in theirs[task].items():
            if isinstance(value, float):
                assert ours[task][name] == pytest.approx(value, rel=1e-4), (task, name)


def test_no_heavy_package_is_imported() -> None:
    code = (
        "import sys, numpy as np\n"
        "from lm_eval.models import from_logits\n"
        "class T:\n"
        "    encode = staticmethod(lambda text: [ord(c) % 50 for c in text])\n"
        "    decode = staticmethod(lambda tokens: 'x' * len(tokens))\n"
        "from lm_eval.api.instance import Instance\n"
        "lm = from_logits(lambda t: np.zeros((*t.shape, 50)), T(), max_length=32)\n"
        "print(lm.loglikelihood([Instance('loglikelihood', {}, ('a', 'bc'), 0)]))\n"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    score, heavy = done.stdout.splitlines()
    assert eval(score)[0][0] == pytest.approx(-2 * math.log(50))
    assert heavy == "[]"
