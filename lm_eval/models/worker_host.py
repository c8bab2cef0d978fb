"""Holds the model in the process of a worker (`engine/workers/worker_process.py`)."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lm_eval.api.context import RunContext
from lm_eval.api.instance import OUTPUT_TYPES, Instance
from lm_eval.api.model import LM, TemplateLM
from lm_eval.api.usage import Usage
from lm_eval.config.run import RunConfig
from lm_eval.engine.executor import Outcome, Report
from lm_eval.engine.in_process import InProcess
from lm_eval.engine.threads import numpy_on_one_thread
from lm_eval.engine.workers.messages import ModelFacts
from lm_eval.engine.workers.same_model import installed_versions
from lm_eval.models.create import create_model
from lm_eval.models.identity import model_identity
from lm_eval.models.seeding import seed_generators

#: Attributes of a tokenizer that are described in results.
_TOKENS = [f"{kind}_token{part}" for kind in ("pad", "eos", "bos") for part in ("", "_id")]


class ModelHost:
    """Creates the model of a run and answers portions of its requests.

    Attributes:
        facts: what the driver must know of the model.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Creates the model; `settings` are those of `remote.host_settings`."""
        given = dict(settings)
        if (module := given.pop("module")) is not None:
            importlib.import_module(module)
        run = RunConfig(**given)
        seed_generators(run.seed)
        with run.in_environment():
            self._lm = create_model(run)
        seed_generators(run.seed)
        self._executor = InProcess(self._lm)
        self._context = RunContext()
        self.facts = facts_of(run, self._lm)

    def set_context(self, context: RunContext) -> None:
        """Keeps the settings of a run, and passes them to the model."""
        self._context = context
        self._set(context)

    def _set(self, context: RunContext) -> None:
        if hasattr(self._lm, "set_run_context"):
            self._lm.set_run_context(context)

    @numpy_on_one_thread()
    def execute(
        self, kind: str, requests: Sequence[Instance], report: Report
    ) -> tuple[list[Outcome], Usage, Mapping[str, int]]:
        """Returns the outcomes of requests, and what was counted for them."""
        usage = Usage()
        self._set(replace(self._context, usage=usage))
        before = self._executor.usage()
        outcomes = self._executor.execute(kind, requests, report)
        totals = {
            name: value - before.get(name, 0) for name, value in self._executor.usage().items()
        }
        return outcomes, usage, totals

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Returns what a method of the model returns."""
        if method == "continuation_lengths":
            (pairs,) = arguments
            return [len(self._encode(*pair)[1]) for pair in pairs]
        if method == "encode_request":
            return self._encode(*arguments)
        if method == "apply_chat_template":
            return self._lm.apply_chat_template(*arguments)
        raise ValueError(f"a driver cannot call {method!r}")

    def _encode(self, *arguments: Any) -> Any:
        lm: Any = self._lm
        encode = getattr(lm, "_encode_request", None) or lm._encode_pair
        return encode(*arguments)


def facts_of(run: RunConfig, lm: LM) -> ModelFacts:
    """Returns what the driver must know of a loaded model."""
    template = run.apply_chat_template
    tokenizer: Any = getattr(lm, "tokenizer", None)
    described = tokenizer is not None and hasattr(tokenizer, "eos_token")
    attributes = {}
    for name in ("max_length", "eot_token_id", "batch_sizes"):
        value = getattr(lm, name, None)
        if isinstance(value, (int, dict)):
            attributes[name] = value
    refused = {}
    if hasattr(lm, "cannot_measure"):
        refused = {name: lm.cannot_measure(name) for name in OUTPUT_TYPES}
    return ModelFacts(
        identity=model_identity(run, lm),
        class_name=type(lm).__name__,
        packages=installed_versions(),
        host=socket.gethostname(),
        tokenizer_name=lm.tokenizer_name if template else "",
        chat_template=lm.chat_template(template) if template else None,
        names_templates=isinstance(lm, TemplateLM),
        think_end_token=getattr(lm, "think_end_token", None),
        multimodal=bool(getattr(lm, "MULTIMODAL", False)),
        encodes=hasattr(lm, "_encode_pair"),
        cannot_measure={name: why for name, why in refused.items() if why is not None},
        info=lm.get_model_info() if hasattr(lm, "get_model_info") else {},
        tokenizer={name: getattr(tokenizer, name, None) for name in _TOKENS} if described else None,
        attributes=attributes,
    )
