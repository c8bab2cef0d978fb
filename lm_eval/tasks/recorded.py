"""A task whose documents come from a sample log; its dataset is not loaded and may be missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lm_eval.tasks.configurable import ConfigurableTask


class RecordedTask(ConfigurableTask):
    """A task with the filters, metrics and templates of a task file, and with given documents."""

    def __init__(self, config: Mapping[str, Any], docs: Sequence[Any]) -> None:
        """Creates a task with the configuration `config`; every split has the documents `docs`."""
        self._recorded = docs
        super().__init__(config=config)

    def download(  # type: ignore[override]
        self, dataset_kwargs: Mapping[str, Any] | None = None, *args: Any, **kwargs: Any
    ) -> None:
        """Loads nothing: the documents were passed to the constructor."""
        self.dataset = {}

    def _docs_of(self, split: str | None, process: Callable[..., Any] | None) -> Any:
        """Returns the given documents, whatever the split; None if `split` is None.

        `process` is not called: they were logged after `process_docs` had been applied.
        """
        return None if split is None else self._recorded


class UnloadedTask(RecordedTask):
    """A task whose documents are not loaded: only its configuration can be read."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config, ())

    def _inspect_first_document(self) -> None:
        self.multiple_input = self.multiple_target = 0
