"""Tests that many answers are decoded at once only where that gives the tokenizer's own texts."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from lm_eval.models.huggingface.text_decoding import fast_decoder
from tests.huggingface.conftest import Make, ask, transformers


def answers(tokenizer: Any) -> list[list[int]]:
    rng = random.Random(0)
    rows = [[rng.randrange(len(tokenizer)) for _ in range(rng.randrange(40))] for _ in range(50)]
    return [*rows, [], [tokenizer.eos_token_id]]


def count_single(tokenizer: Any) -> tuple[Any, list[int]]:
    """Returns a function that decodes one row, and the number of tokens of its calls."""
    sizes: list[int] = []

    def decode(tokens: Any) -> str:
        sizes.append(len(tokens))
        return str(tokenizer.decode(tokens, skip_special_tokens=True))

    return decode, sizes


def test_all_rows_are_decoded_at_once(tokenizer: Any) -> None:
    decode, sizes = count_single(tokenizer)
    decode_many = fast_decoder(tokenizer, decode)
    rows = answers(tokenizer)
    sizes.clear()
    found = decode_many(rows)
    assert not sizes
    assert found == [decode(row) for row in rows]


def cleaning(tokenizer: Any) -> Any:
    """Returns a tokenizer whose decoded texts lose spaces before punctuation marks."""

    class Cleaning(type(tokenizer)):  # type: ignore[misc]
        def _decode(self, *given: Any, **named: Any) -> str:
            return self.clean_up_tokenization(super()._decode(*given, **named))

    made = copy.deepcopy(tokenizer)
    made.__class__ = Cleaning
    return made


def stripping(tokenizer: Any) -> Any:
    class Stripping(type(tokenizer)):  # type: ignore[misc]
        def decode(self, *given: Any, **named: Any) -> str:
            return str(super().decode(*given, **named)).strip()

    made = copy.deepcopy(tokenizer)
    made.__class__ = Stripping
    return made


def failing(tokenizer: Any) -> Any:
    class Core:
        def decode_batch(self, rows: Any, skip_special_tokens: bool) -> list[str]:
            raise Exception("not here")

    class Failing(type(tokenizer)):  # type: ignore[misc]
        backend_tokenizer = Core()

    made = copy.deepcopy(tokenizer)
    made.__class__ = Failing
    return made


@pytest.mark.parametrize("make", [cleaning, stripping, failing])
def test_a_tokenizer_that_changes_decoded_texts_decodes_them_itself(
    tokenizer: Any, make: Any
) -> None:
    made = make(tokenizer)
    decode, sizes = count_single(made)
    decode_many = fast_decoder(made, decode)
    rows = answers(made)
    sizes.clear()
    expected = [made.decode(row, skip_special_tokens=True) for row in rows]
    assert decode_many(rows) == expected
    assert sizes == [len(row) for row in rows]


def test_a_word_piece_tokenizer_is_cleaned_up_as_transformers_does(tmp_path: Any) -> None:
    words = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "tom", "has", ",", ".", "n", "'", "t"]
    (tmp_path / "vocab.txt").write_text("\n".join([*words, "##s", "it"]), encoding="utf-8")
    made = transformers.BertTokenizerFast(
        vocab_file=str(tmp_path / "vocab.txt"), clean_up_tokenization_spaces=True
    )
    decode, _ = count_single(made)
    row = made.encode("tom has it , tom .", add_special_tokens=True)
    assert fast_decoder(made, decode)([row]) == [made.decode(row, skip_special_tokens=True)]


def test_a_replaced_decoding_is_used_for_answers(make_lm: Make) -> None:
    """Patches and subclasses replace `tok_decode`."""
    lm = make_lm()
    plain = lm.tok_decode
    asked = [ask("generate_until", "Tom has", {"max_gen_toks": 5, "until": []})]
    expected = lm.generate_until(asked)
    lm.tok_decode = lambda tokens, **more: plain(tokens, **more).upper()
    assert lm.generate_until(asked) == [expected[0].upper()]
