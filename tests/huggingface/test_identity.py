"""Tests that answers stored for one model object are never used for another model."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from lm_eval.config.run import RunConfig
from lm_eval.models.identity import model_identity, tokenizer_digest
from tests.huggingface.conftest import Make, torch


def identity(lm: Any) -> str:
    return model_identity(RunConfig(model=lm, tasks=["t"]), lm)


@pytest.mark.parametrize(
    "options",
    [
        {"add_bos_token": True},
        {"max_length": 8},
        {"truncation_side": "right"},
        {"prefix_token_id": 3},
        {"softmax_dtype": "float64"},
        {"rolling_stride": 5},
        {"seed": 3},
        {"think_end_token": "x"},
    ],
)
def test_other_settings_are_another_model(make_lm: Make, options: dict[str, Any]) -> None:
    assert identity(make_lm()) == identity(make_lm())
    assert identity(make_lm(**options)) != identity(make_lm())


def test_what_changes_the_speed_alone_is_the_same_model(make_lm: Make) -> None:
    assert identity(make_lm(batch_size=3, prefix_sharing="off")) == identity(make_lm())


def changed(llama: Any, name: str, place: Any) -> Any:
    other = copy.deepcopy(llama)
    with torch.no_grad():
        other.get_parameter(name)[place] += 0.5
    return other


def test_other_weights_are_another_model(make_lm: Make, llama: Any) -> None:
    own = identity(make_lm())
    assert identity(make_lm(copy.deepcopy(llama))) == own
    whole = changed(llama, "model.norm.weight", slice(None))
    columns = changed(llama, "lm_head.weight", (slice(None), slice(1, None)))
    assert len({own, identity(make_lm(whole)), identity(make_lm(columns))}) == 3


def test_one_row_or_one_setting_is_another_model(make_lm: Make, llama: Any) -> None:
    own = identity(make_lm())
    row = changed(llama, "model.embed_tokens.weight", (77, 3))
    epsilon = copy.deepcopy(llama)
    epsilon.model.norm.variance_epsilon = 0.5
    assert len({own, identity(make_lm(row)), identity(make_lm(epsilon))}) == 3


def test_a_model_with_a_hook_is_like_no_other(make_lm: Make, llama: Any) -> None:
    other = copy.deepcopy(llama)
    other.model.layers[0].register_forward_hook(lambda module, args, out: out)
    assert identity(make_lm(other)) != identity(make_lm(other))


def test_a_model_in_training_is_the_same_model(make_lm: Make, llama: Any) -> None:
    other = copy.deepcopy(llama)
    lm = make_lm(other)
    own = identity(lm)
    other.train()
    assert identity(lm) == own


def test_another_tokenizer_is_another_model(make_lm: Make, tokenizer: Any) -> None:
    other = copy.deepcopy(tokenizer)
    other.add_tokens(["<new>"])
    assert identity(make_lm(tokenizer=other)) != identity(make_lm())


def test_weights_that_are_elsewhere_tell_nothing(
    make_lm: Make, llama: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lm = make_lm()
    lm._model = copy.deepcopy(llama).to("meta")
    identity(lm)
    assert "shared by all HFLM objects" in caplog.text


def test_weights_whose_numbers_cannot_be_read_are_named(
    make_lm: Make, llama: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lm = make_lm()
    lm._model = other = copy.deepcopy(llama)
    sparse = other.model.norm.weight.detach().to_sparse()  # which has no flat form
    other.model.norm.weight = torch.nn.Parameter(sparse)
    caplog.set_level("INFO", "lm_eval")
    identity(lm)
    assert "not identified by its weights: model.norm.weight cannot be read" in caplog.text
    assert "shared by all HFLM objects" in caplog.text


def test_a_mistake_in_our_digest_of_weights_is_not_hidden(
    make_lm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(weight: Any) -> int:
        raise KeyError("a bug")

    monkeypatch.setattr("lm_eval.models.identity._step", mistaken)
    with pytest.raises(KeyError, match="a bug"):
        identity(make_lm())


def test_a_tokenizer_with_steps_in_python_is_known_by_name_and_told(
    make_lm: Make, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from tokenizers.pre_tokenizers import PreTokenizer

    class Whole:
        def pre_tokenize(self, text: Any) -> None: ...

    other = copy.deepcopy(tokenizer)
    lm = make_lm(tokenizer=other)
    other.backend_tokenizer.pre_tokenizer = PreTokenizer.custom(Whole())
    caplog.set_level("INFO", "lm_eval")
    assert tokenizer_digest(lm) == other.name_or_path
    assert "is identified by its name: Custom PreTokenizer cannot be serialized" in caplog.text
