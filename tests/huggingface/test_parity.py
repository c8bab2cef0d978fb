"""Tests that answers equal the published harness's, with any batch size and prefix sharing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lm_eval.models.demo import DemoLM
from lm_eval.models.demo.model import WEIGHTS
from tests.demo.conftest import (
    choice_requests,
    documents,
    pair_requests,
    story_requests,
    sum_requests,
)
from tests.huggingface.conftest import ask

SHARED = Path(__file__).resolve().parents[3] / "shared"
RECORD = SHARED / "parity" / "hf_stories260K.json"


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    if not RECORD.exists():
        pytest.skip("the record of the published answers is not here")
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "batch_size",
    [1, pytest.param(4, marks=SLOW), pytest.param(64, marks=SLOW), "auto"],
)
@pytest.mark.parametrize("sharing", ["on", "off"])
def test_every_recorded_answer_is_reproduced(
    record: dict[str, Any], batch_size: int | str, sharing: str
) -> None:
    from lm_eval.models.huggingface import HFLM

    lm = HFLM(
        pretrained=str(SHARED / "models" / "stories260K"),
        device="cpu",
        batch_size=batch_size,
        prefix_sharing=sharing,
    )
    for name, case in record.items():
        rows = case["requests"]
        if name.startswith("wikitext") and batch_size != "auto":
            rows = rows[:1]  # long ones
        (kind,) = {row["kind"] for row in rows}
        found = getattr(lm, kind)([ask(kind, *row["args"], task=name) for row in rows])
        for answer, row in zip(found, rows, strict=True):
            if kind == "generate_until":
                assert answer == row["answer"]
            elif kind == "loglikelihood":
                tokens = len(lm.tok_encode(row["args"][1]))
                assert answer[0] == pytest.approx(row["answer"][0], abs=max(1e-3, 1e-4 * tokens))
                assert answer[1] == row["answer"][1]
            else:
                tokens = len(lm.tok_encode(row["args"][0]))
                assert answer == pytest.approx(row["answer"], abs=1e-4 * tokens)


def test_the_demo_model_through_transformers_is_the_numpy_one() -> None:
    from lm_eval.models.huggingface import HFLM

    ours, numpy = HFLM(pretrained=str(WEIGHTS), device="cpu", dtype="float32"), DemoLM()
    requests = [
        *choice_requests(documents("choice_test")[:8]),
        *pair_requests(documents("pairs_test")[:10]),
    ]
    found, expected = ours.loglikelihood(requests), numpy.loglikelihood(requests)
    np.testing.assert_allclose([a[0] for a in found], [b[0] for b in expected], atol=1e-3)
    assert [a[1] for a in found] == [b[1] for b in expected]
    texts = story_requests(documents("stories_test")[:2])
    np.testing.assert_allclose(
        ours.loglikelihood_rolling(texts), numpy.loglikelihood_rolling(texts), rtol=1e-5
    )
    sums = sum_requests(documents("sums_test")[:4], {"until": ["\n"], "max_gen_toks": 40})
    assert ours.generate_until(sums) == numpy.generate_until(sums)
