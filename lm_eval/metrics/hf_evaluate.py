"""Loads metrics from Hugging Face's `evaluate` library."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

from lm_eval.errors import ConfigError, DataError
from lm_eval.extras import install_command

#: The metrics of the library. A task file may name these without `hf_evaluate: true`.
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
    """Returns the `compute` function of the metric `name` of the `evaluate` library.

    For `code_eval` it is our `pass_at_k`, which runs programs in the sandbox. Raises `ConfigError`
    if the library is not installed, and `DataError` if the metric cannot be loaded. Metrics are
    downloaded from the Hugging Face Hub on first use.
    """
    if name == "code_eval":
        from lm_eval.code_eval import pass_at_k

        return partial(pass_at_k, k=[1])
    if importlib.util.find_spec("evaluate") is None:
        raise ConfigError(
            f"metric {name!r} is part of the `evaluate` library, which is not installed. Install "
            f"it with: {install_command('metrics')}."
        )
    import evaluate

    try:
        loaded: Callable[..., Any] = evaluate.load(name).compute
    except Exception as error:
        raise DataError(
            f"metric {name!r} could not be loaded from the `evaluate` library "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}). It is "
            "downloaded from the Hugging Face Hub on first use, and may need further packages: "
            "check the metric's name, your network connection and the metric's requirements."
        ) from error
    return loaded
