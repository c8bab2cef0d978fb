"""Tests answers from chat APIs: reasoning, refused parameters, beginnings of answers, samples."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest

import lm_eval
from lm_eval.api.instance import Completion, Instance
from lm_eval.models.openai_completions import LocalChatCompletion
from lm_eval.tasks import TaskManager
from tests.conftest import Folder
from tests.served.fake_dialects import VLLM, Chat, render
from tests.served.fake_server import FakeServer, fake_model, serving

Messages = list[dict[str, str]]

PATH = "POST /v1/chat/completions"
CHATS: list[Messages] = [
    [{"role": "user", "content": "Where is Ann?"}],
    [
        {"role": "system", "content": "Answer in few words."},
        {"role": "user", "content": "Where is Tom?"},
        {"role": "assistant", "content": "In the park."},
        {"role": "user", "content": "Who has the kite?"},
    ],
]
MANY: list[Messages] = [[{"role": "user", "content": f"Where is thing {n}?"}] for n in range(12)]


def model_of(server: FakeServer, **arguments: Any) -> LocalChatCompletion:
    lm = LocalChatCompletion(server.url, model=server.name, **arguments)
    assert lm.certificate.dialect == "chat"
    server.forget()
    return lm


def ask(
    lm: LocalChatCompletion, chats: Sequence[Messages], repeats: int = 1, **settings: Any
) -> list[Completion]:
    """Returns the answers to chats, which a task would have passed as JSON."""
    settings = {"until": ["\n"], "max_gen_toks": 12, **settings}
    requests = [
        Instance("generate_until", {}, (json.dumps(chat), settings), n, ("trial", n, repeats))
        for n, chat in enumerate(chats)
    ]
    return list(lm.generate_until([r for r in requests for _ in range(repeats)], disable_tqdm=True))


def said(prompt: str, length: int = 12, stops: Sequence[str] = ("\n",), **sampling: Any) -> str:
    """Returns what the model behind the servers answers to a prompt."""
    model = fake_model()
    return model.generate(model.encode(prompt), length, stops=stops, **sampling).text


def test_answers_are_those_of_the_model() -> None:
    stops = ["\n", *"QXYZ", " a"]  # more than such servers accept
    with serving(Chat()) as server:
        answers = ask(model_of(server), CHATS, until=stops)
    assert answers == [said(render(chat), stops=stops) for chat in CHATS]


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_is_kept_apart_from_the_answer(field: str) -> None:
    with serving(Chat(reasoning=field, thoughts=4)) as server:
        lm = model_of(server)
        assert lm.certificate.reasoning == field
        (answer,) = ask(lm, CHATS[:1])
        thoughts = fake_model().decode(server.thinking(4))
    assert answer.reasoning == thoughts
    assert answer.text == said(render(CHATS[0]) + thoughts, 12 - 4)


def test_an_answer_that_ended_inside_the_reasoning_is_marked_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving(Chat(reasoning="reasoning", thoughts=50)) as server:
        lm = model_of(server)
        with caplog.at_level(logging.WARNING, "lm_eval"):
            (answer,) = ask(lm, CHATS[:1])
    assert (answer.text, answer.finish_reason) == ("", "length")
    assert answer.length_stopped
    assert "1 of 1 answers are empty, 1 of them because the maximum length" in caplog.text


REFUSABLE = ["max_tokens", "temperature", "stop"]


def test_refused_parameters_are_left_out_or_renamed_for_all_requests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Many requests are in flight when the first one is refused, and none is lost."""
    with serving(Chat(refuses=REFUSABLE)) as server:
        lm = LocalChatCompletion(server.url, model=server.name, num_concurrent=8, probe=False)
        with caplog.at_level(logging.INFO, "lm_eval"):
            answers = ask(lm, MANY)
    assert answers == [said(render(chat)) for chat in MANY]
    for name in REFUSABLE:
        assert caplog.text.count(f"refuses the parameter {name}") == 1
    assert {"max_completion_tokens"} <= set(server.bodies[-1])
    assert not set(REFUSABLE) & set(server.bodies[-1])


def test_what_the_probe_learned_is_not_sent_again() -> None:
    with serving(Chat(refuses=["max_tokens", "temperature"])) as server:
        model_of(server)
        again = model_of(server)
        ask(again, MANY)
        assert server.counts[PATH] == len(MANY)


def test_the_beginning_of_an_answer_is_continued_where_the_server_can() -> None:
    chat = [*CHATS[0], {"role": "assistant", "content": "Ann is in"}]
    with serving(VLLM()) as server:
        (answer,) = ask(model_of(server), [chat])
        (body,) = server.bodies
    assert answer == said(render(chat, closed=False))
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


def test_the_beginning_of_an_answer_is_put_into_the_question_where_it_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chats = [[*chat, {"role": "assistant", "content": "It is in"}] for chat in MANY]
    with serving(Chat(refuses=["prefill"])) as server:
        lm = model_of(server, num_concurrent=8)
        with caplog.at_level(logging.WARNING, "lm_eval"):
            answers = ask(lm, chats)
    folded = [f"{chat[0]['content']}\nIt is in" for chat in MANY]
    expected = [said(render([{"role": "user", "content": text}])) for text in folded]
    assert answers == expected
    assert caplog.text.count("does not continue an assistant message") == 1


@pytest.mark.parametrize("together", [True, False])
def test_repeats_are_different_samples_in_one_request_where_possible(together: bool) -> None:
    with serving(Chat(samples=together)) as server:
        answers = ask(model_of(server), CHATS[:1], repeats=3, temperature=1.0)
        assert server.counts[PATH] == (1 if together else 3)
        seeds = [body["seed"] + n for body in server.bodies for n in range(body.get("n", 1))]
    assert answers == [said(render(CHATS[0]), temperature=1.0, seed=seed) for seed in seeds]
    assert len(set(seeds)) == len(set(answers)) == 3


def test_each_prompt_is_sampled_with_its_own_seed() -> None:
    with serving(Chat()) as server:
        ask(model_of(server), MANY, temperature=1.0)
        assert len({body["seed"] for body in server.bodies}) == len(MANY)


def test_answers_that_were_cut_off_are_counted_beside_the_score(folder: Folder) -> None:
    folder.rows("places.jsonl", [{"q": "Where is Ann?", "a": "here"}])
    folder.write(
        "places.yaml",
        """\
task: places
dataset_path: json
dataset_kwargs:
  data_files:
    test: places.jsonl
test_split: test
output_type: generate_until
doc_to_text: "{{q}}"
doc_to_target: "{{a}}"
generation_kwargs:
  until: []
  max_gen_toks: 6
metric_list:
  - metric: exact_match
metadata:
  version: 1.0
""",
    )
    with serving(Chat(reasoning="reasoning", thoughts=50)) as server:
        results = lm_eval.simple_evaluate(
            model="local-chat-completions",
            model_args={"base_url": server.url, "model": server.name},
            tasks=["places"],
            task_manager=TaskManager(include_path=str(folder.path)),
            apply_chat_template=True,
            bootstrap_iters=0,
        )
    assert results is not None
    assert results["length_stopped"] == {"places": 1}
