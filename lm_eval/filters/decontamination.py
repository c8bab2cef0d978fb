"""The `decontaminate` filter, which leaves out documents that were found in training data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from lm_eval.api.filter import LEFT_OUT, RequestFilter
from lm_eval.api.instance import Instance
from lm_eval.api.registry import register_filter
from lm_eval.contamination.coverage import check_rows
from lm_eval.contamination.findings import Findings, read_findings
from lm_eval.errors import ConfigError, DataError, with_location


@register_filter("decontaminate")
class DecontaminationFilter(RequestFilter):
    """Leaves the contaminated documents out, so that its pipeline scores the clean ones alone.

    In a task file: `{function: decontaminate, path: findings.jsonl}`. It should be the first step
    of the pipeline; the steps after it get only the answers to clean documents.
    """

    FILE_ARGUMENTS: ClassVar[tuple[str, ...]] = ("path",)

    def __init__(self, path: str | Path, threshold: float | None = None) -> None:
        """Reads the findings; raises `DataError` if the file cannot be read.

        Args:
            path: the findings file, which `lm-eval contamination scan` writes. In a task file, a
                relative path is relative to the folder of the task file.
            threshold: the share of n-grams in the corpus from which on a document is contaminated,
                between 0 and 1; 0 if one n-gram is enough. None for the threshold of the scan.
        """
        super().__init__()
        if threshold is not None and not (type(threshold) in (int, float) and 0 <= threshold <= 1):
            raise ConfigError(
                f"threshold must be a number between 0 and 1, such as 0.5, not {threshold!r}."
            )
        self.path, self.threshold = Path(path), threshold
        self._findings = _read(self.path)

    def check_task(self, task: Any) -> None:
        """Raises `DataError` if the findings do not cover the task, or are of other rows."""
        try:
            check_rows(self._findings, task.task_name, task)
        except DataError as error:
            raise with_location(error, self.path) from error

    def apply_to_requests(self, resps: Any, requests: Sequence[Instance]) -> list[Any]:
        """Returns the answers, with `LEFT_OUT` in place of those to contaminated documents."""
        names = {str(request.task_name) for request in requests}
        left_out = {name: self._findings.contaminated(name, self.threshold) for name in names}
        return [
            LEFT_OUT if request.doc_number in left_out[str(request.task_name)] else answers
            for answers, request in zip(resps, requests, strict=True)
        ]

    def apply(self, resps: Any, docs: Any) -> list[Any]:
        """Raises `ConfigError`: documents alone do not tell which task they belong to."""
        raise ConfigError(
            "the filter decontaminate needs requests; apply it with apply_to_requests, or as part "
            "of a pipeline."
        )


def _read(path: Path) -> Findings:
    """Returns the findings in a file, which is read once for all filters that use it."""
    try:
        state = path.stat()
    except OSError:
        return read_findings(path)  # raises the error that names the file and the remedy
    return _read_once(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)
def _read_once(path: Path, modified: int, size: int) -> Findings:
    """Returns the findings in a file; `modified` and `size` tell whether it has changed."""
    return read_findings(path)
