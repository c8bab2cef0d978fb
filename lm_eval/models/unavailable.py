"""Stand-ins for model classes of the published harness that are not available here.

Projects import them at the top of a file and use them only for some models, so importing must work.
Using them raises an error that says what to use instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from lm_eval.api.model import LM
from lm_eval.errors import ModelError
from lm_eval.models import NOT_YET


class UnavailableModel(LM):
    """Base class of the stand-ins: creating an instance, also of a subclass, raises `ModelError`.

    `MODEL` is the name that `--model` has for the class in the published harness.
    """

    MODEL = ""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise ModelError(f"{cls.__name__}: {explanation(cls.MODEL)}")


def explanation(model: str) -> str:
    """Returns why a model of the published harness cannot be used, and what to use instead."""
    return f"the model {model!r} of the published harness is not available here. {NOT_YET[model]}"


def unavailable_function(name: str, model: str) -> Callable[..., NoReturn]:
    """Returns a function that raises `ModelError`, for a function that belongs to a model."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise ModelError(f"{name}: {explanation(model)}")

    return refuse
