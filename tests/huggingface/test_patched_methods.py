"""Tests of `HFLM` with patched methods, and of subclasses without its constructor.

`tests/uses` compares what they answer with the published package.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.0")

from lm_eval.errors import ModelError
from lm_eval.models.demo.model import WEIGHTS
from lm_eval.models.huggingface import HFLM
from tests.test_uses import agree
from tests.uses import support
from tests.uses.replaced_methods import PATCHES, in_a_subclass, on_the_object, unpatched
from tests.uses.support import answers_of


@pytest.fixture(scope="module")
def llama() -> Any:
    return support.llama()


@pytest.fixture
def text() -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(WEIGHTS)


@pytest.mark.parametrize("name", sorted(PATCHES))
def test_a_patch_works_as_an_override_and_can_be_taken_back(
    name: str, llama: Any, text: Any
) -> None:
    patched = on_the_object(name)
    assert patched == in_a_subclass(name)
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
