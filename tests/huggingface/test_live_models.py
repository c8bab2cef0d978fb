"""Tests models passed as objects: changes to them are noticed, and they are left unchanged."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.api.model import TemplateLM
from lm_eval.models.demo.model import WEIGHTS
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from tests.conftest import Folder
from tests.huggingface.conftest import Make, ask, torch

PAIRS = [("Tom has", " three"), ("Tom has", " four apples"), ("The river is", " long")]
SCORED = [ask("loglikelihood", *pair) for pair in PAIRS]


def scores(lm: Any) -> list[float]:
    return [score for score, _ in lm.loglikelihood(SCORED)]


@pytest.fixture
def model(llama: Any) -> Any:
    return copy.deepcopy(llama)


def new_head(model: Any) -> None:
    head = torch.nn.Linear(32, 1024, bias=False)
    model.set_output_embeddings(head)


def hook_on_top(model: Any) -> None:
    def double(module: Any, args: Any, out: Any) -> Any:
        out.logits = out.logits * 2
        return out

    model.register_forward_hook(double)


def hook_on_a_layer(model: Any) -> None:
    model.model.layers[0].register_forward_hook(lambda module, args, out: out * 1.5)


def hook_on_the_first_token(model: Any) -> None:
    def first(module: Any, args: Any, out: Any) -> Any:
        out = out.clone()
        out[:, 0] += 3.0
        return out

    model.model.layers[0].register_forward_hook(first)


def other_forward(model: Any) -> None:
    own = model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        out = own(*args, **kwargs)
        out.logits = out.logits * 2
        return out

    model.forward = forward


@pytest.mark.parametrize(
    "change", [new_head, hook_on_top, hook_on_a_layer, hook_on_the_first_token, other_forward]
)
def test_a_model_that_is_changed_afterwards_is_asked_as_it_is(
    change: Any, model: Any, make_lm: Make
) -> None:
    lm = make_lm(model)
    before = scores(lm)
    torch.manual_seed(5)
    change(model)
    after = scores(lm)
    expected = []
    for context, continuation in PAIRS:
        given, wanted = lm.tok_encode(context), lm.tok_encode(continuation)
        logits = lm._model_call(torch.tensor([given + wanted]))[0, len(given) - 1 : -1]
        found = torch.log_softmax(logits, -1)[torch.arange(len(wanted)), wanted]
        expected.append(float(found.sum()))
    assert after == pytest.approx(expected, abs=1e-3)
    assert after != pytest.approx(before, abs=0.05)


def test_a_way_of_generating_of_ones_own_is_used(model: Any, make_lm: Make) -> None:
    lm, called = make_lm(model), []
    own = model.generate

    def generate(*args: Any, **kwargs: Any) -> Any:
        called.append(1)
        return own(*args, **kwargs)

    model.generate = generate
    lm.generate_until([ask("generate_until", "Tom has", {"max_gen_toks": 3})])
    assert called


def test_a_model_under_training_is_asked_without_dropout_and_goes_on(
    model: Any, make_lm: Make
) -> None:
    for layer in model.model.layers:
        layer.mlp.register_forward_hook(
            lambda module, args, out: torch.nn.functional.dropout(out, 0.5, module.training)
        )
    lm = make_lm(model)
    expected = scores(lm)
    model.train()
    model.model.norm.eval()
    assert scores(lm) == pytest.approx(expected, abs=1e-4)
    assert model.training
    assert model.model.layers[0].mlp.training
    assert not model.model.norm.training


def test_what_a_model_gives_can_be_worked_on(model: Any, make_lm: Make) -> None:
    lm = make_lm(model)
    logits = lm._model_call(torch.tensor([[1, 2, 3]]))
    logits[..., 0] = -1e4
    weight = torch.nn.Parameter(torch.ones(()))
    (logits * weight).sum().backward()
    written = lm._model_generate(torch.tensor([[1, 2, 3]]), 5, [])
    written[:, 0] = 1


def test_threads_evaluate_side_by_side(model: Any, llama: Any, make_lm: Make) -> None:
    new_head(model)
    lms = [make_lm(llama), make_lm(model), make_lm(llama)]
    asked = [ask("generate_until", text, {"max_gen_toks": 8}) for text in ("Tom", "A river")]
    expected = [(scores(lm), lm.generate_until(asked)) for lm in lms]
    found: dict[int, list[Any]] = {n: [] for n in range(3)}

    def work(number: int) -> None:
        for _ in range(6):
            found[number].append((scores(lms[number]), lms[number].generate_until(asked)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [expected[n]] * 6 for n in range(3)}


def test_nothing_asked_is_nothing_answered(make_lm: Make) -> None:
    lm = make_lm()
    assert lm.loglikelihood([]) == lm.loglikelihood_rolling([]) == lm.generate_until([]) == []


def test_counts_begin_anew_with_every_evaluation(
    make_lm: Make, colours: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    lm = make_lm(max_length=6)
    told = []
    for _ in range(3):
        results: Any = lm_eval.simple_evaluate(
            lm, tasks=["colours"], task_manager=TaskManager(include_path=colours.path)
        )
        told.append((results["truncated_requests"], results["usage"]))
    assert told[0][0]["colours"] > 0
    assert told[1:] == told[:1] * 2
    count = told[0][0]["colours"]
    assert caplog.text.count(f"colours: {count} requests are longer") == 3


def test_answers_drawn_outside_a_run_vary_as_torch_has_it(llama: Any, tokenizer: Any) -> None:
    lm = HFLM(pretrained=llama, tokenizer=tokenizer)
    drawn = {"max_gen_toks": 8, "do_sample": True, "temperature": 1.5}

    def answers(seed: int) -> list[str]:
        torch.manual_seed(seed)
        return [lm.generate_until([ask("generate_until", "Tom", drawn)])[0] for _ in range(3)]

    assert len(set(answers(1))) == 3
    assert answers(1) == answers(1)
    assert answers(1) != answers(2)


def test_a_class_that_is_made_otherwise(llama: Any, tokenizer: Any, make_lm: Make) -> None:
    class Own(HFLM):
        def __init__(self, model: Any) -> None:
            TemplateLM.__init__(self)
            self._model, self.tokenizer, self._config = model, tokenizer, model.config
            self._device = torch.device("cpu")
            self.backend = "causal"

    lm = Own(llama)
    assert scores(lm) == pytest.approx(scores(make_lm()), abs=1e-4)
    asked = [ask("generate_until", "Tom", {"max_gen_toks": 8})]
    assert lm.generate_until(asked) == make_lm().generate_until(asked)


def test_published_arguments_may_be_handed_on() -> None:
    class Own(HFLM):
        def _create_model(self, pretrained: str, **kwargs: Any) -> None:
            more = {"gpus": 0, "autogptq": False, "gptqmodel": False, "quantization_config": None}
            super()._create_model(
                pretrained, **{**kwargs, **more, "subfolder": "", "tp_plan": None}
            )

    assert scores(Own(pretrained=Path(WEIGHTS), device="cpu"))


def test_arguments_that_come_too_late_are_told(
    make_lm: Make, caplog: pytest.LogCaptureFixture
) -> None:
    make_lm(dtype="bfloat16", peft="an/adapter")
    assert "is loaded already. These arguments have no effect: dtype, peft." in caplog.text
