"""Splits the variance of a score into what documents, prompts and seeds contribute."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class VarianceSplit:
    """Variances of a model's score.

    Attributes:
        documents: how much the score varies with the choice of documents: the mean square of its
            standard error; nan if no standard error is known.
        prompts: how much it varies between prompts on the same documents; nan for a single prompt.
        seeds: how much it varies between seeds under the same prompt; nan if no prompt was run with
            several seeds.
    """

    documents: float
    prompts: float
    seeds: float

    @property
    def total(self) -> float:
        """The sum of the variances that are known."""
        return math.fsum(v for v in (self.documents, self.prompts, self.seeds) if v == v)


def split_variance(
    scores: Sequence[Sequence[float]], stderrs: Sequence[float | None] = ()
) -> VarianceSplit:
    """Returns the variance components of a score, by the analysis of variance of one factor.

    The variance between the means of prompts contains a part of the variance between seeds, which
    is subtracted; what is left is at least 0.

    Args:
        scores: for each prompt, its scores under several seeds.
        stderrs: the standard errors of the scores, in any order; those that are None or nan are
            left out.
    """
    several = [cell for cell in scores if len(cell) > 1]
    seeds = math.nan
    if several:
        freedom = sum(len(cell) - 1 for cell in several)
        seeds = math.fsum(float(np.var(cell, ddof=1)) * (len(cell) - 1) for cell in several)
        seeds /= freedom
    prompts = math.nan
    if len(scores) > 1:
        means = [float(np.mean(cell)) for cell in scores]
        noise = 0.0
        if several:  # a prompt with a single seed is one that seeds do not change
            noise = seeds * math.fsum(1 / len(cell) for cell in several) / len(scores)
        prompts = max(0.0, float(np.var(means, ddof=1)) - noise)
    known = [error for error in stderrs if error is not None and error == error]
    documents = math.fsum(error**2 for error in known) / len(known) if known else math.nan
    return VarianceSplit(documents, prompts, seeds)
