"""Tests standard errors and intervals against scipy, scikit-learn, sacrebleu and simulations."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from sklearn import metrics as sklearn_metrics

from lm_eval.api.group import Group
from lm_eval.config.group import AggMetricConfig
from lm_eval.metrics import aggregations, classification, translation
from lm_eval.metrics.uncertainty import confidence_interval, standard_error
from lm_eval.stats.bootstrap import bootstrap_stderr, draw_replicates
from lm_eval.stats.errors import (
    clustered_stderr,
    mean_stderr,
    pooled_sample_stderr,
    unweighted_mean_stderr,
)
from lm_eval.stats.intervals import t_interval, t_quantile, wilson_interval
from lm_eval.stats.repeats import pass_at_k, pass_hat_k, variance_components

WORDS = ["the", "cat", "sat", "on", "a", "mat", "dog", "ran", "blue", "left", ".", ",", "é"]


def translations(count: int, seed: int = 0) -> list[tuple[str, str]]:
    rnd = random.Random(seed)
    pairs = []
    for _ in range(count):
        reference = rnd.choices(WORDS, k=rnd.randint(4, 12))
        answer = [word if rnd.random() < 0.7 else rnd.choice(WORDS) for word in reference]
        pairs.append((" ".join(reference), " ".join(answer)))
    return pairs


def labels(count: int, classes: int, seed: int = 0) -> list[tuple[int, int]]:
    rnd = random.Random(seed)
    golds = [rnd.randrange(classes) for _ in range(count)]
    return [(gold, gold if rnd.random() < 0.7 else rnd.randrange(classes)) for gold in golds]


def by_sacrebleu(score: Callable[..., Any], **options: Any) -> Callable[[Any], float]:
    def of(items: list[tuple[str, str]]) -> float:
        return float(score([a for _, a in items], [[r for r, _ in items]], **options).score)

    return of


def by_sklearn(score: Callable[..., Any], **options: Any) -> Callable[[Any], float]:
    return lambda items: float(score(*zip(*items, strict=True), **options))


#: Our aggregation, the library it must agree with, and documents to try it on.
AGREE = [
    (translation.bleu, by_sacrebleu(sacrebleu.corpus_bleu), translations(60)),
    (translation.chrf, by_sacrebleu(sacrebleu.corpus_chrf), translations(60)),
    (translation.chrfpp, by_sacrebleu(sacrebleu.corpus_chrf, word_order=2), translations(60)),
    (translation.ter, by_sacrebleu(sacrebleu.corpus_ter), translations(40)),
    (classification.f1_score, by_sklearn(sklearn_metrics.f1_score), labels(120, 2)),
    (
        classification.matthews_corrcoef,
        by_sklearn(sklearn_metrics.matthews_corrcoef),
        labels(120, 2),
    ),
    (
        classification.matthews_corrcoef,
        by_sklearn(sklearn_metrics.matthews_corrcoef),
        labels(120, 5),
    ),
    (
        classification.weighted_f1_score,
        by_sklearn(sklearn_metrics.f1_score, average="weighted"),
        labels(120, 4),
    ),
]
NAMES = ["bleu", "chrf", "chrf++", "ter", "f1", "mcc", "mcc of five", "weighted f1"]


@pytest.mark.parametrize(("ours", "library", "items"), AGREE, ids=NAMES)
@pytest.mark.filterwarnings("ignore")  # scikit-learn warns of one document
def test_scores_agree_with_the_library(ours: Any, library: Any, items: Any) -> None:
    assert ours(items) == pytest.approx(library(items), rel=1e-12)
    assert ours(items[:1]) == pytest.approx(library(items[:1]), rel=1e-12)


@pytest.mark.parametrize(("ours", "library", "items"), AGREE, ids=NAMES)
@pytest.mark.filterwarnings("ignore")  # scikit-learn warns of a resample without a class
def test_bootstrap_errors_are_those_of_calling_the_library_on_each_resample(
    ours: Any, library: Any, items: Any
) -> None:
    assert standard_error(ours, items, 60) == pytest.approx(
        bootstrap_stderr(library, items, 60), rel=1e-9
    )


def test_bootstrap_errors_agree_with_scipy_within_their_noise() -> None:
    items = labels(200, 2)
    golds, predictions = (np.array(column) for column in zip(*items, strict=True))

    def f1(g: Any, p: Any, axis: int = -1) -> Any:
        return 2 * (g * p).sum(axis=axis) / (g.sum(axis=axis) + p.sum(axis=axis))

    theirs = scipy_stats.bootstrap(
        (golds, predictions), f1, paired=True, vectorized=True, n_resamples=5000, rng=0
    )
    ours = standard_error(classification.f1_score, items, 5000)
    # Each has a relative noise of 1/sqrt(2·5000) = 1 %; four times that of their difference.
    assert ours == pytest.approx(theirs.standard_error, rel=4 * 0.01 * math.sqrt(2))


def test_resamples_are_the_published_ones() -> None:
    drawn = np.concatenate(list(draw_replicates(7, 2500)))
    assert len(drawn) == 2000  # full thousands, as published
    for seed in (0, 1):
        generator = random.Random(seed)
        for replicate in drawn[1000 * seed : 1000 * (seed + 1)]:
            assert replicate.tolist() == generator.choices(range(7), k=7)


@pytest.mark.parametrize(
    ("aggregation", "items"),
    [
        (aggregations.median, [0.5, 3.0, 1.0, 2.0, 8.0, 5.0]),
        (aggregations.nanmean, [0.5, math.nan, 1.0, 2.0, 8.0, 5.0]),
        (aggregations.perplexity, [-0.5, -3.0, -1.0, -2.0, -0.1]),
        (aggregations.weighted_perplexity, [(-5.0, 3), (-3.0, 1), (-9.0, 4)]),
        (aggregations.bits_per_byte, [(-5.0, 3), (-3.0, 1), (-9.0, 4)]),
    ],
)
def test_all_resamples_at_once_are_the_same_as_one_by_one(aggregation: Any, items: Any) -> None:
    at_once = standard_error(aggregation, items, 1000)
    assert at_once == standard_error(aggregation, items, 1000)
    assert at_once == pytest.approx(bootstrap_stderr(aggregation, items, 1000), rel=1e-9)


def test_many_labels_are_resampled_one_by_one() -> None:
    items = [(i, i if i % 3 else (i + 1) % 80) for i in range(80)]
    error = standard_error(classification.matthews_corrcoef, items, 50)
    assert error == pytest.approx(
        bootstrap_stderr(classification.matthews_corrcoef, items, 50), rel=1e-9
    )


# -- clusters ---------------------------------------------------------------------------------


def test_clusters_of_one_change_nothing() -> None:
    values = list(np.random.default_rng(0).normal(size=50))
    assert clustered_stderr(values, range(50)) == pytest.approx(mean_stderr(values))


def test_documents_that_repeat_each_other_count_once() -> None:
    values = [0.0, 1.0, 1.0, 0.0, 1.0]
    often = [value for value in values for _ in range(4)]
    clusters = [number for number in range(5) for _ in range(4)]
    assert clustered_stderr(often, clusters) == pytest.approx(mean_stderr(values))
    assert math.isnan(clustered_stderr(values, ["same"] * 5))


def clustered_sample(generator: np.random.Generator) -> tuple[list[float], list[int]]:
    """Returns forty clusters of one to eight documents with a true mean of 0."""
    sizes = generator.integers(1, 9, 40)
    clusters = np.repeat(np.arange(40), sizes)
    values = generator.normal(size=40)[clusters] + generator.normal(size=len(clusters))
    return values.tolist(), clusters.tolist()


def test_clustered_intervals_hold_the_truth_as_often_as_they_say() -> None:
    generator = np.random.default_rng(7)
    covered = naive = 0
    for _ in range(2000):
        values, clusters = clustered_sample(generator)
        mean = float(np.mean(values))
        low, high = t_interval(mean, clustered_stderr(values, clusters), 39, 0.95)
        covered += low <= 0 <= high
        low, high = t_interval(mean, mean_stderr(values), len(values) - 1, 0.95)
        naive += low <= 0 <= high
    assert 0.93 <= covered / 2000 <= 0.97
    assert naive / 2000 < 0.85  # what comes of taking the documents for independent


def test_clustered_intervals_of_shares_hold_the_truth() -> None:
    generator = np.random.default_rng(8)
    covered = 0
    for _ in range(1000):
        scores, clusters = clustered_sample(generator)
        right = [float(score > 0) for score in scores]
        error = standard_error(aggregations.mean, right, 1, clusters)
        found = confidence_interval(
            aggregations.mean, right, float(np.mean(right)), error, 0.95, clusters
        )
        assert found is not None
        covered += found[0] <= 0.5 <= found[1]
    assert 0.93 <= covered / 1000 <= 0.97


def test_resampling_by_cluster_agrees_with_the_closed_form() -> None:
    values, clusters = clustered_sample(np.random.default_rng(3))
    one = [(-value, 1) for value in values]  # bits per byte of one byte each: a scaled mean
    drawn = standard_error(aggregations.bits_per_byte, one, 5000, clusters)
    assert drawn == pytest.approx(clustered_stderr(values, clusters) / math.log(2), rel=0.1)
    assert standard_error(aggregations.median, values, 200, clusters) > 0  # type: ignore[operator]


# -- intervals --------------------------------------------------------------------------------


@given(st.floats(0.001, 0.999), st.integers(1, 5000))
def test_quantiles_of_t_are_scipys(probability: float, freedom: int) -> None:
    expected = scipy_stats.t.ppf(probability, freedom)
    assert t_quantile(probability, freedom) == pytest.approx(expected, rel=1e-8, abs=1e-7)


@given(st.integers(0, 200), st.integers(1, 200), st.sampled_from([0.8, 0.95, 0.99]))
def test_wilsons_interval_is_scipys(right: int, wrong: int, confidence: float) -> None:
    count = right + wrong
    test = scipy_stats.binomtest(right, count)
    expected = test.proportion_ci(confidence, method="wilson")
    found = wilson_interval(right / count, count, confidence)
    assert found == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_each_kind_of_score_gets_its_interval() -> None:
    right = [1.0] * 20
    found = confidence_interval(aggregations.mean, right, 1.0, 0.0, 0.95)
    assert found == wilson_interval(1.0, 20, 0.95)
    assert found is not None
    assert found[0] < 0.9  # all right is no proof of perfection
    values = [0.2, 0.4, 0.9]
    mean, error = float(np.mean(values)), mean_stderr(values)
    expected = scipy_stats.t.interval(0.9, 2, loc=mean, scale=error)
    assert confidence_interval(aggregations.mean, values, mean, error, 0.9) == pytest.approx(
        expected
    )
    expected = scipy_stats.norm.interval(0.9, loc=5.0, scale=2.0)
    assert confidence_interval(aggregations.perplexity, [1.0], 5.0, 2.0, 0.9) == pytest.approx(
        expected
    )
    assert confidence_interval(aggregations.mean, values, mean, None, 0.9) is None


# -- repeats ----------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_chances_of_success_are_those_of_trying_every_draw(
    answers: list[bool], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(answers)))
    draws = list(itertools.combinations(answers, k))
    count, right = len(answers), sum(answers)
    assert pass_at_k(count, right, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert pass_hat_k(count, right, k) == pytest.approx(sum(map(all, draws)) / len(draws))


def test_more_draws_than_answers_are_refused() -> None:
    with pytest.raises(
        ValueError, match="k is 4, but must be between 1 and the number of answers, 3"
    ):
        pass_at_k(3, 1, 4)


def test_the_error_over_documents_holds_the_variance_between_repeats() -> None:
    """The variance is (between + within / K) / n; here between = 1, within = 4, K = 5, n = 400."""
    generator = np.random.default_rng(4)
    table = generator.normal(size=(400, 1)) + generator.normal(scale=2, size=(400, 5))
    between, within = variance_components(table.tolist())
    assert between == pytest.approx(1.0, rel=0.25)
    assert within == pytest.approx(4.0, rel=0.1)
    error = mean_stderr(table.mean(axis=1).tolist())
    assert error == pytest.approx(math.sqrt((between + within / 5) / 400))
    assert error == pytest.approx(math.sqrt((1 + 4 / 5) / 400), rel=0.1)


# -- groups -----------------------------------------------------------------------------------


def test_a_group_weighs_tasks_by_the_documents_a_metric_was_given_to() -> None:
    group = Group("g", aggregate_metric_list=[AggMetricConfig("acc", filter_list=["none"])])

    class Named:
        def __init__(self, name: str) -> None:
            self.task_name = name

    for name in ("a", "b"):
        group.add(Named(name))  # type: ignore[arg-type]
    rows = {
        "a": {"sample_len": 30, "acc,none": 1.0, "acc_stderr,none": 0.1},
        "b": {
            "sample_len": 90,
            "sample_count": {"acc,none": 10},
            "acc,none": 0.0,
            "acc_stderr,none": 0.2,
        },
    }
    row = group.aggregate(rows)
    assert row["acc,none"] == pytest.approx(30 / 40)
    assert row["acc_stderr,none"] == pytest.approx(pooled_sample_stderr([0.1, 0.2], [30, 10]))
    assert row["sample_count"] == {"acc,none": 40}


def test_joint_errors_agree_with_all_documents_in_one() -> None:
    generator = np.random.default_rng(5)
    tasks = [generator.normal(size=size) for size in (50, 200, 400)]
    errors = [mean_stderr(values.tolist()) for values in tasks]
    whole = mean_stderr(np.concatenate(tasks).tolist())
    assert pooled_sample_stderr(errors, [50, 200, 400]) == pytest.approx(whole, rel=0.05)
    assert unweighted_mean_stderr(errors) == pytest.approx(
        math.sqrt(1 / 50 + 1 / 200 + 1 / 400) / 3, rel=0.1
    )
