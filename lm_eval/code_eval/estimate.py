"""The unbiased estimator of pass@k (Chen et al. 2021, https://arxiv.org/abs/2107.03374)."""

from __future__ import annotations

from math import comb


def estimate_pass_at_k(samples: int, correct: int, k: int) -> float:
    """Returns an estimate of pass@k, the probability that one of `k` samples is correct.

    It is 1 - C(samples - correct, k) / C(samples, k): the share of the subsets of `k` samples that
    contain a correct one. Raises `ValueError` if there are fewer than `k` samples.
    """
    if not 0 <= correct <= samples:
        raise ValueError(f"{correct} of {samples} samples cannot be correct")
    if not 0 < k <= samples:
        raise ValueError(f"pass@{k} needs at least {k} samples, not {samples}")
    return 1.0 - comb(samples - correct, k) / comb(samples, k)
