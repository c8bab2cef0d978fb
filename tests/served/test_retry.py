"""Tests what is done about replies that are no answers: retry, give up, or end the run."""

from __future__ import annotations

import json
import random
from email.utils import formatdate
from typing import Any

import pytest

from lm_eval.models.planned.jobs import Prompt, Sampling
from lm_eval.models.served.dialects.base import LearnedParameters
from lm_eval.models.served.dialects.chat import Chat
from lm_eval.models.served.dialects.completions import Completions
from lm_eval.models.served.retry import Abort, GiveUp, Retry, RetryPolicy, judge, retry_after
from lm_eval.models.served.transport import Reply
from lm_eval.redaction import credentials


def refusal(message: str, status: int = 400, **fields: Any) -> Reply:
    return Reply(status, json.dumps({"error": {"message": message, **fields}}).encode())


# -- verdicts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 503, 529])
def test_an_overloaded_server_is_asked_again(status: int) -> None:
    assert judge(refusal("busy", status)) == Retry(f"status {status}: busy", None, overload=True)


@pytest.mark.parametrize("status", [408, 409, 425, 500, 502, 504, 520, 524, 599])
def test_a_passing_error_is_retried_and_is_no_overload(status: int) -> None:
    assert judge(refusal("x", status)) == Retry(f"status {status}: x", None, overload=False)


@pytest.mark.parametrize("status", [400, 413, 414, 422, 451, 304])
def test_a_refusal_concerns_its_request_only(status: int) -> None:
    assert judge(refusal("too long", status)) == GiveUp(f"status {status}: too long")


@pytest.mark.parametrize("status", [401, 402, 403, 404, 405, 407])
def test_an_error_of_key_or_address_ends_the_run(status: int) -> None:
    assert judge(refusal("no", status)) == Abort(f"status {status}: no")


def test_an_account_without_credit_ends_the_run() -> None:
    reply = refusal("You exceeded your current quota", 429, code="insufficient_quota")
    assert judge(reply) == Abort("status 429: You exceeded your current quota")


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"error": {"message": "a\\n  b"}}', "a b"),
        (b'{"error": "text"}', "text"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b'{"message": "m", "object": "error"}', "m"),
        (b"Internal Server Error", "Internal Server Error"),
        (b"", "no message"),
        (b"[1, 2]", "[1, 2]"),
        (b"\xff", "�"),
        (b"x" * 1000, "x" * 300 + "…"),
    ],
)
def test_the_message_is_found_where_servers_put_it(body: bytes, shown: str) -> None:
    assert judge(Reply(500, body)) == Retry(f"status 500: {shown}")


