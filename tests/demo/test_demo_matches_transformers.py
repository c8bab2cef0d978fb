"""Tests that the numpy model gives the same scores and greedy text as transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lm_eval.api.instance import Instance
from lm_eval.models.conventions import (
    cut_at_stop,
    fit_window,
    move_spaces,
    rolling_windows,
    split_pair,
)
from lm_eval.models.demo import DemoLM
from lm_eval.models.demo.model import WEIGHTS
from lm_eval.tasks import TaskManager
from tests.demo.conftest import instance

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(WEIGHTS)


@pytest.fixture(scope="module")
def reference() -> Any:
    model = transformers.AutoModelForCausalLM.from_pretrained(WEIGHTS, dtype=torch.float32)
    return model.eval()


def score(model: Any, windows: list[tuple[list[int], list[int]]]) -> list[tuple[float, bool]]:
    """Returns the scores of windows, computed by transformers in padded batches."""
    fitted = [fit_window(*window, 1024) for window in windows]
    order = sorted(range(len(fitted)), key=lambda i: len(fitted[i][0]))
    scores: list[tuple[float, bool]] = [(0.0, True)] * len(fitted)
    for start in range(0, len(order), 32):
        batch = order[start : start + 32]
        width = len(fitted[batch[-1]][0])
        ids = torch.tensor([fitted[i][0] + [0] * (width - len(fitted[i][0])) for i in batch])
        with torch.no_grad():
            logs = torch.log_softmax(model(input_ids=ids).logits, dim=-1)
        for row, i in enumerate(batch):
            read, wanted = fitted[i]
            own = logs[row, len(read) - len(wanted) : len(read)]
            target = torch.tensor(wanted)
            found = own[torch.arange(len(wanted)), target].double().sum().item()
            scores[i] = found, bool((own.argmax(dim=-1) == target).all())
    return scores


def requests_of(name: str) -> list[Instance]:
    """Returns the requests that an evaluation of a demo task sends to the model."""
    task = TaskManager().load(name)["tasks"][name]
    task.set_fewshot_seed(1234)
    task.build_all_requests()
    return task.instances


@pytest.mark.parametrize("name", ["demo_choice", "demo_pairs", "demo_lastword"])
def test_log_likelihoods_of_every_request_agree(
    name: str, demo: DemoLM, reference: Any, tokenizer: Any
) -> None:
    requests = requests_of(name)
    windows = []
    for request in requests:
        context, rest = move_spaces(*request.args)
        whole = tokenizer(context + rest)["input_ids"]
        windows.append(split_pair(whole, tokenizer(context)["input_ids"] if context else [], 0))
    expected = score(reference, windows)
    found = demo.loglikelihood(requests)
    np.testing.assert_allclose(
        [one for one, _ in found], [one for one, _ in expected], atol=1e-4, rtol=1e-6
    )
    assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]


def test_rolling_log_likelihoods_agree(demo: DemoLM, reference: Any, tokenizer: Any) -> None:
    requests = requests_of("demo_stories")
    expected = []
    for request in requests:
        windows = rolling_windows(tokenizer(request.args[0])["input_ids"], 0, 1024)
        expected.append(sum(one for one, _ in score(reference, windows)))
    found = demo.loglikelihood_rolling(requests)
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-6)


def test_greedy_answers_to_every_request_agree(
    demo: DemoLM, reference: Any, tokenizer: Any
) -> None:
    greedy = {"until": ["\n"], "max_gen_toks": 40, "do_sample": False}
    requests = [
        instance("generate_until", request.args[0], greedy) for request in requests_of("demo_sums")
    ]
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.eos_token
    expected: list[str] = []
    for start in range(0, len(requests), 50):
        batch = [request.args[0] for request in requests[start : start + 50]]
        ids = tokenizer(batch, return_tensors="pt", padding=True)
        out = reference.generate(
            input_ids=ids["input_ids"],
            attention_mask=ids["attention_mask"],
            max_new_tokens=40,
            do_sample=False,
            pad_token_id=0,
        )
        answers = out[:, ids["input_ids"].shape[1] :]
        expected += tokenizer.batch_decode(answers, skip_special_tokens=True)
    found = demo.generate_until(requests)
    assert found == [cut_at_stop(text, ["\n"]) for text in expected]
