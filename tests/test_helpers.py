"""Tests that functions which task code imports exist and return what the published ones do."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lm_eval.helpers
from lm_eval.errors import ConfigError
from lm_eval.tasks._yaml_loader import load_yaml
from tests.helper_cases import CASES, outcomes
from tools.record_helpers import condense

RECORD = json.loads(
    (Path(__file__).parent / "parity" / "helpers_published.json").read_text(encoding="utf-8")
)
#: The packages that the functions of a family need.
NEEDED = {"ifeval": ["langdetect", "nltk"], "truthfulqa": ["sacrebleu"]}
SYMBOLIC = ["sympy", "math_verify", "antlr4"]


@pytest.mark.parametrize("name", CASES)
def test_a_function_returns_what_the_published_one_does(name: str) -> None:
    needed = NEEDED.get(name.partition(".")[0], [])
    if name in ("minerva_math.utils.is_equiv", "minerva_math.utils.process_results"):
        needed = SYMBOLIC
    for package in needed:
        pytest.importorskip(package)
    assert condense(outcomes(name)) == RECORD[name]


def test_the_helpers_are_these() -> None:
    assert lm_eval.helpers.__all__ == [
        "IFEVAL_CHECKS",
        "compute_exact",
        "compute_f1",
        "drop_metrics",
        "follows_instruction",
        "get_unnormalized_answer",
        "is_equiv",
        "is_symbolically_equiv",
        "last_boxed",
        "last_boxed_only_string",
        "normalize_answer",
        "normalize_final_answer",
        "remove_boxed",
        "strip_string",
    ]
    for name in lm_eval.helpers.__all__:
        assert callable(getattr(lm_eval.helpers, name)) or name.isupper()


def test_the_helpers_are_imported_on_first_use() -> None:
    code = "import sys, lm_eval.helpers; print([m for m in sys.modules if 'lm_eval.helpers.' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("function", "arguments"),
    [("humaneval.utils.pass_at_k", ([""], [[""]], [1])), ("mbpp.utils.pass_at_1", ("", [[""]]))],
)
def test_functions_that_would_run_programs_ask_for_consent(
    function: str, arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_ALLOW_CODE_EVAL", raising=False)
    module, _, name = function.rpartition(".")
    with pytest.raises(ConfigError, match=r"without your consent.*HF_ALLOW_CODE_EVAL=1"):
        getattr(importlib.import_module(f"lm_eval.tasks.{module}"), name)(*arguments)


def test_an_instruction_without_a_setting_draws_one_or_asks_for_it() -> None:
    for package in NEEDED["ifeval"]:
        pytest.importorskip(package)
    registry = importlib.import_module("lm_eval.tasks.ifeval.instructions_registry")
    words = registry.INSTRUCTION_DICT["length_constraints:number_words"]("x")
    words.build_description()
    assert 100 <= words.get_instruction_args()["num_words"] <= 500
    with pytest.raises(ValueError, match="keywords must be given"):
        registry.INSTRUCTION_DICT["keywords:existence"]("x").build_description()
    with pytest.raises(ValueError, match="relation must be one of"):
        words.build_description(relation="at most")


@pytest.mark.parametrize(
    ("path", "task"),
    [
        ("gsm8k/gsm8k-cot.yaml", "gsm8k_cot"),
        ("mmlu/default/mmlu_anatomy.yaml", "mmlu_anatomy"),
        ("super_glue/boolq/default.yaml", "boolq"),
        ("leaderboard/bbh_mc/snarks.yaml", "leaderboard_bbh_snarks"),
    ],
)
def test_task_files_have_their_published_names(path: str, task: str) -> None:
    library = Path(str(importlib.import_module("lm_eval.tasks").__file__)).parent
    assert load_yaml(library / path, resolve_func=False)["task"] == task
