"""Tests which answers are asked for, in which order they are stored, and for which models."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import aiohttp
import pytest
from tokenizers import AddedToken

from lm_eval.api.instance import Failure, Instance
from lm_eval.config.run import RunConfig
from lm_eval.models.identity import model_identity
from lm_eval.models.planned.jobs import Window
from lm_eval.models.planned.repeats import RepeatOrder, seed_of_prompt
from lm_eval.models.planned.score_plan import Abilities, ScorePlan, WholeJob
from lm_eval.models.served.certificate import Certificate
from lm_eval.models.served.dialects.anthropic import AnthropicMessages
from lm_eval.models.served.dialects.llama_server import LlamaServer
from lm_eval.models.served.model import ServedLM
from lm_eval.models.served.retry import RetryPolicy
from lm_eval.models.served.transport import HttpSettings, HttpTransport, Reply, UnreachableError
from lm_eval.models.tokenizer import compile_chat_template
from tests.served.stub_transport import StubTransport

ADDRESS = "http://127.0.0.1:1"


class Stubbed(ServedLM):
    """Sends requests to `stub`, without a probe."""

    retry_policy = RetryPolicy(base=0.01, longest=0.02)

    def __init__(self, stub: StubTransport, tokenizer_backend: str = "none", **given: Any) -> None:
        given = {"model": "m", "base_url": ADDRESS, "probe": False, **given}
        super().__init__(tokenizer_backend=tokenizer_backend, **given)
        self._stub = stub

    def make_transport(self) -> Any:
        return self._stub


class Reports:
    """A cache hook that remembers what is reported, in order."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def add_batch(self, kind: str, arguments: Sequence[Any], answers: Sequence[Any]) -> None:
        self.answers += answers


