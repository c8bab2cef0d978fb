"""Re-exports helpers that task code, model classes and scripts import from here."""

from __future__ import annotations

import logging as logging
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from lm_eval._lazy import lazy_exports

if TYPE_CHECKING:
    from lm_eval.config.arguments import handle_arg_string as handle_arg_string
    from lm_eval.config.arguments import simple_parse_args_string as simple_parse_args_string
    from lm_eval.logs import setup_logging as setup_logging
    from lm_eval.metrics.classification import weighted_f1_score as weighted_f1_score
    from lm_eval.metrics.documents import softmax as softmax
    from lm_eval.models.batching import Reorderer as Reorderer
    from lm_eval.models.conventions import get_rolling_token_windows as get_rolling_token_windows
    from lm_eval.models.conventions import make_disjoint_window as make_disjoint_window
    from lm_eval.models.remote_tokenizer import RemoteTokenizer as RemoteTokenizer
    from lm_eval.models.remote_tokenizer import (
        check_remote_tokenizer_support as check_remote_tokenizer_support,
    )
    from lm_eval.prompts.template import apply_template as apply_template
    from lm_eval.prompts.template import env as env
    from lm_eval.prompts.template import regex_replace as regex_replace
    from lm_eval.prompts.text import general_detokenize as general_detokenize
    from lm_eval.results.names import get_file_datetime as get_file_datetime
    from lm_eval.results.names import get_file_task_name as get_file_task_name
    from lm_eval.results.names import get_latest_filename as get_latest_filename
    from lm_eval.results.names import get_results_filenames as get_results_filenames
    from lm_eval.results.names import get_sample_results_filenames as get_sample_results_filenames
    from lm_eval.results.names import sanitize_model_name as sanitize_model_name
    from lm_eval.results.names import sanitize_task_name as sanitize_task_name
    from lm_eval.results.serialize import handle_non_serializable as handle_non_serializable
    from lm_eval.results.serialize import hash_string as hash_string
    from lm_eval.results.serialize import sanitize_list as sanitize_list
    from lm_eval.results.table import make_table as make_table
    from lm_eval.tasks.manager import pattern_match as pattern_match

P = ParamSpec("P")
R = TypeVar("R")

eval_logger = logging.getLogger("lm_eval")

#: The width of a column of log messages, as spaces.
SPACING = " " * 47

join_iters = chain.from_iterable


def positional_deprecated(fn: Callable[P, R]) -> Callable[P, R]:
    """Returns the function unchanged.

    In the published harness this decorator warns about positional arguments; older task classes
    use it.
    """
    return fn


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "RemoteTokenizer": "lm_eval.models.remote_tokenizer",
        "Reorderer": "lm_eval.models.batching",
        "apply_template": "lm_eval.prompts.template",
        "check_remote_tokenizer_support": "lm_eval.models.remote_tokenizer",
        "env": "lm_eval.prompts.template",
        "general_detokenize": "lm_eval.prompts.text",
        "get_file_datetime": "lm_eval.results.names",
        "get_file_task_name": "lm_eval.results.names",
        "get_latest_filename": "lm_eval.results.names",
        "get_results_filenames": "lm_eval.results.names",
        "get_rolling_token_windows": "lm_eval.models.conventions",
        "get_sample_results_filenames": "lm_eval.results.names",
        "handle_arg_string": "lm_eval.config.arguments",
        "handle_non_serializable": "lm_eval.results.serialize",
        "hash_string": "lm_eval.results.serialize",
        "make_disjoint_window": "lm_eval.models.conventions",
        "make_table": "lm_eval.results.table",
        "pattern_match": "lm_eval.tasks.manager",
        "regex_replace": "lm_eval.prompts.template",
        "sanitize_list": "lm_eval.results.serialize",
        "sanitize_model_name": "lm_eval.results.names",
        "sanitize_task_name": "lm_eval.results.names",
        "setup_logging": "lm_eval.logs",
        "simple_parse_args_string": "lm_eval.config.arguments",
        "softmax": "lm_eval.metrics.documents",
        "weighted_f1_score": "lm_eval.metrics.classification",
    },
)
