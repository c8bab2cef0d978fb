"""`--model vllm`: runs a model with vLLM in this process."""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from lm_eval.api.instance import Completion
from lm_eval.api.registry import register_model
from lm_eval.errors import ConfigError, EvalError, ModelError, describe_cause
from lm_eval.models.engines.arguments import (
    as_integer,
    check_quantization,
    read_length,
    unknown_argument,
)
from lm_eval.models.engines.base import (
    ONLY_ENGINE,
    EngineLM,
    Generated,
    Scored,
)
from lm_eval.models.identity import fingerprint
from lm_eval.models.planned.jobs import GenerationJob, Sampling
from lm_eval.models.planned.score_plan import Abilities, Job, NextJob, ScorePlan, WholeJob

logger = logging.getLogger(__name__)

#: The maximum number of requests that the engine holds at a time; more only take memory.
MAX_HELD = 4096
#: The bytes that the log-probabilities of prompts may take. vLLM computes them for all tokens of a
#: batch and the whole vocabulary, in 32 bits.
SCORE_BYTES = 2 << 30
#: The maximum length of vLLM's `logprob_token_ids`.
MAX_NEXT_TOKENS = 128
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
        data_parallel_size: must be 1; serve several copies of a model with `vllm serve`.
        lora_local_path: a folder with a LoRA adapter.
        max_lora_rank: the largest rank of an adapter.
        truncation_side: "left": long prompts lose their beginning.
        think_end_token: the string that ends the model's thinking text.
        enable_thinking, chat_template_args: passed to the chat template.
        kwargs: further arguments of vLLM's `LLM`.
    """

    engine = "vLLM"
    longer_variable = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
    speed_arguments: ClassVar[frozenset[str]] = frozenset(
        {"gpu_memory_utilization", "tensor_parallel_size", "max_batch_size", "batch_size", "device"}
        | {"enforce_eager", "max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching"}
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
        think_end_token: str | None = None,
        enable_thinking: bool = True,
        chat_template_args: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        # As vLLM does, the tokenizer of the model is loaded at the revision of the model.
        its_revision = tokenizer_revision or (None if tokenizer else revision)
        super().__init__(
            pretrained,
            tokenizer,
            max_gen_toks,
            seed,
            add_bos_token,
            prefix_token_id,
            think_end_token,
            {"revision": its_revision, "trust_remote_code": bool(trust_remote_code)},
        )
        self._given_length = read_length(max_length=max_length, max_model_len=max_model_len)
        self._template = {"enable_thinking": enable_thinking, **(chat_template_args or {})}
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
        with ONLY_ENGINE.starting(f"vllm, {pretrained}"):
            self.model = self._start()

    @classmethod
    def check_before_loading(
        cls, arguments: Mapping[str, Any], chat_template: bool | str = False
    ) -> None:
        """Raises `ConfigError` for arguments that vLLM would refuse after loading the weights."""
        super().check_before_loading(arguments, chat_template)
        if as_integer("data_parallel_size", arguments.get("data_parallel_size") or 1) > 1:
            raise ConfigError(
                "data_parallel_size: one engine runs in this process. Start several with "
                "`vllm serve NAME --data-parallel-size N`, and evaluate them with --model "
                "local-completions."
            )
        if arguments.get("truncation_side", "left") != "left":
            raise ConfigError("truncation_side: prompts are cut on the left only.")
        _check_adapter(arguments)
        if arguments.get("quantization") is not None:
            from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

            check_quantization("vLLM", arguments["quantization"], QUANTIZATION_METHODS)

    def _start(self) -> Any:
        from vllm import LLM, EngineArgs

        known = {*inspect.signature(LLM).parameters, *inspect.signature(EngineArgs).parameters}
        try:
            return LLM(**self.model_args)
        except Exception as error:  # whatever vLLM, torch or the model's code raises
            if unknown := unknown_argument("vLLM", self.model_args, known):
                raise unknown from error
            raise ModelError(
                f"vLLM could not load {self.pretrained}: {describe_cause(error)}"
            ) from error

    # -- lengths, template, identity --------------------------------------------------------------

    @property
    def max_length(self) -> int:
        """The number of tokens of a prompt: the context length less one token to generate."""
        return int(self.model.llm_engine.model_config.max_model_len) - 1

    def _template_settings(self) -> dict[str, Any]:
        return self._template

    def identity(self) -> dict[str, Any]:
        """Returns the version of vLLM and the settings that affect the answers."""
        import vllm

        config = self.model.llm_engine.model_config
        return {
            "vllm": vllm.__version__,
            "dtype": str(config.dtype),
            "revision": config.revision,
            "max_model_len": config.max_model_len,
        }

    def answer_settings(self) -> dict[str, Any]:
        adapter = [self._lora, fingerprint(self._lora)]
        return {**super().answer_settings(), "template": self._template, "adapter": adapter}

    def counters(self) -> dict[str, float]:
        """Returns the counters of the engine, such as the tokens found in its prefix cache."""
        found: dict[str, float] = {}
        for metric in self.model.llm_engine.get_metrics():
            if hasattr(metric, "value"):
                found[metric.name] = found.get(metric.name, 0.0) + float(metric.value)
        return found

    # -- requests ---------------------------------------------------------------------------------

    @property
    def abilities(self) -> Abilities:
        from vllm import SamplingParams

        known = "logprob_token_ids" in inspect.signature(SamplingParams).parameters
        return Abilities(whole=True, next_tokens=known, max_next_tokens=MAX_NEXT_TOKENS)

    def score(self, plan: ScorePlan) -> Iterator[Scored]:
        vocabulary = int(self.model.llm_engine.model_config.get_vocab_size())
        whole = [job for job in plan.jobs() if isinstance(job, WholeJob)]
        following = [job for job in plan.jobs() if isinstance(job, NextJob)]
        budget = max(1, SCORE_BYTES // (4 * vocabulary))
        for jobs, tokens in ((following, None), (whole, budget)):
            requests = ((job, *self._scoring(job, plan)) for job in jobs)
            for done in self._run(requests, tokens):
                yield [(job, [self._read_score(job, plan, output)]) for job, output in done]

    def _scoring(self, job: Job, plan: ScorePlan) -> tuple[Sequence[int], Any]:
        """Returns the prompt and the settings of a request that scores."""
        if isinstance(job, WholeJob):
            return plan.windows[job.windows[0]].tokens, self._parameters(
                max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False
            )
        return job.contexts[0], self._parameters(
            max_tokens=1,
            temperature=0.0,
            logprobs=len(job.tokens),
            logprob_token_ids=list(job.tokens),
            detokenize=False,
        )

    def _read_score(self, job: Job, plan: ScorePlan, output: Any) -> Any:
        """Returns the score of a window, or the scores of next tokens by token."""
        if isinstance(job, WholeJob):
            window = plan.windows[job.windows[0]]
            wanted = zip(
                window.tokens[window.start :], output.prompt_logprobs[window.start :], strict=True
            )
            entries = [position[token] for token, position in wanted]
            total = sum(float(entry.logprob) for entry in entries)
            return total, all(entry.rank == 1 for entry in entries)
        answer = output.outputs[0]
        position, generated = answer.logprobs[0], int(answer.token_ids[0])
        return {t: (float(position[t].logprob), t == generated) for t in job.tokens}

    def generate(self, jobs: Iterable[GenerationJob]) -> Iterator[Generated]:
        requests = (
            (job, list(job.prompt.tokens or ()), self._sampling(job.sampling)) for job in jobs
        )
        for done in self._run(requests, None):
            yield [(job, [_completion(one) for one in output.outputs]) for job, output in done]

    @cached_property
    def setting_names(self) -> frozenset[str]:
        from vllm import SamplingParams

        return frozenset(inspect.signature(SamplingParams).parameters) - OWN_SETTINGS

    def _read_sampling(self, settings: Mapping[str, Any]) -> Sampling:
        sampling = super()._read_sampling(settings)
        self._sampling(sampling)  # wrong values are reported before the first request
        return sampling

    def _sampling(self, sampling: Sampling) -> Any:
        """Returns the settings of a request for answers; raises `ConfigError` for wrong values."""
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
            return self._parameters(**given)
        except Exception as error:  # vLLM's own type of error, or ValueError in older versions
            raise ConfigError(f"generation settings (gen_kwargs): vLLM: {error}") from error

    def _parameters(self, **settings: Any) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **settings)

    def _run(
        self, requests: Iterator[tuple[Any, Sequence[int], Any]], max_tokens: int | None
    ) -> Iterator[list[tuple[Any, Any]]]:
        """Yields lists of `(job, output)` as the engine finishes them.

        At most `MAX_HELD` requests, with at most `max_tokens` prompt tokens in all, are in the
        engine at a time. Raises `ModelError` with the engine's error if it fails.
        """
        from vllm.inputs import TokensPrompt

        engine = self.model.llm_engine
        held: dict[str, tuple[Any, int]] = {}
        tokens = 0
        following = next(requests, None)
        try:
            while following is not None or held:
                while following is not None and len(held) < MAX_HELD:
                    job, prompt, parameters = following
                    if held and max_tokens is not None and tokens + len(prompt) > max_tokens:
                        break
                    name = str(next(self._request_numbers))
                    engine.add_request(
                        name,
                        TokensPrompt(prompt_token_ids=list(prompt)),
                        parameters,
                        lora_request=self._adapter(),
                    )
                    held[name] = (job, len(prompt))
                    tokens += len(prompt)
                    following = next(requests, None)
                done = []
                for output in engine.step():
                    if output.finished:
                        job, length = held.pop(output.request_id)
                        tokens -= length
                        self._count(output)
                        done.append((job, output))
                if done:
                    yield done
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
        """Counts the tokens of a finished request."""
        usage = self.run_context.usage
        prompt, answer = len(output.prompt_token_ids), sum(len(o.token_ids) for o in output.outputs)
        usage.count_prompt(prompt, prompt - int(output.num_cached_tokens or 0))
        usage.count_answer(answer)
        usage.count_generated(answer)

    def _adapter(self) -> Any:
        """Returns vLLM's description of the LoRA adapter; None if there is none."""
        if self._lora is None:
            return None
        from vllm.lora.request import LoRARequest

        return LoRARequest("adapter", 1, self._lora)


def _completion(answer: Any) -> Completion:
    return Completion(answer.text, finish_reason=answer.finish_reason)


def _check_adapter(arguments: Mapping[str, Any]) -> None:
    """Raises `ConfigError` if the LoRA adapter is not a folder with one, or LoRA is disabled."""
    adapter = arguments.get("lora_local_path")
    if adapter is None:
        return
    if arguments.get("enable_lora") is False:
        raise ConfigError(
            "lora_local_path names an adapter, but enable_lora is False; leave that out."
        )
    if not (Path(str(adapter)).expanduser() / "adapter_config.json").is_file():
        raise ConfigError(
            f"lora_local_path: {adapter} is not a folder with a LoRA adapter: it has no "
            "adapter_config.json."
        )
