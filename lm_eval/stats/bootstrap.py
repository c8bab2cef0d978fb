"""Standard errors by resampling documents, seeded, all replicates at once where possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

SEED = 1234

#: Draws at most this often per error; 1/sqrt(2B) is the relative noise of B replicates, and
#: beyond this the clock says more than the error does.
_MAX_DRAWS = 50_000_000
_MIN_REPLICATES = 1_000
_CHUNK = 4_000_000


def replicates_within_reason(iterations: int, documents: int) -> int:
    """How many replicates to draw when `iterations` are asked for over so many documents."""
    affordable = max(_MIN_REPLICATES, _MAX_DRAWS // max(documents, 1))
    return min(iterations, affordable)


def resamples(
    documents: int, replicates: int, seed: int = SEED
) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
    """Document numbers drawn with replacement, in blocks of `[replicates, documents]`."""
    random = np.random.default_rng(seed)
    rows = max(1, _CHUNK // max(documents, 1))
    for start in range(0, replicates, rows):
        yield random.integers(0, documents, (min(rows, replicates - start), documents))


def replicate_means(
    columns: np.ndarray[Any, np.dtype[np.float64]], replicates: int, seed: int = SEED
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Means over resampled documents of per-document columns: `[documents, k]` to `[B, k]`.

    Any score that is a function of column means (a perplexity, a ratio of sums) gets all its
    replicates from this one array.
    """
    means = [columns[draw].mean(axis=1) for draw in resamples(len(columns), replicates, seed)]
    return np.concatenate(means)


def bootstrap_stderr(
    f: Callable[[Sequence[Any]], float], xs: Sequence[Any], iters: int, seed: int = SEED
) -> float:
    """The standard error of any function of a sample, one call of it a replicate."""
    values = [f([xs[i] for i in row]) for draw in resamples(len(xs), iters, seed) for row in draw]
    return float(np.std(values, ddof=1))
