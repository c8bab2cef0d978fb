"""Tests what real servers answer: the facts that the dialects of `served` models rely on.

A failure after an update of a server does not mean that the server is wrong, but that a dialect
may have to change. "Log-probability" is short for the natural logarithm of a probability.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.servers.conftest import LogProbabilities
from tests.servers.process import Server
from tests.servers.start import CONTEXT

TEXT = "Ann has a red"
IDS = [273, 78, 268, 261, 557]
"""The tokens of TEXT, without a BOS; " a" is 261."""
OTHER = [714, 268]
"""The tokens of "Tom has"."""
PERIOD, A, KITE = 14, 261, 350
BOS = 1024
CLOSE = 1e-3


def continuations(table: Any, ids: list[int]) -> list[float]:
    """Returns the log-probability of every token but the first, given the tokens before it."""
    return [float(table[index, token]) for index, token in enumerate(ids[1:])]


def prompt_values(choice: dict[str, Any], ids: list[int]) -> list[tuple[float, int]]:
    """Returns log-probability and rank of every token but the first, from `prompt_logprobs`."""
    entries = zip(choice["prompt_logprobs"][1:], ids[1:], strict=True)
    return [(entry[str(token)]["logprob"], entry[str(token)]["rank"]) for entry, token in entries]


# vLLM


def test_vllm_names_its_model_its_context_length_and_its_version(vllm_server: Server) -> None:
    (model,) = vllm_server.get("/v1/models").body["data"]
    assert (model["id"], model["max_model_len"]) == ("demo", CONTEXT)
    assert model["owned_by"] == "vllm"
    assert set(vllm_server.get("/version").body) == {"version"}
    assert vllm_server.get("/health").status == 200


def test_vllm_tokenizes_one_text_per_request(vllm_server: Server) -> None:
    reply = vllm_server.post("/tokenize", prompt=TEXT).body
    assert (reply["tokens"], reply["count"], reply["max_model_len"]) == (IDS, len(IDS), CONTEXT)
    assert vllm_server.post("/tokenize", prompt=[TEXT]).status == 400
    assert vllm_server.post("/detokenize", tokens=IDS).body == {"prompt": TEXT}
    assert vllm_server.get("/tokenizer_info").status == 404


@pytest.mark.parametrize("prompt", [TEXT, IDS, [TEXT], [IDS]])
def test_vllm_accepts_texts_and_token_ids(vllm_server: Server, prompt: Any) -> None:
    reply = vllm_server.complete(prompt, max_tokens=4)
    assert reply.choice["text"] == " kite. Greta is"
    assert reply.choice["finish_reason"] == "length"
    usage = reply.body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(IDS), 4)


def test_vllm_numbers_choices_by_prompt_then_by_sample(vllm_server: Server) -> None:
    sampling = {"max_tokens": 6, "temperature": 1, "seed": 7}
    both = vllm_server.complete([IDS, OTHER], n=2, **sampling).body
    assert [choice["index"] for choice in both["choices"]] == [0, 1, 2, 3]
    texts = [choice["text"] for choice in both["choices"]]
    assert texts[0] == vllm_server.complete(IDS, **sampling).choice["text"]
    assert texts[2] == vllm_server.complete(OTHER, **sampling).choice["text"]
    assert len(set(texts)) == 4
    assert vllm_server.complete(IDS, n=2, max_tokens=1).status == 400, "greedy, so n must be 1"


def test_vllm_gives_equal_prompts_of_one_request_equal_samples(vllm_server: Server) -> None:
    reply = vllm_server.complete([IDS, IDS], max_tokens=6, temperature=1, seed=7).body
    first, second = (choice["text"] for choice in reply["choices"])
    assert first == second


def test_vllm_prompt_logprobs_contain_ranks_without_alternatives(
    vllm_server: Server, log_probabilities: LogProbabilities
) -> None:
    reply = vllm_server.complete([IDS, OTHER], max_tokens=1, prompt_logprobs=0).body
    for choice, ids in zip(reply["choices"], [IDS, OTHER], strict=True):
        table = log_probabilities(vllm_server, ids)
        assert choice["prompt_logprobs"][0] is None
        assert [len(entry) for entry in choice["prompt_logprobs"][1:]] == [1] * (len(ids) - 1)
        values, ranks = zip(*prompt_values(choice, ids), strict=True)
        expected = continuations(table, ids)
        assert values == pytest.approx(expected, abs=CLOSE)
        assert list(ranks) == [
            1 + int((table[index] > table[index, token]).sum())
            for index, token in enumerate(ids[1:])
        ]


def test_vllm_echo_is_aligned_and_may_generate_nothing(
    vllm_server: Server, log_probabilities: LogProbabilities
) -> None:
    expected = continuations(log_probabilities(vllm_server, IDS), IDS)
    nothing = vllm_server.complete(IDS, max_tokens=0, echo=True, logprobs=1)
    assert nothing.choice["text"] == TEXT
    values = nothing.choice["logprobs"]["token_logprobs"]
    assert values[0] is None
    assert values[1:] == pytest.approx(expected, abs=CLOSE)
    assert nothing.choice["logprobs"]["text_offset"] == [0, 2, 3, 7, 9]
    assert nothing.body["usage"]["completion_tokens"] == 1, "though no token is returned"

    one = vllm_server.complete(IDS, max_tokens=1, echo=True, logprobs=1).choice
    assert one["logprobs"]["tokens"] == ["An", "n", " has", " a", " red", " kite"]
    assert one["logprobs"]["top_logprobs"][3].keys() == {" a"}, "only one key: it is the greedy one"


def test_vllm_refuses_to_generate_nothing_without_echo(vllm_server: Server) -> None:
    reply = vllm_server.complete(IDS, max_tokens=0, prompt_logprobs=0)
    assert reply.status == 400
    assert reply.body["error"]["param"] == "max_tokens"


def test_vllm_reports_chosen_tokens_after_the_sampled_one(
    vllm_server: Server, log_probabilities: LogProbabilities
) -> None:
    """`logprob_token_ids` needs `logprobs`, whose value does not matter."""
    asked = {"max_tokens": 1, "logprob_token_ids": [PERIOD, A], "return_tokens_as_token_ids": True}
    prompts = [IDS, OTHER]
    reply = vllm_server.complete(prompts, logprobs=1, **asked).body
    for choice, ids in zip(reply["choices"], prompts, strict=True):
        last = log_probabilities(vllm_server, ids)[-1]
        greedy = int(last.argmax())
        (values,) = choice["logprobs"]["top_logprobs"]
        names = dict.fromkeys(f"token_id:{token}" for token in [greedy, PERIOD, A])
        assert list(values) == list(names)
        for name, value in values.items():
            assert value == pytest.approx(float(last[int(name.split(":")[1])]), abs=CLOSE)
        assert choice["logprobs"]["tokens"] == [f"token_id:{greedy}"]
    assert vllm_server.complete(prompts, logprobs=2, **asked).body["choices"] == reply["choices"]
    assert vllm_server.complete(prompts, **asked).status == 400


def test_vllm_names_chosen_tokens_by_their_text_unless_told_otherwise(vllm_server: Server) -> None:
    reply = vllm_server.complete(IDS, max_tokens=1, logprobs=1, logprob_token_ids=[PERIOD, A])
    assert list(reply.choice["logprobs"]["top_logprobs"][0]) == [" kite", ".", " a"]


@pytest.mark.parametrize(("count", "status"), [(128, 200), (129, 400)])
def test_vllm_reports_at_most_128_chosen_tokens(
    vllm_server: Server, count: int, status: int
) -> None:
    chosen = list(range(count))
    reply = vllm_server.complete(IDS, max_tokens=1, logprobs=1, logprob_token_ids=chosen)
    assert reply.status == status


def test_vllm_reports_at_most_20_most_likely_tokens(vllm_server: Server) -> None:
    assert vllm_server.complete(IDS, max_tokens=1, logprobs=20).status == 200
    assert vllm_server.complete(IDS, max_tokens=1, logprobs=21).status == 400
    assert vllm_server.complete(IDS, max_tokens=1, prompt_logprobs=21).status == 400


def test_vllm_log_probabilities_do_not_depend_on_sampling_settings(vllm_server: Server) -> None:
    asked = {"max_tokens": 1, "logprobs": 1, "logprob_token_ids": [PERIOD, A], "seed": 1}
    plain = vllm_server.complete(IDS, **asked).choice["logprobs"]["top_logprobs"][0]
    for settings in ({"temperature": 0.1}, {"temperature": 1, "top_k": 1}, {"top_p": 0.1}):
        changed = vllm_server.complete(IDS, **asked, **settings).choice["logprobs"]["top_logprobs"]
        for text in (".", " a"):
            assert changed[0][text] == pytest.approx(plain[text], abs=1e-5)


def test_vllm_reads_its_prefix_cache_only_without_prompt_logprobs(vllm_server: Server) -> None:
    def cached(**body: Any) -> int:
        reply = vllm_server.complete(IDS * 40, max_tokens=1, **body)
        return int(reply.body["usage"]["prompt_tokens_details"]["cached_tokens"])

    cached()
    assert cached() > 0
    assert cached(logprobs=1, logprob_token_ids=[PERIOD]) > 0
    assert cached(prompt_logprobs=0) == 0
    assert cached(echo=True, logprobs=1) == 0


@pytest.mark.parametrize(
    ("length", "body", "status"),
    [
        (CONTEXT - 1, {"max_tokens": 1}, 200),
        (CONTEXT, {"max_tokens": 1}, 400),
        (CONTEXT, {"max_tokens": 0, "echo": True, "logprobs": 1}, 400),
        (CONTEXT + 44, {"max_tokens": 1}, 400),
    ],
)
def test_vllm_needs_room_for_one_token(
    vllm_server: Server, length: int, body: dict[str, Any], status: int
) -> None:
    assert vllm_server.complete([A] * length, **body).status == status


def test_vllm_says_how_long_a_prompt_may_be(vllm_server: Server) -> None:
    error = vllm_server.complete([A] * (CONTEXT + 44), max_tokens=1).body["error"]
    assert error["message"].startswith("This model's maximum context length is 256 tokens.")
    assert (error["type"], error["param"], error["code"]) == (
        "BadRequestError",
        "input_tokens",
        400,
    )


def test_vllm_refuses_all_prompts_of_a_request_if_one_is_too_long(vllm_server: Server) -> None:
    assert vllm_server.complete([IDS, [A] * (CONTEXT + 1)], max_tokens=1).status == 400


def test_vllm_generates_as_many_tokens_as_there_is_room_for(vllm_server: Server) -> None:
    reply = vllm_server.complete([A] * (CONTEXT - 6), max_tokens=20)
    assert reply.body["usage"]["completion_tokens"] == 6
    assert reply.choice["finish_reason"] == "length"


@pytest.mark.parametrize("prompt", ["", [[]]])
def test_vllm_refuses_an_empty_prompt(vllm_server: Server, prompt: Any) -> None:
    assert vllm_server.complete(prompt, max_tokens=1).status == 400


def test_vllm_removes_stop_strings_and_takes_at_most_four(vllm_server: Server) -> None:
    stopped = vllm_server.complete(IDS, max_tokens=20, stop=[". Gre"]).choice
    assert stopped["text"] == " kite"
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", ". Gre")
    assert vllm_server.complete(IDS, max_tokens=1, stop=list("abcd")).status == 200
    refused = vllm_server.complete(IDS, max_tokens=1, stop=list("abcde"))
    assert refused.status == 400
    assert refused.body["error"]["param"] == "body.stop"
    assert vllm_server.complete(IDS, max_tokens=1, stop=[""]).status == 400


def test_vllm_ignores_unknown_parameters_but_not_an_unknown_model(vllm_server: Server) -> None:
    assert vllm_server.complete(IDS, max_tokens=1, frobnicate=3).status == 200
    reply = vllm_server.complete(IDS, max_tokens=1, model="nothing")
    assert (reply.status, reply.body["error"]["type"]) == (404, "NotFoundError")


def test_vllm_continues_the_last_message_if_told_twice(vllm_server: Server) -> None:
    turns = ("Where is Ann?", "Ann is in")
    asked = {"continue_final_message": True, "max_completion_tokens": 2}
    reply = vllm_server.chat(*turns, **asked, add_generation_prompt=False, prompt_logprobs=0)
    assert reply.choice["message"]["content"] == " the garden"
    prompt = vllm_server.post("/tokenize", prompt="user: Where is Ann?\nassistant: Ann is in")
    tokens = prompt.body["tokens"]
    assert len(prompt_values(reply.body, tokens)) == len(tokens) - 1, "not in `choices`"
    assert vllm_server.chat(*turns, **asked).status == 400, "add_generation_prompt defaults to true"


def test_vllm_calls_reasoning_reasoning(vllm_server: Server) -> None:
    message = vllm_server.chat("Where is Ann?", max_completion_tokens=2).choice["message"]
    assert message["reasoning"] is None
    assert "reasoning_content" not in message


def test_vllm_chat_reports_chosen_tokens(vllm_server: Server) -> None:
    asked = {"logprobs": True, "logprob_token_ids": [PERIOD, A], "max_completion_tokens": 1}
    reply = vllm_server.chat("Where is Ann?", **asked, return_tokens_as_token_ids=True)
    (position,) = reply.choice["logprobs"]["content"]
    names = [entry["token"] for entry in position["top_logprobs"]]
    assert names == [position["token"], f"token_id:{PERIOD}", f"token_id:{A}"]


# llama-cpp-python


def test_llama_cpp_tokenizes_as_transformers_does(llama_cpp_server: Server) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(llama_cpp_server.folder)
    for text in (TEXT, "", "I'll  see\n\n 12 naïve 日本 🙂 ", "<|endoftext|>Ann <s>"):
        reply = llama_cpp_server.post("/extras/tokenize", input=text)
        assert reply.body["tokens"] == tokenizer(text)["input_ids"]


def test_llama_cpp_has_few_paths_and_does_not_tell_its_context_length(
    llama_cpp_server: Server,
) -> None:
    (model,) = llama_cpp_server.get("/v1/models").body["data"]
    assert model == {"id": "demo", "object": "model", "owned_by": "me", "permissions": []}
    for path in ("/health", "/version", "/props", "/info"):
        assert llama_cpp_server.get(path).status == 404
    ids = [BOS, *IDS]
    assert llama_cpp_server.post("/extras/tokenize/count", input=TEXT).body == {"count": len(ids)}
    assert llama_cpp_server.post("/extras/detokenize", tokens=ids).body == {"text": TEXT}


@pytest.mark.parametrize("prompt", [IDS, [IDS], [TEXT, TEXT]])
def test_llama_cpp_takes_one_text_per_request(llama_cpp_server: Server, prompt: Any) -> None:
    reply = llama_cpp_server.complete(prompt, max_tokens=1)
    assert (reply.status, reply.body["error"]["type"]) == (500, "internal_server_error")


def test_llama_cpp_echo_is_aligned_after_a_bos(
    llama_cpp_server: Server, log_probabilities: LogProbabilities
) -> None:
    ids = [BOS, *IDS]
    expected = continuations(log_probabilities(llama_cpp_server, ids), ids)
    reply = llama_cpp_server.complete(TEXT, max_tokens=1, echo=True, logprobs=1)
    logprobs = reply.choice["logprobs"]
    assert logprobs["tokens"] == ["An", "n", " has", " a", " red", " kite"], "no BOS"
    assert logprobs["text_offset"] == [0, 2, 3, 7, 9, 13]
    assert logprobs["token_logprobs"][0] is None, "though the BOS precedes it"
    assert logprobs["token_logprobs"][1:-1] == pytest.approx(expected[1:], abs=CLOSE)
    assert list(logprobs["top_logprobs"][3]) == [" a"], "only one key: it is the greedy one"
    assert list(logprobs["top_logprobs"][4]) == [" kite", " red"], "the greedy one comes first"
    assert reply.body["usage"]["prompt_tokens"] == len(ids)


def test_llama_cpp_echo_is_shifted_by_one_without_a_bos(
    llama_cpp_server_without_bos: Server, log_probabilities: LogProbabilities
) -> None:
    """Entry i is about the i-th token, but in the distribution of the token after it."""
    server = llama_cpp_server_without_bos
    table = log_probabilities(server, IDS)
    reply = server.complete(TEXT, max_tokens=1, echo=True, logprobs=1)
    logprobs = reply.choice["logprobs"]
    assert logprobs["tokens"] == ["An", "n", " has", " a", " red"], "the generated one is missing"
    shifted = [float(table[index, token]) for index, token in enumerate(IDS)]
    assert logprobs["token_logprobs"][1:] == pytest.approx(shifted[1:], abs=CLOSE)
    for index in range(1, len(IDS)):
        greatest = max(logprobs["top_logprobs"][index].values())
        assert greatest == pytest.approx(float(table[index].max()), abs=CLOSE)


def test_llama_cpp_echo_is_aligned_if_the_prompt_starts_with_the_text_of_the_bos(
    llama_cpp_server: Server, llama_cpp_server_without_bos: Server
) -> None:
    asked = {"max_tokens": 1, "echo": True, "logprobs": 1}
    added = llama_cpp_server.complete(TEXT, **asked).choice["logprobs"]
    written = llama_cpp_server_without_bos.complete(f"<s>{TEXT}", **asked).choice["logprobs"]
    assert written["tokens"] == added["tokens"]
    assert written["text_offset"] == added["text_offset"], "the text of the BOS does not count"
    assert written["token_logprobs"][1:] == pytest.approx(added["token_logprobs"][1:], abs=CLOSE)


def test_llama_cpp_generated_tokens_are_aligned_in_any_case(
    llama_cpp_server_without_bos: Server, log_probabilities: LogProbabilities
) -> None:
    table = log_probabilities(llama_cpp_server_without_bos, IDS)
    reply = llama_cpp_server_without_bos.complete(TEXT, max_tokens=1, logprobs=2)
    (values,) = reply.choice["logprobs"]["top_logprobs"]
    assert list(values.values()) == pytest.approx(table[-1].topk(2).values.tolist(), abs=CLOSE)


def test_llama_cpp_takes_max_tokens_0_for_no_limit(llama_cpp_server: Server) -> None:
    usage = llama_cpp_server.complete(TEXT, max_tokens=0, echo=True).body["usage"]
    assert usage["completion_tokens"] > 20


def test_llama_cpp_penalizes_repetition_unless_told_otherwise(llama_cpp_server: Server) -> None:
    prompt = "Mira is in the mill. Mira is in the mill. Mira is in"

    def answer(**body: Any) -> str:
        return str(llama_cpp_server.complete(prompt, max_tokens=40, **body).choice["text"])

    assert answer() == answer(repeat_penalty=1.1) != answer(repeat_penalty=1.0)


def test_llama_cpp_samples_by_seed_and_ignores_n(llama_cpp_server: Server) -> None:
    def answer(seed: int) -> str:
        sampling = {"temperature": 1, "n": 2, "seed": seed, "max_tokens": 10}
        return str(llama_cpp_server.complete(TEXT, **sampling).choice["text"])

    assert answer(3) == answer(3)
    assert len({answer(seed) for seed in range(5)}) > 1


def test_llama_cpp_removes_any_number_of_stop_strings(llama_cpp_server: Server) -> None:
    reply = llama_cpp_server.complete(TEXT, max_tokens=20, stop=[*"QXYZJ", "."])
    assert (reply.choice["text"], reply.choice["finish_reason"]) == (" kite", "stop")


def test_llama_cpp_refuses_a_prompt_without_room_for_one_token(llama_cpp_server: Server) -> None:
    assert llama_cpp_server.complete(" a" * (CONTEXT - 2), max_tokens=1).status == 200
    reply = llama_cpp_server.complete(" a" * (CONTEXT - 1), max_tokens=1)
    assert (reply.status, reply.body["error"]["code"]) == (400, "context_length_exceeded")


def test_llama_cpp_ignores_what_it_does_not_know(llama_cpp_server: Server) -> None:
    """Neither the model's name nor a parameter is checked."""
    asked = {"prompt_logprobs": 0, "logprob_token_ids": [A], "frobnicate": 1, "model": "nothing"}
    reply = llama_cpp_server.complete(TEXT, max_tokens=1, **asked)
    assert reply.choice["logprobs"] is None
    assert "prompt_logprobs" not in reply.choice


