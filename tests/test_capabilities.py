"""Tests of `lm_eval.capabilities`."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import lm_eval
from lm_eval.features import FEATURES, PUBLISHED_VERSION


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_a_feature_that_is_named_can_be_imported(name: str) -> None:
    assert lm_eval.capabilities()[name] is True
    module, _, attribute = FEATURES[name].partition(":")
    found = importlib.import_module(module)
    if attribute:
        assert callable(getattr(found, attribute))


def test_features_and_versions_are_named() -> None:
    known = lm_eval.capabilities()
    assert known["version"] == lm_eval.__version__
    assert known["published_version"] == PUBLISHED_VERSION
    assert known["from_logits"] is True
    assert known["models.demo"] is True
    assert known.get("a feature of another version", False) is False
    with pytest.raises(TypeError):
        known["from_logits"] = False  # type: ignore[index]


def test_a_model_whose_packages_are_missing_is_not_available(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "vllm" else real(name)
    )
    assert lm_eval.capabilities()["models.vllm"] is False


def test_asking_imports_no_feature() -> None:
    code = (
        "import sys, lm_eval\n"
        "lm_eval.capabilities()\n"
        "print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])\n"
        "print('lm_eval.evaluator' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "False"]


def test_code_for_both_packages_can_ask() -> None:
    class Published:
        """A package without the function."""

    for package, expected in ((lm_eval, True), (Published, False)):
        assert bool(getattr(package, "capabilities", dict)().get("check_model")) is expected