def text(answer: str, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": answer}], **fields}


def generation(repeats: int = 1, **settings: Any) -> Instance:
    given = {"until": ["\n"], **settings}
    return Instance("generate_until", {}, ("1 + 1 =", given), 0, ("sums", 0, repeats))


# -- repeats ------------------------------------------------------------------------------------


def test_repeats_are_reported_in_the_order_of_their_seeds() -> None:
    """Else a run that continues after a crash would sample with the seed of a stored answer."""
    later_ones = threading.Event()
    first = seed_of_prompt(7, "1 + 1 =")

    async def answer(body: Any, attempt: int) -> Any:
        if body["seed"] == first:  # the first repeat is the last to be answered
            await asyncio.to_thread(later_ones.wait, 5)
        if body["seed"] == first + 2:
            asyncio.get_running_loop().call_later(0.2, later_ones.set)
        return text(str(body["seed"]))

    lm = Stubbed(StubTransport(answer), seed=7)
    lm.dialect.accepts_samples = False
    reports = Reports()
    lm.cache_hook = reports  # type: ignore[assignment]
    request = generation(3, do_sample=True, temperature=1.0)
    expected = [str(first + repeat) for repeat in range(3)]
    assert lm.generate_until([request] * 3, disable_tqdm=True) == expected
    assert reports.answers == expected


def test_an_answer_waits_only_for_earlier_repeats_of_its_own_request() -> None:
    first, second = generation(), generation()
    order = RepeatOrder([first, first, first, second, second])
    assert order.add([1, 3]) == [3]
    assert order.add([2]) == []
    assert order.add([4, 0]) == [0, 1, 2, 4]


def test_long_sampled_answers_are_asked_for_one_by_one() -> None:
    """Else the finished ones would be lost with the one that is still being written."""
    asked: list[Any] = []

    def answer(body: Any, attempt: int) -> Any:
        asked.append((body.get("n", 1), body["seed"]))
        return {"choices": [{"index": i, "text": "x"} for i in range(body.get("n", 1))]}

    first = seed_of_prompt(7, "1 + 1 =")
    for length, expected in ((512, [(3, first)]), (513, [(1, first + n) for n in range(3)])):
        asked.clear()
        lm = Stubbed(StubTransport(answer), seed=7)
        lm.dialect.accepts_samples = True
        request = generation(3, do_sample=True, temperature=1.0, max_gen_toks=length)
        assert lm.generate_until([request] * 3, disable_tqdm=True) == ["x"] * 3
        assert sorted(asked) == expected


# -- thoughts -----------------------------------------------------------------------------------


def test_a_thought_is_cut_after_its_budget_and_the_answer_is_continued() -> None:
    asked: list[Any] = []

    def answer(body: Any, attempt: int) -> Any:
        asked.append((body["prompt"], body["max_tokens"], body.get("stop")))
        if body["prompt"].endswith("</think>"):
            return text(" 2\n3", usage={"completion_tokens": 4})
        short = "short" in body["prompt"]
        reply = text("Hm</think>5" if short else "Hm and", usage={"completion_tokens": 10})
        reply["choices"][0]["finish_reason"] = "stop" if short else "length"
        return reply

    lm = Stubbed(
        StubTransport(answer), think_end_token="</think>", thinking_budget=10, num_concurrent=1
    )
    short = Instance("generate_until", {}, ("short", {"until": ["\n"]}), 0, ("sums", 1, 1))
    found = lm.generate_until([generation(max_gen_toks=40), short], disable_tqdm=True)
    assert [str(one) for one in found] == ["2", "5"]
    assert [one.reasoning for one in found] == ["Hm and", "Hm"]
    assert (found[0].tokens, found[0].reasoning_tokens) == (14, 10)
    assert found[0].finish_reason == "stop"
    assert ("1 + 1 =", 10, None) in asked
    assert ("1 + 1 =Hm and</think>", 30, ["\n"]) in asked
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("fields", "continued"),
    [
        ({"usage": {"completion_tokens": 10}}, True),
        ({"usage": {"completion_tokens": 9}}, False),
        ({}, True),
    ],
)
def test_a_server_that_does_not_say_why_an_answer_ended(
    fields: dict[str, Any], continued: bool
) -> None:
    def answer(body: Any, attempt: int) -> Any:
        return text("2") if body["prompt"].endswith("</think>") else text("Hm and", **fields)

    lm = Stubbed(StubTransport(answer), think_end_token="</think>", thinking_budget=10)
    (found,) = lm.generate_until([generation(max_gen_toks=40)], disable_tqdm=True)
    assert (str(found), found.reasoning) == (("2", "Hm and") if continued else ("Hm and", None))


def test_an_answer_is_sampled_with_another_seed_than_its_thought() -> None:
    seeds: list[tuple[bool, int]] = []

    def answer(body: Any, attempt: int) -> Any:
        second = body["prompt"].endswith("</think>")
        seeds.append((second, body["seed"]))
        reply = text("x" if second else "Hm")
        reply["choices"][0]["finish_reason"] = "stop" if second else "length"
        return reply

    lm = Stubbed(StubTransport(answer), think_end_token="</think>", thinking_budget=10, seed=7)
    request = generation(3, do_sample=True, temperature=1.0, max_gen_toks=40)
    lm.generate_until([request] * 3, disable_tqdm=True)
    assert len(set(seeds)) == 6
    assert len({seed for _, seed in seeds}) == 6
    first = sorted(seeds)
    seeds.clear()
    lm.generate_until([request] * 3, disable_tqdm=True)
    assert sorted(seeds) == first


class Chat(Stubbed):
    """A server of chats, `told` by the probe."""

    kind = "chat"
    told: ClassVar[dict[str, Any]] = {}

    def assumed_certificate(self) -> Certificate:
        return Certificate(dialect="chat", samples=False, **self.told)


def reasoned(content: str, **more: Any) -> dict[str, Any]:
    message = {"content": content, "reasoning_content": "Let me\nsee."}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], **more}


