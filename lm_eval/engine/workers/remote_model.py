"""`RemoteLM`: stands in for a model that only the workers load."""

from __future__ import annotations

import atexit
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lm_eval.api.model import LM
from lm_eval.engine.workers.crew import Crew
from lm_eval.engine.workers.executor import WorkersExecutor

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance


class RemoteLM(LM):
    """What a run needs of its model besides answers, without weights in this process.

    Facts come from the first worker that has loaded the model. A worker applies chat templates and
    counts tokens. Answers are obtained through `executor`.

    Attributes:
        executor: sends requests to the workers.
        facts: what is known of the model.
    """

    def __init__(self, crew: Crew, batch: int | None = None) -> None:
        """Starts the crew; returns when its first worker has loaded the model.

        `batch` is the batch size of the model, if it is fixed. Raises what `Crew.start` raises.
        """
        super().__init__()
        self._crew = crew
        atexit.register(self.close)
        try:
            self.facts = crew.start()
        except BaseException:
            self.close()
            raise
        self.executor = WorkersExecutor(crew, batch)
        self.think_end_token = self.facts.think_end_token
        self.MULTIMODAL = self.facts.multimodal
        for name, value in self.facts.attributes.items():
            setattr(self, name, value)
        tokens = self.facts.tokenizer
        self.tokenizer = None if tokens is None else SimpleNamespace(**tokens)

    def __getattr__(self, name: str) -> Any:
        """Returns methods that this object has only if the model has them."""
        if name in ("_encode_request", "_encode_pair") and self.__dict__["facts"].encodes:
            return lambda *arguments: self._crew.call("encode_request", *arguments)
        if name == "continuation_lengths" and self.__dict__["facts"].encodes:
            return lambda pairs: self._crew.call("continuation_lengths", pairs)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def close(self) -> None:
        """Ends the workers. May be called twice."""
        atexit.unregister(self.close)
        self._crew.close()

    @property
    def names_templates(self) -> bool:
        """Whether a chat template can be chosen by its name."""
        return self.facts.names_templates

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return self.executor.execute("loglikelihood", requests, None)

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        return self.executor.execute("loglikelihood_rolling", requests, None)

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return self.executor.execute("generate_until", requests, None)

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        return str(self._crew.call("apply_chat_template", chat_history, add_generation_prompt))

    @property
    def tokenizer_name(self) -> str:
        return self.facts.tokenizer_name

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return self.facts.chat_template

    def cannot_measure(self, request_type: str) -> str | None:
        return self.facts.cannot_measure.get(request_type)

    def get_model_info(self) -> dict[str, Any]:
        """Returns what the method of the model returned in the first worker."""
        return dict(self.facts.info)
