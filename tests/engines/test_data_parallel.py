"""Tests several engines that share the work of a run, in processes of their own.

The processes are real; the engines in them are fake (fake_copies.py).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import lm_eval
from lm_eval.engine.workers.devices import device_subsets
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.demo.model import WEIGHTS
from lm_eval.models.engines.base import OnlyEngine
from lm_eval.models.engines.dealing import Dealer, cut, score_units
from lm_eval.models.planned.jobs import Window
from lm_eval.models.vllm_causallms import VLLM
from tests.engines import conftest, fake_copies, fake_vllm
from tests.engines.conftest import install
from tests.engines.fake_copies import CopiedVLLM
from tests.engines.test_answers import (
    PAIRS,
    PROMPTS,
    QUESTIONS,
    SAMPLED,
    STORIES,
    like,
    requests,
)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, fresh_process: OnlyEngine) -> Iterator[Any]:
    """Returns a function that starts two engines; they are ended after the test."""
    install(monkeypatch, "vllm")
    monkeypatch.setattr(fake_vllm.Platform, "on_cpu", False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    started: list[VLLM] = []

    def create(**arguments: Any) -> VLLM:
        given = {"pretrained": str(WEIGHTS), "max_model_len": conftest.CONTEXT, **arguments}
        given["long_prefill_token_threshold"] = 64  # nobody needs transformers to find one
        started.append(CopiedVLLM(data_parallel_size=2, **given))
        return started[-1]

    yield create
    for lm in started:
        assert lm.copies is not None
        lm.copies.close()


def running(lm: Any) -> list[bool]:
    """Returns for each engine whether its process runs."""
    return [one.process.poll() is None for one in lm.copies._processes]


def test_answers_are_those_of_the_model(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lm_eval.models.engines.dealing, "MIN_TOKENS", 64)
    lm = start(max_batch_size=4)
    model = like(lm)
    pairs = [*PAIRS, *((story, f" {word}") for story in STORIES for word in ("cat", "dog sat"))]
    asked = requests("loglikelihood", pairs)
    found, expected = lm.loglikelihood(asked), model.loglikelihood(asked)
    assert [one for one, _ in found] == pytest.approx([one for one, _ in expected], abs=1e-3)
    assert [one for _, one in found] == [one for _, one in expected]

    texts = requests("loglikelihood_rolling", [(text,) for text in (*STORIES, "Hi", "")])
    expected_texts = model.loglikelihood_rolling(texts)
    assert lm.loglikelihood_rolling(texts) == pytest.approx(expected_texts, abs=1e-2)

    prompts = requests("generate_until", PROMPTS)
    assert lm.generate_until(prompts) == model.generate_until(prompts)
    sampled = requests("generate_until", [(q, SAMPLED) for q in QUESTIONS], repeats=3)
    assert lm.generate_until(sampled) == lm.generate_until(sampled)

    counters = lm.counters()
    assert min(counters["device 0"], counters["device 1"]) >= 5
    assert lm.usage()["tokens_shared"] == counters["vllm:prefix_cache_hits"] > 0
    assert lm.usage()["tokens_in"] > 0
    assert lm.identity()["vllm"] == fake_vllm.INTERFACES["vllm"]["version"]

    processes = [one.process for one in lm.copies._processes]
    lm.copies.close()
    assert [process.poll() is not None for process in processes] == [True, True]
    with pytest.raises(ModelError, match="the engines have ended"):
        lm.generate_until(prompts)


def test_an_engine_that_dies_is_reported_with_its_own_error_and_the_others_are_ended(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(fake_copies.DIES, "1")
    lm = start(max_batch_size=2)
    reported: list[Any] = []
    lm.set_cache_hook(
        lm_eval.api.model.CacheHook(on_batch=lambda kind, asked, answers: reported.extend(asked))
    )
    prompts = requests(
        "generate_until", [(f"{n} {QUESTIONS[0]}", {"max_gen_toks": 4}) for n in range(24)]
    )
    processes = [one.process for one in lm.copies._processes]
    pattern = r"^vLLM, engine 2 of 2: vLLM failed: EngineDeadError: EngineCore encountered"
    with pytest.raises(ModelError, match=pattern):
        lm.generate_until(prompts)
    assert reported
    assert [process.poll() is not None for process in processes] == [True, True]


def test_a_process_that_is_killed_is_reported_with_the_signal(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(fake_copies.KILLED, "0")
    lm = start(max_batch_size=1)
    pattern = r"^vLLM, engine 1 of 2 was killed by SIGKILL; .* Run the same command again"
    with pytest.raises(ModelError, match=pattern):
        lm.loglikelihood(requests("loglikelihood", [(q, f" {w}") for q in QUESTIONS for w in "AB"]))


def test_an_argument_that_an_engine_refuses_is_reported_as_without_copies(start: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"^model_args: vLLM has no argument 'enforce_eagr'\. Did"
    ):
        start(enforce_eagr=True)


def test_results_of_a_run_that_was_given_up_are_ignored(start: Any) -> None:
    lm = start(max_batch_size=1)

    def interrupt(*_: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    lm.set_cache_hook(lm_eval.api.model.CacheHook(on_batch=interrupt))
    with pytest.raises(KeyboardInterrupt):
        lm.generate_until(requests("generate_until", PROMPTS))
    assert running(lm) == [True, True]
    lm.set_cache_hook(lm_eval.api.model.CacheHook())
    assert lm.counters()
    asked = requests("generate_until", PROMPTS[::-1])
    assert lm.generate_until(asked) == like(lm).generate_until(asked)


# Dealing


def test_each_receiver_has_a_stretch_of_its_own_and_takes_from_the_longest_one_at_the_end() -> None:
    dealer = Dealer(range(8), 2)
    assert [dealer.take(0), dealer.take(1), dealer.take(0)] == [0, 4, 1]
    assert [dealer.take(1), dealer.take(1), dealer.take(1)] == [5, 6, 7]
    assert [dealer.take(1), dealer.take(0), dealer.take(0)] == [3, 2, None]


def test_items_of_a_group_stay_together() -> None:
    items = ["a1", "a2", "a3", "b1", "c1", "c2", "d1"]
    units = cut(items, [1] * 7, 2, lambda item: item[0])
    assert units == [["a1", "a2", "a3"], ["b1", "c1", "c2"], ["d1"]]


def test_windows_with_the_same_context_are_dealt_out_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lm_eval.models.engines.dealing, "MIN_TOKENS", 4)
    windows = [Window([n, 1, letter], 2) for letter in range(4) for n in range(6)]
    units = score_units(windows, 2)
    assert sorted(number for unit in units for number in unit) == list(range(24))
    contexts = [{tuple(windows[number].tokens[:2]) for number in unit} for unit in units]
    assert len(units) == 6
    assert [len(some) for some in contexts] == [1] * 6


def test_devices_are_divided_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    variable = "CUDA_VISIBLE_DEVICES"
    monkeypatch.delenv(variable, raising=False)
    assert device_subsets(2, 2, variable) == [{variable: "0,1"}, {variable: "2,3"}]
    monkeypatch.setenv(variable, "4,GPU-5,6")
    assert device_subsets(3, 1, variable) == [{variable: name} for name in ("4", "GPU-5", "6")]
    assert os.environ[variable] == "4,GPU-5,6"
