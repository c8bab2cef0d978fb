"""Tests `lm-eval show`, which prints the exact requests before a run."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from lm_eval.prompts.visible import visible
from tests.conftest import Command, Folder

SHARED = Path(__file__).parents[2] / "shared"

needs_tokenizer = pytest.mark.skipif(
    not (SHARED / "tokenizers").is_dir() or not importlib.util.find_spec("transformers"),
    reason="needs ../shared/tokenizers and transformers",
)


def shown(command: Command, *words: str | Path) -> str:
    done = command("show", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- ARC-Easy in four formats -----------------------------------------------------------------

#: Two questions of our own, in the columns of `allenai/ai2_arc`.
QUESTIONS = [
    {
        "id": "a",
        "question": "What falls from clouds?",
        "choices": {"text": ["rain", "sand", "light"], "label": ["A", "B", "C"]},
        "answerKey": "A",
    },
    {
        "id": "b",
        "question": "Which of these is alive?",
        "choices": {
            "text": ["a stone", "a river", "a fern", "the wind"],
            "label": ["1", "2", "3", "4"],
        },
        "answerKey": "3",
    },
]


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    import pyarrow
    import pyarrow.parquet

    folder = tmp_path / "mirror" / "allenai" / "ai2_arc" / "ARC-Easy"
    folder.mkdir(parents=True)
    for split in ("train", "validation", "test"):
        rows = QUESTIONS[::-1] if split == "test" else QUESTIONS
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / f"{split}.parquet")
    return tmp_path / "mirror"


HEAD = """\
task      {task} (version 1.0)
document  0 of 2
requests  {requests}, 0-shot
metrics   {metrics}
filters   {filters}
──── context ───────────────────────────────────────────────
"""
TARGET = "──── target ────────────────────────────────────────────────"
RANKED = """\
──── continuations ─────────────────────────────────────────
 0  ·{0}
 1  ·{1}
 2  ·{2}  ◀ gold
 3  ·{3}
──── target ────────────────────────────────────────────────
2

