"""`--model vllm`: runs a model with vLLM in this process."""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, ClassVar

from lm_eval.api.instance import Completion
from lm_eval.api.registry import register_model
from lm_eval.errors import ConfigError, EvalError, ModelError, describe_cause
from lm_eval.models.engines.arguments import check_quantization, read_length, unknown_argument
from lm_eval.models.engines.base import (
    ONLY_ENGINE,
    EngineLM,
    Generated,
    Scored,
)
from lm_eval.models.engines.data_parallel import EngineCopies
from lm_eval.models.engines.messages import EngineFacts
from lm_eval.models.engines.vllm_arguments import (
    check_adapter,
    check_copies,
    device_variables,
    prefill_limit,
)
from lm_eval.models.engines.vllm_scoring import (
    MAX_NEXT_TOKENS,
    Incomplete,
    MissingScores,
    ScoringRequests,
    sampling_parameter_names,
    sampling_parameters,
)
from lm_eval.models.engines.vllm_watch import watched
from lm_eval.models.identity import fingerprint
from lm_eval.models.planned.jobs import GenerationJob, Sampling
from lm_eval.models.planned.score_plan import Abilities, ScorePlan

logger = logging.getLogger(__name__)

#: The maximum number of requests that the engine holds at a time; more only take memory.
MAX_HELD = 4096
#: Settings that requests for answers always have; they cannot be given as generation settings.
OWN_SETTINGS = {"n", "stop", "max_tokens", "temperature", "output_kind"}


