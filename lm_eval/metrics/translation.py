"""BLEU, chrF and TER: `sacrebleu` counts each document, and sums of the counts give the scores.

Counting is the slow part and is done once a document; the score of any resample of the documents
is then arithmetic on sums, in numpy, for all resamples at once.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lm_eval.api.registry import Passthrough, register_aggregation, register_metric
from lm_eval.errors import ConfigError

Array = np.ndarray[Any, np.dtype[np.float64]]
Items = Sequence[tuple[Any, Any]]


def require_sacrebleu(metric: str) -> None:
    """Say now what to install, before a model has worked for hours."""
    if importlib.util.find_spec("sacrebleu") is None:
        raise ConfigError(
            f"{metric} needs sacrebleu, which is not installed: pip install 'lm_eval[metrics]'."
        )


def pairs(items: Items) -> tuple[list[str], list[Sequence[str]]]:
    """Answers, and streams of references: the first reference of every document, the second …

    A document's reference is a text or a list of texts; where some have fewer, the rest is left
    out. An answer in a list of one is taken out of it.
    """
    references = [[gold] if isinstance(gold, str) else list(gold) for gold, _ in items]
    answers = [answer if isinstance(answer, str) else answer[0] for _, answer in items]
    return answers, list(zip(*references, strict=False))


@dataclass(frozen=True)
class CorpusMetric:
    """One of sacrebleu's metrics: how to count documents, and what sums of counts amount to."""

    name: str
    make: Callable[[], Any]
    of_sums: Callable[[Array], Array]
    higher_is_better: bool = True

    def columns(self, items: Items) -> Array:
        """What there is to count in each document: `[documents, k]`."""
        require_sacrebleu(self.name)
        answers, references = pairs(items)
        counts = self.make()._extract_corpus_statistics(answers, references)
        return np.asarray(counts, dtype=float).reshape(len(answers), -1)

    def score(self, items: Items) -> float:
        return float(self.of_sums(self.columns(items).sum(axis=0, keepdims=True))[0])


def _bleu() -> Any:
    from sacrebleu.metrics import BLEU

    return BLEU()


def _chrf(words: int) -> Any:
    from sacrebleu.metrics import CHRF

    return CHRF(word_order=words)


def _ter() -> Any:
    from sacrebleu.metrics import TER

    return TER()


def bleu_of_sums(sums: Array) -> Array:
    """BLEU of 1- to 4-grams: brevity, and the mean of log precisions, smoothed exponentially.

    Columns: length, reference length, four counts of hits, four counts of n-grams. The n-th order
    without a hit counts as half a hit, the next as a quarter, and so on.
    """
    length, reference, hits, totals = sums[:, 0], sums[:, 1], sums[:, 2:6], sums[:, 6:10]
    missing = (hits == 0) & (totals > 0)
    smoothed = 0.5 ** np.cumsum(missing, axis=1)
    # Orders longer than every text have no n-grams; without any hit at all there is no score.
    defined = (totals > 0).all(axis=1) & (hits.sum(axis=1) > 0)
    precisions = np.where(missing, smoothed, hits) / np.where(totals > 0, totals, 1)
    brevity = np.where(
        length < reference, np.exp(1 - reference / np.where(length > 0, length, 1)), 1.0
    )
    logs = np.log(np.where(defined[:, None], precisions, 1.0)).mean(axis=1)
    return np.where(defined & (length > 0), 100 * brevity * np.exp(logs), 0.0)


def chrf_of_sums(sums: Array, beta: float = 2.0) -> Array:
    """The F score of n-grams' mean precision and mean recall, over the orders that occur.

    Columns, three an order: n-grams of the answer, of the reference, common to both.
    """
    answer, reference, common = sums[:, 0::3], sums[:, 1::3], sums[:, 2::3]
    occurs = (answer > 0) & (reference > 0)
    orders = np.maximum(occurs.sum(axis=1), 1)
    precision = np.where(occurs, common / np.where(occurs, answer, 1), 0).sum(axis=1) / orders
    recall = np.where(occurs, common / np.where(occurs, reference, 1), 0).sum(axis=1) / orders
    below = beta**2 * precision + recall
    score = (1 + beta**2) * precision * recall / np.where(below > 0, below, 1)
    return np.where(below > 0, 100 * score, 0.0)


def ter_of_sums(sums: Array) -> Array:
    """Edits by length of the references. Columns: edits, reference length."""
    edits, length = sums[:, 0], sums[:, 1]
    rate = edits / np.where(length > 0, length, 1)
    return 100 * np.where(length > 0, rate, np.where(edits > 0, 1.0, 0.0))


BLEU = CorpusMetric("bleu", _bleu, bleu_of_sums)
CHRF = CorpusMetric("chrf", partial(_chrf, 0), chrf_of_sums)
CHRF_WORDS = CorpusMetric("chrf++", partial(_chrf, 2), chrf_of_sums)
TER = CorpusMetric("ter", _ter, ter_of_sums, higher_is_better=False)


@register_aggregation("bleu")
def bleu(items: Items) -> float:
    """BLEU of the whole corpus, 0 to 100."""
    return BLEU.score(items)


@register_aggregation("chrf")
def chrf(items: Items) -> float:
    """chrF of the whole corpus, 0 to 100: character n-grams up to 6."""
    return CHRF.score(items)


@register_aggregation("chrf++")
def chrfpp(items: Items) -> float:
    """chrF++ of the whole corpus, 0 to 100: words and pairs of words beside the characters."""
    return CHRF_WORDS.score(items)


@register_aggregation("ter")
def ter(items: Items) -> float:
    """Translation edit rate of the whole corpus; lower is better."""
    return TER.score(items)


#: The aggregations above, and what is behind them.
CORPUS_METRICS: dict[Callable[..., Any], CorpusMetric] = {
    bleu: BLEU,
    chrf: CHRF,
    chrfpp: CHRF_WORDS,
    ter: TER,
}

for _metric in CORPUS_METRICS.values():
    register_metric(
        metric=_metric.name,
        higher_is_better=_metric.higher_is_better,
        output_type="generate_until",
        aggregation=_metric.name,
    )(Passthrough(_metric.name))
