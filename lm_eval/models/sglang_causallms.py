"""`--model sglang`: runs a model with SGLang in this process."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from lm_eval.api.instance import Failure
from lm_eval.api.registry import register_model
from lm_eval.errors import ConfigError, EvalError, ModelError, describe_cause
from lm_eval.models.engines.arguments import (
    check_quantization,
    read_length,
    unknown_argument,
)
from lm_eval.models.engines.base import ONLY_ENGINE, EngineLM, Generated, Scored
from lm_eval.models.planned.jobs import GenerationJob, Prompt, Sampling
from lm_eval.models.planned.score_plan import Abilities, ScorePlan
from lm_eval.models.served.dialects.sglang import SGLang
from lm_eval.models.served.exchange import BadReplyError, RefusedError

logger = logging.getLogger(__name__)

#: The maximum number of requests that the engine holds at a time.
MAX_HELD = 4096
#: Settings that requests for answers always have; they cannot be given as generation settings.
OWN_SETTINGS = {"n", "stop", "max_new_tokens", "temperature", "sampling_seed"}


@register_model("sglang")
class SGLangLM(EngineLM):
    """A model that SGLang runs in this process.

    `sglang.Engine` takes and returns what its server does, so requests and replies are those of the
    dialect `SGLang`.

    Args:
        pretrained: a folder or a model on the hub.
        batch_size, max_batch_size: accepted, without effect; SGLang's scheduler forms the batches.
        max_model_len, context_length, max_length: the context length; three names for the same.
        max_gen_toks: the maximum length of an answer, if the request does not set it.
        add_bos_token: whether prompts begin with a beginning-of-text token; None for what the
            tokenizer does by default.
        tokenizer_path, tokenizer_mode, load_format, trust_remote_code, dtype, kv_cache_dtype,
            device, mem_fraction_static, chunked_prefill_size: arguments of `sglang.Engine`.
        dp_size, tp_size: over how many copies, and devices per copy, the work is split.
        prefix_token_id: the token that stands for an empty context.
        seed: the seed for sampled answers; None for that of the run.
        think_end_token: the string that ends the model's thinking text.
        long_prompts: "refuse" to end a run before the model is loaded if a request does not fit
            into the context length given; "cut" to cut its prompt.
        thinking_budget: after how many tokens a thought is cut (docs/reasoning.md).
        kwargs: further arguments of `sglang.Engine`.
    """

    engine = "SGLang"
    length_names = ("max_model_len", "context_length", "max_length")
    longer_variable = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
    speed_arguments: ClassVar[frozenset[str]] = frozenset(
        {"batch_size", "max_batch_size", "dp_size", "tp_size", "mem_fraction_static", "device"}
        | {"chunked_prefill_size", "long_prompts"}
    )

    def __init__(
        self,
        pretrained: str,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        max_model_len: int | None = None,
        context_length: int | None = None,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        add_bos_token: bool | None = None,
        tokenizer_path: str | None = None,
        tokenizer_mode: str = "auto",
        load_format: str = "auto",
        trust_remote_code: bool = True,
        dtype: str = "auto",
        kv_cache_dtype: str = "auto",
        device: str | None = None,
        mem_fraction_static: float | None = None,
        chunked_prefill_size: int | None = None,
        dp_size: int = 1,
        tp_size: int = 1,
        prefix_token_id: int | None = None,
        seed: int | None = None,
        think_end_token: str | None = None,
        long_prompts: str = "refuse",
        thinking_budget: int | None = None,
        **kwargs: Any,
    ) -> None:
        given = {**locals(), **kwargs}
        super().__init__(
            pretrained,
            tokenizer_path,
            max_gen_toks,
            seed,
            add_bos_token,
            prefix_token_id,
            think_end_token,
            self._tokenizer_of(given)[1],
            thinking_budget,
        )
        self._given_length = read_length(
            max_model_len=max_model_len, context_length=context_length, max_length=max_length
        )
        optional = {
            "context_length": self._given_length,
            "device": device,
            "mem_fraction_static": mem_fraction_static,
            "chunked_prefill_size": chunked_prefill_size,
            "tokenizer_path": tokenizer_path,
        }
        self.model_args = {
            "model_path": pretrained,
            "tokenizer_mode": tokenizer_mode,
            "load_format": load_format,
            "trust_remote_code": trust_remote_code,
            "dtype": dtype,
            "kv_cache_dtype": kv_cache_dtype,
            "tp_size": int(tp_size),
            "dp_size": int(dp_size),
            **{name: value for name, value in optional.items() if value is not None},
            **kwargs,
        }
        self._dialect = SGLang(pretrained)
        with ONLY_ENGINE.starting(f"sglang, {pretrained}"):
            self.model = self._start()

    @classmethod
    def check_before_loading(
        cls, arguments: Mapping[str, Any], chat_template: bool | str = False
    ) -> None:
        """Raises `ConfigError` for arguments that SGLang would refuse late, or not apply."""
        super().check_before_loading(arguments, chat_template)
        if arguments.get("lora_paths") or arguments.get("enable_lora"):
            raise ConfigError(
                "lora_paths: LoRA adapters are not applied with --model sglang. Use --model vllm "
                "with lora_local_path, or merge the adapter into the weights."
            )
        if arguments.get("quantization") is not None:
            from sglang.srt.server_args import QUANTIZATION_CHOICES

            check_quantization("SGLang", arguments["quantization"], QUANTIZATION_CHOICES)

    @classmethod
    def _tokenizer_of(cls, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        own = arguments.get("tokenizer_path")
        settings = {
            "trust_remote_code": arguments.get("trust_remote_code", True),
            "revision": None if own else arguments.get("revision"),
        }
        return own or arguments["pretrained"], settings

    def _start(self) -> Any:
        import sglang
        from sglang.srt.server_args import ServerArgs

        known = inspect.signature(ServerArgs).parameters
        try:
            return sglang.Engine(**self.model_args)
        except Exception as error:  # whatever SGLang, torch or the model's code raises
            if unknown := unknown_argument("SGLang", self.model_args, known):
                raise unknown from error
            raise ModelError(
                f"SGLang could not load {self.pretrained}: {describe_cause(error)}"
            ) from error

    @property
    def max_length(self) -> int:
        """The number of tokens of a prompt; SGLang reserves some of the context for itself."""
        manager = self.model.tokenizer_manager
        lengths = (manager.model_config.context_len, manager.max_req_input_len)
        return min(int(length) for length in lengths if length is not None) - 1

    def identity(self) -> dict[str, Any]:
        """Returns the version of SGLang and the settings that affect the answers."""
        import sglang

        return {
            "sglang": sglang.__version__,
            "dtype": self.model_args["dtype"],
            "max_length": self.max_length,
        }

    # -- requests ---------------------------------------------------------------------------------

    @cached_property
    def setting_names(self) -> frozenset[str]:
        from sglang.srt.sampling.sampling_params import SamplingParams

        return frozenset(inspect.signature(SamplingParams).parameters) - OWN_SETTINGS

    def _read_sampling(self, settings: Mapping[str, Any]) -> Sampling:
        """Returns the generation settings of a request; raises `ConfigError` for wrong values."""
        from sglang.srt.sampling.sampling_params import SamplingParams

        sampling = super()._read_sampling(settings)
        prompt = Prompt("", [0])
        sent = self._dialect.generate_payload([prompt], self._sent(sampling))["sampling_params"]
        try:
            vocabulary = self.model.tokenizer_manager.model_config.vocab_size
            SamplingParams(**sent).verify(vocabulary)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"generation settings (gen_kwargs): SGLang: {error}") from error
        return sampling

    @property
    def gives_samples(self) -> bool:
        """Whether `n` answers differ: with deterministic inference, they all have one seed."""
        return not self.model_args.get("enable_deterministic_inference")

    @property
    def abilities(self) -> Abilities:
        return self._dialect.abilities(batch_size=1)

    def score(self, plan: ScorePlan) -> Iterator[Scored]:
        dialect = self._dialect
        bodies = ((job, dialect.job_payload(job, plan.windows)) for job in plan.jobs())
        for done in self._run(bodies):
            yield [(job, _read(dialect.read_job, reply, job, plan.windows)) for job, reply in done]

    def generate(self, jobs: Iterable[GenerationJob | None]) -> Iterator[Generated]:
        bodies = (None if job is None else (job, self._body(job)) for job in jobs)
        for done in self._run(bodies):
            yield [(job, _read(self._answers, reply, job)) for job, reply in done]

    def _body(self, job: GenerationJob) -> Mapping[str, Any]:
        """Returns the request for the answers of a job."""
        return self._dialect.generate_payload([job.prompt], self._sent(job.sampling))

    def _sent(self, sampling: Sampling) -> Sampling:
        """Returns the settings that SGLang gets; special tokens are kept, as `hf` does."""
        kept = {"skip_special_tokens": False, "spaces_between_special_tokens": False}
        return replace(
            sampling, until=self._stops_to_send(sampling), others={**kept, **sampling.others}
        )

    def _answers(self, reply: Any, job: GenerationJob) -> list[Any]:
        return list(self._dialect.read_generated(reply, 1, job.sampling.samples)[0])

    def _run(
        self, bodies: Iterable[tuple[Any, Mapping[str, Any]] | None]
    ) -> Iterator[list[tuple[Any, Any]]]:
        """Yields lists of `(job, reply)` as the engine finishes them, given `(job, body)` pairs.

        While `bodies` yields None, the engine goes on with the requests that it has.
        """
        waiting = iter(bodies)
        held: dict[asyncio.Task[Any], Any] = {}
        loop = self.model.loop
        try:
            while True:
                while len(held) < MAX_HELD and (following := next(waiting, None)) is not None:
                    job, body = following
                    held[loop.create_task(self._ask(body))] = job
                if not held:
                    return
                done, _ = loop.run_until_complete(
                    asyncio.wait(held, return_when=asyncio.FIRST_COMPLETED)
                )
                finished = [(held.pop(task), task.result()) for task in done]
                for _, reply in finished:
                    self._count(reply)
                yield finished
        except EvalError:
            raise
        except Exception as error:  # the engine died, or refused a request
            raise ModelError(
                f"SGLang failed: {describe_cause(error)}. Run the same command again to continue."
            ) from error
        finally:
            for task in held:
                task.cancel()

    async def _ask(self, body: Mapping[str, Any]) -> Any:
        given = dict(body)
        return await self.model.async_generate(prompt=given.pop("text", None), **given)

    def _count(self, reply: Any) -> None:
        """Adds the tokens of a finished request to `run_context.usage`.

        These are the tokens of the prompt, those of them that were computed, and of the answer.
        """
        counted, usage = self._dialect.usage(reply), self.run_context.usage
        usage.count_prompt(counted.prompt, counted.prompt - counted.cached)
        usage.count_answer(counted.answer)
        usage.count_generated(counted.answer)


def _read(read: Callable[..., Any], *arguments: Any) -> Any:
    """Returns `read(*arguments)`, which reads a reply; a `Failure` if that cannot be used.

    It cannot if the engine aborted the request, or if something is missing in the reply.
    """
    try:
        return read(*arguments)
    except (BadReplyError, RefusedError) as error:
        return Failure(str(error))
