"""Errors that name the request they belong to."""

from __future__ import annotations

from lm_eval.api.instance import Instance
from lm_eval.errors import ModelError
from lm_eval.models.conventions import task_of


class NaNScoresError(ModelError):
    """Raised when the model's scores for a request are NaN."""

    def __init__(self, request_index: int) -> None:
        """`request_index` is the index of the request in the list that was being processed."""
        super().__init__(f"the model's scores for request {request_index} are not numbers (NaN).")
        self.request_index = request_index

    def for_request(self, request: Instance) -> ModelError:
        """Returns the error for users, which names the task and document of `request`."""
        return ModelError(
            f"{describe_request(request)}: the model's scores are not numbers (NaN). Either its "
            "weights are broken, or numbers overflow in this dtype. Try dtype=float32 or "
            "dtype=bfloat16."
        )


def describe_request(request: Instance) -> str:
    """Returns the task and document of a request for messages, as in "task 'arc', document 3".

    The document is its position, from 0, among those evaluated; None if the request has none.
    """
    return f"task {task_of(request)!r}, document {getattr(request, 'doc_id', None)}"