def test_stop_strings_do_not_end_thoughts_that_the_server_separates() -> None:
    """Servers look for them in all that is generated, so that the answer would be empty."""
    asked: list[Any] = []

    def answer(body: Any, attempt: int) -> Any:
        asked.append(body.get("stop"))
        return reasoned("" if body.get("stop") else "2\n3")

    lm = Chat(StubTransport(answer), num_concurrent=1)
    found = lm.generate_until([generation(), generation()], disable_tqdm=True)
    assert found == ["2", "2"]
    assert asked == [["\n"], None, None]
    assert {one.finish_reason for one in found} == {"stop"}
    asked.clear()
    lm = Chat(StubTransport(answer), num_concurrent=1)
    lm.told = {"reasoning": "reasoning_content"}  # type: ignore[misc]
    assert lm.generate_until([generation()], disable_tqdm=True) == ["2"]
    assert asked == [None]


def test_thoughts_that_the_server_does_not_cut_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SGLang ignores the budget unless it runs with --enable-strict-thinking."""

    def answer(body: Any, attempt: int) -> Any:
        length = 400 if attempt == 2 else 100
        details = {"completion_tokens_details": {"reasoning_tokens": length}}
        return reasoned("2", usage={"completion_tokens": length + 9, **details})

    lm = Chat(StubTransport(answer), thinking_budget=100, num_concurrent=1)
    lm.generate_until([generation()], disable_tqdm=True)
    assert "has not cut" not in caplog.text
    lm.generate_until([generation()], disable_tqdm=True)
    assert "thoughts of 1 of 1 answers are longer than thinking_budget=100" in caplog.text
    assert "--enable-strict-thinking" in caplog.text


def test_an_answer_without_a_thought_may_be_empty() -> None:
    def answer(body: Any, attempt: int) -> Any:
        message = {"content": "", "reasoning_content": None}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    stub = StubTransport(answer)
    assert Chat(stub).generate_until([generation()], disable_tqdm=True) == [""]
    assert stub.sent.total() == 1


@pytest.mark.parametrize(
    ("server", "special", "kept"),
    [("vLLM 0.30.0", True, False), ("vLLM 0.30.0", False, None), ("llama-server", True, None)],
)
def test_a_mark_that_is_a_special_token_is_kept_in_texts(
    server: str, special: bool, kept: bool | None
) -> None:
    bodies: list[Any] = []

    def answer(body: Any, attempt: int) -> Any:
        bodies.append(body)
        message = {"content": "Hm[/THINK]2"}
        return {"choices": [{"index": 0, "message": message}]}

    class Coder:
        eos_text = None
        object = SimpleNamespace(added_tokens_decoder={5: AddedToken("[/THINK]", special=special)})

        def encode(self, texts: Any, special: Any = None) -> Any:
            return [[0] for _ in texts]

    lm = Chat(StubTransport(answer), think_end_token="[/THINK]")
    lm.told = {"server": server}  # type: ignore[misc]
    lm.__dict__["served_tokenizer"] = Coder()
    assert lm.generate_until([generation()], disable_tqdm=True) == ["2"]
    assert bodies[0].get("skip_special_tokens") is kept


# -- stop strings -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [({}, ["\n", "<eos>"]), ({"think_end_token": "</think>"}, ["<eos>"])],
)
def test_stop_strings_do_not_end_thinking_text(arguments: dict[str, Any], sent: list[str]) -> None:
    asked: list[Any] = []

    def answer(body: Any, attempt: int) -> Any:
        asked.append(body["stop"])
        return text("One\nTwo</think>2\n3")

    lm = Stubbed(StubTransport(answer), eos_string="<eos>", **arguments)
    (found,) = lm.generate_until([generation()], disable_tqdm=True)
    assert asked == [sent]
    assert found == ("2" if arguments else "One")
    assert found.reasoning == ("One\nTwo" if arguments else None)


# -- scores -------------------------------------------------------------------------------------


def test_a_score_that_is_not_a_number_is_a_failure() -> None:
    plan = ScorePlan([Window([1, 2], 1), Window([1, 3], 1)], Abilities())
    ((_, score),) = plan.add(WholeJob((0,)), [(math.nan, True)])
    assert isinstance(score, Failure)
    assert "NaN" in score.reason
    assert plan.add(WholeJob((1,)), [(-math.inf, False)]) == [(1, (-math.inf, False))]


# -- identity -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other", [{"max_length": 100}, {"max_gen_toks": 9}, {"add_bos_token": True}, {"seed": 3}]
)
def test_objects_with_other_settings_have_answers_of_their_own(other: dict[str, Any]) -> None:
    def identity(**given: Any) -> str:
        lm = Stubbed(StubTransport(lambda body, attempt: {}), **given)
        return model_identity(RunConfig(model=lm), lm)

    assert identity() == identity()
    assert identity(**other) != identity()


def test_the_length_that_prompts_are_cut_to_is_part_of_the_identity() -> None:
    stub = StubTransport(lambda body, attempt: {})
    assert Stubbed(stub).identity() != Stubbed(stub, max_length=4096).identity()


# -- tokens -------------------------------------------------------------------------------------


def test_the_server_may_be_away_for_a_moment_while_prompts_are_tokenized() -> None:
    def answer(body: Any, attempt: int) -> Any:
        if body == "GET":
            return Reply(404, b"")
        if attempt < 3:
            raise UnreachableError("refused")
        return {"tokens": [len(body["prompt"])]}

    lm = Stubbed(StubTransport(answer), "remote")
    assert lm.tok_encode("four") == [4]


def test_tokens_from_a_cache_are_counted_as_part_of_the_prompt() -> None:
    reply = {"usage": {"input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": 3}}
    counted = AnthropicMessages("m").usage(reply)
    assert (counted.prompt, counted.cached, counted.answer) == (105, 100, 3)
    assert AnthropicMessages("m").usage({}).prompt == 0
    # `tokens_cached` counts the whole sequence, the answer included.
    answer = {"tokens_evaluated": 10, "tokens_predicted": 4, "tokens_cached": 13}
    server = LlamaServer("m")
    assert server.usage(answer).cached == 0
    assert server.usage({**answer, "timings": {"prompt_n": 3}}).cached == 7


# -- keys and addresses -------------------------------------------------------------------------


def test_a_host_that_does_not_let_connect_cannot_be_reached() -> None:
    """Not a request that timed out, which is retried a few times and then left out."""

    class Hanging:
        async def __aenter__(self) -> Any:
            raise aiohttp.ServerTimeoutError("Connection timeout to host")

        async def __aexit__(self, *error: object) -> None: ...

    async def send() -> None:
        async with HttpTransport(HttpSettings()) as transport:
            await transport._send(Hanging())

    with pytest.raises(UnreachableError, match="no connection within 30 s"):
        asyncio.run(send())


def test_a_chat_template_is_rendered_as_by_transformers() -> None:
    source = "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m | tojson }}"
    template = compile_chat_template(source + "{% endfor %}")
    assert template.render(messages=[{"a": "<ü>"}, {}]) == '{"a": "<ü>"}'


def test_a_key_that_was_passed_comes_before_the_variable_of_the_backend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The variable may contain the key of another server."""
    monkeypatch.setenv("OPENAI_API_KEY", "of OpenAI")
    monkeypatch.setenv("NAMED", "named")
    stub = StubTransport(lambda body, attempt: {})
    assert Stubbed(stub).api_key == "of OpenAI"
    assert Stubbed(stub, auth_token="given").api_key == "given"
    assert Stubbed(stub, auth_token="given", api_key_env="NAMED").api_key == "named"


def test_different_prompts_are_sampled_with_different_seeds() -> None:
    """Otherwise the errors of sampling would be the same for all documents."""
    seeds = {seed_of_prompt(1234, f"question {number}") for number in range(1000)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert seed_of_prompt(1234, "a") == seed_of_prompt(1234, "a") != seed_of_prompt(5, "a")
