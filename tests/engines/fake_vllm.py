"""A package `vllm` with the embedded model behind the interface that the adapter uses."""

from __future__ import annotations

import enum
from collections import deque
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, TypedDict

from tests.engines.interface import INTERFACES, listed, modules, pinned, pinned_class
from tests.served.fake_server import fake_model

BLOCK = 16
"""The tokens of a block of the prefix cache."""
MAX_TOKEN_IDS = 128
_ENGINE = "vllm.v1.engine.llm_engine:LLMEngine"


class VLLMValidationError(Exception):
    """A request that is refused; not a `ValueError`, as in vLLM."""


class EngineDeadError(Exception):
    """The process of the engine has ended."""

    def __init__(self) -> None:
        super().__init__(
            "EngineCore encountered an issue. See stack trace (above) for the root cause."
        )


class RequestOutputKind(enum.Enum):
    """What is returned while a request runs."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


class TokensInput(TypedDict):
    """A prompt as the engine takes it."""

    type: str
    prompt_token_ids: list[int]


@pinned("vllm.inputs:tokens_input")
def tokens_input(prompt_token_ids: list[int]) -> TokensInput:
    return TokensInput(type="token", prompt_token_ids=prompt_token_ids)


class Platform:
    """What vLLM runs on; `on_cpu` is of the class."""

    on_cpu = True
    device_control_env_var = "CUDA_VISIBLE_DEVICES"

    @pinned("vllm.platforms.interface:Platform.is_cpu")
    def is_cpu(self) -> bool:
        return self.on_cpu


@pinned_class("vllm:SamplingParams")
class SamplingParams:
    """The settings of a request; those that tests need are checked as vLLM does."""

    DEFAULTS: ClassVar[dict[str, Any]] = {
        "n": 1,
        "temperature": 1.0,
        "top_p": 1.0,
        "seed": None,
        "stop": None,
        "max_tokens": 16,
        "logprobs": None,
        "prompt_logprobs": None,
        "logprob_token_ids": None,
        "detokenize": True,
        "skip_special_tokens": True,
        "spaces_between_special_tokens": True,
        "output_kind": RequestOutputKind.CUMULATIVE,
        "skip_reading_prefix_cache": None,
    }

    def __init__(self, **given: Any) -> None:
        settings = {**self.DEFAULTS, **given}
        self.n, self.temperature = settings["n"], settings["temperature"]
        self.top_p, self.seed = settings["top_p"], settings["seed"]
        self.stop = settings["stop"] or []
        self.max_tokens, self.logprobs = settings["max_tokens"], settings["logprobs"]
        self.prompt_logprobs = settings["prompt_logprobs"]
        self.logprob_token_ids = settings["logprob_token_ids"]
        self.output_kind = settings["output_kind"]
        self.skip_special_tokens = settings["skip_special_tokens"]
        self.skips_cache = settings["skip_reading_prefix_cache"]
        if self.skips_cache is None:
            self.skips_cache = self.prompt_logprobs is not None
        self.given = given
        if not 0.0 < self.top_p <= 1.0:
            raise VLLMValidationError(f"top_p must be in (0, 1], got {self.top_p}.")
        if self.max_tokens < 1:
            raise VLLMValidationError(f"max_tokens must be at least 1, got {self.max_tokens}.")
        if any(not stop for stop in self.stop):
            raise VLLMValidationError("stop cannot contain an empty string.")
        if self.stop and not settings["detokenize"]:
            raise VLLMValidationError("stop strings are only supported when detokenize is True.")
        if self.temperature < 1e-5 and self.n > 1:
            raise VLLMValidationError(f"n must be 1 when using greedy sampling, got {self.n}.")


@pinned_class("vllm:EngineArgs")
class EngineArgs:
    """The arguments of an engine."""

    def __init__(self, **given: Any) -> None:
        self.given = given


@pinned_class("vllm.lora.request:LoRARequest")
class LoRARequest:
    """An adapter that a request uses."""

    def __init__(self, lora_name: str, lora_int_id: int, lora_path: str = "") -> None:
        self.lora_name, self.lora_int_id, self.lora_path = lora_name, lora_int_id, lora_path


class ModelConfig:
    """The configuration of the model."""

    def __init__(self, max_model_len: int, max_logprobs: int) -> None:
        self.max_model_len, self.max_logprobs = max_model_len, max_logprobs
        self.dtype, self.revision = "torch.float32", None


class LLMEngine:
    """Answers at most `max_num_seqs` requests per step.

    Attributes:
        asked: all requests so far: id, tokens of the prompt, settings, adapter.
        shortens: whether positions that were found in the prefix cache are left out of prompt
            log-probabilities, as by vLLM's model runner V2; V1 returns random values.
        dies_after: how many steps there are before the engine dies; None for ever.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self.model = fake_model()
        self.model_config = ModelConfig(
            given.get("max_model_len") or 1024, given.get("max_logprobs", 20)
        )
        self.log_stats = not given.get("disable_log_stats", True)
        self.asked: list[tuple[str, list[int], SamplingParams, Any]] = []
        self.dies_after: int | None = None
        self.shortens = False
        self._at_once = given.get("max_num_seqs", 64)
        scheduler = SimpleNamespace(max_num_seqs=self._at_once)
        self.vllm_config = SimpleNamespace(scheduler_config=scheduler)
        self._caches = given.get("enable_prefix_caching", True)
        self._has_lora = given.get("enable_lora", False)
        self._cached: set[tuple[int, ...]] = set()
        self._waiting: deque[tuple[str, list[int], SamplingParams, Any]] = deque()
        self._counters = {"prefix_cache_queries": 0, "prefix_cache_hits": 0, "request_success": 0}

    @pinned(f"{_ENGINE}.add_request")
    def add_request(
        self,
        request_id: str,
        prompt: TokensInput,
        params: SamplingParams,
        lora_request: LoRARequest | None = None,
    ) -> str:
        tokens = prompt["prompt_token_ids"]
        if not isinstance(request_id, str):
            raise TypeError(f"request_id must be a string, got {type(request_id)}")
        if request_id in {name for name, *_ in self._waiting}:
            raise ValueError(f"Request id {request_id} already running.")
        if not tokens or not all(type(token) is int for token in tokens):
            raise ValueError("The decoder prompt cannot be empty")
        if len(tokens) >= self.model_config.max_model_len:
            raise VLLMValidationError(
                f"The decoder prompt (length {len(tokens)}) is longer than the maximum model "
                f"length of {self.model_config.max_model_len}."
            )
        if (params.logprobs or 0) > self.model_config.max_logprobs:
            raise VLLMValidationError(
                f"Requested sample logprobs of {params.logprobs}, which is greater than max "
                f"allowed: {self.model_config.max_logprobs}"
            )
        if params.logprob_token_ids is not None:
            count = len(params.logprob_token_ids)
            if count > MAX_TOKEN_IDS or params.logprobs not in (None, count):
                raise VLLMValidationError(f"logprob_token_ids of length {count}")
        if lora_request is not None and not self._has_lora:
            raise VLLMValidationError(f"Got lora_request {lora_request} but LoRA is not enabled!")
        request = (request_id, list(tokens), params, lora_request)
        self.asked.append(request)
        self._waiting.append(request)
        return request_id

    @pinned(f"{_ENGINE}.step")
    def step(self) -> list[Any]:
        if self.dies_after is not None:
            if self.dies_after == 0:
                raise EngineDeadError
            self.dies_after -= 1
        count = min(self._at_once, len(self._waiting))
        return [self._output(*self._waiting.popleft()) for _ in range(count)]

    @pinned(f"{_ENGINE}.abort_request")
    def abort_request(self, request_ids: list[str]) -> None:
        kept = [request for request in self._waiting if request[0] not in request_ids]
        self._waiting = deque(kept)

    @pinned(f"{_ENGINE}.get_metrics")
    def get_metrics(self) -> list[Any]:
        assert self.log_stats, "Stat logging disabled"
        counters = [SimpleNamespace(name=f"vllm:{n}", value=v) for n, v in self._counters.items()]
        return [*counters, SimpleNamespace(name="vllm:e2e_request_latency_seconds", count=1)]

    def unfinished(self) -> int:
        """Returns how many requests are in the engine."""
        return len(self._waiting)

    def _output(self, name: str, tokens: list[int], params: SamplingParams, _: Any) -> Any:
        assert params.output_kind is RequestOutputKind.FINAL_ONLY
        self._counters["request_success"] += params.n
        cached = 0 if params.skips_cache else self._look_up(tokens)
        prompt_logprobs: list[Any] | None = None
        if params.prompt_logprobs is not None:
            rows = self.model.after(tokens)
            found = [{t: _logprob(row, t)} for t, row in zip(tokens[1:], rows[:-1], strict=True)]
            unknown = [] if self.shortens else [{-1: _logprob(rows[0], 0)}] * cached
            prompt_logprobs = [None, *unknown, *found[cached:]]
        return SimpleNamespace(
            request_id=name,
            prompt_token_ids=tokens,
            prompt_logprobs=prompt_logprobs,
            outputs=[self._answer(tokens, params, index) for index in range(params.n)],
            finished=True,
            num_cached_tokens=cached,
        )

    def _look_up(self, tokens: list[int]) -> int:
        """Returns how many tokens are in the prefix cache, and puts all blocks there."""
        if not self._caches:
            return 0
        ends = range(BLOCK, len(tokens), BLOCK)
        found = sum(BLOCK for end in ends if tuple(tokens[:end]) in self._cached)
        self._cached.update(tuple(tokens[:end]) for end in ends)
        self._counters["prefix_cache_queries"] += len(tokens)
        self._counters["prefix_cache_hits"] += found
        return found

    def _answer(self, tokens: list[int], params: SamplingParams, index: int) -> Any:
        # vLLM gives the samples of a request seeds that follow each other.
        seed = None if params.seed is None else params.seed + index
        answer = self.model.generate(
            tokens, params.max_tokens, params.temperature, seed, params.stop
        )
        generated = answer.tokens or [self.model.end]
        logprobs = None
        if params.logprob_token_ids is not None:
            row = self.model.next(tokens)
            wanted = {*params.logprob_token_ids, int(row.argmax())}
            logprobs = [{token: _logprob(row, token) for token in wanted}]
        return SimpleNamespace(
            index=index,
            text=answer.text,
            token_ids=generated,
            logprobs=logprobs,
            finish_reason=answer.finish,
        )


def _logprob(row: Any, token: int) -> Any:
    return SimpleNamespace(logprob=float(row[token]), rank=int((row > row[token]).sum()) + 1)


@pinned_class("vllm:LLM")
class LLM:
    """The engine, as the adapter creates it."""

    def __init__(self, **given: Any) -> None:
        EngineArgs(**given)
        self.llm_engine = LLMEngine(given)
        self.given = given


def package() -> dict[str, ModuleType]:
    """Returns the modules of the package."""
    quantization = "vllm.model_executor.layers.quantization"
    return modules(
        {
            "vllm": {
                "__version__": INTERFACES["vllm"]["version"],
                "LLM": LLM,
                "EngineArgs": EngineArgs,
                "SamplingParams": SamplingParams,
            },
            "vllm.inputs": {"tokens_input": tokens_input},
            "vllm.platforms": {"current_platform": Platform()},
            "vllm.lora.request": {"LoRARequest": LoRARequest},
            "vllm.sampling_params": {"RequestOutputKind": RequestOutputKind},
            quantization: {"QUANTIZATION_METHODS": listed(f"{quantization}:QUANTIZATION_METHODS")},
        }
    )
