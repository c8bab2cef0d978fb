"""Tests `lm-eval doctor`, and that a run refuses what a server cannot measure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lm_eval.cli import main
from lm_eval.models.demo.model import WEIGHTS
from tests.served.fake_dialects import (
    TGI,
    VLLM,
    Chat,
    Completions,
    Drifting,
    LlamaCppPython,
    LlamaServer,
    Ollama,
    OpenAILegacy,
    SGLang,
    Together,
    TransformersServe,
    liar,
)
from tests.served.fake_server import FakeServer, serving

Captured = pytest.CaptureFixture[str]

GENERATED, CHOICES, PERPLEXITY = "generated answers", "multiple choice and targets", "perplexity"
FOLDER = f"tokenizer={WEIGHTS}"


def arguments(server: FakeServer, *more: str) -> str:
    return ",".join([f"base_url={server.url}", f"model={server.name}", *more])


def rows_of(text: str) -> dict[str, list[str]]:
    """Returns the rows of all tables in a text: the first cell, and the others."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}


def measurable(rows: dict[str, list[str]]) -> dict[str, tuple[bool, str]]:
    """Returns for each family of tasks whether it can be measured, and why not."""
    families = (GENERATED, CHOICES, PERPLEXITY)
    found = {f: cells for f in families for name, cells in rows.items() if name.startswith(f)}
    return {family: (cells[0] == "yes", cells[1]) for family, cells in found.items()}


