"""Tests of the public classes for served models: published payloads, and third-party subclasses.

The subclasses stand for classes that are found in public repositories. Each overrides what such a
class overrides, in the form that it does.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import json
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from aiohttp import web

import lm_eval
from lm_eval.api.instance import Completion, Failure, Instance
from lm_eval.api.model import CacheHook
from lm_eval.api.registry import get_model
from lm_eval.config.run import RunConfig
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models import MODEL_MAPPING, NOT_YET, api_models
from lm_eval.models.anthropic_llms import AnthropicChat, AnthropicLM
from lm_eval.models.api_models import JsonChatStr, TemplateAPI, create_image_prompt
from lm_eval.models.create import check_before_loading
from lm_eval.models.gguf import GGUFLM
from lm_eval.models.litellm_llms import LiteLLMChatCompletion
from lm_eval.models.openai_completions import (
    AzureOpenaiChatCompletionsLM,
    LocalChatCompletion,
    LocalCompletionsAPI,
    OpenAIChatCompletion,
    OpenAICompletionsAPI,
)
from lm_eval.models.planned.repeats import seed_of_prompt
from lm_eval.models.served import published
from lm_eval.models.served.dialects.chat import Chat
from lm_eval.models.served.hook_calls import HookDialect
from lm_eval.models.served.model import ServedLM
from lm_eval.models.served.published import PublishedDialect
from lm_eval.models.served.retry import RetryPolicy
from lm_eval.models.sglang_generate_API import SGLANGGENERATEAPI

#: A folder with a small tokenizer.
TOKENIZER = str(Path(lm_eval.__file__).parent / "models" / "demo" / "weights")
NOWHERE = "http://test-url.com"
CHAT = [{"role": "user", "content": "Hi"}]


# -- a server that records requests ----------------------------------------------------------------


class Server:
    """Answers every POST request with what `answer` returns for its body.

    Attributes:
        requests: path with query, headers and body of every POST request.
    """

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, Any, Any]] = []
        self.answer: Callable[[Any], Any] = chat_reply
        self.lock = threading.Lock()

    async def handle(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            return web.json_response({}, status=404)
        body = await request.json()
        with self.lock:
            self.requests.append((request.path_qs, request.headers.copy(), body))
        reply = self.answer(body)
        if isinstance(reply, web.Response):
            return reply
        return web.json_response(reply)

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.requests]


@pytest.fixture
def server() -> Iterator[Server]:
    found, started, stop = Server(), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def run() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", found.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    assert started.wait(30)
    yield found
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Retries within milliseconds, an empty cache folder, and no keys of this machine."""
    monkeypatch.setenv("LMEVAL_CACHE_DIR", str(tmp_path / "cache"))
    quick = RetryPolicy(attempts=3, base=0.01, longest=0.02)
    monkeypatch.setattr(ServedLM, "retry_policy", quick)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("ENDPOINT", "DEPLOYMENT_NAME", "API_VERSION"):
        monkeypatch.delenv(f"AZURE_OPENAI_{name}", raising=False)


def chat_reply(body: Any) -> Any:
    """Returns a chat reply that repeats the last message."""
    text = f"re: {body['messages'][-1]['content']}"
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}


def text_reply(body: Any) -> Any:
    """Returns a reply of a completions API that repeats each prompt."""
    prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
    return {"choices": [{"index": n, "text": f"re: {p}"} for n, p in enumerate(prompts)]}


def echo_reply(body: Any) -> Any:
    """Returns log-probabilities of prompts as token ids: minus the token's id divided by 1000."""
    choices = []
    for index, tokens in enumerate(body["prompt"]):
        values = [None, *(-token / 1000 for token in tokens[1:]), -0.5]
        tops = [None, *({"a": value} for value in values[1:])]
        logprobs = {"token_logprobs": values, "top_logprobs": tops}
        choices.append({"index": index, "text": "", "logprobs": logprobs})
    return {"choices": choices}


def generation(text: Any, **settings: Any) -> Instance:
    return Instance("generate_until", {}, (text, settings), 0, ("task", 0, 1))


def scoring(context: str, continuation: str) -> Instance:
    return Instance("loglikelihood", {}, (context, continuation), 0, ("task", 0, 1))


def chat(text: str = "Hi") -> JsonChatStr:
    return JsonChatStr(json.dumps([{"role": "user", "content": text}]))


# -- what the published tests pin ------------------------------------------------------------------


@pytest.fixture
def api() -> LocalCompletionsAPI:
    return LocalCompletionsAPI(base_url=NOWHERE, tokenizer_backend=None, model="a-model")


def test_the_body_for_an_answer_has_exactly_the_published_keys(api: LocalCompletionsAPI) -> None:
    settings = {"max_tokens": 7, "temperature": 0.5, "until": ["END"], "do_sample": True}
    found = api._create_payload(["Text"], generate=True, gen_kwargs={**settings, "seed": 5})
    assert found == {
        "prompt": ["Text"],
        "model": "a-model",
        "max_tokens": 7,
        "temperature": 0.5,
        "stop": ["END"],
        "seed": 5,
    }


def test_the_body_for_a_score_has_exactly_the_published_keys(api: LocalCompletionsAPI) -> None:
    assert api._create_payload(["Text"], generate=False, gen_kwargs=None) == {
        "model": "a-model",
        "prompt": ["Text"],
        "max_tokens": 1,
        "logprobs": 1,
        "echo": True,
        "temperature": 0,
        "seed": 1234,
    }


@pytest.mark.parametrize("prompts", [["Hello"], ["Hello", "and more"]])
def test_model_call_sends_the_first_prompt_as_a_string(
    api: LocalCompletionsAPI, prompts: list[str]
) -> None:
    with mock.patch("requests.post") as post:
        post.return_value.json.return_value = {"a": "reply"}
        assert api.model_call(prompts, generate=True, gen_kwargs={}) == {"a": "reply"}
    post.assert_called_once()
    assert post.call_args.kwargs["json"] == {
        "prompt": "Hello",
        "model": "a-model",
        "max_tokens": 256,
        "temperature": 0,
        "stop": [],
        "seed": 1234,
    }


def test_model_call_uses_the_timeout_of_the_constructor() -> None:
    api = LocalCompletionsAPI(base_url=NOWHERE, tokenizer_backend=None, model="m", timeout=17)
    with mock.patch("requests.post") as post:
        api.model_call(["Hello"], generate=True, gen_kwargs={})
    assert post.call_args.kwargs["timeout"] == 17


def test_model_call_keeps_tokens() -> None:
    api = LocalCompletionsAPI(
        base_url=NOWHERE, model="m", tokenizer=TOKENIZER, tokenizer_backend="huggingface"
    )
    with mock.patch("requests.post") as post:
        api.model_call([[1, 2, 3]], generate=False)
    assert post.call_args.kwargs["json"]["prompt"] == [[1, 2, 3]]


def test_batched_requests_use_names_of_the_module_that_scripts_replace() -> None:
    api = LocalCompletionsAPI(
        base_url="https://test-url.com",
        model="m",
        tokenizer=TOKENIZER,
        verify_certificate=False,
        num_concurrent=2,
    )
    response = mock.AsyncMock(ok=True, status=200, raise_for_status=lambda: None)
    response.json.return_value = {"a": "reply"}

    @contextlib.asynccontextmanager
    async def post(*_: Any, **__: Any) -> Any:
        yield response

    where = "lm_eval.models.api_models."
    parse = "lm_eval.models.openai_completions.LocalCompletionsAPI.parse_logprobs"
    with (
        mock.patch(f"{where}TCPConnector", autospec=True) as connector,
        mock.patch(f"{where}ClientSession", autospec=True) as session,
        mock.patch(parse, autospec=True, return_value=[(-1.0, True)]),
    ):
        session.return_value.__aenter__.return_value = mock.Mock(post=post)
        inputs, keys = [[1, 2], [3, 4]], ["one", "two"]
        found = asyncio.run(api.get_batched_requests(inputs, keys, generate=False, ctxlens=[1, 1]))
    connector.assert_called_with(limit=2, ssl=False)
    assert found == [[(-1.0, True)], [(-1.0, True)]]


