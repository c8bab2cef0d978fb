"""Tests that arguments which are no numbers are refused before anything is sent."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from lm_eval.cli import main
from lm_eval.errors import ConfigError
from lm_eval.models.anthropic_llms import AnthropicLM
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.models.served.model import ServedLM
from lm_eval.models.served.numbers import NUMBERS

NOWHERE = {"base_url": "http://127.0.0.1:1", "model": "m"}

WRONG = [
    ("price_in", "cheap", "the price of a million tokens"),
    ("price_out", "", "the price of a million tokens"),
    ("price_in", -1, "at least 0"),
    ("price_out", float("nan"), "the price of a million tokens"),
    ("timeout", "soon", "a number of seconds above 0"),
    ("timeout", 0, "above 0"),
    ("timeout", -5.0, "above 0"),
    ("timeout", "nan", "a number of seconds"),
    ("num_concurrent", "many", "a number of requests, at least 1"),
    ("thinking_budget", 0, "an integer of at least 1"),
    ("num_concurrent", 0, "at least 1"),
    ("num_concurrent", 2.5, "a number of requests"),
    ("num_concurrent", True, "a number of requests"),
    ("max_retries", "x", "a number of attempts"),
    ("max_retries", -1, "at least 0"),
    ("deadline", "", "a number of seconds above 0"),
    ("deadline", "inf", "a number of seconds above 0"),
    ("batch_size", "big", "or 'auto'"),
    ("batch_size", -2, "at least 1"),
    ("max_length", "long", "a number of tokens"),
    ("max_gen_toks", 0, "at least 1"),
    ("seed", "x", "a whole number"),
    ("custom_prefix_token_id", -1, "the id of a token"),
    ("max_images", "none", "a number of images"),
]


@pytest.mark.parametrize(("name", "value", "expected"), WRONG)
@pytest.mark.parametrize("model_class", [ServedLM, LocalCompletionsAPI])
def test_a_wrong_number_is_refused_with_its_name_and_what_is_expected(
    name: str, value: Any, expected: str, model_class: type[ServedLM]
) -> None:
    with pytest.raises(ConfigError) as raised:
        model_class(**{**NOWHERE, name: value})
    message = str(raised.value)
    assert message.startswith(f"{name} must be ")
    assert expected in message
    assert message.endswith(f"not {value!r}.")


def test_numbers_may_be_given_as_text() -> None:
    lm = ServedLM(
        **NOWHERE,  # type: ignore[arg-type]
        num_concurrent="8",  # type: ignore[arg-type]
        timeout="1e1",  # type: ignore[arg-type]
        max_retries=4.0,  # type: ignore[arg-type]
        batch_size="auto:4",
        seed=-3,
    )
    assert (lm._concurrent, lm.timeout, lm.max_retries, lm._batch_size, lm.seed) == (
        *(8, 10.0, 4),
        *(1, -3),
    )
    large = 2**63 + 1
    assert ServedLM(**NOWHERE, seed=str(large)).seed == large  # type: ignore[arg-type]


def test_every_number_of_the_constructor_is_checked() -> None:
    parameters = inspect.signature(ServedLM.__init__).parameters.values()
    numeric = {p.name for p in parameters if str(p.annotation).startswith(("int", "float"))}
    assert numeric
    assert numeric <= set(NUMBERS) & {name for name, _, _ in WRONG}


def test_the_numbers_of_anthropic_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    with pytest.raises(ConfigError, match="max_tokens_to_sample must be"):
        AnthropicLM(max_tokens_to_sample="all")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="temperature must be"):
        AnthropicLM(temperature="warm")  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["run", "doctor"])
def test_a_wrong_number_is_reported_before_anything_is_sent(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = "base_url=http://127.0.0.1:1,model=m,price_in=cheap"
    words = [command, "--model", "local-completions", "--model_args", arguments]
    if command == "run":
        words += ["--tasks", "demo_sums"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "price_in must be the price of a million tokens" in error
    assert "cannot be reached" not in error
