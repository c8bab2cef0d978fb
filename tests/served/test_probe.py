"""Tests what the probe finds out about servers, what it refuses, and what is remembered."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.errors import ModelError
from lm_eval.models.demo import DemoLM
from lm_eval.models.demo.model import WEIGHTS
from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI
from lm_eval.models.served.certificate import Certificate
from lm_eval.models.served.model import ServedLM
from lm_eval.models.served.score_check import PREFIX
from tests.served.fake_dialects import (
    CONTEXT,
    TGI,
    VLLM,
    Chat,
    Completions,
    Drifting,
    LlamaCppPython,
    LlamaServer,
    Ollama,
    OpenAILegacy,
    OtherNextTokens,
    OtherTokens,
    SGLang,
    Together,
    TransformersServe,
    Zeros,
    liar,
)
from tests.served.fake_server import FakeServer, Generated, fake_model, serving

MOST_REQUESTS = 19
"""The maximum number of requests of a probe, those of the tokenizer included."""
FOLDER = {"tokenizer": str(WEIGHTS)}


def model_of(server: FakeServer, **arguments: Any) -> ServedLM:
    """Returns the model behind a running server."""
    model_class = LocalChatCompletion if type(server) is Chat else LocalCompletionsAPI
    given = {"base_url": server.url, "model": server.name, **arguments}
    return model_class(**given)


@dataclass(frozen=True)
class Expected:
    """A kind of server, and what its certificate says; `found` are other properties."""

    make: Callable[[], FakeServer]
    server: str
    dialect: str
    alignment: str = "none"
    found: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)


ALL = {
    **{"tokens": True, "lists": True, "samples": True, "stop": True, "seed": True},
    "sampling": "yes",
}
TEXT_ONLY = {"tokens": False, "lists": False}
KINDS = {
    "vllm": Expected(
        VLLM,
        "vLLM 0.32.0",
        "vllm",
        "aligned",
        {**ALL, "next_tokens": True, "context_length": CONTEXT, "tokenizer": "agrees"},
    ),
    "vllm elsewhere": Expected(
        lambda: VLLM(root="org/demo"), "vLLM 0.32.0", "vllm", "aligned", {**ALL, "tokens": True}
    ),
    "older vllm": Expected(
        lambda: VLLM(version="0.20.1"), "vLLM 0.20.1", "vllm", "aligned", {"next_tokens": False}
    ),
    "sglang": Expected(
        SGLang,
        "SGLang",
        "sglang",
        "aligned",
        {**ALL, "next_tokens": True, "context_length": CONTEXT, "tokenizer": "agrees"},
    ),
    "llama-cpp-python": Expected(
        LlamaCppPython,
        "llama-cpp-python",
        "llama-cpp-python",
        "aligned",
        {**TEXT_ONLY, "samples": False, "seed": True, "stop": True, "tokenizer": "agrees"},
    ),
    "llama-cpp-python without BOS": Expected(
        lambda: LlamaCppPython(bos=False),
        "llama-cpp-python",
        "llama-cpp-python",
        "shifted by one",
        TEXT_ONLY,
    ),
    "llama-server": Expected(
        LlamaServer,
        "llama-server b10586-b21e4de7",
        "llama-server",
        "none",
        {**ALL, "next_tokens": True, "context_length": CONTEXT, "tokenizer": "agrees"},
    ),
    "transformers serve": Expected(
        TransformersServe,
        "unknown",
        "completions",
        # Whether the seed has an effect is not known, since the server does not sample.
        found={
            **{**TEXT_ONLY, "samples": False, "stop": False, "seed": None, "tokenizer": "agrees"},
            "sampling": "no",
        },
    ),
    "tgi": Expected(
        TGI,
        "TGI 3.3.7",
        "completions",
        found={"tokens": False, "lists": True, "samples": False, "stop": True, "sampling": "yes"},
        arguments=FOLDER,
    ),
    "ollama": Expected(Ollama, "Ollama", "completions", found={"lists": False, "samples": False}),
    "openai legacy": Expected(
        OpenAILegacy, "unknown", "echo", "aligned", {**ALL, "next_tokens": False}, FOLDER
    ),
    "together": Expected(
        Together, "unknown", "echo-text", "aligned", {**TEXT_ONLY, "samples": True}, FOLDER
    ),
    "chat": Expected(
        Chat,
        "unknown",
        "chat",
        found={"samples": True, "stop": True, "reasoning": None, "sampling": "yes"},
    ),
    "reasoning": Expected(
        lambda: Chat(reasoning="reasoning"), "unknown", "chat", found={"reasoning": "reasoning"}
    ),
    "reasoning_content": Expected(
        lambda: Chat(reasoning="reasoning_content", samples=False),
        "unknown",
        "chat",
        found={"reasoning": "reasoning_content", "samples": False},
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_probe_names_the_server_and_what_it_does(name: str) -> None:
    expected = KINDS[name]
    with serving(expected.make()) as server:
        found = model_of(server, **expected.arguments).certificate
        assert server.total <= MOST_REQUESTS
    assert (found.server, found.dialect) == (expected.server, expected.dialect)
    assert found.alignment == expected.alignment
    assert {name: getattr(found, name) for name in expected.found} == expected.found


def greedy(dialect: Any) -> Any:
    """Returns a class of servers that ignore the temperature."""

    class Greedy(dialect):  # type: ignore[misc]
        def completions(self, body: Any) -> Any:
            return super().completions({**body, "temperature": 0.0})

        def chat(self, body: Any) -> Any:
            return super().chat({**body, "temperature": 0.0})

    return Greedy


@pytest.mark.parametrize(
    "make", [greedy(VLLM), lambda: greedy(VLLM)(root="org/demo"), greedy(Chat), greedy(TGI)]
)
def test_a_server_that_ignores_the_temperature_is_noticed(make: Any) -> None:
    with serving(make()) as server:
        is_chat = isinstance(server, Chat) and not isinstance(server, VLLM)
        kind: Any = LocalChatCompletion if is_chat else LocalCompletionsAPI
        found = kind(base_url=server.url, model=server.name).certificate
        assert server.total <= MOST_REQUESTS
    assert found.sampling == "no"
    assert found.seed is None


def test_a_few_words_are_weak_evidence_that_a_server_does_not_sample() -> None:
    class Short(greedy(Completions)):  # type: ignore[misc]
        def answer(self, prompt: Any, body: Any, sample: int) -> Generated:
            answer: Generated = super().answer(prompt, {**body, "max_tokens": 3}, sample)
            return answer

    with serving(Short()) as server:
        assert model_of(server, **FOLDER).certificate.sampling == "perhaps not"


def test_a_server_that_says_nothing_is_not_said_to_ignore_the_temperature() -> None:
    class Silent(Completions):
        def answer(self, prompt: Any, body: Any, sample: int) -> Generated:
            return Generated([], "", "", "stop", ended=True)

    with serving(Silent()) as server:
        assert model_of(server, **FOLDER).certificate.sampling == "unknown"


@pytest.mark.parametrize(
    ("short", "words"), [(False, "The server ignores"), (True, "The server perhaps ignores")]
)
def test_a_task_that_samples_is_warned_of_a_server_that_does_not(
    short: bool, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    def ask(lm: ServedLM, task: str, **settings: Any) -> None:
        given = {"until": [], "max_gen_toks": 4, **settings}
        lm.generate_until([Instance("generate_until", {}, ("Ann", given), 0, (task, 0, 1))])

    with serving(TransformersServe()) as server:
        lm = model_of(server)
        if short:
            vars(lm)["certificate"] = replace(lm.certificate, sampling="perhaps not")
        ask(lm, "greedily", do_sample=False, temperature=0.0)
        assert "temperature" not in caplog.text
        ask(lm, "at_random", do_sample=True, temperature=0.7)
    (warning,) = [m for m in caplog.messages if "temperature" in m]
    assert warning.startswith(words)
    assert "at_random" in warning
    caplog.clear()
    with serving(VLLM()) as other:
        ask(model_of(other), "at_random", do_sample=True, temperature=0.7)
    assert "temperature" not in caplog.text


def test_log_probabilities_that_are_shifted_by_one_are_refused() -> None:
    with serving(LlamaCppPython(bos=False)) as server:
        lm = model_of(server)
        reason = lm.cannot_measure("loglikelihood")
        assert reason is not None
        assert "shifted by one token" in reason
        with pytest.raises(ModelError, match="shifted by one token"):
            lm.loglikelihood([Instance("loglikelihood", {}, ("Ann has", " a"), 0)])


def ending_at_once(dialect: type[Completions]) -> type[Completions]:
    """Returns a class of servers that generate no token after the first known text.

    So it is with a token that merges with the one before: it is not found again in the text.
    """

    class EndingAtOnce(dialect):  # type: ignore[valid-type, misc]
        def answer(self, prompt: Any, body: Any, sample: int) -> Generated:
            if body.get("max_tokens") == 1 and self.model.decode(prompt) == PREFIX:
                return Generated([], "", "", "stop", ended=True)
            answer: Generated = super().answer(prompt, body, sample)
            return answer

    return EndingAtOnce


def test_alignment_is_checked_with_another_text_if_the_first_does_not_tell() -> None:
    with serving(ending_at_once(VLLM)()) as server:
        assert model_of(server).certificate.alignment == "aligned"
        assert server.total <= MOST_REQUESTS
    with serving(ending_at_once(LlamaCppPython)(bos=False)) as server:
        assert model_of(server).certificate.alignment == "shifted by one"
        assert server.total <= MOST_REQUESTS


SPEAKING = {"echo": (Completions, FOLDER), "vllm": (VLLM, {}), "sglang": (SGLang, {})}


@pytest.mark.parametrize("dialect", SPEAKING)
@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (OtherTokens, "displaced|belong to other tokens"),
        (Drifting, "change when text follows"),
        (Zeros, "all zero"),
    ],
)
def test_a_server_that_returns_other_values_is_refused(
    lie: type[FakeServer], reason: str, dialect: str
) -> None:
    speaks, arguments = SPEAKING[dialect]
    with serving(liar(lie, speaks)()) as server:
        lm = model_of(server, **arguments)
        assert lm.certificate.alignment == "displaced"
        assert server.total <= MOST_REQUESTS
        server.forget()
        with pytest.raises(ModelError, match=reason):
            lm.loglikelihood([Instance("loglikelihood", {}, ("Ann has", " a"), 0)])
        assert server.total == 0


def test_a_server_that_returns_other_next_tokens_is_refused() -> None:
    with serving(OtherNextTokens()) as server:
        assert "belong to other tokens" in str(model_of(server).cannot_measure("loglikelihood"))


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    """It reads the known text as another number of tokens than the server."""
    shutil.copytree(WEIGHTS, tmp_path / "other")
    file = tmp_path / "other" / "tokenizer.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    data["model"]["merges"] = data["model"]["merges"][:20]
    file.write_text(json.dumps(data), encoding="utf-8")
    with serving(OpenAILegacy()) as server:
        lm = model_of(server, tokenizer=str(tmp_path / "other"))
        assert "pass tokenizer=NAME of the tokenizer of the model" in lm.certificate.tokenizer
        assert "tokenizer does not fit" in str(lm.cannot_measure("loglikelihood"))


# What is remembered


REMEMBERED = ["vllm", "sglang", "llama-cpp-python", "llama-server", "openai legacy", "tgi", "chat"]


@pytest.mark.parametrize("name", REMEMBERED)
def test_a_certificate_is_remembered_while_the_model_stays_the_same(name: str) -> None:
    expected = KINDS[name]
    with serving(expected.make()) as server:
        first = model_of(server, **expected.arguments)
        probed, identity = first.certificate, first.identity()
        server.forget()
        second = model_of(server, **expected.arguments)
        assert second.certificate == probed
        assert server.total <= 2
        assert second.identity() == identity


@pytest.mark.parametrize("name", REMEMBERED)
def test_a_certificate_and_the_identity_change_with_the_model(name: str) -> None:
    """The same name and the same file name do not make another model the same."""
    expected = KINDS[name]
    with serving(expected.make()) as server:
        first = model_of(server, **expected.arguments)
        probed, identity = first.certificate, first.identity()
        server.model = fake_model(noise=0.05)
        second = model_of(server, **expected.arguments)
        assert second.certificate.values != probed.values
        assert second.identity() != identity


def test_models_that_continue_the_known_text_alike_are_told_apart_by_their_scores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(VLLM()) as server:
        first = model_of(server)
        probed, identity = first.certificate, first.identity()
        exact = server.rows_of
        monkeypatch.setattr(server, "rows_of", lambda tokens: exact(tokens) * 1.01)
        second = model_of(server)
        assert second.certificate.values["greedy"] == probed.values["greedy"]
        assert second.identity() != identity


def test_rounding_errors_do_not_change_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server in half precision scores a text slightly differently from time to time."""
    with serving(VLLM()) as server:
        first = model_of(server)
        identity = first.identity()
        exact = server.rows_of
        monkeypatch.setattr(server, "rows_of", lambda tokens: exact(tokens) * 1.0002)
        assert model_of(server).identity() == identity
        again = model_of(server)
        assert again.probe_again().values == first.certificate.values
        assert again.identity() == identity


