"""Tests that `from_logits` around a torch model gives the answers of the `hf` model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lm_eval.config.run import RunConfig
from lm_eval.evaluator import simple_evaluate
from lm_eval.models import from_logits
from lm_eval.models.identity import model_identity
from tests.huggingface.conftest import ARCHITECTURES, Make, ask, make_model, torch

LONG = "Tom has a cat and the cat has a hat. " * 6
PAIRS = [
    ("Tom has", " three apples"),
    ("Tom has", " three"),
    ("Tom has", " four"),
    ("Tom has", " three"),
    ("Tom has ", "a cat"),
    ("", "Once upon a time"),
    ("Question: 2 + 3?\nAnswer:", " 5"),
    (LONG, " The end."),
    ("Tom", LONG),
]
TEXTS = ["Tom has three apples.", "", LONG, LONG * 3]
PROMPTS = ["Tom has", "", LONG, "A red hat and", "Tom has"]


@pytest.fixture(params=["module", "function", "bfloat16"])
def both(request: Any, make_lm: Make, llama: Any, tokenizer: Any) -> tuple[Any, Any]:
    """Returns the `hf` model and ours of the same weights."""
    model = llama
    if request.param == "bfloat16":
        model = make_model(*ARCHITECTURES["llama"][:3]).to(torch.bfloat16)
    hf = make_lm(model, max_length=48)
    forward = model if request.param != "function" else lambda tokens: model(tokens).logits
    return hf, from_logits(forward, tokenizer, max_length=48)


def test_log_likelihoods_are_those_of_hf(both: tuple[Any, Any]) -> None:
    hf, lm = both
    asked = [ask("loglikelihood", *pair) for pair in PAIRS]
    rough = hf.model.dtype == torch.bfloat16
    expected, found = hf.loglikelihood(asked), lm.loglikelihood(asked)
    tolerance = {"rel": 0.02} if rough else {"abs": 1e-3, "rel": 1e-6}
    assert [s for s, _ in found] == pytest.approx([s for s, _ in expected], **tolerance)
    if not rough:
        assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]
    texts = [ask("loglikelihood_rolling", text) for text in TEXTS]
    assert lm.loglikelihood_rolling(texts) == pytest.approx(
        hf.loglikelihood_rolling(texts), **tolerance
    )


def test_greedy_answers_are_those_of_hf(make_lm: Make, llama: Any, tokenizer: Any) -> None:
    hf, lm = make_lm(max_length=48), from_logits(llama, tokenizer, max_length=48)
    first = make_lm().generate_until([ask("generate_until", "Tom has", {"max_gen_toks": 6})])[0]
    for until in ([], [first[3:5]], ["<|endoftext|>"]):
        settings = {"max_gen_toks": 6, "until": until}
        asked = [ask("generate_until", text, settings) for text in PROMPTS]
        assert lm.generate_until(asked) == hf.generate_until(asked)
    assert lm.usage()["tokens_out"] == hf.usage()["tokens_out"]
    assert lm.usage()["truncated"] == hf.usage()["truncated"] == 3


def test_an_evaluation_gives_the_results_of_hf(make_lm: Make, llama: Any, tokenizer: Any) -> None:
    tasks = ["demo_choice", "demo_stories", "demo_sums"]
    models = from_logits(llama, tokenizer, max_length=256), make_lm(max_length=256)
    settings = {"limit": 2, "gen_kwargs": "max_gen_toks=8,do_sample=False,temperature=0"}
    ours, theirs = (simple_evaluate(model=lm, tasks=tasks, **settings) for lm in models)
    for task in tasks:
        for name, value in theirs["results"][task].items():
            if isinstance(value, float):
                assert ours["results"][task][name] == pytest.approx(value, rel=1e-5), name
    answers = [
        [sample["resps"] for sample in result["samples"]["demo_sums"]] for result in (ours, theirs)
    ]
    assert answers[0] == answers[1]


def test_a_model_is_left_as_it_was(llama: Any, tokenizer: Any) -> None:
    class Dropping(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.drop = llama, torch.nn.Dropout(0.5)

        def forward(self, tokens: Any) -> Any:
            assert not torch.is_grad_enabled()
            return self.drop(self.inner(tokens).logits)

    model = Dropping().train()
    asked = [ask("loglikelihood", *pair) for pair in PAIRS[:3]]
    found = from_logits(model, tokenizer, max_length=48).loglikelihood(asked)
    assert found == from_logits(llama, tokenizer, max_length=48).loglikelihood(asked)
    assert model.training
    assert model.drop.training


def test_models_are_identified_by_their_weights(llama: Any, tokenizer: Any) -> None:
    def identity_of(forward: Any) -> dict[str, Any]:
        lm = from_logits(forward, tokenizer, max_length=48)
        found: dict[str, Any] = json.loads(
            model_identity(RunConfig(model=lm, tasks=["demo_choice"]), lm)
        )
        return found

    other = make_model(*ARCHITECTURES["gpt2"][:3])
    assert identity_of(llama) == identity_of(llama.forward) != identity_of(other)
    assert identity_of(lambda tokens: llama(tokens))["own"]["weights"] is None


def test_a_chat_template_of_the_tokenizer_is_applied(llama: Any, tokenizer: Any) -> None:
    import copy

    chatting = copy.deepcopy(tokenizer)
    chatting.chat_template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
    lm = from_logits(llama, chatting, max_length=48)
    assert lm.apply_chat_template([{"role": "user", "content": "Hi"}]) == "[user] Hi"
    assert lm.chat_template(True) == chatting.chat_template


def test_logits_of_torch_and_numpy_are_scored_alike(llama: Any, tokenizer: Any) -> None:
    def converting(tokens: Any) -> Any:
        return llama(torch.from_numpy(tokens)).logits.numpy()

    asked = [ask("loglikelihood", *pair) for pair in PAIRS]
    numpy_lm = from_logits(converting, tokenizer, max_length=48, array_type="numpy")
    torch_lm = from_logits(llama, tokenizer, max_length=48)
    expected = torch_lm.loglikelihood(asked)
    assert [s for s, _ in numpy_lm.loglikelihood(asked)] == pytest.approx([s for s, _ in expected])