def test_llama_cpp_chat_knows_max_tokens_only_and_closes_the_last_turn(
    llama_cpp_server: Server,
) -> None:
    short = llama_cpp_server.chat("Where is Ann?", max_tokens=2)
    assert short.body["usage"]["completion_tokens"] == 2
    ignored = llama_cpp_server.chat("Where is Ann?", max_completion_tokens=2)
    assert ignored.body["usage"]["completion_tokens"] > 2
    turns, asked = ("Where is Ann?", "Ann is in"), {"max_tokens": 4}
    continued = {"continue_final_message": True, "add_generation_prompt": False}
    closed = llama_cpp_server.chat(*turns, **asked)
    assert llama_cpp_server.chat(*turns, **asked, **continued).choice == closed.choice


# transformers serve


def test_transformers_is_healthy_but_does_not_list_the_model_of_a_folder(
    transformers_server: Server,
) -> None:
    assert transformers_server.get("/health").body == {"status": "ok"}
    assert transformers_server.get("/v1/models").body == {"object": "list", "data": []}
    for path in ("/version", "/props", "/info"):
        assert transformers_server.get(path).status == 404


def test_transformers_knows_its_model_by_the_path_of_its_folder(
    transformers_server: Server,
) -> None:
    reply = transformers_server.complete(TEXT, max_tokens=4)
    assert reply.choice["text"] == " kite. Greta is"
    assert reply.choice["finish_reason"] == "length"
    assert reply.body["model"] == f"{transformers_server.folder}@main"
    for name in ("demo", f"{transformers_server.folder}@main"):
        refused = transformers_server.complete(TEXT, max_tokens=4, model=name)
        assert refused.status == 400
        assert "pinned" in refused.body["detail"]


