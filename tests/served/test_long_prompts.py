"""Tests prompts that are longer than the context of a server which accepts only text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lm_eval.api.instance import Failure, Instance
from lm_eval.models.demo.model import END_OF_TEXT, WEIGHTS
from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI
from lm_eval.models.planned.tokenizers import PlainTokenizer
from lm_eval.models.served.text_prompts import end_of_text, says_too_long
from tests.served.fake_dialects import (
    CONTEXT,
    TGI,
    VLLM,
    Chat,
    LlamaCppPython,
    Together,
    openai_error,
)
from tests.served.fake_server import FakeServer, fake_model, serving

Log = pytest.LogCaptureFixture

LONG = "Ann has a red ball. Tom has a big dog. " * 40 + "The end."
"""A text of more than `CONTEXT` tokens."""
ANSWER = 12
"""The maximum length of the answers."""


def model_of(server: FakeServer, **arguments: Any) -> LocalCompletionsAPI:
    given = {"base_url": server.url, "model": server.name, **arguments}
    return LocalCompletionsAPI(**given)


def generate(lm: LocalCompletionsAPI, text: str) -> Any:
    settings = {"until": [], "max_gen_toks": ANSWER}
    return lm.generate_until([Instance("generate_until", {}, (text, settings), 0, ("t", 0, 1))])[0]


def score(lm: LocalCompletionsAPI, context: str, continuation: str) -> Any:
    pair = (context, continuation)
    return lm.loglikelihood([Instance("loglikelihood", {}, pair, 0, ("t", 0, 1))])[0]


@pytest.mark.parametrize(
    ("make", "arguments", "prefix"),
    [
        (LlamaCppPython, {"max_length": CONTEXT}, END_OF_TEXT),  # it does not report its length
        (TGI, {"tokenizer": str(WEIGHTS)}, ""),
        (VLLM, {"tokenized_requests": False}, ""),
    ],
)
def test_a_long_prompt_is_cut_to_the_context_and_counted(
    make: Any, arguments: Any, prefix: str, caplog: Log
) -> None:
    model = fake_model()
    with serving(make()) as server:
        lm = model_of(server, **arguments)
        answer = generate(lm, LONG)
        sent = server.bodies[-1]["prompt"]
        assert generate(lm, "Ann has")
        assert server.bodies[-1]["prompt"] == "Ann has"  # a short one is sent as it is
    assert LONG.endswith(sent)
    room = CONTEXT - 1 - ANSWER
    read = model.encode(prefix + sent)
    assert room - 4 <= len(read) <= room
    assert str(answer) == model.generate(read, ANSWER, stops=[END_OF_TEXT]).text
    assert lm.run_context.usage.truncated == {"t": 1}
    assert "Task t: 1 requests are longer than max_length" in caplog.text


@pytest.mark.parametrize(
    ("make", "arguments", "prefix"),
    [(LlamaCppPython, {}, END_OF_TEXT), (Together, {"tokenizer": str(WEIGHTS)}, "")],
)
def test_the_score_of_a_long_text_is_that_of_its_end(
    make: Any, arguments: Any, prefix: str
) -> None:
    model = fake_model()
    with serving(make()) as server:
        lm = model_of(server, max_length=CONTEXT, **arguments)
        found = score(lm, LONG, " Tom has a ball.")
        sent = server.bodies[-1]["prompt"]
    assert (LONG + " Tom has a ball.").endswith(sent)
    tokens = model.encode(prefix + sent)
    assert CONTEXT - 6 <= len(tokens) <= CONTEXT - 1
    start = len(model.encode(prefix + sent.removesuffix(" Tom has a ball.")))
    rows = model.after(tokens)
    expected = sum(float(rows[n - 1][tokens[n]]) for n in range(start, len(tokens)))
    assert found[0] == pytest.approx(expected, abs=1e-3)
    assert lm.run_context.usage.truncated == {"t": 1}


def test_a_continuation_that_is_too_long_for_a_server_of_texts_fails() -> None:
    with serving(LlamaCppPython()) as server:
        found = score(model_of(server, max_length=CONTEXT), "Ann", LONG)
    assert isinstance(found, Failure)
    assert "longer than its context" in found.reason


def test_prompts_are_not_cut_to_a_length_that_is_only_assumed() -> None:
    longer = LONG * 10  # than the assumed length, too
    with serving(LlamaCppPython()) as server:
        lm = model_of(server)
        for found in (generate(lm, longer), score(lm, longer, " a")):
            assert isinstance(found, Failure)
            assert "maximum context length" in found.reason
            assert "pass max_length=N, the context length of the server" in found.reason
        assert server.bodies[-1]["prompt"] == longer + " a"
    assert not lm.run_context.usage.truncated


def test_a_refused_prompt_names_the_tokenizer_if_there_is_none() -> None:
    with serving(VLLM()) as server:
        found = generate(model_of(server, tokenizer_backend="none"), LONG)
    assert isinstance(found, Failure)
    assert "maximum context length" in found.reason
    assert "tokenizer=NAME" in found.reason
    assert "max_length=N" in found.reason


class ShortChat(Chat):
    """A chat API that refuses long messages."""

    def check_chat(self, body: Any) -> None:
        super().check_chat(body)
        if len(str(body["messages"])) > 1000:
            raise openai_error(400, "prompt is too long: 3000 tokens > 256 maximum")


def test_a_refused_chat_names_shorter_prompts() -> None:
    with serving(ShortChat()) as server:
        lm = LocalChatCompletion(base_url=server.url, model=server.name)
        chat = json.dumps([{"role": "user", "content": LONG}])
        found = generate(lm, chat)
    assert isinstance(found, Failure)
    assert "--num_fewshot" in found.reason
    assert "tokenizer=" not in found.reason


@pytest.mark.parametrize("text", [LONG, "Zürich 東京 🙂 " * 30, END_OF_TEXT * 80, "a" * 400])
@pytest.mark.parametrize("room", [1, 2, 17, 60])
def test_the_end_of_a_text_is_part_of_it_and_fits(text: str, room: int) -> None:
    coder = PlainTokenizer(str(WEIGHTS))

    def encode(texts: Any) -> list[list[int]]:
        return [[0, *ids] for ids in coder.encode(texts)]  # with a beginning-of-text token

    found = end_of_text(text, encode([text])[0], room, coder, encode)
    assert text.endswith(found)
    used = len(encode([found])[0])
    assert used <= room or found == ""
    assert used >= room - 8  # no more is lost than a few tokens


@pytest.mark.parametrize(
    "reason",
    [
        "status 400: This model's maximum context length is 256 tokens. However, your prompt …",
        "status 400: the request exceeds the available context size, try increasing it",
        "status 422: Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. "
        "Given: 5000 `inputs` tokens: too many tokens",
        "status 400: The input (300 tokens) is longer than the model's context length (256 tokens)",
        "status 400: prompt is too long: 210000 tokens > 200000 maximum",
        "status 500: Requested tokens (300) exceed context window of 256 (6 attempts)",
        "status 413: Request too long",
    ],
)
def test_refusals_of_long_prompts_are_recognized(reason: str) -> None:
    assert says_too_long(reason)


@pytest.mark.parametrize(
    "reason",
    [
        "status 504: the upstream server took too long",
        "status 400: temperature must be at most 2",
        "no reply within 300 s",
        "status 400: the content was filtered",
    ],
)
def test_other_refusals_are_not(reason: str) -> None:
    assert not says_too_long(reason)
