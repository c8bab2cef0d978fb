"""Tests models behind real servers: answers and scores equal those of the same model through `hf`.

The servers are those of conftest.py. vLLM and `transformers serve` run the embedded model;
llama-cpp-python runs the embedded model with a BOS (gguf_model.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.api.instance import Failure, Instance
from lm_eval.cli import main
from lm_eval.errors import ModelError
from lm_eval.models.huggingface import HFLM
from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI
from lm_eval.models.served.model import ServedLM
from tests.servers.process import Server
from tests.servers.start import CONTEXT

DATA = Path(lm_eval.__file__).parent / "tasks" / "demo" / "data"
LONGEST = CONTEXT - 2
"""The max_length at which `hf` scores the same tokens as a server with a context of CONTEXT: one of
these is generated, and a text without context begins with one more."""
CLOSE = 1e-3
"""How much log-probabilities may differ, per token."""

Captured = pytest.CaptureFixture[str]


# Requests, made from the documents of the demo tasks


def rows(name: str, count: int) -> list[dict[str, Any]]:
    """Returns the first documents of a data file."""
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[:count]]


def requests(kind: Any, arguments: Sequence[tuple[Any, ...]]) -> list[Instance]:
    return [Instance(kind, {}, some, i, ("trial", i, 1)) for i, some in enumerate(arguments)]


STORIES = [row["text"] for row in rows("stories_test.jsonl", 4)]
LONG = " ".join(STORIES)
"""A text that does not fit into the context."""
QUESTIONS = [
    (f"{row['scene']}\nQuestion: {row['question']}\nAnswer:", row["choices"])
    for row in rows("choice_test.jsonl", 10)
]
CONTINUATIONS = [
    *((question, f" {choice}") for question, choices in QUESTIONS for choice in choices),
    *((row["context"], f" {row['word']}") for row in rows("lastword_test.jsonl", 5)),
    ("Ann has a red ", "kite."),
    ("Grüße aus Köln, 世界 ", "naïve 🙂"),
]
"""Continuations of one and of several tokens; one context ends with a space."""
WITHOUT_CONTEXT = [
    ("", row[kind]) for row in rows("pairs_test.jsonl", 4) for kind in ("good", "bad")
]
PROMPTS = [
    *((question, {"until": ["\n"], "max_gen_toks": 40}) for question, _ in QUESTIONS),
    ("Ann has a red", {"until": [], "max_gen_toks": 30, "do_sample": False}),
    # More stop strings than vLLM accepts; the last one ends the answer.
    ("Ann has a red", {"until": [*"QXYZJ", " made"], "max_gen_toks": 60, "temperature": 0.0}),
    ("Q: 2 + 3\nA:", {"until": ["\n", "Q:"], "max_gen_toks": 40}),
    ("Grüße aus Köln", {"until": ["."], "max_gen_toks": 20}),
]
CHATS = [
    [{"role": "user", "content": "Where is Ann?"}],
    [
        {"role": "system", "content": "Answer in few words."},
        {"role": "user", "content": "Where is Ann?"},
        {"role": "assistant", "content": "In the park."},
        {"role": "user", "content": "And where is Tom?"},
    ],
]
BEGUN = [*CHATS[0], {"role": "assistant", "content": "Ann is in"}]
"""A chat whose last message the model continues (`gen_prefix`)."""
SHORT = {"until": ["\n"], "max_gen_toks": 30}


# The models


@pytest.fixture(scope="session", autouse=True)
def _certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps certificates apart from those of the user; a server is probed once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMEVAL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


ThroughHF = Callable[..., HFLM]


@pytest.fixture(scope="session")
def through_hf() -> ThroughHF:
    """Returns a function that loads the model of a server with `hf`; each one is loaded once."""
    loaded: dict[str, HFLM] = {}

    def load(server: Server, **arguments: Any) -> HFLM:
        settings = {"dtype": "float32", "device": "cpu", "max_length": LONGEST, **arguments}
        key = f"{server.folder} {settings}"
        if key not in loaded:
            loaded[key] = HFLM(str(server.folder), **settings)
        return loaded[key]

    return load


def completions(server: Server, **arguments: Any) -> LocalCompletionsAPI:
    return LocalCompletionsAPI(model=server.model, base_url=server.url, **arguments)


def chat(server: Server, **arguments: Any) -> LocalChatCompletion:
    return LocalChatCompletion(model=server.model, base_url=server.url, **arguments)


def command(name: str, server: Server, *words: str, model: str = "local-completions") -> int:
    """Runs `lm-eval NAME` with the model of a server; returns the exit code."""
    given = ["--model", model, "--model_args", f"base_url={server.url},model={server.model}"]
    return main([name, *given, *words])


def assert_same_scores(served: ServedLM, hf: HFLM, pairs: Sequence[tuple[str, str]]) -> None:
    """Asserts that `is_greedy` is equal, and log-likelihoods up to CLOSE per token."""
    expected = hf.loglikelihood(requests("loglikelihood", pairs))
    found = served.loglikelihood(requests("loglikelihood", pairs))
    for pair, one, other in zip(pairs, found, expected, strict=True):
        tokens = len(hf.tok_encode(pair[1], add_special_tokens=False))
        assert one[0] == pytest.approx(other[0], abs=CLOSE * tokens), pair
        assert one[1] == other[1], pair
    assert len({greedy for _, greedy in expected}) == 2, "both cases occur"


def assert_same_texts(served: ServedLM, hf: HFLM) -> None:
    """Asserts that greedy answers to plain prompts are identical."""
    found = served.generate_until(requests("generate_until", PROMPTS))
    assert found == hf.generate_until(requests("generate_until", PROMPTS))
    assert all(found)


def assert_same_chats(served: ServedLM, hf: HFLM) -> None:
    """Asserts that greedy answers equal those of `hf` to the prompt that its template makes."""
    found, expected = (
        lm.generate_until(
            requests("generate_until", [(lm.apply_chat_template(one), SHORT) for one in CHATS])
        )
        for lm in (served, hf)
    )
    assert found == expected
    assert all(found)


# vLLM

FORMS = {
    "token-ids": {},
    "text": {"tokenized_requests": False},
    "token-ids-in-batches": {"batch_size": 8},
    "text-in-batches": {"batch_size": 8, "tokenized_requests": False},
}
"""Arguments for all forms in which prompts can be sent to vLLM."""


@pytest.fixture(params=FORMS)
def through_vllm(request: pytest.FixtureRequest, vllm_server: Server) -> LocalCompletionsAPI:
    return completions(vllm_server, **FORMS[request.param])


def test_vllm_log_likelihoods_equal_those_of_hf(
    through_vllm: LocalCompletionsAPI, vllm_server: Server, through_hf: ThroughHF
) -> None:
    pairs = [*CONTINUATIONS, *WITHOUT_CONTEXT, (LONG, " The end."), (LONG, " .")]
    assert_same_scores(through_vllm, through_hf(vllm_server), pairs)


def test_vllm_rolling_log_likelihoods_equal_those_of_hf(
    through_vllm: LocalCompletionsAPI, vllm_server: Server, through_hf: ThroughHF
) -> None:
    hf, texts = through_hf(vllm_server), [*STORIES, LONG, "Hi"]
    asked = requests("loglikelihood_rolling", [(text,) for text in texts])
    found = through_vllm.loglikelihood_rolling(asked)
    for text, one, other in zip(texts, found, hf.loglikelihood_rolling(asked), strict=True):
        assert one == pytest.approx(other, abs=CLOSE * len(hf.tok_encode(text)))


def test_vllm_greedy_answers_equal_those_of_hf(
    through_vllm: LocalCompletionsAPI, vllm_server: Server, through_hf: ThroughHF
) -> None:
    assert_same_texts(through_vllm, through_hf(vllm_server))


def test_vllm_chat_answers_equal_those_of_hf_with_its_template(
    vllm_server: Server, through_hf: ThroughHF
) -> None:
    assert_same_chats(chat(vllm_server), through_hf(vllm_server))


def test_vllm_continues_a_begun_answer_as_hf_does(
    vllm_server: Server, through_hf: ThroughHF
) -> None:
    models = (chat(vllm_server), through_hf(vllm_server))
    prompts = [lm.apply_chat_template(BEGUN, add_generation_prompt=False) for lm in models]
    found, expected = (
        lm.generate_until(requests("generate_until", [(prompt, SHORT)]))
        for lm, prompt in zip(models, prompts, strict=True)
    )
    assert found == expected
    assert all(found)


def test_vllm_scores_one_token_choices_with_one_request_per_question(vllm_server: Server) -> None:
    served = completions(vllm_server)
    pairs = [(question, f" {letter}") for question, _ in QUESTIONS for letter in "ABCD"]
    served.loglikelihood(requests("loglikelihood", pairs[:4]))  # probes, if need be
    before = finished_requests(vllm_server)
    served.loglikelihood(requests("loglikelihood", pairs))
    assert finished_requests(vllm_server) - before == len(QUESTIONS)


def finished_requests(server: Server) -> int:
    """Returns how many requests vLLM has answered."""
    lines = server.get("/metrics").body.splitlines()
    counters = [line for line in lines if line.startswith("vllm:request_success_total")]
    return int(sum(float(line.split()[-1]) for line in counters))


def test_the_demo_group_through_vllm_has_the_scores_of_the_demo_model(vllm_server: Server) -> None:
    settings: Any = {
        "tasks": ["demo"],
        "gen_kwargs": {"do_sample": False, "temperature": 0},
        "bootstrap_iters": 0,
    }
    served = f"base_url={vllm_server.url},model={vllm_server.model}"
    found: Any = lm_eval.simple_evaluate("local-completions", model_args=served, **settings)
    expected: Any = lm_eval.simple_evaluate("demo", model_args=f"max_length={LONGEST}", **settings)
    assert found["results"].keys() == expected["results"].keys()
    for task, scores in expected["results"].items():
        for name, value in scores.items():
            same = pytest.approx(value, rel=1e-5) if isinstance(value, float) else value
            assert found["results"][task][name] == same, (task, name)
    assert found["n-samples"] == expected["n-samples"]
    assert not found.get("failed_requests")


# llama-cpp-python


def test_llama_cpp_log_likelihoods_equal_those_of_hf(
    llama_cpp_server: Server, through_hf: ThroughHF
) -> None:
    assert_same_scores(completions(llama_cpp_server), through_hf(llama_cpp_server), CONTINUATIONS)


def test_llama_cpp_log_likelihoods_do_not_depend_on_whose_tokenizer_is_used(
    llama_cpp_server: Server, through_hf: ThroughHF
) -> None:
    served = completions(llama_cpp_server, tokenizer=str(llama_cpp_server.folder))
    assert_same_scores(served, through_hf(llama_cpp_server), CONTINUATIONS)


def test_llama_cpp_greedy_answers_equal_those_of_hf(
    llama_cpp_server: Server, through_hf: ThroughHF
) -> None:
    assert_same_texts(completions(llama_cpp_server), through_hf(llama_cpp_server))


def test_llama_cpp_chat_answers_equal_those_of_hf_without_a_bos(
    llama_cpp_server: Server, through_hf: ThroughHF
) -> None:
    """The server adds no BOS to the prompt that a chat template makes."""
    assert_same_chats(chat(llama_cpp_server), through_hf(llama_cpp_server, add_bos_token=False))


def test_llama_cpp_texts_without_context_fail_with_the_reason(llama_cpp_server: Server) -> None:
    asked = [*WITHOUT_CONTEXT, ("Ann has a red", " kite")]
    *without, with_context = completions(llama_cpp_server).loglikelihood(
        requests("loglikelihood", asked)
    )
    reason = "the server gives no log-probability of the first token of a text"
    assert without == [Failure(reason)] * len(WITHOUT_CONTEXT)
    assert not isinstance(with_context, Failure)


def test_llama_cpp_run_with_texts_without_context_is_stopped(
    llama_cpp_server: Server, capsys: Captured
) -> None:
    assert command("run", llama_cpp_server, "--tasks", "demo_pairs") == 2
    message = capsys.readouterr().err
    assert "the server gives no log-probability of the first token of a text" in message
    assert "--max_failed" in message


def test_llama_cpp_perplexities_are_refused(llama_cpp_server: Server, capsys: Captured) -> None:
    reason = "the server gives no log-probability of the first token of a text"
    with pytest.raises(ModelError, match=reason):
        completions(llama_cpp_server).loglikelihood_rolling(
            requests("loglikelihood_rolling", [(STORIES[0],)])
        )
    assert command("run", llama_cpp_server, "--tasks", "demo_stories") == 2
    message = capsys.readouterr().err
    assert "demo_stories" in message
    assert reason in message


def test_llama_cpp_without_a_bos_is_refused_as_shifted(
    llama_cpp_server_without_bos: Server, capsys: Captured
) -> None:
    served = completions(llama_cpp_server_without_bos)
    assert served.certificate.alignment == "shifted by one"
    with pytest.raises(ModelError, match="shifted by one token"):
        served.loglikelihood(requests("loglikelihood", CONTINUATIONS[:1]))
    assert command("run", llama_cpp_server_without_bos, "--tasks", "demo_choice") == 2
    message = capsys.readouterr().err
    assert "shifted by one token" in message
    assert "demo_choice@generate" in message


# transformers serve


def test_transformers_is_found_to_ignore_the_temperature(transformers_server: Server) -> None:
    assert completions(transformers_server).certificate.sampling == "no"
    assert chat(transformers_server).certificate.sampling == "no"


def test_transformers_greedy_answers_equal_those_of_hf(
    transformers_server: Server, through_hf: ThroughHF
) -> None:
    assert_same_texts(completions(transformers_server), through_hf(transformers_server))


def test_transformers_chat_answers_equal_those_of_hf_with_its_template(
    transformers_server: Server, through_hf: ThroughHF
) -> None:
    assert_same_chats(chat(transformers_server), through_hf(transformers_server))


def test_transformers_log_likelihood_task_is_refused_before_anything_is_asked(
    transformers_server: Server, capsys: Captured
) -> None:
    def asked() -> int:
        return transformers_server.log.read_text(encoding="utf-8").count('"POST /v1/')

    assert command("doctor", transformers_server) == 0
    capsys.readouterr()
    before = asked()
    assert command("run", transformers_server, "--tasks", "demo_choice,demo_sums") == 2
    message = capsys.readouterr().err
    assert "demo_choice: the model cannot answer loglikelihood requests" in message
    assert "the server returns no log-probabilities of a prompt" in message
    assert "demo_choice@generate" in message
    assert asked() - before <= 2, "the certificate is known; only its model is checked"


# lm-eval doctor


@pytest.mark.parametrize(
    ("name", "server", "dialect", "alignment", "measurable"),
    [
        ("vllm_server", "vLLM 0.32.0", "vllm", "aligned", "yes yes yes"),
        ("llama_cpp_server", "llama-cpp-python", "llama-cpp-python", "aligned", "yes yes no"),
        (
            "llama_cpp_server_without_bos",
            "llama-cpp-python",
            "llama-cpp-python",
            "shifted by one",
            "yes no no",
        ),
        ("transformers_server", "unknown", "completions", "none", "yes no no"),
    ],
)
def test_doctor_prints_what_can_be_measured_with_completions(
    name: str,
    server: str,
    dialect: str,
    alignment: str,
    measurable: str,
    request: pytest.FixtureRequest,
    capsys: Captured,
) -> None:
    assert command("doctor", request.getfixturevalue(name)) == 0
    report = cells(capsys.readouterr().out)
    assert report["server"] == server
    assert report["dialect"] == dialect
    assert report["log-probabilities of a prompt"] == alignment
    assert report["tokenizer"] == "agrees"
    samples = "ignored; sampled answers are greedy" if "transformers" in name else "has an effect"
    assert report["temperature"] == samples
    assert int(report["requests sent"]) < 20
    families = ("generated answers", "multiple choice and targets", "perplexity of texts")
    found = [
        next(value for key, value in report.items() if key.startswith(family))
        for family in families
    ]
    assert " ".join(found) == measurable


@pytest.mark.parametrize("name", ["vllm_server", "llama_cpp_server", "transformers_server"])
def test_doctor_says_that_chats_can_only_generate(
    name: str, request: pytest.FixtureRequest, capsys: Captured
) -> None:
    server = request.getfixturevalue(name)
    assert command("doctor", server, model="local-chat-completions") == 0
    text = capsys.readouterr().out
    assert text.count("chat APIs return no log-probabilities of a given text") == 2
    assert "--apply_chat_template" in text
    assert int(cells(text)["requests sent"]) < 20


def cells(report: str) -> dict[str, str]:
    """Returns the first two columns of the tables in a report."""
    lines = re.findall(r"^\|([^|]+)\|([^|]*)\|", report, re.MULTILINE)
    return {key.strip(): value.strip() for key, value in lines}
