"""Tests that the generated text is repeatable and that training text and test do not overlap."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from tools.demo import benchmark, overlap, world
from tools.demo.draw import held_out
from tools.demo.sentences import PHENOMENA, draw_pair
from tools.demo.sums import draw_sum

SHARDS = (0, world.SHARDS // 2, world.SHARDS - 1)


@pytest.fixture(scope="module")
def index() -> overlap.Index:
    return overlap.Index(overlap.benchmark_texts())


def test_the_same_seed_makes_the_same_text() -> None:
    assert list(world.shard(3, count=50)) == list(world.shard(3, count=50))
    assert list(world.shard(3, count=50)) != list(world.shard(4, count=50))
    assert list(world.shard(3, count=50)) != list(world.shard(3, seed=1, count=50))


def test_the_benchmark_in_the_package_is_the_one_the_generator_makes() -> None:
    for name, docs in benchmark.make().items():
        lines = (overlap.DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in lines] == docs


def test_no_document_occurs_twice_in_the_benchmark() -> None:
    texts = [json.dumps(doc) for docs in benchmark.make().values() for doc in docs]
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize("shard", SHARDS)
def test_training_text_shares_no_run_of_words_with_the_benchmark(
    shard: int, index: overlap.Index
) -> None:
    made = list(world.shard(shard))
    kept = overlap.clean(made, index)
    assert len(kept) > 0.75 * len(made)
    # Checked once more in another way: by the runs of words themselves, not by their hashes.
    protected = {run for text in overlap.benchmark_texts() for run in runs(text)}
    lengths = {len(run) for run in protected}
    for text in kept:
        words = overlap.words(text)
        for length in lengths:
            places = range(len(words) - length + 1)
            assert not any(tuple(words[i : i + length]) in protected for i in places), text


def runs(text: str) -> set[tuple[str, ...]]:
    words = overlap.words(text)
    length = min(overlap.NGRAM_WORDS, len(words))
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def test_the_index_finds_a_planted_document(index: overlap.Index) -> None:
    stories = [text for text in overlap.benchmark_texts() if len(text) > 200]
    planted = f"It was early. {stories[5].upper()} And so on."
    assert index.shared(planted)
    assert not index.shared("Nothing of this kind was ever asked of anybody.")
    found = index.shared_in(["Nothing here.", planted, "Nor here."])
    assert np.flatnonzero(found).tolist() == [1]


def test_sums_of_the_test_are_never_in_the_training_text() -> None:
    rng = random.Random(0)
    for _ in range(300):
        assert not any(held_out(*key) for key in draw_sum(rng, test=False, steps=2).keys)
        assert held_out(*draw_sum(rng, test=True, steps=1).keys[0])


@pytest.mark.parametrize("phenomenon", list(PHENOMENA))
def test_a_minimal_pair_differs_in_one_word(phenomenon: str) -> None:
    rng = random.Random(0)
    for _ in range(50):
        pair = draw_pair(rng, phenomenon, test=True)
        good, bad = pair.good.split(), pair.bad.split()
        assert len(good) == len(bad)
        assert sum(one != other for one, other in zip(good, bad, strict=True)) == 1


def test_every_choice_document_has_four_different_answers() -> None:
    for name in ("choice_test", "choice_fewshot"):
        for doc in benchmark.make()[name]:
            assert len(set(doc["choices"])) == 4
            assert 0 <= doc["answer"] < 4
