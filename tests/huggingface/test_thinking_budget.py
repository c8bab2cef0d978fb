"""Tests `thinking_budget` of `hf` with a model that thinks for ever: cut, answered, counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.api.instance import Completion, Instance
from lm_eval.cli import main
from lm_eval.errors import ConfigError
from lm_eval.models.demo.model import WEIGHTS
from tests.thinker import ANSWER, MARK, write_thinker

pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.0")

from lm_eval.models.huggingface import HFLM


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
