"""Tests that the prefix tree computes each distinct prefix once and maps requests to its nodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval.engine import plan as plan_of_batches
from lm_eval.engine.plan import (
    Batch,
    SortedSequences,
    StepwisePlan,
    ancestor_mask,
    pad_batch,
    plan,
)

Request = tuple[list[int], int]

sequence = st.lists(st.integers(0, 3), min_size=1, max_size=12)
requests = st.lists(
    st.tuples(sequence, st.integers(1, 12)).map(lambda r: (r[0], min(r[1], len(r[0])))),
    max_size=25,
)
limits = st.one_of(st.none(), st.integers(1, 40))


def make(
    found: list[Request],
    max_tokens: int | None = None,
    max_requests: int | None = None,
    share: bool = True,
) -> list[Batch]:
    ordered = SortedSequences.of([r[0] for r in found], [r[1] for r in found], share=share)
    return list(plan(ordered, max_tokens=max_tokens, max_requests=max_requests))


def run(batches: list[Batch]) -> int:
    """Returns how many tokens the model computes."""
    return sum(len(batch.tokens) - batch.num_cached for batch in batches)


def path(batch: Batch, node: int) -> list[int]:
    """Returns the tokens on the path from the root to a node."""
    tokens: list[int] = []
    while node >= 0:
        tokens.append(int(batch.tokens[node]))
        node = int(batch.parent[node])
    return tokens[::-1]


@settings(max_examples=150, deadline=None)
@given(requests, limits, limits, st.booleans())
def test_every_request_is_scored_by_the_nodes_of_its_own_last_tokens(
    found: list[Request],
    max_tokens: int | None,
    max_requests: int | None,
    share: bool,
) -> None:
    seen = []
    for batch in make(found, max_tokens, max_requests, share):
        for place, request in enumerate(batch.requests):
            tokens, count = found[request]
            nodes = batch.nodes_of(place)
            assert [path(batch, n) for n in nodes] == [
                tokens[: len(tokens) - count + 1 + i] for i in range(count)
            ]
            assert batch.position[nodes].tolist() == list(range(len(tokens) - count, len(tokens)))
            assert min(nodes) >= batch.num_cached
            seen.append(int(request))
    assert sorted(seen) == list(range(len(found)))


@settings(max_examples=100, deadline=None)
@given(requests, limits)
def test_a_batch_holds_every_distinct_prefix_once(
    found: list[Request], max_tokens: int | None
) -> None:
    for batch in make(found, max_tokens):
        prefixes = {
            tuple(found[r][0][:n]) for r in batch.requests for n in range(1, len(found[r][0]) + 1)
        }
        nodes = [tuple(path(batch, n)) for n in range(len(batch.tokens))]
        assert len(nodes) == len(set(nodes))
        assert set(nodes) == prefixes


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
    for batch in make(found, max_tokens, max_requests):
        assert len(batch.requests) <= max_requests
        assert run([batch]) <= max_tokens or len(batch.requests) == 1


@settings(max_examples=150, deadline=None)
@given(requests, limits, limits)
def test_a_batch_is_given_the_nodes_that_the_one_before_kept(
    found: list[Request], max_tokens: int | None, max_requests: int | None
) -> None:
    kept: list[list[int]] = []
    for batch in make(found, max_tokens, max_requests):
        assert [path(batch, n) for n in range(batch.num_cached)] == kept
        kept = [path(batch, n) for n in batch.kept_for_next.tolist()]
        for node in range(len(batch.tokens)):
            assert (
                batch.path(node).tolist() == np.flatnonzero(ancestor_mask(batch.end)[node]).tolist()
            )
    assert kept == []


def test_a_beginning_shared_by_many_batches_is_run_once() -> None:
    shots = list(range(100, 400))
    found = [([*shots, *range(i, i + 20)], 2) for i in range(50)]
    batches = make(found, max_tokens=500)
    assert len(batches) > 1
    assert run(batches) == 300 + 50 * 20


def test_a_scored_position_is_never_given() -> None:
    same = list(range(50))
    batches = make([(same, 10), (same, 45), (same, 1)], max_requests=1)
    assert [batch.num_cached for batch in batches] == [0, 5, 49]


def test_without_sharing_every_request_has_a_tree_of_its_own() -> None:
    (batch,) = make([([1, 2, 3], 1), ([1, 2, 3], 1), ([1, 2, 4], 1)], share=False)
    assert len(batch.tokens) == 9
    assert (batch.parent < 0).sum() == 3


def test_nested_prefixes_scored_whole_are_planned_in_no_time() -> None:
    """Each prefix extends the one before. Nodes are collected path by path, not level by level."""
    found = [(list(range(length)), length) for length in range(1, 400)]
    (batch,) = make(found)
    assert len(batch.tokens) == 399
    assert batch.nodes_of(398).tolist() == list(range(399))
    comb = [([*range(length), 1000], length + 1) for length in range(1, 400)]
    (batch,) = make(comb)
    for place, request in enumerate(batch.requests):
        node = batch.nodes_of(place)[-1]
        assert batch.nodes_of(place).tolist() == batch.path(node).tolist(), request


@settings(max_examples=50, deadline=None)
@given(requests.filter(bool), st.integers(0, 9))
def test_filling_up_adds_a_text_of_its_own_and_changes_nothing_else(
    found: list[Request], spare: int
) -> None:
    *_, batch = make(found, max_tokens=20)
    whole = pad_batch(batch, len(batch.tokens) - batch.num_cached + spare)
    total = len(batch.tokens)
    assert len(whole.tokens) == total + spare
    assert [path(whole, n) for n in range(total)] == [path(batch, n) for n in range(total)]
    assert all(len(path(whole, total + i)) == i + 1 for i in range(spare))
    mask = ancestor_mask(whole.end)
    assert (mask[:total, :total] == ancestor_mask(batch.end)).all()
    assert not mask[total:, :total].any()
    assert mask[total:, total:].sum() == spare * (spare + 1) // 2


def test_the_price_of_either_way_is_known_before() -> None:
    ordered = SortedSequences.of([[1, 2, 3], [1, 2, 4, 5], [1, 2, 3], [9]], [1, 1, 1, 1])
    assert ordered.distinct == 3 + 2 + 1  # 1 2 3, 4 5, 9
    assert ordered.padded(max_tokens=100) == 3 * 4  # three rows as wide as the longest
    assert ordered.padded(max_tokens=8) == 2 * 4 + 1
    assert ordered.padded(max_tokens=100, max_requests=1) == 4 + 3 + 1
    assert SortedSequences.of([], []).padded(max_tokens=8) == 0


def test_nothing_to_plan_gives_no_batches() -> None:
    assert make([]) == []


def test_scoring_more_positions_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot score 3 positions of a sequence of 2"):
        make([([1, 2], 3)])


def test_tens_of_thousands_of_long_requests_are_planned_at_once() -> None:
    rng = np.random.default_rng(0)
    shots = rng.integers(0, 30_000, 600)
    contexts = [np.concatenate([shots, rng.integers(0, 30_000, 380)]) for _ in range(5_000)]
    found = [(np.append(c, rng.integers(0, 30_000, 20)), 20) for c in contexts for _ in range(4)]
    batches = make(found, max_tokens=4096)  # type: ignore[arg-type]
    assert run(batches) <= 600 + 5_000 * (380 + 4 * 20)


@settings(max_examples=100, deadline=None)
@given(requests, st.lists(st.tuples(st.integers(1, 30), st.integers(0, 6)), max_size=30))
def test_the_size_of_the_next_batch_is_known_before_it_is_taken(
    found: list[Request], sizes: list[tuple[int, int]]
) -> None:
    ordered = SortedSequences.of([r[0] for r in found], [1] * len(found))
    stepwise = StepwisePlan(ordered)
    for max_tokens, max_requests in sizes:
        expected = stepwise.next_size(max_tokens, max_requests)
        if not max_requests or stepwise.taken == len(found):
            assert expected == 0
            continue
        following = [ordered.tokens_of(stepwise.taken + n).tolist() for n in range(expected)]
        batch = stepwise.take(max_tokens, max_requests)
        assert expected == len(batch.requests) >= 1
        assert following == [found[n][0] for n in batch.requests]


@settings(max_examples=100, deadline=None)
@given(requests, st.lists(st.tuples(st.integers(1, 30), st.integers(1, 6)), max_size=30))
def test_a_batch_keeps_what_the_next_one_can_reuse(
    found: list[Request], sizes: list[tuple[int, int]]
) -> None:
    ordered = SortedSequences.of([r[0] for r in found], [1] * len(found))
    stepwise, kept = StepwisePlan(ordered), []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plan_of_batches, "MIN_NODES_REUSED", 2)
        for max_tokens, max_requests in sizes:
            if stepwise.taken == len(found):
                break
            batch = stepwise.take(max_tokens, max_requests)
            reused = batch.num_cached
            assert reused == 0 or 2 <= reused <= len(kept)
            assert batch.tokens[:reused].tolist() == [tokens[-1] for tokens in kept[:reused]]
            kept = [path(batch, node) for node in batch.kept_for_next.tolist()]
            left = [found[n][0] for n in ordered.order[stepwise.taken :]]
            assert all(left[0][: len(tokens)] == tokens for tokens in kept)


@settings(max_examples=100, deadline=None)
@given(requests, st.integers(1, 30), st.data())
def test_nodes_are_found_by_their_positions_on_paths(
    found: list[Request], max_tokens: int, data: st.DataObject
) -> None:
    for batch in make([(tokens, 1) for tokens, _ in found], max_tokens):
        paths = [batch.path(node) for node in batch.scored.tolist()]
        wanted = [
            (number, place)
            for number, path in enumerate(paths)
            for place in data.draw(st.lists(st.integers(0, len(path) - 1), max_size=4))
        ]
        last = np.array([batch.scored[number] for number, _ in wanted], dtype=np.int64)
        position = np.array([place for _, place in wanted], dtype=np.int64)
        expected = [int(paths[number][place]) for number, place in wanted]
        assert batch.nodes_on_paths(last, position).tolist() == expected
