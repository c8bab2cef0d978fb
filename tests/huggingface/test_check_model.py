"""Tests that `check_model` finds nothing in the `hf` model, but finds a patched fault."""

from __future__ import annotations

from typing import Any

import pytest

import lm_eval
from lm_eval.models import from_logits
from lm_eval.models.huggingface import HFLM
from tests.huggingface.conftest import Make, torch


@pytest.mark.parametrize("batch_size", ["auto", 1])
def test_hf_has_no_problem(make_lm: Make, batch_size: Any) -> None:
    report = lm_eval.check_model(make_lm(batch_size=batch_size))
    assert report.problems == []
    assert {check.name for check in report.checks if check.skipped} == {"chat template"}


def test_a_function_as_a_model_has_no_problem(llama: Any, tokenizer: Any) -> None:
    report = lm_eval.check_model(from_logits(llama, tokenizer, max_length=256))
    assert report.problems == []
    assert {check.name for check in report.checks if check.skipped} == {"chat template"}


def test_a_subclass_that_shifts_its_logits_is_found(llama: Any, tokenizer: Any) -> None:
    class Shifted(HFLM):
        def _model_call(self, inps: Any, **kwargs: Any) -> Any:
            return torch.roll(super()._model_call(inps, **kwargs), 1, dims=-1)

    report = lm_eval.check_model(Shifted(llama, tokenizer=tokenizer))
    assert any(problem.startswith("is_greedy") for problem in report.problems)
