"""Re-exports metric and aggregation functions for task code that imports them from here.

The published harness defines them in this module. Each is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval._lazy import lazy_exports

if TYPE_CHECKING:
    from lm_eval.api.registry import register_aggregation as register_aggregation
    from lm_eval.api.registry import register_metric as register_metric
    from lm_eval.metrics.aggregations import acc_all as acc_all
    from lm_eval.metrics.aggregations import (
        aggregate_subtask_metrics as aggregate_subtask_metrics,
    )
    from lm_eval.metrics.aggregations import bits_per_byte as bits_per_byte
    from lm_eval.metrics.aggregations import brier_score as brier_score
    from lm_eval.metrics.aggregations import bypass_agg as bypass_agg
    from lm_eval.metrics.aggregations import mean as mean
    from lm_eval.metrics.aggregations import median as median
    from lm_eval.metrics.aggregations import nanmean as nanmean
    from lm_eval.metrics.aggregations import perplexity as perplexity
    from lm_eval.metrics.aggregations import weighted_mean as weighted_mean
    from lm_eval.metrics.aggregations import weighted_perplexity as weighted_perplexity
    from lm_eval.metrics.classification import f1_score as f1_score
    from lm_eval.metrics.classification import matthews_corrcoef as matthews_corrcoef
    from lm_eval.metrics.functions import bypass as bypass
    from lm_eval.metrics.functions import exact_match as exact_match
    from lm_eval.metrics.functions import exact_match_hf_evaluate as exact_match_hf_evaluate
    from lm_eval.metrics.functions import (
        metric_max_over_ground_truths as metric_max_over_ground_truths,
    )
    from lm_eval.metrics.metric import Metric as Metric
    from lm_eval.metrics.translation import bleu as bleu
    from lm_eval.metrics.translation import chrf as chrf
    from lm_eval.metrics.translation import chrfpp as chrfpp
    from lm_eval.metrics.translation import ter as ter
    from lm_eval.metrics.uncertainty import stderr_for_metric as stderr_for_metric
    from lm_eval.stats.bootstrap import bootstrap_stderr as bootstrap_stderr
    from lm_eval.stats.errors import mean_stderr as mean_stderr
    from lm_eval.stats.errors import pooled_sample_stderr as pooled_sample_stderr
    from lm_eval.stats.errors import sample_stddev as sample_stddev
    from lm_eval.stats.errors import unweighted_mean_stderr as unweighted_mean_stderr

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Metric": "lm_eval.metrics.metric",
        "acc_all": "lm_eval.metrics.aggregations",
        "aggregate_subtask_metrics": "lm_eval.metrics.aggregations",
        "bits_per_byte": "lm_eval.metrics.aggregations",
        "bleu": "lm_eval.metrics.translation",
        "bootstrap_stderr": "lm_eval.stats.bootstrap",
        "brier_score": "lm_eval.metrics.aggregations",
        "bypass": "lm_eval.metrics.functions",
        "bypass_agg": "lm_eval.metrics.aggregations",
        "chrf": "lm_eval.metrics.translation",
        "chrfpp": "lm_eval.metrics.translation",
        "exact_match": "lm_eval.metrics.functions",
        "exact_match_hf_evaluate": "lm_eval.metrics.functions",
        "f1_score": "lm_eval.metrics.classification",
        "matthews_corrcoef": "lm_eval.metrics.classification",
        "mean": "lm_eval.metrics.aggregations",
        "mean_stderr": "lm_eval.stats.errors",
        "median": "lm_eval.metrics.aggregations",
        "metric_max_over_ground_truths": "lm_eval.metrics.functions",
        "nanmean": "lm_eval.metrics.aggregations",
        "perplexity": "lm_eval.metrics.aggregations",
        "pooled_sample_stderr": "lm_eval.stats.errors",
        "register_aggregation": "lm_eval.api.registry",
        "register_metric": "lm_eval.api.registry",
        "sample_stddev": "lm_eval.stats.errors",
        "stderr_for_metric": "lm_eval.metrics.uncertainty",
        "ter": "lm_eval.metrics.translation",
        "unweighted_mean_stderr": "lm_eval.stats.errors",
        "weighted_mean": "lm_eval.metrics.aggregations",
        "weighted_perplexity": "lm_eval.metrics.aggregations",
    },
)
