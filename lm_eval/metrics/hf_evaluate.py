"""Metrics of Hugging Face's `evaluate` library, where a task file asks for them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from lm_eval.errors import ConfigError, DataError

#: What the library offers by a bare name; a task file may name it without saying where it is from.
KNOWN = frozenset(
    {
        *("accuracy", "bertscore", "bleurt", "brier_score", "cer", "character"),
        *("charcut_mt", "code_eval", "comet", "confusion_matrix", "coval", "cuad"),
        *("exact_match", "f1", "frugalscore", "glue", "google_bleu", "indic_glue", "mae"),
        *("mahalanobis", "mape", "mase", "matthews_corrcoef", "mauve", "mean_iou"),
        *("meteor", "mse", "nist_mt", "pearsonr", "poseval", "precision", "r_squared"),
        *("recall", "recall_at_k", "rl_reliability", "roc_auc", "rouge", "sacrebleu"),
        *("sari", "seqeval", "smape", "spearmanr", "squad", "squad_v2", "super_glue"),
        *("trec_eval", "wer", "wiki_split", "xnli", "xtreme_s"),
    }
)


def load_metric(name: str) -> Callable[..., Any]:
    """The `compute` function of one of the library's metrics."""
    if importlib.util.find_spec("evaluate") is None:
        raise ConfigError(
            f"metric {name!r} is one of the `evaluate` library, which is not installed: "
            "pip install 'lm_eval[metrics]'."
        )
    import evaluate

    try:
        loaded: Callable[..., Any] = evaluate.load(name).compute
    except Exception as error:
        raise DataError(
            f"metric {name!r} could not be had from the `evaluate` library "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}). It is "
            "fetched from the Hugging Face hub when first used, and may need packages of its own."
        ) from error
    return loaded
