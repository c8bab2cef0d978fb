"""Helpers of evaluation loops, under the names of the published harness."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from lm_eval.defaults import DEFAULT_OTHER_SEED
from lm_eval.integrity import check_integrity
from lm_eval.preparation import document_limit as get_sample_size
from lm_eval.preparation import log_first_prompt as print_writeout
from lm_eval.tasks.manager import TaskManager

__all__ = ["eval_logger", "get_sample_size", "print_writeout", "run_task_tests"]

eval_logger = logging.getLogger(__name__)


def run_task_tests(task_list: Sequence[str]) -> None:
    """Checks the files, prompts and scoring of tasks; raises `ConfigError` with all problems.

    The tasks are found by their names, as by `lm-eval validate`.
    """
    manager, names = TaskManager(), list(task_list)
    check_integrity(names, manager, manager.load(names)["tasks"], DEFAULT_OTHER_SEED)