def test_a_server_that_was_restarted_with_another_context_length_is_probed_again() -> None:
    with serving(VLLM()) as server:
        assert model_of(server).max_length == CONTEXT - 1
        server.length = 128
        assert model_of(server).max_length == 127


def test_a_certificate_is_not_used_with_another_tokenizer() -> None:
    with serving(OpenAILegacy()) as server:
        assert model_of(server, **FOLDER).certificate.can_score
        assert not model_of(server, tokenizer_backend="none").certificate.can_score


def test_stored_answers_are_not_used_for_another_model(tmp_path: Path) -> None:
    def run() -> Any:
        return lm_eval.simple_evaluate(
            model="local-completions",
            model_args={"base_url": server.url, "model": server.name},
            tasks=["demo_choice"],
            limit=2,
            bootstrap_iters=0,
            use_cache=str(tmp_path / "answers"),
        )

    with serving(VLLM()) as server:
        run()
        server.forget()
        run()
        assert server.counts["POST /v1/completions"] <= 2  # those of the check, no others
        server.model = fake_model(noise=0.05)
        server.forget()
        run()
        asked = [body for body in server.bodies if "prompt_logprobs" in body]
        assert len(asked) > 2 * 4


class Catalog(OpenAILegacy):
    """A server of many models, which does not list the name under which this one is asked for."""

    def models(self, _: Any) -> Any:
        others = [{**self.entry(), "id": f"model {n}", "max_model_len": 99 + n} for n in range(2)]
        return {"object": "list", "data": others}