# -- Retry-After -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After": " 3 "}, 3.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "Retry-After": "9"}, 0.25),
        ({"Retry-After": formatdate(1000.0, usegmt=True)}, 100.0),
        ({"Retry-After": formatdate(800.0, usegmt=True)}, 0.0),
        ({"Retry-After": "3600"}, 3600.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "."}, None),
        ({"Retry-After": "²"}, None),
        ({"Retry-After": "Mon, 99 Foo 99999 99:99:99 GMT"}, None),
        ({"Retry-After": "Mon, 01 Jan 999999999999999999 00:00:00 GMT"}, None),
        ({"retry-after-ms": "soon"}, None),
        ({"retry-after-ms": "nan"}, 0.0),
    ],
)
def test_retry_after_is_read_in_all_its_forms(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(headers, now=900.0) == seconds


def test_the_wait_doubles_with_jitter_up_to_the_longest() -> None:
    policy, rng = RetryPolicy(base=1.0, longest=30.0), random.Random(0)
    for failures, longest in ((1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (1000, 30)):
        waits = {policy.wait(failures, None, rng) for _ in range(100)}
        assert longest / 2 <= min(waits) < max(waits) <= longest
        assert len(waits) > 90


def test_the_server_is_never_asked_before_the_time_that_it_gave() -> None:
    policy, rng = RetryPolicy(), random.Random(0)
    waits = [policy.wait(1, 10.0, rng) for _ in range(100)]
    assert 10.0 <= min(waits) < max(waits) <= 10.1


# -- learned parameters ------------------------------------------------------------------------

UNSUPPORTED_TEMPERATURE = refusal(
    "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) "
    "value is supported.",
    param="temperature",
    code="unsupported_value",
)
OTHER_LENGTH = refusal(
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
    "'max_completion_tokens' instead.",
    param="max_tokens",
    code="unsupported_parameter",
)


def chat_body(dialect: Chat, *messages: tuple[str, str], **sampling: Any) -> dict[str, Any]:
    given = [{"role": role, "content": content} for role, content in messages or [("user", "Hi")]]
    return dialect.generate_payload([Prompt("", messages=given)], Sampling(**sampling))


def test_a_refused_temperature_is_left_out_from_then_on(caplog: pytest.LogCaptureFixture) -> None:
    dialect = Chat("m")
    assert chat_body(dialect)["temperature"] == 0
    assert dialect.adapt(UNSUPPORTED_TEMPERATURE)
    assert "temperature" not in chat_body(dialect)
    assert not dialect.adapt(UNSUPPORTED_TEMPERATURE)
    assert len(caplog.records) == 1
    assert "refuses the parameter temperature" in caplog.text


def test_the_length_gets_the_name_that_the_server_asks_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    dialect = Chat("m")
    assert dialect.adapt(OTHER_LENGTH)
    body = chat_body(dialect, max_tokens=7)
    assert body["max_completion_tokens"] == 7
    assert "max_tokens" not in body
    assert not dialect.adapt(OTHER_LENGTH)
    assert len(caplog.records) == 1


def test_a_beginning_of_the_answer_that_is_refused_becomes_part_of_the_question(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dialect = Chat("m")
    chat = (("user", "2+2?"), ("assistant", "It is"))
    assert chat_body(dialect, *chat)["messages"][-1]["role"] == "assistant"
    reply = refusal("This model does not support assistant message prefill.")
    assert dialect.adapt(reply)
    assert chat_body(dialect, *chat)["messages"] == [{"role": "user", "content": "2+2?\nIt is"}]
    assert not dialect.adapt(reply)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "message",
    [
        "Extra inputs are not permitted: 'seed'",
        "seed is not supported",
        "Unrecognized request argument supplied: seed",
        "Unexpected fields in the request: {'seed'}",
    ],
)
def test_a_refused_parameter_is_found_in_the_words_of_the_server(message: str) -> None:
    parameters = LearnedParameters()
    assert parameters.learn(refusal(message))
    assert parameters.apply({"seed": 1, "prompt": "x"}) == {"prompt": "x"}


@pytest.mark.parametrize(
    "reply",
    [
        refusal("This model's maximum context length is 256 tokens", param="messages"),
        refusal("max_tokens is too large: 9000. At most 4096.", param="max_tokens"),
        refusal("The content was filtered", code="content_filter"),
        refusal("temperature is not supported", status=500),
        refusal("temperature is not supported", status=401),
        Reply(400, b"<html>"),
        Reply(400, b"[]"),
    ],
)
def test_other_refusals_teach_nothing(reply: Reply) -> None:
    dialect = Completions("m")
    before = dialect.generate_payload([Prompt("x")], Sampling(seed=1, until=["."]))
    assert not dialect.adapt(reply)
    assert dialect.generate_payload([Prompt("x")], Sampling(seed=1, until=["."])) == before


# -- keys in headers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "secrets"),
    [
        ({"Authorization": "Bearer sk-1234"}, ["sk-1234"]),
        ({"Authorization": "Basic dXNlcg=="}, ["dXNlcg", ""]),
        ({"x-api-key": "abcdef"}, ["abcdef"]),
        ({"Cookie": "session=one; other=two"}, ["session", "one", "other", "two"]),
        ({"Accept": "application/json", "User-Agent": "lm_eval", "Content-Type": "text/plain"}, []),
        ({}, []),
    ],
)
def test_the_secrets_in_headers_are_known(headers: dict[str, str], secrets: list[str]) -> None:
    assert credentials(headers) == secrets


def test_a_redirect_ends_the_run_and_names_the_target() -> None:
    reply = Reply(301, b"", {"Location": "https://other.example/v1"})
    verdict = judge(reply)
    assert isinstance(verdict, Abort)
    assert "https://other.example/v1" in verdict.reason