@pytest.mark.parametrize("kind", [LocalCompletionsAPI, LocalChatCompletion])
def test_the_remote_tokenizer_is_the_one_of_lm_eval_utils(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    class Tokenizer:
        def __init__(
            self,
            base_url: Any,
            timeout: Any,
            verify_certificate: Any,
            ca_cert_path: Any,
            auth_token: Any,
        ) -> None:
            given.extend([base_url, timeout, verify_certificate, ca_cert_path, auth_token])

    monkeypatch.setattr("lm_eval.utils.RemoteTokenizer", Tokenizer)
    model = kind(
        base_url="https://a-server",
        tokenizer_backend="remote",
        verify_certificate=True,
        ca_cert_path="a.crt",
        auth_token="a-token",
    )
    assert given == ["https://a-server", 300, True, "a.crt", "a-token"]
    assert isinstance(model.tokenizer, Tokenizer)
    assert model.tokenizer_backend == "remote"


def test_the_remote_tokenizer_reads_what_a_server_offers(server: Server) -> None:
    server.answer = lambda body: {"tokens": [7, 8]} if "prompt" in body else {"prompt": "a text"}
    tokenizer = lm_eval.utils.RemoteTokenizer(server.url + "/v1/completions", auth_token="secret")
    assert tokenizer.encode("abc") == [7, 8]
    assert tokenizer.decode([7, 8]) == "a text"
    assert tokenizer.batch_decode([[7], [8]]) == ["a text", "a text"]
    assert tokenizer.eos_token is None
    assert {path for path, _, _ in server.requests} == {"/tokenize", "/detokenize"}
    assert server.requests[0][1]["Authorization"] == "Bearer secret"
    # The server has no /tokenizer_info.
    assert not lm_eval.utils.check_remote_tokenizer_support(server.url)
    assert not lm_eval.utils.check_remote_tokenizer_support("http://127.0.0.1:9", max_retries=1)
    assert not lm_eval.utils.check_remote_tokenizer_support("")


@pytest.mark.parametrize("kind", [LocalChatCompletion, OpenAIChatCompletion])
def test_a_chat_arrives_in_the_body_as_it_was(kind: Any) -> None:
    model = kind(base_url=NOWHERE, model="m")
    messages = model.create_message((model.apply_chat_template(CHAT),))
    payload = model._create_payload(messages, generate=True, gen_kwargs={})
    assert payload["messages"] == CHAT


def test_images_come_before_the_text() -> None:
    class Image:
        def save(self, file: Any, format: str) -> None:
            file.write(b"bytes")

    messages = [{"role": "user", "content": "What is this?", "type": "text"}]
    (found,) = create_image_prompt([Image()], messages)
    assert "type" not in found
    assert [part["type"] for part in found["content"]] == ["image_url", "text"]
    assert found["content"][0]["image_url"]["url"] == "data:image/png;base64,Ynl0ZXM="


@pytest.mark.parametrize(
    ("end", "content", "expected"),
    [
        (None, "<think>x</think> y", "<think>x</think> y"),
        ("</think>", "<think>x</think>  y", "y"),
        ("</think>", "x</think> z</think> y", "y"),
        ("</think>", "no thoughts", "no thoughts"),
        ("</think>", None, None),
    ],
)
def test_thinking_text_is_removed_from_answers(
    end: str | None, content: str | None, expected: str | None
) -> None:
    model = LocalChatCompletion(base_url=NOWHERE, model="m", think_end_token=end)
    reply = {"choices": [{"index": 0, "message": {"content": content}}]}
    assert model.parse_generations(reply) == [expected]
    assert model.parse_generations(outputs=[reply, reply]) == [expected, expected]


def test_choices_are_put_in_order_and_a_filtered_one_is_empty() -> None:
    model = LocalChatCompletion(base_url=NOWHERE, model="m")
    choices = [{"index": n, "message": {"content": str(n)}} for n in (1, 0)]
    assert model.parse_generations({"choices": choices}) == ["0", "1"]
    assert model.parse_generations({"choices": [{"index": 0, "message": {}}]}) == [""]
    texts = [{"index": n, "text": str(n)} for n in (1, 0)]
    assert LocalCompletionsAPI.parse_generations({"choices": texts}) == ["0", "1"]


def test_openais_reasoning_models_get_no_stop_strings() -> None:
    settings = {"until": ["a", "b", "c", "d", "e"], "max_gen_toks": 9}
    plain = OpenAIChatCompletion(model="gpt-3.5-turbo")
    assert plain._create_payload(CHAT, True, dict(settings), 1234, "<eos>") == {
        "messages": CHAT,
        "model": "gpt-3.5-turbo",
        "max_completion_tokens": 9,
        "temperature": 0,
        "stop": ["a", "b", "c", "d"],
        "seed": 1234,
    }
    for name in ("o1", "gpt-5-mini", "openai/o3-mini"):
        found = OpenAIChatCompletion(model=name)._create_payload(CHAT, gen_kwargs=dict(settings))
        assert found["temperature"] == 1
        assert "stop" not in found


def test_log_probabilities_are_summed_after_the_context() -> None:
    reply = echo_reply({"prompt": [[1, 2, 3], [1, 4]]})
    found = LocalCompletionsAPI.parse_logprobs([reply], tokens=[[1, 2, 3], [1, 4]], ctxlens=[1, 1])
    assert found == [(pytest.approx(-0.005), True), (pytest.approx(-0.004), True)]
    reply["choices"][1]["logprobs"]["top_logprobs"][1]["b"] = -0.001
    assert LocalCompletionsAPI.parse_logprobs(reply, ctxlens=[2, 1])[1][1] is False


def test_sglang_bodies_and_replies() -> None:
    model = SGLANGGENERATEAPI(base_url=NOWHERE, model="m", tokenizer=TOKENIZER)
    assert model._create_payload("Text", True, {"until": ["x"], "top_k": 3}) == {
        "text": "Text",
        "sampling_params": {"max_new_tokens": 256, "temperature": 0, "stop": ["x"], "top_k": 3},
    }
    assert model._create_payload([[1, 2]], generate=False) == {
        "input_ids": [[1, 2]],
        "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        "logprob_start_len": 0,
        "top_logprobs_num": 1,
        "return_logprob": True,
    }
    entries = [[None, 1, None], [-0.5, 2, None], [-0.25, 3, None]]
    info = {
        "input_token_logprobs": entries,
        "input_top_logprobs": [None, *([e] for e in entries[1:])],
    }
    assert model.parse_logprobs({"meta_info": info}, ctxlens=[1]) == [(-0.75, True)]
    info["input_top_logprobs"][2] = [[-0.1, 9, None]]
    assert model.parse_logprobs({"meta_info": info}, ctxlens=[1]) == [(-0.75, False)]
    assert model.parse_generations([{"text": "a"}, {"text": "b"}]) == ["a", "b"]


def test_a_chat_string_is_text_and_has_its_text_as_prompt() -> None:
    made = JsonChatStr(json.dumps(CHAT))
    assert json.loads(made.prompt) == CHAT
    assert made.encode("utf-8") == made.prompt.encode()
    assert isinstance(made, str)
    assert JsonChatStr(prompt="[]") == "[]"


def test_attributes_have_the_published_names_and_types() -> None:
    model = LocalChatCompletion(base_url=NOWHERE, model="m", num_concurrent=4, seed=42)
    assert (model._concurrent, model._seed, model._batch_size, model._max_gen_toks) == (
        4,
        42,
        1,
        256,
    )
    assert model.tokenizer is None
    assert model.tokenizer_backend is None
    assert model.tokenized_requests is False
    assert model.max_retries == 3  # the policy of this test
    plain = LocalCompletionsAPI(
        base_url=NOWHERE, pretrained="m", max_length=100, tokenizer_backend=None
    )
    assert (plain._concurrent, plain._seed, plain.max_length, plain.model) == (1, 1234, 99, "m")
    plain.max_length += 1
    plain._seed, plain._concurrent, plain.max_gen_toks = 7, 2, 5
    assert (plain.max_length, plain._seed, plain._concurrent, plain._max_gen_toks) == (100, 7, 2, 5)


def test_long_contexts_lose_their_beginning(api: LocalCompletionsAPI) -> None:
    api.max_length = 3
    requests = [[(("a", "b"), [1, 2, 3], [4]), (None, [1], [2])]]
    assert api.batch_loglikelihood_requests(requests) == (
        [[2, 3, 4], [1, 2]],
        [2, 1],
        [("a", "b"), None],
    )


def test_texts_are_encoded_one_by_one_and_in_lists() -> None:
    model = LocalCompletionsAPI(base_url=NOWHERE, model="m", tokenizer=TOKENIZER)
    single = model.tok_encode("a text to encode")
    assert model.tok_encode(["a text to encode", "b"])[0] == single
    assert model.tok_encode("a text to encode", left_truncate_len=2) == single[-2:]
    assert model.decode_batch([single]) == ["a text to encode"]
    assert LocalCompletionsAPI(base_url=NOWHERE, tokenizer_backend=None).tok_encode("a") == ["a"]


@pytest.mark.parametrize(
    "model",
    [LocalChatCompletion(base_url=NOWHERE, model="m"), AnthropicChat(model="m")],
    ids=lambda model: type(model).__name__,
)
def test_chat_classes_refuse_to_score(model: Any) -> None:
    for method in (model.loglikelihood, model.loglikelihood_rolling):
        with pytest.raises(NotImplementedError) as caught:
            method([])
        assert isinstance(caught.value, ModelError)


# -- third-party subclasses ------------------------------------------------------------------------


class StaticParser(TemplateAPI):
    """A completions API of its own: static readers, and few arguments."""

    def __init__(self, base_url: str, **kwargs: Any) -> None:
        super().__init__(base_url=base_url, tokenizer_backend=None, hf_tokenizer="x", **kwargs)

    def _create_payload(  # type: ignore[override]
        self, messages: Any, gen_kwargs: Any = None, eos: Any = None, **kwargs: Any
    ) -> Any:
        return {
            "prompt": messages,
            "length": gen_kwargs.pop("max_gen_toks", 1),
            "model": self.model,
        }

    @staticmethod
    def parse_generations(outputs: Any, **kwargs: Any) -> list[Any]:
        return [choice["text"].upper() for choice in outputs["choices"]]

    @staticmethod
    def parse_logprobs(  # type: ignore[override]
        outputs: Any, tokens: Any = None, ctxlen: Any = None, **kwargs: Any
    ) -> Any:
        raise NotImplementedError

    def loglikelihood(self, requests: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("this API scores nothing")


class KeywordOnly(StaticParser):
    """As the abstract method of the published class."""

    def _create_payload(
        self,
        messages: Any,
        *,
        generate: bool = True,
        gen_kwargs: Any = None,
        seed: int = 1234,
        eos: Any = None,
        **kwargs: Any,
    ) -> Any:
        return {"prompt": messages, "length": gen_kwargs.pop("max_gen_toks", 1), "seed": seed}


class FewArguments(StaticParser):
    """Without `**kwargs`, and with another name for the first argument."""

    def _create_payload(self, prompt: Any, generate: bool = False) -> Any:  # type: ignore[override]
        return {"prompt": prompt, "length": 1, "generate": generate}


@pytest.mark.parametrize("kind", [StaticParser, KeywordOnly, FewArguments])
def test_any_signature_of_create_payload_works(
    kind: type[StaticParser], server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = text_reply
    model = kind(f"{server.url}/a/path?x=1", model="m")
    assert isinstance(model.dialect, PublishedDialect)
    settings = {"max_gen_toks": 5, "until": ["z"]}
    requests = [generation(text, **settings) for text in ("a", "b", "c")]
    assert model.generate_until(requests) == ["RE: A", "RE: B", "RE: C"]
    assert requests[0].args[1] == settings  # a copy was changed, not the request
    assert {path for path, _, _ in server.requests} == {"/a/path?x=1"}
    assert len(server.requests) == 3  # no probe
    assert caplog.text.count("ignores the arguments hf_tokenizer") == 1


def test_a_method_that_raises_says_why_nothing_can_be_scored() -> None:
    model = StaticParser(NOWHERE, model="m")
    assert model.cannot_measure("loglikelihood") == "this API scores nothing"
    assert model.cannot_measure("generate_until") is None
    assert model.cannot_measure("loglikelihood_rolling") is None


def test_a_thinking_budget_is_refused_for_requests_that_the_class_builds() -> None:
    model = StaticParser(NOWHERE, model="m", think_end_token="|", thinking_budget=5)
    reason = str(model.cannot_measure("generate_until"))
    assert reason.startswith("StaticParser builds, sends or reads requests in its own way")


def test_the_class_decides_about_stop_strings(server: Server) -> None:
    server.answer = lambda body: {"choices": [{"index": 0, "text": "one\ntwo"}]}
    (found,) = StaticParser(server.url, model="m").generate_until([generation("a", until=["\n"])])
    assert found == "ONE\nTWO"


class InstanceParser(LocalCompletionsAPI):
    """Reads replies in methods of the object, which call those of the base class."""

    prefix = "answer "

    def parse_generations(self, outputs: Any, **kwargs: Any) -> list[Any]:  # type: ignore[override]
        return [self.prefix + text for text in super().parse_generations(outputs, **kwargs)]

    def parse_logprobs(  # type: ignore[override]
        self, outputs: Any, tokens: Any = None, ctxlens: Any = None, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        for choice, prompt in zip(outputs["choices"], tokens, strict=True):
            assert len(choice["logprobs"]["token_logprobs"]) == len(prompt) + 1
        return super().parse_logprobs(outputs, tokens=tokens, ctxlens=ctxlens, **kwargs)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_readers_of_the_object_call_those_of_the_base_class(
    server: Server, batch_size: int
) -> None:
    server.answer = lambda body: echo_reply(body) if body.get("echo") else text_reply(body)
    model = InstanceParser(
        base_url=server.url, model="m", tokenizer=TOKENIZER, batch_size=batch_size, max_length=100
    )
    answers = model.generate_until(
        [generation("One", max_gen_toks=3), generation("Two", max_gen_toks=3)]
    )
    assert [a.startswith("answer re: [") for a in answers] == [True, True]  # sent as tokens
    scores = model.loglikelihood([scoring("The sky is", " blue"), scoring("", "Hello")])
    tokens = model.tok_encode(" blue", add_special_tokens=False)
    assert scores[0] == (pytest.approx(-sum(tokens) / 1000), True)
    (rolled,) = model.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, ("Hello",), 0)])
    assert rolled == pytest.approx(scores[1][0])
    assert {path for path, _, _ in server.requests} == {"/v1/completions"}


def test_without_tokenized_requests_scores_are_asked_for_as_text(server: Server) -> None:
    def answer(body: Any) -> Any:
        assert isinstance(body["prompt"], str)
        return echo_reply({**body, "prompt": [model.tok_encode(body["prompt"])]})

    server.answer = answer
    model = InstanceParser(
        base_url=server.url, model="m", tokenizer=TOKENIZER, tokenized_requests=False
    )
    assert model.loglikelihood([scoring("The sky is", " blue")])[0][1] is True


class OwnKey(LocalChatCompletion):
    """Reads its key from another variable."""

    @cached_property
    def api_key(self) -> str:
        return "own-key"


class AssignedKey(LocalChatCompletion):
    """Assigns its key and its header after the constructor of the base class."""

    def __init__(self, key: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.api_key = key


class NewHeaders(LocalChatCompletion):
    """Sends another header with each request, on top of those of the base class."""

    count = 0

    @property
    def api_key(self) -> str:  # type: ignore[override]
        return "own-key"

    @property
    def header(self) -> dict[str, str]:  # type: ignore[override]
        type(self).count += 1
        return {**super().header, "X-Count": str(self.count)}


@pytest.mark.parametrize(
    ("kind", "settings"), [(OwnKey, {}), (AssignedKey, {"key": "own-key"}), (NewHeaders, {})]
)
def test_a_key_of_the_class_is_sent(kind: Any, settings: Any, server: Server) -> None:
    model = kind(base_url=server.url, model="m", probe=False, **settings)
    assert model.generate_until([generation(chat("a")), generation(chat("b"))]) == [
        "re: a",
        "re: b",
    ]
    headers = [headers for _, headers, _ in server.requests]
    assert {h["Authorization"] for h in headers} == {"Bearer own-key"}
    assert isinstance(model.dialect, Chat)  # the requests are still ours
    if kind is NewHeaders:
        assert headers[0]["X-Count"] != headers[1]["X-Count"]


def test_an_assigned_header_is_sent(server: Server) -> None:
    model = LocalChatCompletion(base_url=server.url, model="m", probe=False)
    model.header = {"X-Key": "abc"}
    model.generate_until([generation(chat())])
    assert server.requests[0][1]["X-Key"] == "abc"
    assert "Authorization" not in server.requests[0][1]


class OwnSender(LocalChatCompletion):
    """Sends requests with a client of its own, one at a time; needs no address."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(model="m", **kwargs)
        self.sent: list[Any] = []
        self.threads: set[str] = set()

    def _create_payload(  # type: ignore[override]
        self, messages: Any, generate: bool = True, gen_kwargs: Any = None, **kwargs: Any
    ) -> Any:
        payload = super()._create_payload(messages, generate=generate, gen_kwargs=gen_kwargs)
        return {**payload, "_private": object()}

    def model_call(
        self, messages: Any, *, generate: bool = True, gen_kwargs: Any = None, **kwargs: Any
    ) -> Any:
        payload = self._create_payload(
            self.create_message(messages), generate=generate, gen_kwargs=gen_kwargs, **kwargs
        )
        assert payload.pop("_private")
        self.sent.append(payload)
        self.threads.add(threading.current_thread().name)
        if len(self.sent) == 1:
            raise RuntimeError("the first attempt fails")
        return chat_reply(payload)


def test_a_synchronous_sender_is_called_in_a_thread() -> None:
    model = OwnSender()
    assert isinstance(model.dialect, HookDialect)
    answers = model.generate_until([generation(chat("a"), max_gen_toks=3), generation(chat("b"))])
    assert answers == ["re: a", "re: b"]
    assert len(model.sent) == 3
    assert sorted(body["max_tokens"] for body in model.sent[-2:]) == [3, 256]
    assert len(model.threads) == 1  # as published: one request at a time unless asked for more
    assert "MainThread" not in model.threads


def test_a_synchronous_sender_is_called_as_often_at_once_as_asked_for() -> None:
    class Slow(OwnSender):
        def model_call(self, messages: Any, **kwargs: Any) -> Any:
            barrier.wait(20)
            return {"choices": [{"index": 0, "message": {"content": "x"}}]}

    barrier = threading.Barrier(4)
    requests = [generation(chat(str(n))) for n in range(8)]
    assert Slow(num_concurrent=4).generate_until(requests) == ["x"] * 8


class LocalEngine(TemplateAPI):
    """Runs a model in this process: no address, no bodies, results that are not JSON."""

    def __init__(self, tokenizer: str, **kwargs: Any) -> None:
        super().__init__(tokenizer=tokenizer, **kwargs)

    def model_call(
        self, messages: Any, *, generate: bool = True, gen_kwargs: Any = None, **kwargs: Any
    ) -> Any:
        assert all(isinstance(token, int) for token in messages[0])
        if not generate:
            return [types.SimpleNamespace(length=len(one)) for one in messages]
        return [f"text {len(one)} {gen_kwargs['until']}" for one in messages]

    async def amodel_call(self, session: Any, messages: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        raise NotImplementedError

    def loglikelihood_rolling(self, requests: Any) -> Any:  # type: ignore[override]
        raise NotImplementedError

    def _create_payload(self, messages: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    @staticmethod
    def parse_generations(outputs: Any, **kwargs: Any) -> Any:
        return outputs

    @staticmethod
    def parse_logprobs(outputs: Any, tokens: Any = None, ctxlens: Any = None, **kwargs: Any) -> Any:
        import numpy as np

        return [
            (np.float32(-(one.length - start)), np.bool_(True))
            for one, start in zip(outputs, ctxlens, strict=True)
        ]


def test_a_class_may_run_its_model_itself() -> None:
    model = LocalEngine(TOKENIZER, batch_size=2)
    count = len(model.tok_encode("One two"))
    requests = [generation(text, until=["x"]) for text in ("One two", "One two three")]
    assert model.generate_until(requests)[0] == f"text {count} ['x']"
    assert model.loglikelihood([scoring("One", " two")]) == [(-1.0, True)]
    assert model.cannot_measure("loglikelihood") is None
    assert "LocalEngine does not implement" in str(model.cannot_measure("loglikelihood_rolling"))


class AsyncSender(LocalChatCompletion):
    """The current form of `amodel_call`, which holds the semaphore and reports its answers."""

    async def amodel_call(
        self,
        session: Any,
        sem: asyncio.Semaphore | None,
        messages: Any,
        *,
        generate: bool = True,
        cache_keys: Any = None,
        ctxlens: Any = None,
        gen_kwargs: Any = None,
        **kwargs: Any,
    ) -> Any:
        assert sem is not None
        await sem.acquire()
        try:
            body = self._create_payload(
                self.create_message(messages), generate=generate, gen_kwargs=gen_kwargs, **kwargs
            )
            async with session.post(self.base_url, json=body, headers=self.header) as response:
                response.raise_for_status()
                answers = self.parse_generations(outputs=await response.json())
            for answer, key in zip(answers, cache_keys, strict=True):
                self.cache_hook.add_partial("generate_until", key, answer)
            return answers
        finally:
            sem.release()


class OldAsyncSender(LocalChatCompletion):
    """The older form of `amodel_call`, without a semaphore."""

    async def amodel_call(  # type: ignore[override]
        self,
        session: Any,
        messages: Any,
        *,
        generate: bool = True,
        cache_keys: Any = None,
        ctxlens: Any = None,
        gen_kwargs: Any = None,
        **kwargs: Any,
    ) -> Any:
        assert not kwargs
        body = self._create_payload(self.create_message(messages), generate, gen_kwargs, **kwargs)
        async with session.post(self.base_url, json=body, headers=self.header) as response:
            return self.parse_generations(outputs=await response.json())


class AnyArguments(LocalChatCompletion):
    """A client of a vendor, whose call takes anything."""

    async def amodel_call(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        assert not args
        assert set(kwargs) >= {"session", "sem", "messages", "generate", "cache_keys"}
        return [None]


@pytest.mark.parametrize("kind", [AsyncSender, OldAsyncSender])
@pytest.mark.parametrize("concurrent", [None, 3])
def test_both_forms_of_an_asynchronous_sender_work(
    kind: Any, concurrent: int | None, server: Server
) -> None:
    model = kind(base_url=server.url + "/chat", model="m", num_concurrent=concurrent)
    requests = [generation(chat(str(n))) for n in range(20)]
    assert model.generate_until(requests) == [f"re: {n}" for n in range(20)]
    assert len(server.requests) == 20


def test_a_null_becomes_the_placeholder_with_one_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "NONE_ANSWER", "none")
    model = AnyArguments(base_url=NOWHERE, model="m")
    assert model.generate_until([generation(chat(str(n))) for n in range(3)]) == ["none"] * 3
    assert caplog.text.count("LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER") == 1


def test_the_placeholder_is_used_by_our_classes(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_models, "NONE_ANSWER", "none")
    server.answer = lambda body: {"choices": [{"index": 0, "message": {"content": None}}]}
    model = LocalChatCompletion(base_url=server.url, model="m", probe=False)
    assert model.generate_until([generation(chat())]) == ["none"]


def test_the_number_of_requests_in_flight_is_found_unless_a_class_sends_them_one_by_one() -> None:
    for kind, expected in (
        (InstanceParser, None),
        (AsyncSender, None),
        (LocalChatCompletion, None),
    ):
        assert kind(base_url=NOWHERE, model="m").make_client().max_concurrent is expected
        limited = kind(base_url=NOWHERE, model="m", num_concurrent=5)
        assert limited.make_client().max_concurrent == 5
    assert OwnSender().make_client().max_concurrent == 1


def test_an_asynchronous_sender_that_keeps_failing_makes_a_failure(server: Server) -> None:
    server.answer = lambda body: (
        web.Response(status=500, text="broken")
        if body["messages"][0]["content"] == "1"
        else chat_reply(body)
    )
    model = AsyncSender(base_url=server.url, model="m")
    first, second = model.generate_until([generation(chat("0")), generation(chat("1"))])
    assert first == "re: 0"
    assert isinstance(second, Failure)
    assert "500" in second.reason


def test_an_asynchronous_sender_whose_key_is_refused_ends_the_run(server: Server) -> None:
    server.answer = lambda body: web.Response(status=401, text="wrong key")
    with pytest.raises(ModelError, match=r"AsyncSender\.amodel_call.*401"):
        AsyncSender(base_url=server.url, model="m").generate_until([generation(chat())])


class Batched(LocalChatCompletion):
    """Binds keys of its own before the base class sends the requests."""

    claimed: list[Any]

    async def get_batched_requests(  # type: ignore[override]
        self, requests: Any, cache_keys: Any, **kwargs: Any
    ) -> Any:
        self.claimed = list(cache_keys)
        return await super().get_batched_requests(requests, cache_keys, **kwargs)


class PartialHook:
    """A cache hook of a third-party class, with the one published method."""

    def __init__(self) -> None:
        self.reported: list[Any] = []

    def add_partial(self, attr: str, req: Any, res: Any) -> None:
        self.reported.append((attr, req, res))


def test_overridden_batches_are_used_as_a_whole(server: Server) -> None:
    failures = {"3": 1, "4": 100}

    def answer(body: Any) -> Any:
        text = body["messages"][0]["content"]
        failures[text] = failures.get(text, 0) - 1
        return web.Response(status=503) if failures[text] >= 0 else chat_reply(body)

    server.answer = answer
    model = Batched(base_url=server.url, model="m", num_concurrent=4)
    hook = PartialHook()
    model.set_cache_hook(hook)  # type: ignore[arg-type]
    requests = [generation(chat(str(n)), max_gen_toks=1 + n % 2) for n in range(5)]
    found = model.generate_until(requests)
    assert found[:4] == ["re: 0", "re: 1", "re: 2", "re: 3"]
    assert isinstance(found[4], Failure)
    assert model.claimed == [r.args for r in requests if r.args[1]["max_gen_toks"] == 2]
    assert {(attr, req[0]) for attr, req, _ in hook.reported} == {
        ("generate_until", r.args[0]) for r in requests[:4]
    }


class Popping(Batched):
    """Removes items from the settings, as most overrides do."""

    async def amodel_call(  # type: ignore[override]
        self, session: Any, sem: Any, messages: Any, *, gen_kwargs: Any, **kwargs: Any
    ) -> Any:
        return [str(gen_kwargs.pop("until"))]


def test_each_call_of_overridden_batches_has_settings_of_its_own(server: Server) -> None:
    requests = [generation(chat(str(n)), until=["stop"]) for n in range(3)]
    found = Popping(base_url=server.url, model="m").generate_until(requests)
    assert found == ["['stop']"] * 3


class BatchedScores(InstanceParser):
    async def get_batched_requests(  # type: ignore[override]
        self, requests: Any, cache_keys: Any, **kwargs: Any
    ) -> Any:
        return await super().get_batched_requests(requests, cache_keys, **kwargs)


def test_overridden_batches_score(server: Server) -> None:
    server.answer = echo_reply
    model = BatchedScores(
        base_url=server.url, model="m", tokenizer=TOKENIZER, num_concurrent=2, batch_size=2
    )
    requests = [scoring("The sky is", rest) for rest in (" blue", " green", " red")]
    plain = InstanceParser(base_url=server.url, model="m", tokenizer=TOKENIZER)
    assert model.loglikelihood(requests) == plain.loglikelihood(requests)
    texts = [Instance("loglikelihood_rolling", {}, (text,), 0) for text in ("Hello you", "Bye")]
    assert model.loglikelihood_rolling(texts) == pytest.approx(plain.loglikelihood_rolling(texts))


class OwnScorer(TemplateAPI):
    """Scores token by token, in `_loglikelihood_tokens`, with one keyword argument."""

    _create_payload = KeywordOnly._create_payload
    parse_generations = StaticParser.parse_generations
    parse_logprobs = StaticParser.parse_logprobs  # type: ignore[assignment]

    def _loglikelihood_tokens(  # type: ignore[override]
        self, requests: Any, disable_tqdm: bool = False
    ) -> list[Any]:
        assert self._concurrent <= 1
        return [(-float(len(rest)), True) for _, _, rest in requests]


def test_a_scorer_on_tokens_gets_what_the_published_class_passes() -> None:
    model = OwnScorer(base_url=NOWHERE, tokenizer=TOKENIZER, model="m", max_length=8)
    counts = [len(model._encode_pair("One", " two three")[1]), len(model.tok_encode("One"))]
    scores = model.loglikelihood([scoring("One", " two three"), scoring("", "One")])
    assert scores == [(-float(count), True) for count in counts]
    text = "One two three four five six seven eight nine ten"
    (found,) = model.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (text,), 0)])
    assert found == -len(model.tok_encode(text, add_special_tokens=False))


class ResumingScorer(InstanceParser):
    """Passes keys of its own in place of the texts, and takes the scores from its cache hook."""

    def _loglikelihood_tokens(self, requests: Any, **kwargs: Any) -> list[Any]:  # type: ignore[override]
        inputs, lengths, _ = self.batch_loglikelihood_requests([requests])
        keys = [f"{prompt} {length}" for prompt, length in zip(inputs, lengths, strict=True)]
        keyed = [
            (key, context, rest) for key, (_, context, rest) in zip(keys, requests, strict=True)
        ]
        before, store = self.cache_hook, PartialHook()
        self.set_cache_hook(store)  # type: ignore[arg-type]
        try:
            super()._loglikelihood_tokens(keyed, **kwargs)
        finally:
            self.set_cache_hook(before)
        found = {key: score for _, key, score in store.reported}
        return [found[key] for key in keys]


def test_a_scorer_may_use_a_cache_hook_of_its_own(server: Server) -> None:
    server.answer = echo_reply
    model = ResumingScorer(base_url=server.url, model="m", tokenizer=TOKENIZER)
    requests = [scoring("The sky is", " blue"), scoring("The sky is", " green")]
    plain = InstanceParser(base_url=server.url, model="m", tokenizer=TOKENIZER)
    assert model.loglikelihood(requests) == plain.loglikelihood(requests)


class OwnMessages(LocalChatCompletion):
    """Makes messages of plain text, and returns messages as answers."""

    def create_message(self, messages: Any, generate: bool = False) -> Any:
        return [{"role": "user", "content": text} for text in messages]

    @cached_property
    def eos_string(self) -> str | None:
        return "<end>"

    @staticmethod
    def parse_generations(outputs: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return [choice["message"] for choice in outputs["choices"]]


def test_an_answer_may_be_a_message(server: Server) -> None:
    model = OwnMessages(base_url=server.url, model="m")
    (answer,) = model.generate_until([generation("plain text", until=["a"])])
    assert answer == "re: plain text"
    assert server.bodies[0]["stop"] == ["a", "<end>"]


class Thinker(OwnMessages):
    """Asks several times per request, from threads, and reads more than text from the answers."""

    def generate_until(  # type: ignore[override]
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[str]:
        found: list[str] = [""] * len(requests)

        def think(number: int) -> None:
            chats = json.loads(requests[number].args[0].prompt)
            step = generation([*chats, {"role": "assistant", "content": "…"}], tools=[1])
            (message,) = super(Thinker, self).generate_until(
                [step], disable_tqdm=True, another_argument=True
            )
            found[number] = message["role"] + message["content"]  # type: ignore[index]

        threads = [threading.Thread(target=think, args=[n]) for n in range(len(requests))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def create_message(self, messages: Any, generate: bool = False) -> Any:
        return TemplateAPI.create_message(self, messages, generate)


def test_a_class_may_generate_step_by_step(server: Server) -> None:
    model = Thinker(base_url=server.url, model="m")
    assert (
        model.generate_until([generation(chat("a")), generation(chat("b"))])
        == ["assistantre: …"] * 2
    )
    assert all(body["tools"] == [1] for body in server.bodies)


class OldTemplate(LocalChatCompletion):
    """An older class: `apply_chat_template` without `add_generation_prompt`."""

    def apply_chat_template(self, chat_history: Any) -> Any:  # type: ignore[override]
        return [{"role": turn["role"], "text": turn["content"]} for turn in chat_history]

    def chat_template(self, chat_template: bool | str = False) -> str:
        return ""

    def _create_payload(  # type: ignore[override]
        self, messages: Any, generate: bool = False, gen_kwargs: Any = None, **kwargs: Any
    ) -> Any:
        return {"messages": [{"content": turn["text"]} for turn in messages]}


def test_an_older_chat_template_returns_messages(server: Server) -> None:
    model = OldTemplate(base_url=server.url, model="m")
    prompt = model.apply_chat_template(CHAT, add_generation_prompt=False)  # type: ignore[call-arg]
    assert model.generate_until([generation(prompt)]) == ["re: Hi"]


class OwnTokenizer(LocalCompletionsAPI):
    """Loads its tokenizer itself, and names the model anew."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(tokenizer_backend=None, **kwargs)
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
        self.tokenizer_backend = "huggingface"
        self.tokenized_requests = True
        self.model = "renamed"

    def parse_generations(self, outputs: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return super().parse_generations(outputs)


def test_a_tokenizer_may_be_assigned(server: Server) -> None:
    pytest.importorskip("transformers")
    server.answer = text_reply
    model = OwnTokenizer(base_url=server.url, model="m")
    expected = model.tokenizer("One two")["input_ids"]
    assert model.tok_encode("One two") == expected
    assert model.generate_until([generation("One two")])[0].startswith("re:")
    assert server.bodies[0]["prompt"] == [expected]
    assert server.bodies[0]["model"] == "renamed"
    assert model.eot_token_id == model.tokenizer.eos_token_id


class CustomTokenizer:
    bos_token_id, eos_token_id, eos_token = None, 0, "<0>"

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, tokens: list[int]) -> str:
        return "".join(map(chr, tokens))


def test_a_tokenizer_may_be_an_object_with_two_methods() -> None:
    model = InstanceParser(base_url=NOWHERE, model="m", tokenizer=CustomTokenizer())
    assert model.tok_encode("ab") == [97, 98]
    assert (model.eos_string, model.prefix_token_id) == ("<0>", 0)


class OwnEncoder(StaticParser):
    def __init__(self, base_url: str, **kwargs: Any) -> None:
        super().__init__(base_url, **kwargs)
        self.tokenized_requests = True

    def tok_encode(self, string: Any, *args: Any, **kwargs: Any) -> Any:
        return [[len(text)] for text in string]


def test_an_overridden_encoder_encodes_prompts(server: Server) -> None:
    server.answer = text_reply
    OwnEncoder(server.url, model="m").generate_until([generation("abc")])
    assert server.bodies[0]["prompt"] == [[3]]


def test_a_wrapped_body_leaves_the_rest_as_it_is(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = LocalChatCompletion._create_payload

    @functools.wraps(original)
    def without_seed(self: Any, *args: Any, **kwargs: Any) -> Any:
        payload = original(self, *args, **kwargs)
        payload.pop("seed")
        return {**payload, "chat_template_kwargs": {"enable_thinking": False}}

    monkeypatch.setattr(LocalChatCompletion, "_create_payload", without_seed)
    model = LocalChatCompletion(base_url=server.url, model="m")
    assert model.generate_until([generation(chat(), until=["x"])]) == ["re: Hi"]
    assert server.bodies == [
        {
            "messages": CHAT,
            "model": "m",
            "max_tokens": 256,
            "temperature": 0,
            "stop": ["x"],
            "chat_template_kwargs": {"enable_thinking": False},
        }
    ]


def test_a_replaced_reader_of_the_class_is_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Any = LocalChatCompletion.parse_generations

    def parse(outputs: Any, **kwargs: Any) -> list[Any]:
        return [f"({text})" for text in original(outputs, **kwargs)]

    monkeypatch.setattr(LocalChatCompletion, "parse_generations", staticmethod(parse))
    model = OpenAIChatCompletion(base_url=server.url, model="m", auth_token="key")
    assert model.generate_until([generation(chat())]) == ["(re: Hi)"]


def test_a_reader_of_the_object_is_used(server: Server) -> None:
    model = LocalChatCompletion(base_url=server.url, model="m")
    model.parse_generations = lambda outputs, **kwargs: ["mine"]  # type: ignore[method-assign]
    assert model.generate_until([generation(chat())]) == ["mine"]


def test_a_wrapped_sender_of_the_base_class_is_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = TemplateAPI.amodel_call

    @functools.wraps(original)
    async def tolerant(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await original(self, *args, **kwargs)
        except Exception:
            return [""] * len(kwargs["messages"])

    monkeypatch.setattr(TemplateAPI, "amodel_call", tolerant)
    server.answer = lambda body: (
        chat_reply(body) if body["messages"][0]["content"] == "0" else web.Response(status=500)
    )
    model = LocalChatCompletion(base_url=server.url, model="m")
    assert model.generate_until([generation(chat("0")), generation(chat("1"))]) == ["re: 0", ""]


def test_replaced_batches_of_the_base_class_are_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def one_by_one(self: Any, requests: Any, cache_keys: Any, **kwargs: Any) -> Any:
        from aiohttp import ClientSession

        found, sem = [], asyncio.Semaphore(self._concurrent)
        async with ClientSession() as session:
            for message, key in zip(requests, cache_keys, strict=True):
                found.append(
                    await self.amodel_call(
                        session=session, sem=sem, messages=[message], cache_keys=[key], **kwargs
                    )
                )
        return found

    monkeypatch.setattr(TemplateAPI, "get_batched_requests", one_by_one)
    model = LocalChatCompletion(base_url=server.url, model="m")
    assert model.generate_until([generation(chat("0")), generation(chat("1"))]) == [
        "re: 0",
        "re: 1",
    ]


def test_a_reply_that_cannot_be_read_is_asked_for_again(server: Server) -> None:
    good = {"choices": [{"index": 0, "text": "ok"}]}
    error = {"error": {"message": "overloaded"}}
    half = web.Response(text='{"choices": [{"te', content_type="application/json")
    replies = iter([error, half, {"choices": []}, good, {"nothing": 1}, {"choices": [{}]}, good])
    server.answer = lambda body: next(replies)
    model = StaticParser(server.url, model="m", max_retries=4)
    assert model.generate_until([generation("a")]) == ["OK"]
    # The reader has succeeded once, so that it is the server's fault if it fails.
    assert model.generate_until([generation("b")]) == ["OK"]
    server.answer = lambda body: {"nothing": 1}
    (failed,) = model.generate_until([generation("c")])
    assert isinstance(failed, Failure)
    assert "parse_generations failed: KeyError: 'choices'; the reply begins" in failed.reason
    server.answer = lambda body: {"choices": []}
    (failed,) = StaticParser(server.url, model="m").generate_until([generation("a")])
    assert isinstance(failed, Failure)


def test_a_body_that_changes_each_time_is_not_sent_for_ever(server: Server) -> None:
    class Timed(StaticParser):
        def _create_payload(self, messages: Any, **kwargs: Any) -> Any:
            return {"prompt": messages, "time": time.perf_counter()}

    server.answer = lambda body: web.json_response({"error": {"message": "no"}}, status=400)
    (failed,) = Timed(server.url, model="m").generate_until([generation("a")])
    assert isinstance(failed, Failure)
    assert len(server.requests) == 1


def test_an_error_in_the_code_of_a_class_ends_the_run(server: Server) -> None:
    class Faulty(StaticParser):
        def _create_payload(self, messages: Any, **kwargs: Any) -> Any:
            return not_there  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ModelError, match=r"Faulty\._create_payload failed: NameError") as raised:
        Faulty(server.url, model="m").generate_until([generation("a")])
    assert isinstance(raised.value, NameError)
    assert server.requests == []


class FaultyReader(StaticParser):
    """Reads another form of reply than the server returns."""

    @staticmethod
    def parse_generations(outputs: Any, **kwargs: Any) -> list[Any]:
        return [outputs["result"]["text"]]


class TextReader(StaticParser):
    @staticmethod
    def parse_generations(outputs: Any, **kwargs: Any) -> Any:
        return outputs["choices"][0]["text"]  # not a list


class FaultyScores(InstanceParser):
    def parse_logprobs(  # type: ignore[override]
        self, outputs: Any, tokens: Any = None, ctxlens: Any = None, **kwargs: Any
    ) -> Any:
        return [choice["logprobs"]["total"] for choice in outputs["choices"]]


@pytest.mark.parametrize(
    ("model_class", "message"),
    [
        (FaultyReader, r"FaultyReader\.parse_generations failed: KeyError: 'result' "),
        (TextReader, r"TextReader\.parse_generations failed: TypeError: it returned str instead"),
    ],
)
def test_a_reader_that_never_succeeds_ends_the_run_at_once(
    model_class: Any, message: str, server: Server
) -> None:
    server.answer = text_reply
    model = model_class(server.url, model="m", num_concurrent=1)
    with pytest.raises(ModelError, match=message) as raised:
        model.generate_until([generation(str(n)) for n in range(20)])
    assert 'The reply begins: {"choices": [{"index": 0, "text": "re: ' in str(raised.value)
    assert len(server.requests) == 1


def test_a_reader_of_scores_that_never_succeeds_ends_the_run_at_once(server: Server) -> None:
    server.answer = echo_reply
    model = FaultyScores(
        base_url=server.url, model="m", tokenizer=TOKENIZER, num_concurrent=1, batch_size=1
    )
    with pytest.raises(ModelError, match=r"FaultyScores\.parse_logprobs failed: KeyError: 'total'"):
        model.loglikelihood([scoring("a", f" b{n}") for n in range(20)])
    assert len(server.requests) == 1


def test_a_sender_that_never_succeeds_ends_the_run_at_once() -> None:
    calls = []

    class Sender(StaticParser):
        def model_call(self, messages: Any, **kwargs: Any) -> Any:
            calls.append(messages)
            return {"answers": []}["choices"]

    model = Sender("http://127.0.0.1:1", model="m")
    with pytest.raises(ModelError, match=r"Sender\.model_call failed: KeyError: 'choices'"):
        model.generate_until([generation(str(n)) for n in range(20)])
    assert len(calls) == 1


def test_a_body_that_is_not_json_ends_the_run_at_once(server: Server) -> None:
    class Odd(StaticParser):
        def _create_payload(self, messages: Any, **kwargs: Any) -> Any:
            return {"prompt": messages, "stop": {1, 2}}

    with pytest.raises(ModelError, match="cannot be written as JSON: Object of type set"):
        Odd(server.url, model="m").generate_until([generation("a")])


def test_the_repeats_of_a_sampled_answer_have_seeds_of_their_own(server: Server) -> None:
    model = InstanceParser(base_url=server.url, model="m", tokenizer_backend=None, seed=10)
    server.answer = text_reply
    request = Instance(
        "generate_until", {}, ("a", {"do_sample": True, "temperature": 1.0}), 0, ("task", 0, 3)
    )
    model.generate_until([request] * 3)
    first = seed_of_prompt(10, "a")
    assert sorted(body["seed"] for body in server.bodies) == [first, first + 1, first + 2]


def test_answers_are_reported_while_the_class_works(server: Server) -> None:
    server.answer = text_reply
    model = StaticParser(server.url, model="m")
    reported: list[Any] = []
    model.set_cache_hook(CacheHook(lambda kind, arguments, answer: reported.append((kind, answer))))
    model.generate_until([generation("a"), generation("b")])
    assert sorted(reported) == [("generate_until", "RE: A"), ("generate_until", "RE: B")]


def test_a_task_is_evaluated_with_a_third_party_class(server: Server) -> None:
    class Wise(OwnMessages):
        @staticmethod
        def parse_generations(outputs: Any, **kwargs: Any) -> Any:  # type: ignore[override]
            return [choice["message"]["content"] for choice in outputs["choices"]]

    results = lm_eval.simple_evaluate(
        model=Wise(base_url=server.url, model="m"), tasks=["demo_sums"], limit=3
    )
    assert results is not None
    assert results["results"]["demo_sums"]["sample_len"] == 3
    assert len(server.requests) >= 3


# -- our classes and their servers -----------------------------------------------------------------


def test_images_are_sent_with_a_chat(server: Server) -> None:
    class Image:
        def save(self, file: Any, format: str) -> None:
            file.write(b"bytes")

    server.answer = lambda body: {"choices": [{"index": 0, "message": {"content": "a cat"}}]}
    arguments = (chat("What?"), {}, {"visual": [Image(), Image()]})
    request = Instance("generate_until", {}, arguments, 0, ("task", 0, 1))

    class Third(LocalChatCompletion):
        def parse_generations(self, outputs: Any = None, **kwargs: Any) -> Any:
            return super().parse_generations(outputs)

    for kind in (LocalChatCompletion, Third):
        model = kind(base_url=server.url, model="m", probe=False, max_images=1)
        assert model.generate_until([request]) == ["a cat"]
        parts = server.bodies[-1]["messages"][0]["content"]
        assert [part["type"] for part in parts] == ["image_url", "text"]


def test_azure_is_asked_at_its_deployment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-key")
    model = AzureOpenaiChatCompletionsLM(model="dep", base_url=server.url + "/", probe=False)
    assert model.generate_until([generation(chat(), max_gen_toks=5)]) == ["re: Hi"]
    ((path, headers, body),) = server.requests
    assert path == "/openai/deployments/dep/chat/completions?api-version=2025-03-01-preview"
    assert headers["api-key"] == "azure-key"
    assert "Authorization" not in headers
    assert body == {
        "model": "dep",
        "messages": CHAT,
        "max_completion_tokens": 5,
        "temperature": 0.0,
    }


def test_azure_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://x.openai.azure.com")
    monkeypatch.setenv("AZURE_OPENAI_DEPLOYMENT_NAME", "dep")
    monkeypatch.setenv("AZURE_OPENAI_API_VERSION", "2026-01-01")
    model = AzureOpenaiChatCompletionsLM()
    expected = "https://x.openai.azure.com/openai/deployments/dep/chat/completions"
    assert model.base_url == f"{expected}?api-version=2026-01-01"
    full = "https://x.openai.azure.com/openai/v1/chat/completions"
    assert AzureOpenaiChatCompletionsLM(base_url=full).base_url == full


def anthropic_reply(body: Any) -> Any:
    blocks = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hello"}]
    return {"content": blocks, "stop_reason": "end_turn", "usage": {"output_tokens": 3}}


def test_anthropic_messages(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "anthropic-key")
    server.answer = anthropic_reply
    model = AnthropicChat(model="claude", base_url=f"{server.url}/v1/messages", probe=False)
    turns = [{"role": "system", "content": "Be brief."}, *CHAT]
    prompt = model.apply_chat_template(turns)
    (answer,) = model.generate_until([generation(prompt, until=["\n\n", "X"], max_gen_toks=9)])
    assert answer == "hello"
    assert isinstance(answer, Completion)
    assert answer.reasoning == "hm"
    ((path, headers, body),) = server.requests
    assert path == "/v1/messages"
    assert headers["x-api-key"] == "anthropic-key"
    assert headers["anthropic-version"] == "2023-06-01"
    assert body["system"] == "Be brief."
    assert (body["max_tokens"], body["stop_sequences"], body["temperature"]) == (9, ["X"], 0)


def test_the_published_body_of_anthropic_messages() -> None:
    model = AnthropicChat(model="claude", tokenizer_backend=None)
    turns = [{"role": "system", "content": "Be brief."}, *CHAT]
    assert model._create_payload(turns, gen_kwargs={"until": ["\n\n", " "]}) == {
        "system": "Be brief.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "model": "claude",
        "max_tokens": 256,
        "temperature": 0,
        "stop_sequences": ["\n\nHuman:"],
    }
    assert model._create_payload(CHAT, gen_kwargs={})["stop_sequences"] == ["\n\nHuman:"]
    assert model.parse_generations(anthropic_reply({})) == ["hello"]


def test_anthropic_completions(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "anthropic-key")
    server.answer = lambda body: {"completion": " yes", "stop_reason": "stop_sequence"}
    model = AnthropicLM(
        model="claude-2",
        base_url=f"{server.url}/v1/complete",
        top_p=0.5,
        temperature=1,
        probe=False,
    )
    requests = [generation("Really?", until=["."]), generation("Sure?", temperature=0.0)]
    assert model.generate_until(requests) == [" yes", " yes"]
    body = next(body for body in server.bodies if "Really" in body["prompt"])
    assert body == {
        "model": "claude-2",
        "prompt": "\n\nHuman: Really?\n\nAssistant:",
        "max_tokens_to_sample": 256,
        "temperature": 1.0,
        "stop_sequences": ["\n\nHuman:", "."],
        "top_p": 0.5,
    }
    assert sorted(body["temperature"] for body in server.bodies) == [0.0, 1.0]
    assert server.requests[0][1]["x-api-key"] == "anthropic-key"
    with pytest.raises(NotImplementedError):
        model.loglikelihood([])


def test_answers_of_gguf_models_are_stripped(server: Server) -> None:
    server.answer = lambda body: {"choices": [{"index": 0, "text": "  text \n"}]}
    model = GGUFLM(server.url, probe=False)
    assert model.generate_until([generation("a"), generation("b", until=["z"])]) == ["text"] * 2
    assert sorted(body["stop"] for body in server.bodies) == [["</s>"], ["z"]]


def test_a_gguf_class_may_send_requests_itself() -> None:
    class Own(GGUFLM):
        def gguf_completion(  # type: ignore[override]
            self, context: str, continuation: str | None = None, stop: Any = None, **kwargs: Any
        ) -> Any:
            if continuation is None:
                return {"choices": [{"text": f" until {stop} "}]}
            logprobs = {
                "text_offset": [0, len(context), len(context + continuation)],
                "tokens": [context, continuation, "."],
                "token_logprobs": [None, -1.5, -1.0],
                "top_logprobs": [None, {continuation: -1.5}, {".": -1.0}],
            }
            return {"choices": [{"logprobs": logprobs}]} if context else {}

    model = Own(NOWHERE)
    assert model.generate_until([generation("a")]) == ["until ['</s>']"]
    first, second = model.loglikelihood([scoring("a", " b"), scoring("", "c")])
    assert first == (-1.5, True)
    assert isinstance(second, Failure)


# -- litellm ---------------------------------------------------------------------------------------


class LiteLLMError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"litellm says {status}")
        self.status_code = status


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a stand-in for the package, whose calls are recorded in `calls`."""
    module: Any = types.ModuleType("litellm")
    module.calls, module.failures = [], []

    def completion(**settings: Any) -> Any:
        module.calls.append(settings)
        if module.failures:
            raise module.failures.pop(0)
        return types.SimpleNamespace(model_dump=lambda: chat_reply(settings))

    async def acompletion(**settings: Any) -> Any:
        return completion(**settings)

    module.completion, module.acompletion = completion, acompletion
    monkeypatch.setitem(sys.modules, "litellm", module)
    return module


def test_litellm_sends_the_requests(litellm: Any) -> None:
    model = LiteLLMChatCompletion(model="anthropic/claude", num_concurrent=4)
    litellm.failures += [LiteLLMError(429), LiteLLMError(500), ConnectionError("gone")]
    requests = [generation(chat(str(n)), max_gen_toks=3, until=["x"]) for n in range(3)]
    model._probes = False
    assert model.generate_until(requests) == ["re: 0", "re: 1", "re: 2"]
    assert len(litellm.calls) == 6
    call = litellm.calls[0]
    assert call["model"] == "anthropic/claude"
    assert call["max_tokens"] == 3
    assert call["stop"] == ["x"]
    assert (call["drop_params"], call["num_retries"], call["max_retries"]) == (True, 0, 0)
    assert "base_url" not in call


def test_litellm_probes_with_the_same_calls(litellm: Any) -> None:
    model = LiteLLMChatCompletion(model="m", base_url="http://proxy:4000")
    assert model.certificate.dialect == "chat"
    assert {call["base_url"] for call in litellm.calls} == {"http://proxy:4000"}


def test_a_refused_key_of_litellm_ends_the_run(litellm: Any) -> None:
    litellm.failures += [LiteLLMError(401)]
    with pytest.raises(ModelError, match="401: litellm says 401"):
        LiteLLMChatCompletion(model="m", probe=False).generate_until([generation(chat())])


def test_litellm_has_the_published_methods(litellm: Any) -> None:
    model = LiteLLMChatCompletion(model="m")
    assert model.tokenized_requests is False
    assert model.tok_encode("text") == "text"
    assert model._litellm is litellm
    assert model.model_call((chat(),), generate=True, gen_kwargs={}) == chat_reply(
        {"messages": CHAT}
    )
    hook = PartialHook()
    model.set_cache_hook(hook)  # type: ignore[arg-type]
    sem = asyncio.Semaphore(1)

    async def call() -> Any:
        return await model.amodel_call(
            session=None, sem=sem, messages=(chat(),), cache_keys=[("key", {})], gen_kwargs={}
        )

    assert asyncio.run(call()) == ["re: Hi"]
    assert hook.reported == [("generate_until", ("key", {}), "re: Hi")]
    litellm.failures += [RuntimeError("down")]
    with pytest.raises(RuntimeError, match="down"):
        asyncio.run(call())
    assert not sem.locked()


def test_litellm_that_is_missing_or_malicious_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(ModelError, match="pip install 'litellm>="):
        LiteLLMChatCompletion(model="m")
    for version in ("1.82.7", "1.82.8"):
        monkeypatch.setattr(importlib.metadata, "version", lambda name, found=version: found)
        with pytest.raises(ConfigError, match="stole credentials"):
            LiteLLMChatCompletion(model="m")


# -- names and refusals ----------------------------------------------------------------------------


NAMES = {
    "anthropic-chat": AnthropicChat,
    "anthropic-chat-completions": AnthropicChat,
    "anthropic-completions": AnthropicLM,
    "azure-openai-chat-completions": AzureOpenaiChatCompletionsLM,
    "ggml": GGUFLM,
    "gguf": GGUFLM,
    "litellm": LiteLLMChatCompletion,
    "litellm-chat": LiteLLMChatCompletion,
    "litellm-chat-completions": LiteLLMChatCompletion,
    "local-chat-completions": LocalChatCompletion,
    "local-completions": LocalCompletionsAPI,
    "openai-chat-completions": OpenAIChatCompletion,
    "openai-completions": OpenAICompletionsAPI,
    "sglang-generate": SGLANGGENERATEAPI,
}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_published_names_are_registered(name: str) -> None:
    assert get_model(name) is NAMES[name]
    assert name in MODEL_MAPPING
    assert name not in NOT_YET


def check(name: str, chats: bool = True, **arguments: Any) -> None:
    check_before_loading(RunConfig(name, arguments, apply_chat_template=chats))


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai-completions", "OPENAI_API_KEY"),
        ("openai-chat-completions", "OPENAI_API_KEY"),
        ("anthropic-chat", "ANTHROPIC_API_KEY"),
        ("anthropic-completions", "ANTHROPIC_API_KEY"),
        ("azure-openai-chat-completions", "AZURE_OPENAI_API_KEY"),
    ],
)
def test_a_missing_key_is_reported_with_its_variable(
    name: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = {"base_url": "https://x.openai.azure.com"} if name.startswith("azure") else {}
    with pytest.raises(ConfigError, match=f"environment variable {variable}"):
        check(name, model="m", **address)
    with pytest.raises(ConfigError, match=f"environment variable {variable}"):
        _ = NAMES[name](model="m", **address).api_key
    with pytest.raises(ConfigError, match="environment variable MY_KEY"):
        check(name, model="m", api_key_env="MY_KEY", **address)
    monkeypatch.setenv("MY_KEY", "k")
    check(name, model="m", api_key_env="MY_KEY", **address)
    monkeypatch.setenv(variable, "k")
    check(name, model="m", **address)


@pytest.mark.parametrize("name", ["local-completions", "local-chat-completions", "gguf"])
def test_an_unknown_argument_is_refused_with_the_nearest_name(name: str) -> None:
    with pytest.raises(
        ConfigError, match=f"{name}.*takes no argument 'num_concurent'.*num_concurrent"
    ):
        check(name, base_url=NOWHERE, model="m", num_concurent=4)
    check(name, base_url=NOWHERE, model="m", num_concurrent=4)


def test_arguments_of_subclasses_are_known() -> None:
    with pytest.raises(ConfigError, match=r"takes no argument 'api_versoin'.*api_version"):
        check("azure-openai-chat-completions", base_url=NOWHERE, model="m", api_versoin="x")
    with pytest.raises(ConfigError, match="AZURE_OPENAI_DEPLOYMENT_NAME"):
        check("azure-openai-chat-completions", base_url=NOWHERE)
    with pytest.raises(ConfigError, match="AZURE_OPENAI_ENDPOINT"):
        check("azure-openai-chat-completions", model="m")


def test_what_a_run_needs_is_reported_before_it_begins() -> None:
    with pytest.raises(ConfigError, match="needs the name of the model"):
        check("local-completions", base_url=NOWHERE)
    with pytest.raises(ConfigError, match="needs the address"):
        check("local-completions", model="m")
    with pytest.raises(ConfigError, match="--apply_chat_template"):
        check("local-chat-completions", chats=False, base_url=NOWHERE, model="m")
    check("gguf", base_url=NOWHERE)


def test_a_third_party_class_has_requirements_of_its_own() -> None:
    OwnMessages.check_before_loading({"anything": 1}, chat_template=False)
    StaticParser.check_before_loading({}, chat_template=False)


def test_text_is_refused_by_a_chat_class() -> None:
    with pytest.raises(ConfigError, match="--apply_chat_template"):
        LocalChatCompletion(base_url=NOWHERE, model="m")._create_payload("text", gen_kwargs={})
