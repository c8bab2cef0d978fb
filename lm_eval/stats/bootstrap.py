"""Standard errors by resampling documents, seeded, all replicates at once where possible.

The draws are the published ones: replicate by replicate what `random.Random(i).choices` picks, a
thousand replicates to a generator, so that an error here equals the published error to the last
digits that arithmetic allows. Numpy's Mersenne Twister, given the same state, gives the same
stream; it takes milliseconds where the loop takes minutes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Draws = np.ndarray[Any, np.dtype[np.int64]]

#: A score of resampled documents, from the sums of their columns: `[B, k]` to `[B]`.
OfSums = Callable[[Array], Array]

#: Draws at most this often per error; 1/sqrt(2B) is the relative noise of B replicates, and
#: beyond this the clock says more than the error does.
_MAX_DRAWS = 100_000_000
_MIN_REPLICATES = 1_000
_A_GENERATOR = 1_000
#: Counts of this many draws stay in the processor's cache.
_BLOCK = 250_000


def replicates_within_reason(iterations: int, documents: int, columns: int = 1) -> int:
    """How many replicates to draw when `iterations` are asked for over so many documents.

    From 16 columns on, multiplying them out takes longer than drawing.
    """
    work = max(documents, 1) * max(1, columns // 16)
    return min(iterations, max(_MIN_REPLICATES, _MAX_DRAWS // work))


def resamples(documents: int, replicates: int) -> Iterator[Draws]:
    """Document numbers drawn with replacement, in blocks of `[replicates, documents]`.

    As published, what is left over beyond full generators is not drawn.
    """
    size = min(_A_GENERATOR, replicates)
    rows = max(1, _BLOCK // max(documents, 1))
    for seed in range(replicates // size if size else 0):
        stream = _stream(seed)
        for start in range(0, size, rows):
            block = stream.random_sample((min(rows, size - start), documents))
            block *= documents
            yield block.astype(np.int64)


def resampled_counts(documents: int, replicates: int) -> Iterator[Array]:
    """How often each replicate holds each document, in blocks of `[replicates, documents]`."""
    for draw in resamples(documents, replicates):
        rows = len(draw)
        draw += np.arange(rows)[:, None] * documents
        counts = np.bincount(draw.ravel(), minlength=rows * documents)
        yield counts.reshape(rows, documents).astype(float)


def bootstrap_values(columns: Array, of_sums: OfSums, replicates: int) -> Array:
    """The score of every replicate: one matrix product of counts and per-document columns.

    Any score that is a function of sums over documents (a perplexity, BLEU, F1) can be had so.
    """
    sums = [counts @ columns for counts in resampled_counts(len(columns), replicates)]
    with np.errstate(all="ignore"):
        return of_sums(np.concatenate(sums))


def bootstrap_of_sums(columns: Array, of_sums: OfSums, iterations: int) -> float:
    """The standard error of a score that is a function of column sums."""
    replicates = replicates_within_reason(iterations, *columns.shape)
    return _spread(bootstrap_values(columns, of_sums, replicates))


def bootstrap_median(values: Sequence[float], iterations: int) -> float:
    """The standard error of the (upper) median, all replicates at once."""
    ordered = np.asarray(values, dtype=float)
    order = np.argsort(ordered, kind="stable")
    ordered, middle = ordered[order], len(ordered) // 2
    replicates = replicates_within_reason(iterations, len(ordered))
    medians = [
        ordered[(np.cumsum(counts[:, order], axis=1) > middle).argmax(axis=1)]
        for counts in resampled_counts(len(ordered), replicates)
    ]
    return _spread(np.concatenate(medians))


def bootstrap_stderr(f: Callable[[Sequence[Any]], float], xs: Sequence[Any], iters: int) -> float:
    """The standard error of any function of a sample, one call of it a replicate."""
    draws = resamples(len(xs), iters)
    return _spread(np.array([f([xs[i] for i in row]) for draw in draws for row in draw.tolist()]))


def _spread(values: Array) -> float:
    with np.errstate(all="ignore"):
        return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def _stream(seed: int) -> np.random.RandomState:
    """Numpy's generator in the state of `random.Random(seed)`."""
    _, state, _ = random.Random(seed).getstate()
    stream = np.random.RandomState()
    stream.set_state(("MT19937", np.array(state[:-1], dtype=np.uint32), state[-1], 0, 0.0))
    return stream
