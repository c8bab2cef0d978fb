"""The functions of the published module of this name, for code that imports them.

Importing it runs no program, unlike the published module. There is no sandbox yet, so `pass_at_k`
raises an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from lm_eval.errors import ConfigError
from lm_eval.tasks.humaneval.programs import completed as build_predictions
from lm_eval.tasks.humaneval.programs import completed_instruct as build_predictions_instruct

__all__ = ["build_predictions", "build_predictions_instruct", "pass_at_k"]


def pass_at_k(
    references: list[str],
    predictions: list[list[str]],
    k: int | Sequence[int] | None = None,
) -> dict[str, float]:
    """Raises `ConfigError`: this version has no sandbox to run programs in."""
    raise no_sandbox("lm_eval.tasks.humaneval.utils.pass_at_k")


def no_sandbox(name: str) -> ConfigError:
    """Returns the error about the function `name`, which would have to run programs."""
    return ConfigError(
        f"{name} would run programs that a model wrote, and this version of lm_eval has no sandbox "
        "for that. Test the programs with another tool, such as the metric `code_eval` of the "
        "package `evaluate`."
    )
