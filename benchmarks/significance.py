"""Checks the statistics of comparisons by simulations with known truth.

usage: python benchmarks/significance.py [coverage] [tests] [power] [families] [duel] [--runs N]

- `coverage`: how often the 95 % interval of a paired difference contains the true difference, for
  independent documents, clusters, and repeated answers;
- `tests`: how often tests at 5 % call equal models different;
- `power`: how often a difference is found, compared with the formula;
- `families`: how often Holm's correction of 20 tests lets one false discovery through, and the
  share of false discoveries with Benjamini and Hochberg's;
- `duel`: wrong decisions of a confidence sequence that is looked at after every portion, and the
  share of documents it needs.

Without a name, all are run. Scores are 0 or 1: document i is answered correctly with a probability
that both models share, plus or minus what one is better.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np

from lm_eval.stats.confidence_sequence import ConfidenceSequence
from lm_eval.stats.multiple_tests import benjamini_hochberg, holm
from lm_eval.stats.paired import mcnemar_exact, paired_difference, sign_flip_test
from lm_eval.stats.power import (
    achieved_power,
    difference_variance,
    documents_needed,
)

Array = np.ndarray[Any, np.dtype[np.float64]]
DOCUMENTS = 500
PORTION = 32


def answers(
    generator: np.random.Generator, difference: float, documents: int, repeats: int, cluster: int
) -> tuple[Array, Array]:
    """Returns the 0/1 scores of two models, one row per document and one column per repeat.

    Documents of a cluster (of `cluster` documents) share how hard they are and which model they
    suit.
    """
    groups = documents // cluster
    hard = np.repeat(generator.beta(1.2, 0.8, groups), cluster)
    suits = np.repeat(generator.normal(0, 0.1, groups), cluster) if cluster > 1 else 0.0
    both = 0.15 + 0.7 * hard
    chances = [np.clip(both + side * (difference / 2 + suits), 0, 1) for side in (1, -1)]
    first, second = (
        (generator.random((documents, repeats)) < chance[:, None]).astype(float)
        for chance in chances
    )
    return first, second


def truth(difference: float, cluster: int) -> float:
    """Returns the expected difference of `answers`, by a large sample of its own."""
    generator = np.random.default_rng(99)
    first, second = answers(generator, difference, 4_000_000 // cluster * cluster, 1, cluster)
    return float((first - second).mean())


def coverage(runs: int) -> None:
    """Prints the coverage of the 95 % intervals."""
    print("\ncoverage of the 95 % interval (goal: 93 to 97 %)")
    for name, repeats, cluster, documents in [
        ("independent", 1, 1, DOCUMENTS),
        ("independent, 50 documents", 1, 1, 50),
        ("4 repeats", 4, 1, DOCUMENTS),
        ("clusters of 5", 1, 5, DOCUMENTS),
        ("clusters of 5, 4 repeats", 4, 5, DOCUMENTS),
    ]:
        for difference in (0.0, 0.05):
            expected = truth(difference, cluster) if difference else 0.0
            generator, inside = np.random.default_rng(7), 0
            for _ in range(runs):
                first, second = answers(generator, difference, documents, repeats, cluster)
                clusters = None if cluster == 1 else (np.arange(documents) // cluster).tolist()
                found = paired_difference(first.mean(axis=1) - second.mean(axis=1), clusters)
                inside += found.interval[0] <= expected <= found.interval[1]
            print(f"  {name:28} true difference {difference:.2f}: {inside / runs:7.1%}")


def tests(runs: int) -> None:
    """Prints how often tests at 5 % call equal models different."""
    print("\nfalse positives at 5 % (goal: 4 to 6 %; exact tests at most 5 %)")
    generator, counts = np.random.default_rng(8), dict.fromkeys(range(4), 0)
    for _ in range(runs):
        first, second = answers(generator, 0.0, DOCUMENTS, 4, 1)
        one = first[:, 0] - second[:, 0]
        means = first.mean(axis=1) - second.mean(axis=1)
        low, high = paired_difference(one).interval
        counts[0] += not low <= 0 <= high
        counts[1] += mcnemar_exact(int((one > 0).sum()), int((one < 0).sum())) < 0.05
        counts[2] += sign_flip_test(means, draws=2000) < 0.05
        first, second = answers(generator, 0.0, DOCUMENTS, 1, 5)
        clusters = (np.arange(DOCUMENTS) // 5).tolist()
        counts[3] += sign_flip_test((first - second)[:, 0], clusters, draws=2000) < 0.05
    names = ("interval", "McNemar, exact", "sign flips, 4 repeats", "sign flips, clusters of 5")
    for i, name in enumerate(names):
        print(f"  {name:28} {counts[i] / runs:7.1%}")


def power(runs: int) -> None:
    """Prints how often a true difference is found, compared with the formula."""
    print("\npower at 5 % (goal: the formula, within 3 points)")
    for difference, repeats in [(0.03, 1), (0.06, 1), (0.06, 4)]:
        generator = np.random.default_rng(9)
        first, second = answers(generator, difference, 200_000, repeats, 1)
        variance = difference_variance(first, second).per_document(repeats, repeats)
        expected = float((first - second).mean())
        needed = documents_needed(expected, variance)
        for documents in (DOCUMENTS, needed):
            formula = achieved_power(expected, math.sqrt(variance / documents))
            found = 0
            for _ in range(runs):
                first, second = answers(generator, difference, documents, repeats, 1)
                low, high = paired_difference(first.mean(axis=1) - second.mean(axis=1)).interval
                found += not low <= 0 <= high
            print(
                f"  difference {expected:.3f}, {repeats} answers, {documents:5} documents: "
                f"{found / runs:6.1%}, formula {formula:6.1%}"
            )


def families(runs: int) -> None:
    """Prints false discoveries among 20 tests of which 15 compare equal models."""
    print("\n20 tests, 15 of them of equal models (goal: at most 5 %)")
    generator, any_false, share = np.random.default_rng(10), 0, 0.0
    for _ in range(runs):
        p_values = []
        for i in range(20):
            first, second = answers(generator, 0.1 if i < 5 else 0.0, DOCUMENTS, 1, 1)
            one = first - second
            p_values.append(mcnemar_exact(int((one > 0).sum()), int((one < 0).sum())))
        any_false += any(p < 0.05 for p in holm(p_values)[5:])
        found = [i for i, p in enumerate(benjamini_hochberg(p_values)) if p < 0.05]
        share += sum(i >= 5 for i in found) / max(1, len(found))
    print(f"  Holm: any false discovery       {any_false / runs:7.1%}")
    print(f"  Benjamini-Hochberg: false share {share / runs:7.1%}")


def duel(runs: int) -> None:
    """Prints wrong decisions and the documents used, looking after every portion."""
    print(f"\nduel, a look after every {PORTION} documents (goal: at most 5 % wrong)")
    print("  documents  difference  wrong or false   documents used (mean)")
    generator = np.random.default_rng(11)
    for documents in (1000, 5000, 14_000):
        for difference in (0.0, 0.01, 0.02, 0.05, 0.1):
            count = runs if difference == 0 and documents == 1000 else max(1, runs // 10)
            wrong, used = 0, 0
            for _ in range(count):
                # Exactly this difference among the documents; 20 % are answered differently.
                better, worse = (round(documents * (0.2 + s * difference) / 2) for s in (1, -1))
                values = np.zeros(documents)
                values[:better], values[better : better + worse] = 1.0, -1.0
                values = generator.permutation(values)
                sequence = ConfidenceSequence(documents)
                while sequence.sign is None:
                    sequence.add(values[sequence.seen : sequence.seen + PORTION])
                # Equal models: a decision before the last document is a false one.
                wrong += sequence.sign != (1 if difference else 0)
                used += sequence.seen
            print(
                f"  {documents:9}  {difference:10.2f}  {wrong:5} of {count:5}   "
                f"{used / count / documents:7.1%}"
            )


WORK = {"coverage": coverage, "tests": tests, "power": power, "families": families, "duel": duel}


def main() -> None:
    """Runs the simulations that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(WORK)}")
    parser.add_argument("--runs", type=int, default=2000, help="simulated comparisons")
    given = parser.parse_args()
    for name in given.names or WORK:
        WORK[name](given.runs)


if __name__ == "__main__":
    main()
