"""A task whose documents come from a sample log: its data set is not read, nor need it be there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lm_eval.tasks.configurable import ConfigurableTask


class RecordedTask(ConfigurableTask):
    """Filters, metrics and templates of a task file over documents that are given."""

    def __init__(self, config: Mapping[str, Any], docs: Sequence[Any]) -> None:
        self._recorded = docs
        super().__init__(config=config)

    def download(  # type: ignore[override]
        self, dataset_kwargs: Mapping[str, Any] | None = None, *args: Any, **kwargs: Any
    ) -> None:
        self.dataset = {}

    def _docs_of(self, split: str | None, process: Callable[..., Any] | None) -> Any:
        """The documents were logged as they were asked, so nothing is left to process."""
        return None if split is None else self._recorded
