"""Tests the statistics of comparisons against scipy, closed forms and exhaustive enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval.stats.confidence_sequence import ConfidenceSequence
from lm_eval.stats.multiple_tests import benjamini_hochberg, holm
from lm_eval.stats.paired import mcnemar_exact, paired_difference, sign_flip_test
from lm_eval.stats.power import (
    achieved_power,
    detectable_difference,
    difference_variance,
    documents_needed,
)


def test_a_paired_difference_has_the_error_of_the_differences() -> None:
    found = paired_difference([1.0, 0.0, 0.0, -1.0, 1.0])
    assert found.value == pytest.approx(0.2)
    assert found.stderr == pytest.approx(math.sqrt((0.64 + 0.04 * 2 + 1.44 + 0.64) / 4 / 5))
    # The quantile of Student's t with 4 degrees of freedom, from a printed table.
    assert found.interval[1] - found.value == pytest.approx(2.776 * found.stderr, rel=1e-3)


def test_clusters_of_one_document_are_like_independent_documents() -> None:
    values = [0.5, -0.25, 1.0, 0.0]
    alone = paired_difference(values)
    assert paired_difference(values, clusters=list("abcd")) == alone


def test_a_single_document_or_cluster_has_no_error() -> None:
    assert math.isnan(paired_difference([1.0]).stderr)
    assert math.isnan(paired_difference([1.0, 0.0], clusters=["a", "a"]).stderr)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_two_sided_binomial_test(first: int, second: int) -> None:
    count, fewer = first + second, min(first, second)
    tail = sum(math.comb(count, i) for i in range(fewer + 1)) / 2**count
    assert mcnemar_exact(first, second) == pytest.approx(min(1.0, 2 * tail), rel=1e-9)


def test_mcnemar_agrees_with_scipy_for_many_documents() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    for first, second in [(700, 640), (5000, 4700), (12, 0), (3, 3)]:
        expected = scipy_stats.binomtest(first, first + second, 0.5).pvalue
        assert mcnemar_exact(first, second) == pytest.approx(expected, rel=1e-8)


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=1, max_size=9))
def test_the_sign_flip_test_of_few_documents_counts_all_combinations(values: list[float]) -> None:
    sums = [
        abs(sum(sign * abs(value) for sign, value in zip(signs, values, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(values))
    ]
    expected = sum(total >= abs(sum(values)) - 1e-9 for total in sums) / len(sums)
    assert sign_flip_test(values) == pytest.approx(expected)


def test_random_sign_flips_agree_with_the_exact_test_for_0_and_1_scores() -> None:
    values = [1.0] * 40 + [-1.0] * 22 + [0.0] * 100
    assert sign_flip_test(values) == pytest.approx(mcnemar_exact(40, 22), abs=0.01)


def test_random_sign_flips_of_distinct_scores_agree_with_the_t_test() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(0).normal(0.1, 1, 500)
    assert sign_flip_test(values) == pytest.approx(
        scipy_stats.ttest_1samp(values, 0).pvalue, abs=0.02
    )


def test_sign_flips_keep_clusters_together() -> None:
    # Two clusters: all of one sign each. Only 2 of the 4 combinations are as extreme.
    values, clusters = [1.0] * 50 + [1.0] * 50, [0] * 50 + [1] * 50
    assert sign_flip_test(values, clusters) == 0.5


def test_equal_scores_are_never_significant() -> None:
    assert sign_flip_test([0.0] * 100) == 1.0
    assert mcnemar_exact(0, 0) == 1.0


def test_holm_and_benjamini_hochberg_agree_with_a_worked_example() -> None:
    p_values = [0.01, 0.04, 0.03, 0.005]
    assert holm(p_values) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert benjamini_hochberg(p_values) == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert holm([]) == []
    assert benjamini_hochberg([]) == []


def test_the_variance_of_differences_splits_into_documents_and_repeats() -> None:
    generator = np.random.default_rng(1)
    expected = generator.normal(0, 0.3, 20_000)  # the difference of each document: ω² = 0.09
    first = expected[:, None] + generator.normal(0, 0.5, (20_000, 4))
    second = generator.normal(0, 0.2, (20_000, 2))
    found = difference_variance(first, second)
    assert found.between == pytest.approx(0.09, rel=0.05)
    assert found.first == pytest.approx(0.25, rel=0.03)
    assert found.second == pytest.approx(0.04, rel=0.03)
    observed = (first.mean(axis=1) - second.mean(axis=1)).var(ddof=1)
    assert found.per_document(4, 2) == pytest.approx(observed)


def test_documents_needed_detect_the_difference_with_the_wanted_power() -> None:
    count = documents_needed(0.02, variance=0.2)
    stderr = math.sqrt(0.2 / count)
    assert achieved_power(0.02, stderr) == pytest.approx(0.8, abs=0.001)
    assert detectable_difference(stderr) == pytest.approx(0.02, rel=1e-3)


def test_a_confidence_sequence_settles_the_sign_of_a_clear_difference_early() -> None:
    values = np.random.default_rng(2).permutation([1.0] * 300 + [-1.0] * 100 + [0.0] * 600)
    sequence = ConfidenceSequence(1000)
    while sequence.sign is None:
        sequence.add(values[sequence.seen : sequence.seen + 20])
    assert sequence.sign == 1
    assert sequence.seen < 400
    low, high = sequence.interval()
    assert 0 <= low < 0.2 < high


def test_a_sign_that_the_other_documents_cannot_change_is_settled() -> None:
    sequence = ConfidenceSequence(9, alpha=1e-12)
    sequence.add([-1.0] * 4)
    assert sequence.sign is None
    sequence.add([-1.0])
    assert sequence.sign == -1


def test_equal_models_end_undecided_with_exactly_zero() -> None:
    sequence = ConfidenceSequence(50)
    sequence.add([0.0] * 49)
    assert sequence.sign is None
    sequence.add([0.0])
    assert (sequence.sign, sequence.interval()) == (0, (0.0, 0.0))


def test_a_confidence_sequence_refuses_differences_out_of_range() -> None:
    sequence = ConfidenceSequence(2)
    with pytest.raises(ValueError, match="between -1 and 1"):
        sequence.add([1.5])
    with pytest.raises(ValueError, match="only 2 documents"):
        sequence.add([0.0] * 3)


def test_one_at_a_time_and_all_at_once_give_the_same_interval() -> None:
    values = np.random.default_rng(3).choice([-1.0, 0.0, 0.5, 1.0], 60)
    whole, single = ConfidenceSequence(100), ConfidenceSequence(100)
    whole.add(values)
    for value in values:
        single.add([value])
    assert whole.interval() == pytest.approx(single.interval())
    assert whole.sign == single.sign
