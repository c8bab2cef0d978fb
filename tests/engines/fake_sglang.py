"""A package `sglang` with the embedded model behind the interface that the adapter uses."""

from __future__ import annotations

import asyncio
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.engines.interface import INTERFACES, listed, modules, pinned, pinned_class
from tests.served import fake_dialects

RESERVED = 5
"""The tokens of the context that the scheduler keeps for itself."""


@pinned_class("sglang.srt.server_args:ServerArgs")
class ServerArgs:
    """The arguments of an engine."""

    def __init__(self, **given: Any) -> None:
        self.given = given


@pinned_class("sglang.srt.sampling.sampling_params:SamplingParams")
class SamplingParams:
    """The settings of a request; an unknown one is a `TypeError`, as in SGLang."""

    def __init__(self, **given: Any) -> None:
        self.given = given

    @pinned("sglang.srt.sampling.sampling_params:SamplingParams.verify")
    def verify(self, vocab_size: int) -> None:
        if not 0.0 < self.given.get("top_p", 1.0) <= 1.0:
            raise ValueError(f"top_p must be in (0, 1], got {self.given['top_p']}.")


@pinned_class("sglang:Engine")
class Engine:
    """The engine.

    Attributes:
        asked: the arguments of all requests.
        fails_after: how many requests are answered; None for all.
    """

    def __init__(self, **given: Any) -> None:
        ServerArgs(**given)
        self.given = given
        self._deterministic = bool(given.get("enable_deterministic_inference"))
        context = given.get("context_length") or 1024
        self.tokenizer_manager = SimpleNamespace(
            model_config=SimpleNamespace(context_len=context, vocab_size=1024),
            max_req_input_len=context - 1 - RESERVED,
        )
        self.loop = asyncio.new_event_loop()
        self.asked: list[dict[str, Any]] = []
        self.fails_after: int | None = None
        self._server = fake_dialects.SGLang()

    @pinned("sglang:Engine.async_generate")
    async def async_generate(
        self,
        prompt: str | None = None,
        sampling_params: dict[str, Any] | None = None,
        input_ids: list[int] | None = None,
        **logprobs: Any,
    ) -> Any:
        assert prompt is None
        assert input_ids is not None
        settings = dict(sampling_params or {})
        SamplingParams(**settings).verify(1024)
        self.asked.append({"input_ids": input_ids, "sampling_params": settings, **logprobs})
        await asyncio.sleep(0)
        if self.fails_after is not None and len(self.asked) > self.fails_after:
            raise RuntimeError("The scheduler is dead")
        longest = self.tokenizer_manager.max_req_input_len
        if len(input_ids) >= longest:
            raise ValueError(
                f"Input length ({len(input_ids)} tokens) exceeds the maximum allowed length "
                f"({longest} tokens)."
            )
        samples = settings.pop("n", 1)
        if not self._deterministic:
            settings.pop("sampling_seed", None)
        # The samples of a request have the same seed.
        known = {n: v for n, v in settings.items() if n in self._server.PARAMETERS}
        body = {"input_ids": input_ids, "sampling_params": known, **logprobs}
        answers = [self._server.generate(body) for _ in range(samples)]
        return answers if samples > 1 else answers[0]


def package() -> dict[str, ModuleType]:
    """Returns the modules of the package."""
    arguments = "sglang.srt.server_args"
    choices = f"{arguments}:QUANTIZATION_CHOICES"
    return modules(
        {
            "sglang": {"__version__": INTERFACES["sglang"]["version"], "Engine": Engine},
            arguments: {"ServerArgs": ServerArgs, "QUANTIZATION_CHOICES": listed(choices)},
            "sglang.srt.sampling.sampling_params": {"SamplingParams": SamplingParams},
        }
    )
