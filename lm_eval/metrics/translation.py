"""The corpus metrics BLEU, chrF and TER.

`sacrebleu` counts n-grams or edits in each document, once. A score is computed from the sums of
these counts over documents. The scores of all bootstrap replicates can therefore be computed
together in numpy, without counting again.
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
from lm_eval.extras import install_command

Array = np.ndarray[Any, np.dtype[np.float64]]
Items = Sequence[tuple[Any, Any]]


def require_sacrebleu(metric: str) -> None:
    """Raises `ConfigError` if sacrebleu is not installed; `metric` is named in the message.

    Called before the model runs, so that no hours of work are lost.
    """
    if importlib.util.find_spec("sacrebleu") is None:
        raise ConfigError(
            f"the metric {metric} needs the package sacrebleu, which is not installed. Install it "
            f"with: {install_command('metrics')}."
        )


def answers_and_references(items: Items) -> tuple[list[str], list[Sequence[str]]]:
    """Returns the answers, and the references in the layout of sacrebleu.

    The second value has one sequence per reference number: the first references of all documents,
    then the second references, and so on. Its length is the smallest number of references of any
    document; further references are ignored.

    An item is `(references, answer)`. `references` is a string or a list of strings, and `answer`
    is a string or a list of which the first string is taken.
    """
    references = [[gold] if isinstance(gold, str) else list(gold) for gold, _ in items]
    answers = [answer if isinstance(answer, str) else answer[0] for _, answer in items]
    return answers, list(zip(*references, strict=False))


@dataclass(frozen=True)
class CorpusMetric:
    """A metric of sacrebleu that is computed from counts over all documents."""

    name: str
    #: Creates the sacrebleu metric object, which counts.
    make: Callable[[], Any]
    #: Maps the summed counts of B replicates, `[B, k]`, to their scores, `[B]`.
    score_from_sums: Callable[[Array], Array]
    higher_is_better: bool = True

    def columns(self, items: Items) -> Array:
        """Returns the counts of each document, an array `[documents, k]`.

        Raises `ConfigError` if sacrebleu is not installed.
        """
        require_sacrebleu(self.name)
        answers, references = answers_and_references(items)
        counts = self.make()._extract_corpus_statistics(answers, references)
        return np.asarray(counts, dtype=float).reshape(len(answers), -1)

    def score(self, items: Items) -> float:
        """Returns the score of all documents together, given `(references, answer)` items.

        Raises `ConfigError` if sacrebleu is not installed.
        """
        return float(self.score_from_sums(self.columns(items).sum(axis=0, keepdims=True))[0])


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
    """Returns the BLEU scores (0 to 100) of many replicates, from their summed counts.

    BLEU is the geometric mean of the precisions of 1- to 4-grams, multiplied by the brevity
    penalty. The smoothing is exponential: the first order without a matching n-gram counts as half
    a match, the next one as a quarter, and so on. The score is 0 if no n-gram of any order matches,
    or if the answers contain no n-gram of an order because all are shorter.

    The columns of `sums` are the answer's length, the reference's length, the matching n-grams of
    the four orders, and all n-grams of the four orders.
    """
    length, reference, matches, totals = sums[:, 0], sums[:, 1], sums[:, 2:6], sums[:, 6:10]
    missing = (matches == 0) & (totals > 0)
    smoothed = 0.5 ** np.cumsum(missing, axis=1)
    # The score is 0 if an order is longer than every text, or if no n-gram matches at all.
    defined = (totals > 0).all(axis=1) & (matches.sum(axis=1) > 0)
    precisions = np.where(missing, smoothed, matches) / np.where(totals > 0, totals, 1)
    brevity = np.where(
        length < reference, np.exp(1 - reference / np.where(length > 0, length, 1)), 1.0
    )
    logs = np.log(np.where(defined[:, None], precisions, 1.0)).mean(axis=1)
    return np.where(defined & (length > 0), 100 * brevity * np.exp(logs), 0.0)


def chrf_of_sums(sums: Array, beta: float = 2.0) -> Array:
    """Returns the chrF scores (0 to 100) of many replicates, from their summed counts.

    chrF is the F-beta score of the mean precision and the mean recall of n-grams, over the orders
    that occur in both answers and references. `sums` has three columns per order: the n-grams of
    the answers, those of the references, and those in common.
    """
    answer, reference, common = sums[:, 0::3], sums[:, 1::3], sums[:, 2::3]
    occurs = (answer > 0) & (reference > 0)
    orders = np.maximum(occurs.sum(axis=1), 1)
    precision = np.where(occurs, common / np.where(occurs, answer, 1), 0).sum(axis=1) / orders
    recall = np.where(occurs, common / np.where(occurs, reference, 1), 0).sum(axis=1) / orders
    denominator = beta**2 * precision + recall
    score = (1 + beta**2) * precision * recall / np.where(denominator > 0, denominator, 1)
    return np.where(denominator > 0, 100 * score, 0.0)


def ter_of_sums(sums: Array) -> Array:
    """Returns the translation edit rates (in percent) of many replicates, from summed counts.

    The columns of `sums` are the number of edits and the length of the references. With empty
    references, the rate is 100 if there are edits and 0 if not.
    """
    edits, length = sums[:, 0], sums[:, 1]
    rate = edits / np.where(length > 0, length, 1)
    return 100 * np.where(length > 0, rate, np.where(edits > 0, 1.0, 0.0))


BLEU = CorpusMetric("bleu", _bleu, bleu_of_sums)
CHRF = CorpusMetric("chrf", partial(_chrf, 0), chrf_of_sums)
CHRF_WORDS = CorpusMetric("chrf++", partial(_chrf, 2), chrf_of_sums)
TER = CorpusMetric("ter", _ter, ter_of_sums, higher_is_better=False)


@register_aggregation("bleu")
def bleu(items: Items) -> float:
    """Returns corpus BLEU, 0 to 100, given one `(references, answer)` item per document."""
    return BLEU.score(items)


@register_aggregation("chrf")
def chrf(items: Items) -> float:
    """Returns corpus chrF, 0 to 100, given one `(references, answer)` item per document.

    It compares character n-grams of up to 6 characters.
    """
    return CHRF.score(items)


@register_aggregation("chrf++")
def chrfpp(items: Items) -> float:
    """Returns corpus chrF++, 0 to 100, given one `(references, answer)` item per document.

    It compares words and pairs of words, in addition to the character n-grams of chrF.
    """
    return CHRF_WORDS.score(items)


@register_aggregation("ter")
def ter(items: Items) -> float:
    """Returns the corpus translation edit rate, given one `(references, answer)` item per document.

    It is a percentage; lower is better.
    """
    return TER.score(items)


#: The corpus metric that each of the aggregations above computes.
CORPUS_METRICS: dict[Callable[..., Any], CorpusMetric] = {
    bleu: BLEU,
    chrf: CHRF,
    chrfpp: CHRF_WORDS,
    ter: TER,
}

for _function, _metric in CORPUS_METRICS.items():
    register_metric(
        metric=_metric.name,
        higher_is_better=_metric.higher_is_better,
        output_type="generate_until",
        aggregation=_metric.name,
    )(Passthrough(_metric.name, _function))
