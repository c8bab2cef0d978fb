"""Problems told by the request they belong to."""

from __future__ import annotations

from lm_eval.api.instance import Instance
from lm_eval.errors import ModelError
from lm_eval.models.conventions import task_of


class NotANumberError(ModelError):
    """The model's answer to one request is not a number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"the model's scores of request {number} are not numbers (NaN).")
        self.number = number

    def of(self, request: Instance) -> ModelError:
        """The same, said of the request it belongs to."""
        return ModelError(
            f"{named(request)}: the model's scores are not numbers (NaN). Its weights may be "
            "broken, or overflow in this dtype; try dtype=float32 or bfloat16."
        )


def named(request: Instance) -> str:
    return f"task {task_of(request)!r}, document {getattr(request, 'doc_id', None)}"