@register_model("vllm")
class VLLM(EngineLM):
    """A model that vLLM runs in this process.

    Continuations of one token are scored by the log-probabilities of the next token, with one
    request per context, for which vLLM uses its prefix cache. Longer continuations need the
    log-probabilities of the prompt, for which it does not.

    Args:
        pretrained: a folder or a model on the hub.
        dtype: the number format of the weights.
        revision: the revision on the hub.
        trust_remote_code: whether code from the model's repository may run.
        tokenizer: a folder or name; by default that of the model.
        tokenizer_mode: vLLM's `tokenizer_mode`.
        tokenizer_revision: the revision of the tokenizer.
        add_bos_token: whether prompts begin with a beginning-of-text token; None for what the
            tokenizer does by default.
        prefix_token_id: the token that stands for an empty context.
        tensor_parallel_size: over how many devices the model is split.
        quantization: vLLM's name of the quantization method.
        max_gen_toks: the maximum length of an answer, if the request does not set it.
        batch_size, max_batch_size: `max_batch_size` is vLLM's `max_num_seqs`; its scheduler forms
            the batches.
        max_length, max_model_len: the context length; two names for the same.
        seed: the seed for sampled answers, and of the engine.
        gpu_memory_utilization: the share of the device's memory that vLLM uses.
        device: ignored: `CUDA_VISIBLE_DEVICES` selects devices.
        data_parallel_size: how many engines share the work, each in a process of its own, with
            `tensor_parallel_size` devices.
        lora_local_path: a folder with a LoRA adapter.
        max_lora_rank: the largest rank of an adapter.
        truncation_side: "left": long prompts that are cut lose their beginning.
        long_prompts: "refuse" to end a run before the model is loaded if a request does not fit
            into the context length given; "cut" to cut its prompt.
        think_end_token: the string that ends the model's thinking text.
        thinking_budget: after how many tokens a thought is cut (docs/reasoning.md).
        enable_thinking, chat_template_args: passed to the chat template.
        kwargs: further arguments of vLLM's `LLM`.
    """

    engine = "vLLM"
    longer_variable = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
    speed_arguments: ClassVar[frozenset[str]] = frozenset(
        {"gpu_memory_utilization", "tensor_parallel_size", "max_batch_size", "batch_size", "device"}
        | {"enforce_eager", "max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching"}
        | {"long_prompts"}
    )

    def __init__(
        self,
        pretrained: str,
        dtype: str = "auto",
        revision: str | None = None,
        trust_remote_code: bool | None = False,
        tokenizer: str | None = None,
        tokenizer_mode: str = "auto",
        tokenizer_revision: str | None = None,
        add_bos_token: bool | None = None,
        prefix_token_id: int | None = None,
        tensor_parallel_size: int = 1,
        quantization: str | None = None,
        max_gen_toks: int = 256,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        max_length: int | None = None,
        max_model_len: int | None = None,
        seed: int = 1234,
        gpu_memory_utilization: float = 0.9,
        device: str | None = None,
        data_parallel_size: int = 1,
        lora_local_path: str | None = None,
        max_lora_rank: int = 16,
        truncation_side: str = "left",
        long_prompts: str = "refuse",
        think_end_token: str | None = None,
        enable_thinking: bool = True,
        thinking_budget: int | None = None,
        chat_template_args: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        given = dict(locals())
        super().__init__(
            pretrained,
            tokenizer,
            max_gen_toks,
            seed,
            add_bos_token,
            prefix_token_id,
            think_end_token,
            self._tokenizer_of(given)[1],
            thinking_budget,
        )
        self._given_length = read_length(max_length=max_length, max_model_len=max_model_len)
        self._template = self._template_of(given)
        self._lora = lora_local_path
        if kwargs.pop("swap_space", None) is not None:
            logger.warning("vLLM no longer has the argument swap_space; it is ignored.")
        self.model_args = {
            "model": pretrained,
            "revision": revision,
            "dtype": dtype,
            "tokenizer": tokenizer,
            "tokenizer_mode": tokenizer_mode,
            "tokenizer_revision": tokenizer_revision,
            "trust_remote_code": bool(trust_remote_code),
            "tensor_parallel_size": int(tensor_parallel_size),
            "max_model_len": self._given_length,
            "quantization": quantization,
            "seed": int(seed),
            "gpu_memory_utilization": float(gpu_memory_utilization),
            "enable_lora": lora_local_path is not None,
            "disable_log_stats": False,
            "max_logprobs": MAX_NEXT_TOKENS,
            **({"max_lora_rank": int(max_lora_rank)} if lora_local_path else {}),
            **({"max_num_seqs": int(max_batch_size)} if max_batch_size else {}),
            **kwargs,
        }
        self._request_numbers = itertools.count()  # of this object: the engine outlives a run
        count = int(data_parallel_size)
        with ONLY_ENGINE.starting(f"vllm, {pretrained}"):
            if count > 1:
                arguments = {n: given[n] for n in inspect.signature(VLLM).parameters if n in given}
                del arguments["kwargs"]
                one = {**arguments, **kwargs, "data_parallel_size": 1}
                self.copies = self._start_copies(one, count, int(tensor_parallel_size))
                self._facts = self.copies.facts
            else:
                self.model = self._start()
                self._facts = self._read_facts()

    @classmethod
    def check_before_loading(
        cls, arguments: Mapping[str, Any], chat_template: bool | str = False
    ) -> None:
        """Raises `ConfigError` for arguments that vLLM would refuse after loading the weights."""
        super().check_before_loading(arguments, chat_template)
        check_copies(arguments)
        if arguments.get("truncation_side", "left") != "left":
            raise ConfigError(
                "truncation_side must be 'left': long prompts are cut at their beginning only."
            )
        check_adapter(arguments)
        if arguments.get("quantization") is not None:
            from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

            check_quantization("vLLM", arguments["quantization"], QUANTIZATION_METHODS)

    @classmethod
    def _tokenizer_of(cls, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        own = arguments.get("tokenizer")
        # As vLLM does, the tokenizer of the model is loaded at the revision of the model.
        revision = arguments.get("tokenizer_revision") or (
            None if own else arguments.get("revision")
        )
        trusted = bool(arguments.get("trust_remote_code"))
        name = own or arguments["pretrained"]
        return name, {"revision": revision, "trust_remote_code": trusted}

    @classmethod
    def _template_of(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        thinks = arguments.get("enable_thinking", True)
        return {"enable_thinking": thinks, **(arguments.get("chat_template_args") or {})}

    def _start(self) -> Any:
        from vllm import LLM, EngineArgs

        known = {*inspect.signature(LLM).parameters, *inspect.signature(EngineArgs).parameters}
        try:
            return LLM(**{**prefill_limit(self.model_args), **self.model_args})
        except Exception as error:  # whatever vLLM, torch or the model's code raises
            if unknown := unknown_argument("vLLM", self.model_args, known):
                raise unknown from error
            raise ModelError(
                f"vLLM could not load {self.pretrained}: {describe_cause(error)}"
            ) from error

    def _start_copies(self, arguments: Mapping[str, Any], count: int, devices: int) -> EngineCopies:
        """Starts `count` engines, each in a process with `devices` devices of its own.

        `arguments` are those of this class. Raises `ModelError` if one cannot be loaded.
        """
        return EngineCopies(self.engine, type(self), arguments, device_variables(count, devices))

    # -- lengths, template, identity --------------------------------------------------------------

    def _read_facts(self) -> EngineFacts:
        """Returns what the engine in this process tells about itself."""
        import vllm

        engine = self.model.llm_engine
        config = engine.model_config
        identity = {
            "vllm": vllm.__version__,
            "dtype": str(config.dtype),
            "revision": config.revision,
            "max_model_len": config.max_model_len,
        }
        has_next = "logprob_token_ids" in sampling_parameter_names()
        abilities = Abilities(whole=True, next_tokens=has_next, max_next_tokens=MAX_NEXT_TOKENS)
        concurrent = int(engine.vllm_config.scheduler_config.max_num_seqs)
        # A prompt may have as many tokens as the context less one to generate.
        return EngineFacts(int(config.max_model_len) - 1, identity, abilities, concurrent)

    @property
    def max_length(self) -> int:
        return self._facts.max_length

    @property
    def concurrent(self) -> int:
        return self._facts.concurrent

    @property
    def abilities(self) -> Abilities:
        return self._facts.abilities

    def identity(self) -> dict[str, Any]:
        """Returns the version of vLLM and the settings that affect the answers."""
        return dict(self._facts.identity)

    def _template_settings(self) -> dict[str, Any]:
        return self._template

    def answer_settings(self) -> dict[str, Any]:
        adapter = [self._lora, fingerprint(self._lora)]
        return {**super().answer_settings(), "template": self._template, "adapter": adapter}

    def counters(self) -> dict[str, float]:
        """Returns the counters of the engine, such as the tokens found in its prefix cache."""
        if self.copies is not None:
            return self.copies.counters()
        found: dict[str, float] = {}
        for metric in self.model.llm_engine.get_metrics():
            if hasattr(metric, "value"):
                found[metric.name] = found.get(metric.name, 0.0) + float(metric.value)
        return found

    # -- requests ---------------------------------------------------------------------------------

    def score(self, plan: ScorePlan) -> Iterator[Scored]:
        missing = MissingScores(plan.windows)
        for batch in self._outputs(plan, cached=True):
            yield [(job, [found]) for job, found in batch if not isinstance(found, Incomplete)]
            for job, found in batch:
                if isinstance(found, Incomplete):
                    missing.add(job, found)
        others = missing.plan(self.abilities)
        for batch in self._outputs(others, cached=False):
            done = [one for job, found in batch for one in others.add(job, [found])]
            yield [whole for number, score in done for whole in missing.complete(number, score)]

    def _outputs(self, plan: ScorePlan, cached: bool) -> Iterator[list[tuple[Any, Any]]]:
        """Yields lists of pairs (job of the plan, vLLM's output), as they are finished.

        `cached` is whether prompts that are scored as a whole use the prefix cache.
        """
        requests = ScoringRequests(plan)
        for done in self._run((job, *requests.request(job, cached)) for job in plan.jobs()):
            yield [(job, requests.read(job, output)) for job, output in done]

    def generate(self, jobs: Iterable[GenerationJob | None]) -> Iterator[Generated]:
        requests = (
            None if job is None else (job, job.prompt.tokens or (), self._sampling(job.sampling))
            for job in jobs
        )
        for done in self._run(requests):
            yield [(job, [_completion(one) for one in output.outputs]) for job, output in done]

    @cached_property
    def setting_names(self) -> frozenset[str]:
        return sampling_parameter_names() - OWN_SETTINGS

    def _read_sampling(self, settings: Mapping[str, Any]) -> Sampling:
        sampling = super()._read_sampling(settings)
        self._sampling(sampling)  # wrong values are reported before the first request
        return sampling

    def _sampling(self, sampling: Sampling) -> Any:
        """Returns vLLM's `SamplingParams` for answers; raises `ConfigError` for wrong values."""
        given = {
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "stop": self._stops_to_send(sampling),
            "n": sampling.samples,
            "seed": sampling.seed,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            **sampling.others,
        }
        try:
            return sampling_parameters(**given)
        except Exception as error:  # vLLM's own type of error, or ValueError in older versions
            raise ConfigError(f"generation settings (gen_kwargs): vLLM: {error}") from error

    def _run(
        self, requests: Iterable[tuple[Any, Sequence[int], Any] | None]
    ) -> Iterator[list[tuple[Any, Any]]]:
        """Yields lists of `(job, output)` as the engine finishes them.

        `requests` are (job, tokens of the prompt, `SamplingParams`). At most `MAX_HELD` requests
        are in the engine at a time. While `requests` yields None, it goes on with those. Raises
        `ModelError` with the engine's error if it fails.
        """
        engine = self.model.llm_engine
        held: dict[str, Any] = {}
        waiting = iter(requests)
        try:
            with watched(engine):
                while True:
                    while len(held) < MAX_HELD and (request := next(waiting, None)) is not None:
                        job, prompt, parameters = request
                        name = str(next(self._request_numbers))
                        engine.add_request(
                            name, _as_input(prompt), parameters, lora_request=self._adapter
                        )
                        held[name] = job
                    if not held:
                        return
                    done = [output for output in engine.step() if output.finished]
                    for output in done:
                        self._count(output)
                    if done:
                        yield [(held.pop(output.request_id), output) for output in done]
        except (GeneratorExit, KeyboardInterrupt, EvalError):
            engine.abort_request(list(held))
            raise
        except Exception as error:  # the engine died, or refused a request
            with suppress(Exception):  # a dead engine cannot end requests
                engine.abort_request(list(held))
            raise ModelError(
                f"vLLM failed: {describe_cause(error)}. Run the same command again to continue."
            ) from error

    def _count(self, output: Any) -> None:
        """Adds the tokens of a finished request to `run_context.usage`.

        These are the tokens of the prompt, those of them that were computed, and of all answers.
        """
        usage = self.run_context.usage
        prompt, answer = len(output.prompt_token_ids), sum(len(o.token_ids) for o in output.outputs)
        usage.count_prompt(prompt, prompt - int(output.num_cached_tokens or 0))
        usage.count_answer(answer)
        usage.count_generated(answer)

    @cached_property
    def _adapter(self) -> Any:
        """vLLM's description of the LoRA adapter; None if there is none."""
        if self._lora is None:
            return None
        from vllm.lora.request import LoRARequest

        return LoRARequest("adapter", 1, self._lora)


def _as_input(tokens: Sequence[int]) -> Any:
    """Returns a prompt in the form that vLLM's engine takes.

    Newer versions have a form that the engine need not convert.
    """
    from vllm import inputs

    if hasattr(inputs, "tokens_input"):
        return inputs.tokens_input(list(tokens))
    return inputs.TokensPrompt(prompt_token_ids=list(tokens))


def _completion(answer: Any) -> Completion:
    tokens = len(answer.token_ids)
    return Completion(answer.text, finish_reason=answer.finish_reason, tokens=tokens)
