"""Bootstrap standard errors: documents are resampled with replacement, with fixed seeds.

One resample of all documents is called a replicate. The replicates are those of the published
harness: each block of 1,000 replicates is drawn as `random.Random(seed).choices` would draw it,
with the seeds 0, 1, 2 … Standard errors therefore equal the published ones up to rounding.
Numpy's Mersenne Twister yields the same numbers when it is given the state of `random.Random`, and
draws them in milliseconds instead of minutes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Draws = np.ndarray[Any, np.dtype[np.int64]]

#: Maps the column sums of B replicates, an array `[B, k]`, to their scores, an array `[B]`.
ScoreFromSums = Callable[[Array], Array]

#: The most documents to draw for one standard error, over all replicates. The relative noise of B
#: replicates is 1/sqrt(2B), so more draws cost time but hardly improve the result.
_MAX_DRAWS = 100_000_000
_MIN_REPLICATES = 1_000
_REPLICATES_PER_SEED = 1_000
#: The number of draws that are processed together, so that they fit into the processor's cache.
_DRAWS_PER_BLOCK = 250_000


def limit_replicates(iterations: int, documents: int, columns: int = 1) -> int:
    """Returns how many replicates to draw: `iterations`, or fewer if that would take too long.

    The limit depends on the number of `documents` and of `columns` per document. It is never below
    1,000 replicates.
    """
    # From 16 columns on, multiplying the counts by the columns takes longer than drawing.
    work = max(documents, 1) * max(1, columns // 16)
    return min(iterations, max(_MIN_REPLICATES, _MAX_DRAWS // work))


def draw_replicates(documents: int, replicates: int) -> Iterator[Draws]:
    """Yields the document indices of every replicate, in blocks of shape `[rows, documents]`.

    Each row is one replicate: `documents` indices in `range(documents)`, drawn with replacement.
    Beyond 1,000, `replicates` is rounded down to a multiple of 1,000, as in the published harness.
    The seeds are fixed, so every call yields the same indices.
    """
    size = min(_REPLICATES_PER_SEED, replicates)
    rows = max(1, _DRAWS_PER_BLOCK // max(documents, 1))
    for seed in range(replicates // size if size else 0):
        generator = _seeded_generator(seed)
        for start in range(0, size, rows):
            block = generator.random_sample((min(rows, size - start), documents))
            block *= documents
            yield block.astype(np.int64)


def resampled_counts(documents: int, replicates: int) -> Iterator[Array]:
    """Yields how often each replicate contains each document, in blocks `[rows, documents]`.

    The replicates are those of `draw_replicates`, one per row.
    """
    for draw in draw_replicates(documents, replicates):
        rows = len(draw)
        draw += np.arange(rows)[:, None] * documents
        counts = np.bincount(draw.ravel(), minlength=rows * documents)
        yield counts.reshape(rows, documents).astype(float)


def bootstrap_values(columns: Array, score_from_sums: ScoreFromSums, replicates: int) -> Array:
    """Returns the score of every replicate, for a score that depends only on sums over documents.

    Perplexity, BLEU and F1 are examples. The sums of all replicates are one matrix product, which
    is much faster than calling the metric on each replicate.

    Args:
        columns: the quantities to sum, an array `[documents, k]`.
        score_from_sums: maps the sums of all replicates, `[replicates, k]`, to their scores.
        replicates: the number of replicates.
    """
    sums = [counts @ columns for counts in resampled_counts(len(columns), replicates)]
    with np.errstate(all="ignore"):
        return score_from_sums(np.concatenate(sums))


def bootstrap_from_sums(columns: Array, score_from_sums: ScoreFromSums, iterations: int) -> float:
    """Returns the bootstrap standard error of a score that depends only on sums over documents.

    `columns` and `score_from_sums` are those of `bootstrap_values`. `iterations` is the number of
    replicates, which is reduced if they would take too long.
    """
    replicates = limit_replicates(iterations, *columns.shape)
    return _sample_std(bootstrap_values(columns, score_from_sums, replicates))


def bootstrap_median(values: Sequence[float], iterations: int) -> float:
    """Returns the bootstrap standard error of the median of `values`.

    For an even number of values, the median is the upper of the two middle ones. `iterations` is
    the number of replicates, which is reduced if they would take too long.
    """
    ordered = np.asarray(values, dtype=float)
    order = np.argsort(ordered, kind="stable")
    ordered, middle = ordered[order], len(ordered) // 2
    replicates = limit_replicates(iterations, len(ordered))
    medians = [
        ordered[(np.cumsum(counts[:, order], axis=1) > middle).argmax(axis=1)]
        for counts in resampled_counts(len(ordered), replicates)
    ]
    return _sample_std(np.concatenate(medians))


def bootstrap_stderr(f: Callable[[Sequence[Any]], float], xs: Sequence[Any], iters: int) -> float:
    """Returns the bootstrap standard error of `f(xs)`, for any function `f` of a sample.

    `f` is called once for each of `iters` replicates of `xs`, so this is slow. If the score depends
    only on sums over documents, use `bootstrap_from_sums`. Beyond 1,000, `iters` is rounded down to
    a multiple of 1,000. Returns nan for fewer than two replicates.
    """
    draws = draw_replicates(len(xs), iters)
    return _sample_std(
        np.array([f([xs[i] for i in row]) for draw in draws for row in draw.tolist()])
    )


def _sample_std(values: Array) -> float:
    """Returns the sample standard deviation of `values`; nan for fewer than two."""
    with np.errstate(all="ignore"):
        return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def _seeded_generator(seed: int) -> np.random.RandomState:
    """Returns a numpy generator in the state of `random.Random(seed)`, so that both draw alike."""
    _, state, _ = random.Random(seed).getstate()
    generator = np.random.RandomState()
    generator.set_state(("MT19937", np.array(state[:-1], dtype=np.uint32), state[-1], 0, 0.0))
    return generator