YES = {GENERATED: "", CHOICES: "", PERPLEXITY: ""}
NO_ECHO = "returns no log-probabilities of a prompt"
NO_CHAT = "chat APIs return no log-probabilities"
NO_FIRST = "no log-probability of the first token"
SHIFTED = "shifted by one token"
CASES: dict[str, tuple[Callable[[], FakeServer], str, dict[str, str], dict[str, str]]] = {
    "vllm": (
        VLLM,
        "",
        {
            "server": "vLLM 0.32.0",
            "context length": "256",
            "temperature": "has an effect",
            "log-probabilities of a prompt": "aligned",
            "log-probabilities of chosen next tokens": "yes",
        },
        YES,
    ),
    "sglang": (SGLang, "", {"server": "SGLang", "token ids as prompts": "yes"}, YES),
    "llama-server": (
        LlamaServer,
        "",
        {
            "log-probabilities of a prompt": "none",
            "log-probabilities of chosen next tokens": "yes",
        },
        YES,
    ),
    "llama-cpp-python": (
        LlamaCppPython,
        "",
        {"token ids as prompts": "no", "log-probabilities of a prompt": "aligned"},
        {**YES, PERPLEXITY: NO_FIRST},
    ),
    "llama-cpp-python without BOS": (
        lambda: LlamaCppPython(bos=False),
        "",
        {"log-probabilities of a prompt": "shifted by one"},
        {GENERATED: "", CHOICES: SHIFTED, PERPLEXITY: SHIFTED},
    ),
    "transformers serve": (
        TransformersServe,
        "",
        {
            "stop strings": "ignored; answers are cut by lm_eval",
            "temperature": "ignored; sampled answers are greedy",
            "tokenizer": "agrees",
        },
        {GENERATED: "", CHOICES: NO_ECHO, PERPLEXITY: NO_ECHO},
    ),
    "tgi": (
        TGI,
        FOLDER,
        {"server": "TGI 3.3.7", "several prompts per request": "yes"},
        {GENERATED: "", CHOICES: NO_ECHO, PERPLEXITY: NO_ECHO},
    ),
    "ollama": (
        Ollama,
        "",
        {"server": "Ollama"},
        {GENERATED: "", CHOICES: NO_ECHO, PERPLEXITY: NO_ECHO},
    ),
    "openai legacy": (OpenAILegacy, FOLDER, {"dialect": "echo"}, YES),
    "together": (Together, FOLDER, {"dialect": "echo-text"}, {**YES, PERPLEXITY: NO_FIRST}),
    "chat": (
        lambda: Chat(reasoning="reasoning_content"),
        "",
        {"dialect": "chat", "reasoning": "reasoning_content"},
        {GENERATED: "", CHOICES: NO_CHAT, PERPLEXITY: NO_CHAT},
    ),
    "liar": (
        liar(Drifting, Completions),
        FOLDER,
        {"log-probabilities of a prompt": "displaced"},
        {GENERATED: "", CHOICES: "change when text follows", PERPLEXITY: "change when text"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_doctor_prints_what_a_server_does_and_what_can_be_measured(
    name: str, capsys: Captured
) -> None:
    make, more, properties, families = CASES[name]
    with serving(make()) as server:
        backend = "local-chat-completions" if name == "chat" else "local-completions"
        given = arguments(server, *filter(None, [more]))
        assert main(["doctor", "--model", backend, "--model_args", given]) == 0
        output = capsys.readouterr().out
    rows = rows_of(output)
    assert rows["address"] == [server.url]
    assert {name: rows[name] for name in properties} == {n: [v] for n, v in properties.items()}
    for family, (can, reason) in measurable(rows).items():
        assert can is not bool(families[family]), (family, reason)
        assert families[family] in reason
    assert ("arc_easy@generate" in output) is bool(families[CHOICES])
    assert ("--apply_chat_template" in output) is (name == "chat")


def test_doctor_prints_the_certificate_as_json(capsys: Captured) -> None:
    with serving(VLLM()) as server:
        assert main(["doctor", "--model_args", arguments(server), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["dialect"], found["alignment"]) == ("vllm", "aligned")
    assert found["requests"] == server.total


def test_doctor_says_that_no_server_answers(capsys: Captured) -> None:
    with serving(VLLM()) as server:
        given = arguments(server)
    assert main(["doctor", "--model_args", given]) == 2
    assert f"no server answers at {server.url}" in capsys.readouterr().err


def test_doctor_is_for_served_models(capsys: Captured) -> None:
    assert main(["doctor", "--model", "demo"]) == 2
    assert "does not run on a server" in capsys.readouterr().err


# Runs


def run(server: FakeServer, tasks: str, backend: str, *options: str) -> int:
    words = ["run", "--model", backend, "--model_args", arguments(server), "--tasks", tasks]
    return main([*words, "--limit", "2", *options])


CHAT = ("local-chat-completions", "--apply_chat_template")


def test_multiple_choice_on_a_chat_api_is_refused_before_any_request(capsys: Captured) -> None:
    """The dataset of hellaswag is not on this machine, and is not asked for either."""
    with serving(Chat()) as server:
        assert run(server, "hellaswag,demo_sums,demo_choice", *CHAT) == 2
        assert server.total == 0
    error = capsys.readouterr().err
    assert "hellaswag, demo_choice: the model cannot answer loglikelihood requests" in error
    assert "--tasks hellaswag@generate (or hellaswag@cot)" in error


def test_perplexities_on_a_chat_api_are_refused_before_any_request(capsys: Captured) -> None:
    with serving(Chat()) as server:
        assert run(server, "demo_stories", *CHAT) == 2
        assert server.total == 0
    error = capsys.readouterr().err
    assert "demo_stories: the model cannot answer loglikelihood_rolling requests" in error
    assert "@generate" not in error


def test_the_form_that_the_refusal_names_can_be_measured(capsys: Captured) -> None:
    with serving(Chat()) as server:
        assert run(server, "demo_choice@generate", *CHAT, "--gen_kwargs", "max_gen_toks=8") == 0
        assert [body for body in server.bodies if "Question" in str(body)]
    assert "|choice|" in capsys.readouterr().out


@pytest.mark.parametrize("make", [TransformersServe, Ollama])
def test_a_server_that_ignores_echo_is_refused_before_the_first_request_of_a_task(
    make: type[FakeServer], capsys: Captured
) -> None:
    with serving(make()) as server:
        assert run(server, "demo_choice,demo_lastword,demo_sums", "local-completions") == 2
        bodies: list[Any] = server.bodies
        assert server.total < 20
    assert not [body for body in bodies if "Question" in str(body)]
    error = capsys.readouterr().err
    assert "demo_choice, demo_lastword: the model cannot answer loglikelihood requests" in error
    assert NO_ECHO in error
    assert "--tasks demo_choice@generate" in error


def test_shifted_log_probabilities_are_refused_before_a_run(capsys: Captured) -> None:
    with serving(LlamaCppPython(bos=False)) as server:
        assert run(server, "demo_choice", "local-completions") == 2
    assert SHIFTED in capsys.readouterr().err


def test_perplexities_are_refused_where_the_first_token_has_no_value(capsys: Captured) -> None:
    with serving(LlamaCppPython()) as server:
        assert run(server, "demo_choice,demo_stories", "local-completions") == 2
    error = capsys.readouterr().err
    assert "demo_stories: the model cannot answer loglikelihood_rolling requests" in error
    assert NO_FIRST in error