@pytest.mark.parametrize("prompt", [[TEXT], IDS, [IDS]])
def test_transformers_takes_one_text_per_request(transformers_server: Server, prompt: Any) -> None:
    reply = transformers_server.complete(prompt, max_tokens=1)
    assert (reply.status, reply.body) == (400, {"detail": "prompt must be a string."})


def test_transformers_ignores_echo_and_logprobs_and_n(transformers_server: Server) -> None:
    reply = transformers_server.complete(TEXT, max_tokens=1, echo=True, logprobs=1, n=2)
    assert reply.choice == {"finish_reason": "length", "index": 0, "text": " kite"}


@pytest.mark.parametrize("name", ["prompt_logprobs", "logprob_token_ids", "top_k", "frobnicate"])
def test_transformers_refuses_unknown_parameters(transformers_server: Server, name: str) -> None:
    reply = transformers_server.complete(TEXT, max_tokens=1, **{name: 1})
    message = f"Unexpected fields in the request: {{'{name}'}}"
    assert (reply.status, reply.body) == (422, {"detail": message})


def test_transformers_samples_only_if_the_generation_config_says_so(
    transformers_server: Server,
) -> None:
    def answer(seed: int, **body: Any) -> str:
        sampling = {"temperature": 1, "seed": seed, "max_tokens": 10}
        return str(transformers_server.complete(TEXT, **sampling, **body).choice["text"])

    greedy = transformers_server.complete(TEXT, max_tokens=10).choice["text"]
    assert {answer(seed) for seed in range(3)} == {greedy}
    config = '{"do_sample": true}'
    assert answer(3, generation_config=config) == answer(3, generation_config=config)
    assert len({answer(seed, generation_config=config) for seed in range(5)}) > 1


