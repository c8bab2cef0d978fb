"""Tests that subclasses of the published `HFLM` work: the methods they override are called."""

from __future__ import annotations

import copy
import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from lm_eval.models.demo.model import WEIGHTS
from lm_eval.models.huggingface import HFLM
from tests.huggingface.conftest import ARCHITECTURES, Make, ask, make_model, torch

SCORED = [ask("loglikelihood", "Tom has", f" {word}") for word in ("three", "four apples")]
WRITTEN = [
    ask("generate_until", text, {"max_gen_toks": 6, "until": ["zz"]}) for text in ("Tom has", "A")
]


def numbers(answers: list[tuple[float, bool]]) -> Any:
    return pytest.approx([score for score, _ in answers], abs=1e-4)


class Foreign(HFLM):
    """Wraps a model and tokenizer of another library; transformers loads only a placeholder."""

    def __init__(self, network: Any, text: Any) -> None:
        super().__init__(pretrained=str(WEIGHTS), device="cpu")
        self._model, self._text = network, text

    @property
    def model(self) -> Any:
        return self._model

    @property
    def eot_token_id(self) -> int:
        return 0

    @property
    def max_length(self) -> int:
        return 100

    @property
    def batch_size(self) -> int:
        return 2

    @property
    def device(self) -> Any:
        return self._device

    def tok_encode(self, string: str, **kwargs: Any) -> list[int]:
        found: list[int] = self._text.encode(string, add_special_tokens=False)
        return found

    def tok_batch_encode(self, strings: Any, left_truncate_len: Any = None, **kwargs: Any) -> Any:
        rows = [self.tok_encode(string) for string in strings]
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
        return ids, (ids != 0).long()

    def tok_decode(self, tokens: Any, **kwargs: Any) -> str:
        return str(self._text.decode([tokens] if isinstance(tokens, int) else tokens))

    def _model_call(self, inps: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return self._model(inps)

    def _model_generate(self, context: Any, max_length: int, **kwargs: Any) -> Any:
        assert len(context) == 1 or bool((kwargs["attention_mask"] == (context != 0)).all())
        rows = context
        while rows.shape[1] < max_length:
            after = [self._model_call(row[row != 0][None])[0, -1].argmax() for row in rows]
            rows = torch.cat([rows, torch.stack(after)[:, None]], dim=1)
        return rows


def test_a_model_of_another_library_behind_a_stand_in(
    make_lm: Make, llama: Any, tokenizer: Any
) -> None:
    class Plain(torch.nn.Module):  # type: ignore[misc]
        def forward(self, tokens: Any) -> Any:
            return llama(tokens).logits

    lm, expected = Foreign(Plain(), tokenizer), make_lm(max_length=100)
    assert [score for score, _ in lm.loglikelihood(SCORED)] == numbers(
        expected.loglikelihood(SCORED)
    )
    texts = [ask("loglikelihood_rolling", "Tom has three apples")]
    assert lm.loglikelihood_rolling(texts) == pytest.approx(
        expected.loglikelihood_rolling(texts), abs=1e-3
    )
    assert lm.generate_until(WRITTEN) == expected.generate_until(WRITTEN)


def test_a_class_that_makes_configuration_and_model_by_itself(llama: Any, tokenizer: Any) -> None:
    class Own(HFLM):
        def _get_config(self, pretrained: str, **kwargs: Any) -> None:
            self._config = llama.config

        def _create_model(self, pretrained: str, dtype: Any = "float16", **kwargs: Any) -> None:
            assert dtype == "auto"
            self._model = llama

        def _create_tokenizer(
            self,
            pretrained: str,
            tokenizer: Any,
            revision: Any = "main",
            trust_remote_code: Any = False,
            **kwargs: Any,
        ) -> None:
            assert revision == "main"
            assert trust_remote_code is False
            self.tokenizer = tokenizer

    lm = Own(pretrained="nobody/nothing", tokenizer=tokenizer, device="cpu")
    expected = HFLM(pretrained=llama, tokenizer=tokenizer)
    assert [score for score, _ in lm.loglikelihood(SCORED)] == numbers(
        expected.loglikelihood(SCORED)
    )
    assert lm.execution_modes.prefix_sharing


def test_a_class_that_makes_its_model_of_few_arguments(llama: Any, tokenizer: Any) -> None:
    class Own(HFLM):
        def _create_model(self, pretrained: str, revision: str = "main", dtype: Any = None) -> None:
            self._model = llama

    lm = Own(pretrained=str(WEIGHTS), tokenizer=tokenizer, device="cpu")
    assert lm.model is llama
    with pytest.raises(TypeError, match="peft"):
        Own(pretrained=str(WEIGHTS), tokenizer=tokenizer, device="cpu", peft="an/adapter")


def test_a_wrapped_model_need_not_tell_what_it_is(llama: Any, tokenizer: Any) -> None:
    class Wrapper(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.config = llama, {"max_position_embeddings": 256}

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.inner(*args, **kwargs)

        def get_input_embeddings(self) -> Any:
            return self.inner.get_input_embeddings()

    lm = HFLM(pretrained=Wrapper(), tokenizer=tokenizer, device="cpu")
    expected = HFLM(pretrained=llama, tokenizer=tokenizer)
    assert lm.vocabulary == expected.vocabulary
    assert [score for score, _ in lm.loglikelihood(SCORED)] == numbers(
        expected.loglikelihood(SCORED)
    )


def test_requests_may_have_nothing_but_arguments(make_lm: Make) -> None:
    lm = make_lm(max_length=12)
    for kind, asked in (("loglikelihood", SCORED), ("generate_until", WRITTEN)):
        bare = [SimpleNamespace(args=request.args) for request in asked]
        assert getattr(lm, kind)(bare) == getattr(lm, kind)(asked)
    long: Any = [SimpleNamespace(args=("Tom has a cat. " * 9, " A dog"))]
    lm.loglikelihood(long)
    assert lm.run_context.usage.truncated["None"] == 1


def test_a_class_that_hands_its_arguments_on() -> None:
    class Own(HFLM):
        def _get_config(self, pretrained: str, **kwargs: Any) -> None:
            super()._get_config(pretrained, **kwargs)

        def _create_model(self, pretrained: str, dtype: Any = None, **kwargs: Any) -> None:
            super()._create_model(pretrained, dtype="float32")

    assert Own(pretrained=str(WEIGHTS), device="cpu").model.dtype == torch.float32


def test_a_replaced_way_of_encoding_pairs_is_asked(llama: Any, tokenizer: Any) -> None:
    class Own(HFLM):
        def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
            return [5, 6, 7], [8, 9]

    lm = Own(pretrained=llama, tokenizer=tokenizer)
    ((expected, _),) = lm._loglikelihood_tokens([(None, [5, 6, 7], [8, 9])])
    assert lm.loglikelihood(SCORED[:1])[0][0] == pytest.approx(expected, abs=1e-4)


def test_a_replaced_way_of_decoding_is_asked(llama: Any, tokenizer: Any) -> None:
    class Own(HFLM):
        def tok_decode(self, tokens: Any, skip_special_tokens: bool = True) -> str:
            return super().tok_decode(tokens, skip_special_tokens).upper()

    lm, plain = Own(llama, tokenizer=tokenizer), HFLM(llama, tokenizer=tokenizer)
    assert lm.generate_until(WRITTEN) == [text.upper() for text in plain.generate_until(WRITTEN)]


def test_a_model_or_tokenizer_exchanged_on_a_finished_object_is_used(
    make_lm: Make, tokenizer: Any
) -> None:
    lm = make_lm()
    lm.loglikelihood(SCORED)
    other = make_model(*ARCHITECTURES["gpt2"][:3])
    lm._model = other
    expected = make_lm(other).loglikelihood(SCORED)
    assert [score for score, _ in lm.loglikelihood(SCORED)] == numbers(expected)
    lower = copy.deepcopy(tokenizer)
    from tokenizers.normalizers import Lowercase

    lower.backend_tokenizer.normalizer = Lowercase()
    lm.tokenizer = lower
    assert lm.tok_encode("TOM") == tokenizer.encode("tom")
    expected = make_lm(other, tokenizer=lower).loglikelihood(SCORED)
    assert [score for score, _ in lm.loglikelihood(SCORED)] == numbers(expected)


def test_a_process_by_itself_has_no_accelerator(make_lm: Make) -> None:
    """Subclasses test for it with `hasattr`."""
    lm = make_lm()
    assert not hasattr(lm, "accelerator")
    assert lm.all_gather(3) == 3
    lm.barrier()


def test_texts_are_encoded_in_padded_batches(make_lm: Make) -> None:
    lm = make_lm()
    texts = ["Tom has three apples", "Tom"]
    for side in ("left", "right"):
        ids, mask = lm.tok_batch_encode(texts, padding_side=side)
        assert ids.shape == mask.shape
        for text, row, held in zip(texts, ids, mask, strict=True):
            assert row[held.bool()].tolist() == lm.tok_encode(text)
        assert bool(mask[1, 0]) == (side == "right")
    ids, _ = lm.tok_batch_encode(texts, left_truncate_len=2)
    assert ids[0].tolist() == lm.tok_encode(texts[0])[-2:]


def test_max_length_can_be_set_on_a_finished_object(make_lm: Make) -> None:
    lm = make_lm()
    assert lm._max_length is None
    lm._max_length = 20
    assert lm.max_length == 20


@pytest.mark.parametrize(
    "name",
    ["HFLM", "TemplateLM", "register_model", "eval_logger", "Collator", "get_dtype",
     "clear_torch_cache", "pad_and_concat", "stop_sequences_criteria", "handle_stop_sequences",
     "normalize_gen_kwargs"],
)  # fmt: skip
def test_names_that_modules_of_subclasses_import(name: str) -> None:
    assert hasattr(importlib.import_module("lm_eval.models.huggingface"), name)
