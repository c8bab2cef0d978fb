"""Tests `thinking_budget` of `hf` with a model that thinks for ever: cut, answered, counted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.api.instance import Completion, Instance
from lm_eval.cli import main
from lm_eval.errors import ConfigError
from lm_eval.models.conventions import Generation, answer_rng
from lm_eval.models.demo.model import WEIGHTS
from lm_eval.models.thinking import check_room
from tests.thinker import ANSWER, MARK, write_thinker

pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.0")

from lm_eval.models.huggingface import HFLM
from lm_eval.models.huggingface.generation import Prompt
from lm_eval.models.huggingface.thought_budget import ThoughtBudget, generate_within_budget


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_thinker(tmp_path_factory.mktemp("thinker") / "model", WEIGHTS)


def ask(lm: Any, prompts: list[str], repeats: int = 1, **settings: Any) -> list[Completion]:
    given = {"until": ["\n"], "max_gen_toks": 40, **settings}
    asked = [
        Instance("generate_until", {}, (prompt, given), 0, ("sums", n, repeats))
        for n, prompt in enumerate(prompts)
    ]
    return list(lm.generate_until([one for one in asked for _ in range(repeats)]))


def details(answer: Completion) -> tuple[Any, ...]:
    return str(answer), *answer.details.values()


@pytest.mark.parametrize("mark", [MARK, None])
@pytest.mark.parametrize("prefix_sharing", ["on", "off"])
def test_a_thought_without_end_is_cut_and_answered(
    thinker: Path, mark: str | None, prefix_sharing: str
) -> None:
    vocabulary = json.loads((thinker / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    end: Any = mark or vocabulary[MARK]
    arguments: dict[str, Any] = {
        "pretrained": str(thinker),
        "device": "cpu",
        "think_end_token": end,
    }
    arguments["prefix_sharing"] = prefix_sharing  # "off": the loop of transformers
    endless = ask(HFLM(**arguments), ["1 + 1 =", "2 + 2 is"])
    assert [details(one) for one in endless] == [("m" * 40, None, "length", 40, None)] * 2
    lm = HFLM(**arguments, thinking_budget=7)
    found = ask(lm, ["1 + 1 =", "2 + 2 is"])
    assert [details(one) for one in found] == [(ANSWER, "m" * 7, "stop", 9, 7)] * 2
    sampled = ask(lm, ["1 + 1 =", "3"], repeats=3, do_sample=True, temperature=0.01)
    assert [details(one) for one in sampled] == [(ANSWER, "m" * 7, "stop", 9, 7)] * 6


def test_thoughts_that_end_by_themselves_are_not_cut(thinker: Path) -> None:
    lm = HFLM(pretrained=str(thinker), device="cpu", think_end_token=MARK, thinking_budget=7)
    # The thought is over: the model answers at once.
    (done,) = ask(lm, [f"1 + 1 = {MARK}"])
    assert details(done) == (ANSWER, None, "stop", 2, None)
    # The budget is used up by the first token of the answer, which is continued.
    four = lm.tok_encode("4")[0]
    lm = HFLM(pretrained=str(thinker), device="cpu", think_end_token=four, thinking_budget=1)
    (done,) = ask(lm, [f"1 + 1 = {MARK}"])
    assert str(done) == "2"


def test_a_mark_that_is_a_special_token_ends_a_thought(thinker: Path, tmp_path: Path) -> None:
    """Texts are decoded without special tokens, so it is looked for among the tokens."""
    folder = tmp_path / "special"
    shutil.copytree(thinker, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    special = {**tokenizer["added_tokens"][0], "content": MARK}
    special["id"] = tokenizer["model"]["vocab"][MARK]
    tokenizer["added_tokens"].append(special)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    lm = HFLM(pretrained=str(folder), device="cpu", think_end_token=MARK, thinking_budget=7)
    (found,) = ask(lm, ["1 + 1 ="])
    assert details(found) == (ANSWER, "m" * 7, "stop", 9, 7)


def test_a_mark_that_the_model_writes_with_other_tokens_is_found(thinker: Path) -> None:
    mark = " the"
    lm = HFLM(pretrained=str(thinker), device="cpu", think_end_token=mark, thinking_budget=7)
    letters = [token for letter in mark for token in lm.tok_encode(letter)]
    assert letters != lm.tok_encode(mark)
    generator = lm._generator()
    assert generator._contain_mark([*lm.tok_encode("m"), *letters])
    assert not generator._contain_mark(letters[:-1])


def test_a_cut_answer_does_not_depend_on_the_batch(thinker: Path) -> None:
    four = json.loads((thinker / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]["4"]
    lm = HFLM(pretrained=str(thinker), device="cpu", think_end_token=four, thinking_budget=1)
    over, endless = f"1 + 1 = {MARK}", "3"  # the first thought is the mark itself
    (alone,) = ask(lm, [over], max_gen_toks=3)
    together = ask(lm, [over, endless], max_gen_toks=3)
    assert details(together[0]) == details(alone)
    assert details(alone)[2] == "stop"
    assert details(together[1])[2] == "length"


def test_an_answer_is_not_drawn_with_the_random_numbers_of_its_thought() -> None:
    steps: list[tuple[Any, Any]] = []

    def step(settings: Any, prompts: Any) -> Any:
        steps.append((settings, prompts))
        return iter([(n, [5] * settings.max_gen_toks) for p in prompts for n in p.requests])

    # Thought and answer have the same settings: 4 tokens, the mark, 4 tokens.
    budget, settings = ThoughtBudget(4, (9,)), Generation(max_gen_toks=9, temperature=1.0)
    prompts = [Prompt("a", [1], (0, 1), (3, 7))]
    found = generate_within_budget(budget, settings, prompts, lambda tokens: False, step, step)
    assert [(number, tokens) for number, tokens, _, _ in found] == [
        (number, [5, 5, 5, 5, 9, 5, 5, 5, 5]) for number in (0, 1)
    ]
    drawn = {
        answer_rng(1, prompt.text, given, prompt.repeat(place)).random()
        for given, some in steps
        for prompt in some
        for place in range(len(prompt.requests))
    }
    assert len(drawn) == 4


def test_an_encoder_decoder_model_is_refused(tmp_path: Path, thinker: Path) -> None:
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(thinker / file, tmp_path)
    config = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    arguments = {"pretrained": str(tmp_path), "think_end_token": MARK, "thinking_budget": 5}
    with pytest.raises(ConfigError, match="an encoder-decoder model"):
        HFLM(**arguments, device="cpu")


@pytest.mark.parametrize("budget", [8, "8"])
def test_room_for_an_answer_is_checked_for_every_task(budget: Any) -> None:
    arguments = {"thinking_budget": budget}
    check_room(arguments, {"long": {"max_gen_toks": 10}, "own": {}})
    with pytest.raises(ConfigError, match=r"'short'.*leaves no room for an answer"):
        check_room(arguments, {"long": {"max_gen_toks": 10}, "short": {"max_gen_toks": 9}})
    with pytest.raises(ConfigError, match="max_length cannot be combined with thinking_budget"):
        check_room(arguments, {"whole": {"max_length": 100}})


def test_answers_that_are_cut_off_are_counted(thinker: Path) -> None:
    lm = HFLM(pretrained=str(thinker), device="cpu", think_end_token=MARK, thinking_budget=7)
    (cut,) = ask(lm, ["1 + 1 ="], max_gen_toks=9)  # 7 of the thought, the mark, 1 of the answer
    assert details(cut) == ("4", "m" * 7, "length", 8, 7)
    with pytest.raises(ConfigError, match="leaves no room for an answer: max_gen_toks is 8"):
        ask(lm, ["1 + 1 ="], max_gen_toks=8)


def test_a_run_logs_thoughts_and_counts_their_tokens(thinker: Path, tmp_path: Path) -> None:
    task: dict[str, Any] = {
        "task": "sums",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "rows.jsonl")}},
        "test_split": "test",
        "doc_to_text": "{{q}}",
        "doc_to_target": "42",
        "generation_kwargs": {"until": ["\n"], "max_gen_toks": 30},
    }
    (tmp_path / "rows.jsonl").write_text('{"q": "1 ="}\n{"q": "2 ="}\n', encoding="utf-8")
    settings: dict[str, Any] = {"tasks": [task], "output_path": str(tmp_path / "out")}
    arguments = {"pretrained": str(thinker), "think_end_token": MARK, "device": "cpu"}
    cut = lm_eval.simple_evaluate("hf", {**arguments, "thinking_budget": 5}, **settings)
    assert cut is not None
    assert cut["results"]["sums"]["exact_match,none"] == 1.0
    assert cut["length_stopped"] == {"sums": 0}
    assert cut["answer_tokens"]["sums"] == {
        "answers": 2,
        "tokens": 14,
        "longest": 7,
        "thinking_tokens": 10,
    }
    sample = cut["samples"]["sums"][0]
    assert sample["resps"] == [["42"]]
    assert sample["thinking"] == [["mmmmm"]]
    assert (sample["answer_tokens"], sample["thinking_tokens"]) == ([[7]], [[5]])
    assert sample["finish_reasons"] == [["stop"]]
    # The budget is part of the identity of stored answers.
    endless = lm_eval.simple_evaluate("hf", arguments, **settings)
    assert endless is not None
    assert endless["results"]["sums"]["exact_match,none"] == 0.0
    assert endless["length_stopped"] == {"sums": 2}
    again = lm_eval.simple_evaluate("hf", {**arguments, "thinking_budget": 5}, **settings)
    assert again is not None
    assert again["answers"]["asked"] == 0
    assert again["samples"]["sums"][0]["thinking"] == [["mmmmm"]]
    assert again["answer_tokens"] == cut["answer_tokens"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("thinking_budget=5", "thinking_budget needs think_end_token"),
        ("thinking_budget=0,think_end_token=|", "must be an integer of at least 1"),
        ("thinking_budget=many,think_end_token=|", "must be an integer of at least 1"),
        ("thinking_budget=5000,think_end_token=|", "the context length is 1024 tokens"),
        ("thinking_budget=80,max_length=64,think_end_token=|", "the context length is 64 tokens"),
        ("thinking_budget=48,think_end_token=|", "leaves no room for an answer: its max_gen_toks"),
        ("thinking_budget=5,think_end_token=</thinkk>", "is no token of the tokenizer"),
        ("thinking_budget=5,think_end_token=5000", "is no token: the tokenizer has 1024 tokens"),
        (
            "thinking_budget=5,think_end_token=|,enable_thinking=False",
            "contradict each other",
        ),
    ],
)
def test_a_budget_that_cannot_work_is_refused_before_the_weights_are_loaded(
    arguments: str,
    message: str,
    tmp_path: Path,
    thinker: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "without-weights"
    folder.mkdir()
    for file in thinker.iterdir():
        if file.suffix == ".json":
            (folder / file.name).write_bytes(file.read_bytes())
    model = f"pretrained={folder},{arguments}"
    code = main(["run", "--model", "hf", "--model_args", model, "--tasks", "demo_sums"])
    error = capsys.readouterr().err
    assert code == 2
    assert message in error
    assert "weights" not in error
