"""Tests `thinking_budget` with real servers and engines, and a model that thinks for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI
from tests.servers import start
from tests.servers.process import Server
from tests.servers.test_engines import ONE_PROCESS, answers, of_llama_cpp, of_vllm
from tests.thinker import ANSWER, MARK, write_thinker

BUDGET = 7
SETTINGS = {"until": ["\n"], "max_gen_toks": 40}
PROMPTS = ["1 + 1 =", "Where is Ann?", "2 + 2 is"]
CUT = {
    "reasoning": "m" * BUDGET,
    "finish_reason": "stop",
    "tokens": BUDGET + len(ANSWER) + 1,  # engines count the end of the text
    "reasoning_tokens": BUDGET,
}


@pytest.fixture(scope="session")
def thinking_demo(demo_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the model with the tokenizer of the embedded model."""
    return write_thinker(tmp_path_factory.mktemp("thinker") / "demo", demo_folder)


@pytest.fixture(scope="session")
def thinking_bos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the model with a BOS, also as `model.gguf`."""
    return start.write_thinking_bos(tmp_path_factory.mktemp("thinker") / "bos")


@pytest.fixture(scope="session")
def vllm_thinker(
    thinking_demo: Path, offline: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Runs vLLM, which takes a colon for the beginning of a thought: `assistant: mmm`."""
    config = f'{{"reasoning_start_str": ":", "reasoning_end_str": "{MARK}"}}'
    work, options = tmp_path_factory.mktemp("vllm"), ("--reasoning-config", config)
    with start.vllm(thinking_demo, offline, work, options=options) as server:
        yield server


@pytest.fixture(scope="session")
def llama_cpp_thinker(
    thinking_bos: Path, offline: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Runs llama-cpp-python's server."""
    work = tmp_path_factory.mktemp("llama-cpp")
    with start.llama_cpp(thinking_bos, offline, work) as server:
        yield server


def ask(lm: Any, prompts: list[str], repeats: int = 1, **settings: Any) -> list[Any]:
    requests = [
        Instance("generate_until", {}, (prompt, {**SETTINGS, **settings}), 0, ("sums", n, repeats))
        for n, prompt in enumerate(prompts)
    ]
    return list(lm.generate_until([one for one in requests for _ in range(repeats)]))


def served(server: Server, **arguments: Any) -> LocalCompletionsAPI:
    return LocalCompletionsAPI(
        base_url=server.url,
        model=server.model,
        tokenizer=str(server.folder),
        think_end_token=MARK,
        **arguments,
    )


@pytest.mark.parametrize("fixture", ["vllm_thinker", "llama_cpp_thinker"])
@pytest.mark.parametrize("tokens", [True, False])
def test_a_served_model_that_thinks_for_ever_answers(
    fixture: str, tokens: bool, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(fixture)
    endless = ask(served(server, tokenized_requests=tokens), PROMPTS)
    assert [str(one) for one in endless] == ["m" * 40] * 3
    assert {one.finish_reason for one in endless} == {"length"}
    lm = served(server, thinking_budget=BUDGET, tokenized_requests=tokens)
    assert lm.cannot_measure("generate_until") is None
    for found in (ask(lm, PROMPTS), ask(lm, PROMPTS[:1], repeats=3, temperature=0.01)):
        assert len(found) == 3
        for one in found:
            assert str(one) == ANSWER
            assert (one.reasoning, one.reasoning_tokens) == ("m" * BUDGET, BUDGET)
            assert one.finish_reason == "stop"
            assert one.tokens in (BUDGET + 2, BUDGET + 3)  # some count the end of the text


def test_vllm_cuts_the_thoughts_of_chats(vllm_thinker: Server) -> None:
    lm = LocalChatCompletion(
        base_url=vllm_thinker.url,
        model=vllm_thinker.model,
        think_end_token=MARK,
        thinking_budget=BUDGET,
    )
    assert lm.cannot_measure("generate_until") is None
    (found,) = ask(lm, [lm.apply_chat_template([{"role": "user", "content": "1 + 1 ="}])])
    assert str(found) == ANSWER
    # vLLM counts the tokens since the beginning of the thought, which is in the prompt.
    assert 1 <= len(found.reasoning) <= BUDGET
    assert set(found.reasoning) == {"m"}


def test_a_chat_api_that_cannot_cut_thoughts_is_refused(llama_cpp_thinker: Server) -> None:
    lm = LocalChatCompletion(
        base_url=llama_cpp_thinker.url, model=llama_cpp_thinker.model, thinking_budget=BUDGET
    )
    assert "needs a chat API that can cut thoughts" in str(lm.cannot_measure("generate_until"))


def test_a_budget_larger_than_the_context_of_the_server_is_refused(vllm_thinker: Server) -> None:
    lm = served(vllm_thinker, thinking_budget=10_000)
    reason = str(lm.cannot_measure("generate_until"))
    assert "leaves no room for a prompt and an answer in the context of 256 tokens" in reason


@pytest.mark.parametrize("engine", ["vllm", "llama-cpp"])
def test_an_engine_cuts_thoughts(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if engine == "vllm":
        model, module = request.getfixturevalue("thinking_demo"), "vllm_causallms:VLLM"
        arguments = of_vllm(model)
    else:
        model, module = request.getfixturevalue("thinking_bos"), "llama_cpp_engine:LlamaCpp"
        arguments = of_llama_cpp(model)
    prompts = [(prompt, SETTINGS) for prompt in PROMPTS]
    sampled = [(PROMPTS[0], {**SETTINGS, "do_sample": True, "temperature": 0.01})]
    job = {
        "model": f"lm_eval.models.{module}",
        "arguments": {**arguments, "think_end_token": MARK, "thinking_budget": BUDGET},
        "steps": [
            {"name": "greedy", "method": "generate_until", "requests": prompts},
            {"name": "sampled", "method": "generate_until", "requests": sampled, "repeats": 3},
        ],
    }
    done = answers(engine, job, tmp_path, ONE_PROCESS)
    for name in ("greedy", "sampled"):
        assert done[name]["answers"] == [ANSWER] * 3
        for details in done[name]["details"]:
            assert details["tokens"] in (CUT["tokens"], CUT["tokens"] - 1)
            assert {**details, "tokens": CUT["tokens"]} == CUT
