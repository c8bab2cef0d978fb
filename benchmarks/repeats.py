"""Checks the intervals of avg@k, maj@k, pass@k and pass^k by simulations with known truth.

usage: python benchmarks/repeats.py [--runs N]

Repeats are nested in documents: each document has its own probabilities of the correct answer and
of three wrong ones, and each repeat is drawn from them. The truth of a metric is computed by brute
force, without its estimator: for very many documents, `k` answers are drawn, and it is looked
whether any or all are correct, how many are, and which is the most frequent (ties are broken by
lot). A simulated run draws new documents and their repeats, and computes scores, standard errors
and 95 % intervals as an evaluation does. Printed is how often the interval contains the truth.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from lm_eval.metrics.aggregations import mean
from lm_eval.metrics.repeat_metrics import parse_repeat_metric
from lm_eval.metrics.uncertainty import confidence_interval, standard_error

Array = np.ndarray[Any, np.dtype[Any]]
#: Documents and repeats of a run, and the metrics that are computed from them.
CASES = [
    (30, 32, ("avg@32", "maj@32", "maj@8", "pass@4", "pass^4")),
    (200, 8, ("avg@8", "maj@8", "maj@5", "pass@4", "pass^4")),
    (500, 4, ("avg@4", "maj@3", "pass@2", "pass^2")),
]


def draw(generator: np.random.Generator, documents: int, repeats: int) -> Array:
    """Returns the answers to new documents, (documents, repeats): 0 is correct, 1 to 3 are not."""
    correct = generator.beta(0.9, 0.7, documents)
    wrong = generator.dirichlet((1.5, 0.8, 0.4), documents) * (1 - correct)[:, None]
    upto = np.cumsum(np.column_stack([correct, wrong]), axis=1)
    chosen = generator.random((documents, repeats))[:, :, None] > upto[:, None, :]
    return np.minimum(chosen.sum(axis=2), 3)


def truth(kind: str, k: int, documents: int = 400_000) -> float:
    """Returns the expected value of a metric: of `k` answers to each of very many documents."""
    generator = np.random.default_rng(99)
    answers = draw(generator, documents, k)
    right = answers == 0
    if kind == "pass@":
        return float(right.any(axis=1).mean())
    if kind == "pass^":
        return float(right.all(axis=1).mean())
    if kind == "avg@":
        return float(right.mean())
    votes = np.stack([(answers == answer).sum(axis=1) for answer in range(4)], axis=1)
    lots = votes + generator.random(votes.shape) * 0.5
    return float((lots.argmax(axis=1) == 0).mean())


def covered(generator: np.random.Generator, documents: int, repeats: int, name: str) -> Array:
    """Returns the interval of a metric in one simulated run."""
    metric = parse_repeat_metric(name)
    assert metric is not None
    values = [
        metric.reduce([float(one == 0) for one in row], row)
        for row in draw(generator, documents, repeats).tolist()
    ]
    score, error = mean(values), standard_error(mean, values, 1)
    interval = confidence_interval(mean, values, score, error, 0.95)
    assert interval is not None
    return np.array(interval)


def coverage(documents: int, repeats: int, name: str, runs: int, seed: int = 7) -> float:
    """Returns the share of simulated runs whose 95 % interval contains the truth."""
    metric = parse_repeat_metric(name)
    assert metric is not None
    expected, generator = truth(metric.kind, metric.k), np.random.default_rng(seed)
    intervals = np.array([covered(generator, documents, repeats, name) for _ in range(runs)])
    return float(((intervals[:, 0] <= expected) & (expected <= intervals[:, 1])).mean())


def main() -> None:
    """Prints the coverage of every metric in every case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000, help="simulated runs")
    given = parser.parse_args()
    print("coverage of the 95 % interval (goal: 93 to 97 %)")
    for documents, repeats, names in CASES:
        for name in names:
            found = coverage(documents, repeats, name, given.runs)
            print(f"  {documents:4} documents, {repeats:2} repeats, {name:7} {found:7.1%}")


if __name__ == "__main__":
    main()