"""
OPTIONS = """\
Question: Which of these is alive?↵
A. a stone↵
B. a river↵
C. a fern↵
D. the wind↵
"""
TEXTS, LETTERS = ("a stone", "a river", "a fern", "the wind"), "ABCD"


def test_arc_easy_as_it_is_and_as_cloze_ranks_texts_unseen(
    lm_eval_command: Command, mirror: Path
) -> None:
    for task in ("arc_easy", "arc_easy@cloze"):
        assert shown(lm_eval_command, task, "--data_dir", mirror) == (
            HEAD.format(
                task=task,
                requests="4 × loglikelihood",
                metrics="acc ↑, acc_norm ↑",
                filters="none",
            )
            + "Question: Which of these is alive?↵\nAnswer:\n"
            + RANKED.format(*TEXTS)
        )


def test_arc_easy_as_mcqa_shows_options_and_ranks_letters(
    lm_eval_command: Command, mirror: Path
) -> None:
    assert shown(lm_eval_command, "arc_easy@mcqa", "--data_dir", mirror) == (
        HEAD.format(
            task="arc_easy@mcqa", requests="4 × loglikelihood", metrics="acc ↑", filters="none"
        )
        + OPTIONS
        + "Answer:\n"
        + RANKED.format(*LETTERS)
    )


def test_arc_easy_as_hybrid_shows_options_and_ranks_texts(
    lm_eval_command: Command, mirror: Path
) -> None:
    assert shown(lm_eval_command, "arc_easy@hybrid", "--data_dir", mirror) == (
        HEAD.format(
            task="arc_easy@hybrid",
            requests="4 × loglikelihood",
            metrics="acc ↑, acc_norm ↑",
            filters="none",
        )
        + OPTIONS
        + "Answer:\n"
        + RANKED.format(*TEXTS)
    )


def test_arc_easy_as_generation_asks_for_the_best_answer(
    lm_eval_command: Command, mirror: Path
) -> None:
    assert shown(lm_eval_command, "arc_easy@generate", "--data_dir", mirror) == (
        HEAD.format(
            task="arc_easy@generate",
            requests="1 × generate_until",
            metrics="exact_match ↑",
            filters="first_token",
        )
        + "Given the following question and 4 candidate answers (A, B, C and D), choose the best "
        "answer.↵\n"
        + OPTIONS
        + 'Your response should end with "The best answer is [answer_letter]" where the '
        "[answer_letter] is one of A, B, C or D.↵\n"
        "The best answer is\n"
        "──── generation ────────────────────────────────────────────\n"
        '{"temperature": 0.0, "do_sample": false, "max_gen_toks": 256, "until": ["\\n\\n"]}\n'
        f"{TARGET}\nC\n\n"
    )


# -- what else can be seen --------------------------------------------------------------------


def test_a_document_is_shown_with_the_examples_a_run_gives_it(
    lm_eval_command: Command, colours: Folder
) -> None:
    file = colours.path / "colours.yaml"
    words = ("--tasks", file, "--num_fewshot", "2", "--model", "dummy", "--log_samples")
    out = colours.path / "out"
    assert lm_eval_command("run", *words, "--output_path", out).returncode == 0
    (samples,) = out.rglob("samples_*.jsonl")
    asked = json.loads(samples.read_text().splitlines()[3])["arguments"]
    (seen,) = json.loads(shown(lm_eval_command, file, "--doc", "3", "--num_fewshot", "2", "--json"))
    assert [request["arguments"] for request in seen["requests"]] == [
        [asked[f"gen_args_{i}"]["arg_0"], asked[f"gen_args_{i}"]["arg_1"]] for i in range(2)
    ]
    assert (seen["document"], seen["num_fewshot"], seen["target"]) == (3, 2, 1)


def test_every_kind_of_request_can_be_shown(lm_eval_command: Command) -> None:
    text = shown(lm_eval_command, "demo")
    for kind in ("4 × loglikelihood,", "1 × loglikelihood_rolling", "1 × generate_until"):
        assert kind in text
    assert text.count("document  0 of") == 5


@needs_tokenizer
def test_tokens_and_the_boundary_are_shown_with_a_tokenizer(
    lm_eval_command: Command, colours: Folder
) -> None:
    gpt2 = SHARED / "tokenizers" / "gpt2"
    file = colours.path / "colours.yaml"
    text = shown(lm_eval_command, file, "--tokenizer", gpt2)
    assert "tokens: " in text
    assert "30'?' ‖\n" in text
    assert " 0  ·green  ◀ gold\n    4077' green'\n" in text
    (seen,) = json.loads(shown(lm_eval_command, file, "--tokenizer", gpt2, "--json"))
    assert [request["tokens"]["continuation"] for request in seen["requests"]] == [[4077], [2266]]


@needs_tokenizer
def test_a_chat_is_shown_as_the_tokenizers_template_writes_it(
    lm_eval_command: Command, colours: Folder
) -> None:
    words = (
        *(colours.path / "colours.yaml", "--tokenizer", SHARED / "tokenizers" / "smollm2"),
        *("--apply_chat_template", "--num_fewshot", "1", "--system_instruction", "Be brief."),
    )
    (seen,) = json.loads(shown(lm_eval_command, *words, "--json"))
    chat = seen["requests"][0]["arguments"][0]
    assert chat.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nOf what")
    assert chat.endswith(
        "<|im_start|>user\nOf what colour is grass?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert chat.count("<|im_start|>user") == 2
    folded = json.loads(shown(lm_eval_command, *words, "--json", "--fewshot_as_multiturn", "false"))
    assert folded[0]["requests"][0]["arguments"][0].count("<|im_start|>user") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--doc", "6"), "has no document 6: --doc must be between 0 and 5"),
        (("--doc", "-1"), "has no document -1"),
        (("--apply_chat_template",), "needs --tokenizer"),
        (("--tokenizer", "nowhere"), "the tokenizer nowhere could not be loaded"),
    ],
)
def test_what_cannot_be_shown_is_explained(
    lm_eval_command: Command, colours: Folder, words: tuple[str, ...], said: str
) -> None:
    done = lm_eval_command("show", colours.path / "colours.yaml", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a b", "a b"),
        (" a  b ", "·a··b·"),
        ("a\n\n b", "a↵\n↵\n·b"),
        ("a\tb\r\n", "a⇥b‹U+000D›↵\n"),
        ("a\u00a0b\u200bc\ufeff", "a‹U+00A0›b‹U+200B›c‹U+FEFF›"),
        ("naïve 漢字 🙂", "naïve 漢字 🙂"),
    ],
)
def test_what_cannot_be_seen_is_marked(text: str, seen: str) -> None:
    assert visible(text) == seen
