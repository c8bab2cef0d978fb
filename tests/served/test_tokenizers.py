"""Tests the tokenizers of served models."""

from __future__ import annotations

import pytest

from lm_eval.models.demo.model import WEIGHTS
from lm_eval.models.planned.tokenizers import PlainTokenizer, TransformersTokenizer


def test_both_libraries_encode_alike(caplog: pytest.LogCaptureFixture) -> None:
    transformers = pytest.importorskip("transformers")
    logger = transformers.utils.logging.get_logger("transformers")
    logger.addHandler(caplog.handler)
    texts = ["Ann has a red kite.", "", "<|endoftext|>Ann", "Grüße, 世界", " a" * 2000]
    one, other = TransformersTokenizer(str(WEIGHTS)), PlainTokenizer(str(WEIGHTS))
    for special in (None, True, False):
        found = one.encode(texts, special)
        assert found == other.encode(texts, special)
    assert len(found[-1]) == 2000
    assert not caplog.text, "no advice about the length of texts, which are cut later"
    logger.removeHandler(caplog.handler)
