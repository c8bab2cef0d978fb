"""The plan computes every distinct prefix once and reads each request off the right nodes."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval.engine.plan import Batch, Ordered, ancestor_mask, distinct_tokens, plan

Request = tuple[list[int], int]

sequence = st.lists(st.integers(0, 3), min_size=1, max_size=12)
requests = st.lists(
    st.tuples(sequence, st.integers(1, 12)).map(lambda r: (r[0], min(r[1], len(r[0])))),
    max_size=25,
)
limits = st.one_of(st.none(), st.integers(1, 40))


def make(found: list[Request], **options: object) -> list[Batch]:
    return plan([r[0] for r in found], [r[1] for r in found], **options)  # type: ignore[arg-type]


def path(batch: Batch, node: int) -> list[int]:
    """The tokens up to a node, by following parents."""
    tokens: list[int] = []
    while node >= 0:
        tokens.append(int(batch.tokens[node]))
        node = int(batch.parent[node])
    return batch.stem.tolist() + tokens[::-1]


@settings(max_examples=150, deadline=None)
@given(requests, limits, limits, st.integers(1, 6), st.booleans())
def test_every_request_is_scored_by_the_nodes_of_its_own_last_tokens(
    found: list[Request],
    max_tokens: int | None,
    max_requests: int | None,
    min_stem: int,
    share: bool,
) -> None:
    seen = []
    for batch in make(
        found, max_tokens=max_tokens, max_requests=max_requests, min_stem=min_stem, share=share
    ):
        for place, request in enumerate(batch.requests):
            tokens, count = found[request]
            nodes = batch.nodes_of(place)
            assert [path(batch, n) for n in nodes] == [
                tokens[: len(tokens) - count + 1 + i] for i in range(count)
            ]
            assert batch.position[nodes].tolist() == list(range(len(tokens) - count, len(tokens)))
            seen.append(int(request))
    assert sorted(seen) == list(range(len(found)))


@settings(max_examples=100, deadline=None)
@given(requests, limits)
def test_a_batch_holds_every_distinct_prefix_once(
    found: list[Request], max_tokens: int | None
) -> None:
    for batch in make(found, max_tokens=max_tokens, min_stem=2):
        prefixes = {
            tuple(found[r][0][:n]) for r in batch.requests for n in range(1, len(found[r][0]) + 1)
        }
        beyond_stem = {p for p in prefixes if len(p) > len(batch.stem)}
        nodes = [tuple(path(batch, n)) for n in range(len(batch.tokens))]
        assert len(nodes) == len(set(nodes))
        assert set(nodes) == beyond_stem


@settings(max_examples=100, deadline=None)
@given(requests)
def test_the_mask_shows_each_node_itself_and_its_ancestors_only(found: list[Request]) -> None:
    for batch in make(found):
        mask = ancestor_mask(batch.end)
        for node in range(len(batch.tokens)):
            ancestors = set()
            at = node
            while at >= 0:
                ancestors.add(at)
                at = int(batch.parent[at])
            assert set(np.flatnonzero(mask[node])) == ancestors


@settings(max_examples=100, deadline=None)
@given(requests, st.integers(1, 40), st.integers(1, 5))
def test_batches_keep_their_limits(
    found: list[Request], max_tokens: int, max_requests: int
) -> None:
    for batch in make(found, max_tokens=max_tokens, max_requests=max_requests):
        assert len(batch.requests) <= max_requests
        assert len(batch.tokens) <= max_tokens or len(batch.requests) == 1


def test_a_beginning_shared_by_many_batches_becomes_their_stem() -> None:
    shots = list(range(100, 400))
    sequences = [[*shots, *range(i, i + 20)] for i in range(50)]
    batches = plan(sequences, [2] * 50, max_tokens=500)
    assert len(batches) > 1
    assert all(batch.stem.tolist() == shots for batch in batches)
    assert distinct_tokens(batches) == 300 + 50 * 20


def test_a_stem_never_covers_a_scored_position() -> None:
    same = list(range(50))
    batches = plan([same, same, same], [10, 45, 1], max_requests=1)
    assert all(len(batch.stem) <= 5 for batch in batches)


def test_without_sharing_every_request_has_a_tree_of_its_own() -> None:
    (batch,) = plan([[1, 2, 3], [1, 2, 3], [1, 2, 4]], [1, 1, 1], share=False)
    assert len(batch.tokens) == 9
    assert len(batch.roots) == 3


def test_the_price_of_either_way_is_known_before() -> None:
    ordered = Ordered.of([[1, 2, 3], [1, 2, 4, 5], [1, 2, 3], [9]], [1, 1, 1, 1])
    assert ordered.distinct == 3 + 2 + 1  # 1 2 3, 4 5, 9
    assert ordered.padded(max_tokens=100) == 3 * 4  # three rows as wide as the longest
    assert ordered.padded(max_tokens=8) == 2 * 4 + 1
    assert ordered.padded(max_tokens=100, max_requests=1) == 4 + 3 + 1
    assert Ordered.of([], []).padded(max_tokens=8) == 0


def test_nothing_to_plan_gives_no_batches() -> None:
    assert plan([], []) == []


def test_scoring_more_positions_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot score 3 positions of a sequence of 2"):
        plan([[1, 2]], [3])


def test_tens_of_thousands_of_long_requests_are_planned_in_seconds() -> None:
    rng = np.random.default_rng(0)
    shots = rng.integers(0, 30_000, 600)
    contexts = [np.concatenate([shots, rng.integers(0, 30_000, 380)]) for _ in range(5_000)]
    sequences = [np.append(c, rng.integers(0, 30_000, 20)) for c in contexts for _ in range(4)]
    begun = time.perf_counter()
    batches = plan(sequences, [20] * len(sequences))  # type: ignore[arg-type]
    assert time.perf_counter() - begun < 15
    assert distinct_tokens(batches) <= 600 + 5_000 * (380 + 4 * 20)