def test_what_is_listed_about_other_models_is_not_believed() -> None:
    with serving(Catalog()) as server:
        found = model_of(server, **FOLDER).certificate
    assert found.context_length is None
    assert found.listed == {"owned_by": "openai"}


# Identity


def test_the_identity_contains_no_address_if_the_server_tells_weights_apart() -> None:
    for make in (TGI, LlamaServer, lambda: SGLang(weight_version="step-100")):
        identities = []
        for _ in range(2):
            with serving(make()) as server:
                identity = model_of(server, **FOLDER).identity()
                assert f":{server.url.rpartition(':')[2]}" not in str(identity)
                assert "127.0.0.1" not in str(identity)
                identities.append(identity)
        assert identities[0] == identities[1]


def test_the_identity_contains_the_address_if_the_server_tells_nothing() -> None:
    with serving(OpenAILegacy()) as server:
        assert model_of(server, **FOLDER).identity()["endpoint"] == server.url


def test_the_revision_that_a_server_reports_is_part_of_the_identity() -> None:
    identities = []
    for version in ("step-100", "step-200"):
        with serving(SGLang(weight_version=version)) as server:
            identities.append(model_of(server).identity())
    assert identities[0] != identities[1]


def test_the_user_can_vouch_for_a_model() -> None:
    """Then the server is not even asked."""
    with serving(OpenAILegacy()) as server:
        lm = model_of(server, identity="demo at step 100", **FOLDER)
        identity = lm.identity()
        assert identity["identity"] == "demo at step 100"
        assert server.url not in str(identity)
        assert server.total == 0