def test_transformers_leaves_stop_strings_in_the_text(transformers_server: Server) -> None:
    reply = transformers_server.complete(TEXT, max_tokens=20, stop=[*"QXYZJ", ". Gre"])
    assert (reply.choice["text"], reply.choice["finish_reason"]) == (" kite. Greta", "stop")


def test_transformers_has_no_limit_of_length(transformers_server: Server) -> None:
    reply = transformers_server.complete(" a" * 1100, max_tokens=1)
    assert (reply.status, reply.body["usage"]["prompt_tokens"]) == (200, 1100)


def test_transformers_fails_to_generate_nothing(transformers_server: Server) -> None:
    reply = transformers_server.complete(TEXT, max_tokens=0)
    assert (reply.status, reply.body) == (500, "Internal Server Error")


def test_transformers_chat_knows_max_tokens_only_and_no_continuation(
    transformers_server: Server,
) -> None:
    short = transformers_server.chat("Where is Ann?", max_tokens=2, logprobs=True)
    assert short.body["usage"]["completion_tokens"] == 2
    assert "logprobs" not in short.choice
    ignored = transformers_server.chat("Where is Ann?", max_completion_tokens=2)
    assert ignored.body["usage"]["completion_tokens"] > 2
    refused = transformers_server.chat(
        "Where is Ann?", "Ann is in", continue_final_message=True, add_generation_prompt=False
    )
    assert refused.status == 422


# All of them


@pytest.mark.parametrize("name", ["vllm_server", "llama_cpp_server", "transformers_server"])
def test_greedy_texts_agree_with_transformers(
    name: str, request: pytest.FixtureRequest, log_probabilities: LogProbabilities
) -> None:
    server: Server = request.getfixturevalue(name)
    neutral = {"repeat_penalty": 1.0} if name == "llama_cpp_server" else {}
    text = server.complete(TEXT, max_tokens=6, **neutral).choice["text"]
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(server.folder)
    ids = tokenizer(TEXT)["input_ids"]
    start = len(ids)
    for _ in range(6):
        ids.append(int(log_probabilities(server, ids)[-1].argmax()))
    assert tokenizer.decode(ids[start:]) == text
