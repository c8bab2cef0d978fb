"""Tests that classes and patches of other projects give what they give with the published package.

`wild_uses_published.json` is what `wild_uses.py` wrote under lm-eval 0.4.13.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.0")

from lm_eval.errors import ModelError
from lm_eval.models.demo.model import WEIGHTS
from lm_eval.models.huggingface import HFLM
from tests.huggingface.wild_uses import (
    PATCHES,
    USES,
    answers_of,
    make_llama,
    outcome_of,
    unpatched,
)

PUBLISHED = json.loads(Path(__file__).with_name("wild_uses_published.json").read_text())

#: What ours answers where the published package fails, by use and type: the answers of another use.
ANSWERED = {
    ("a_state_space_model_with_nothing_else", "loglikelihood"): "plain",
    ("a_state_space_model_with_nothing_else", "loglikelihood_rolling"): "plain",
    ("an_inference_script", "loglikelihood"): "an_inference_script_with_a_stand_in",
    ("an_inference_script", "loglikelihood_rolling"): "an_inference_script_with_a_stand_in",
}
#: Where the answers differ on purpose: contexts of generation are encoded by a replaced
#: `tok_encode` as well, which the published package uses only to sort them.
DIFFERENT = {(name, "generate_until") for name in USES if name.startswith("tok_encode ")}


@pytest.fixture(scope="module")
def llama() -> Any:
    return make_llama()


@pytest.fixture
def text() -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(WEIGHTS)


def agree(found: Any, expected: Any) -> bool:
    """Returns whether answers are equal, up to rounding of log-likelihoods."""
    if isinstance(expected, str) or isinstance(found, str):
        return bool(found == expected)
    flat = [one if isinstance(one, list) else [one] for one in found]
    wanted = [one if isinstance(one, list) else [one] for one in expected]
    return all(
        a == pytest.approx(b, abs=1e-3) if isinstance(b, float) else a == b
        for row, other in zip(flat, wanted, strict=True)
        for a, b in zip(row, other, strict=True)
    )


@pytest.mark.parametrize("name", sorted(USES))
def test_a_use_gives_what_it_gives_with_the_published_package(
    name: str, llama: Any, text: Any
) -> None:
    found = outcome_of(name, llama, text)
    for kind in ("loglikelihood", "loglikelihood_rolling", "generate_until"):
        published = PUBLISHED[name].get(kind, PUBLISHED[name].get("constructor"))
        if other := ANSWERED.get((name, kind)):
            assert isinstance(published, str)
            assert agree(found[kind], PUBLISHED[other][kind]), kind
        elif (name, kind) in DIFFERENT:
            assert not agree(found[kind], published)
        elif isinstance(published, str):
            assert isinstance(found[kind], str), kind
        else:
            assert agree(found[kind], published), kind


@pytest.mark.parametrize("name", sorted(PATCHES))
def test_a_patch_works_as_an_override_and_can_be_taken_back(
    name: str, llama: Any, text: Any
) -> None:
    patched = outcome_of(f"{name} on_the_object", llama, text)
    assert patched == outcome_of(f"{name} in_a_subclass", llama, text)
    lm = unpatched(llama, text)
    before = answers_of(lm)
    assert before != patched
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HFLM, name, PATCHES[name])
        assert answers_of(lm) == patched
    assert answers_of(lm) == before


def test_a_wrapper_with_the_name_of_our_method_is_called(llama: Any, text: Any) -> None:
    """`functools.wraps` copies the names of a function; only its identity tells them apart."""
    from functools import wraps

    calls = []
    lm = unpatched(llama, text)
    inner = lm._model_call

    @wraps(inner)
    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(len(args[0]))
        return inner(*args, **kwargs)

    expected = answers_of(lm)["loglikelihood"]
    lm._model_call = counted
    assert agree(answers_of(lm)["loglikelihood"], expected)
    assert sum(calls) > 0


def test_answers_of_a_patched_model_are_not_taken_for_its_own(llama: Any, text: Any) -> None:
    from lm_eval.config.run import RunConfig
    from lm_eval.models.identity import model_identity

    lm = unpatched(llama, text)
    run = RunConfig(model=lm, tasks=["a_task"])
    plain = model_identity(run, lm)
    found = {plain}
    for name, patch in PATCHES.items():
        with pytest.MonkeyPatch.context() as context:
            context.setattr(lm, name, patch.__get__(lm))
            found.add(model_identity(run, lm))
            assert list(lm.get_model_info()["patched_methods"]) == [name]
    assert len(found) == 1 + len(PATCHES)
    assert model_identity(run, lm) == plain

    class Subclass(HFLM):
        _model_call = PATCHES["_model_call"]

    assert "patched_methods" not in Subclass(llama, tokenizer=text).get_model_info()


def test_a_class_without_model_or_tokenizer_is_told_what_is_missing(llama: Any, text: Any) -> None:
    class Bare(HFLM):
        def __init__(self) -> None:
            super().__init__()

    class Skipping(HFLM):
        def __init__(self) -> None:
            pass

    for kind in (Bare, Skipping):
        lm = kind()
        with pytest.raises(ModelError, match=f"{kind.__name__} has no tokenizer.*self.tokenizer"):
            lm.tok_encode("a")
        lm.tokenizer = text
        assert lm.tok_encode("Tom") == text.encode("Tom")
        with pytest.raises(ModelError, match=f"{kind.__name__} has no model.*self._model"):
            lm.loglikelihood(requests_of("loglikelihood", ("Tom", " has")))
        lm._model = llama
        found = lm.loglikelihood(requests_of("loglikelihood", ("Tom", " has")))
        plain = unpatched(llama, text)
        expected = plain.loglikelihood(requests_of("loglikelihood", ("Tom", " has")))
        assert agree([list(one) for one in found], [list(one) for one in expected])
        settings = {"max_gen_toks": 4, "until": []}
        asked = requests_of("generate_until", ("Tom has", settings))
        assert lm.generate_until(asked) == plain.generate_until(asked)


def test_the_model_itself_cannot_be_made_without_one() -> None:
    with pytest.raises(TypeError, match="requires pretrained"):
        HFLM()
    with pytest.raises(TypeError, match="'pretraind'; did you mean 'pretrained'"):
        HFLM(pretraind="gpt2")


def requests_of(kind: str, *arguments: Any) -> list[Any]:
    from tests.huggingface.conftest import ask

    return [ask(kind, *args) for args in arguments]