# Addresses


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/completions"])
def test_the_address_may_be_a_root_or_a_full_address(path: str) -> None:
    with serving(VLLM()) as server:
        lm = model_of(server, base_url=server.url + path)
        pair = ("Ann has a red", " kite made of tin.")
        (found,) = lm.loglikelihood([Instance("loglikelihood", {}, pair, 0)], disable_tqdm=True)
        assert lm.identity()["endpoint"] == server.url
        assert not [name for name in server.counts if "//" in name]
    (expected,) = DemoLM().loglikelihood(
        [Instance("loglikelihood", {}, pair, 0)], disable_tqdm=True
    )
    assert found == (pytest.approx(expected[0], abs=1e-2), expected[1])


def test_the_path_follows_from_the_model_if_the_address_is_that_of_another_api() -> None:
    with serving(VLLM()) as server:
        full = f"{server.url}/v1/chat/completions"
        assert model_of(server, base_url=full).certificate.dialect == "vllm"
        assert not server.counts["POST /v1/chat/completions"]
        full = f"{server.url}/v1/completions"
        lm = LocalChatCompletion(full, model=server.name)
        assert lm.certificate.dialect == "chat"


@pytest.mark.parametrize("path", ["", "/v1", "/v1/chat/completions"])
def test_the_address_of_a_chat_may_be_a_root_or_a_full_address(path: str) -> None:
    with serving(Chat()) as server:
        lm = model_of(server, base_url=server.url + path)
        assert lm.certificate.dialect == "chat"
        assert set(server.counts) == {"GET /v1/models", "POST /v1/chat/completions"}


@pytest.mark.parametrize("path", ["", "/generate", "/v1"])
def test_the_native_path_of_sglang_is_found(path: str) -> None:
    with serving(SGLang()) as server:
        assert model_of(server, base_url=server.url + path).certificate.dialect == "sglang"


def test_an_unknown_model_is_reported_with_the_words_of_the_server() -> None:
    refused = pytest.raises(ModelError, match="The model `nothing` does not exist")
    with serving(VLLM()) as server, refused:
        _ = model_of(server, model="nothing").certificate


def test_without_a_probe_nothing_is_asked_and_echo_is_assumed() -> None:
    with serving(OpenAILegacy()) as server:
        found = model_of(server, probe=False, **FOLDER).certificate
        assert server.total == 0
    assert isinstance(found, Certificate)
    assert (found.dialect, found.can_score) == ("echo", True)
