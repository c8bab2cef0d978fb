"""What a Hugging Face model consists of, under the names that subclasses written for it expect."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch
import transformers
from torch import Tensor

from lm_eval.api.model import TemplateLM
from lm_eval.defaults import DEFAULT_MAX_GEN_TOKS, DEFAULT_MAX_LENGTH
from lm_eval.errors import ConfigError, ModelError
from lm_eval.launch import launched_rank
from lm_eval.models.huggingface import arguments, loading
from lm_eval.models.huggingface.arguments import unknown_argument
from lm_eval.models.huggingface.attention import running
from lm_eval.models.huggingface.encoding import TextEncoder
from lm_eval.models.huggingface.processes import accelerator
from lm_eval.models.huggingface.stopping import NumbersOnly, StopStrings, whole_settings
from lm_eval.models.tokenizer import apply_chat_template

logger = logging.getLogger(__name__)


class HuggingFaceModel(TemplateLM):
    """Model, tokenizer, device and processes; how they are used is told in `HFLM`."""

    AUTO_MODEL_CLASS: Any = None
    _DEFAULT_MAX_LENGTH = DEFAULT_MAX_LENGTH
    # As they are before anything is told, for subclasses that are made otherwise.
    batch_size_per_gpu: int | str = "auto"
    max_batch_size: int | None = None
    softmax_dtype: torch.dtype | None = None
    mixed_precision_dtype: torch.dtype | None = None
    truncation_side = "left"
    add_bos_token: bool | None = None
    custom_prefix_token_id: int | None = None
    think_end_token: str | int | None = None
    enable_thinking: bool | None = None
    chat_template_args: Mapping[str, Any] = MappingProxyType({})
    _max_length: int | None = None
    _encoder: TextEncoder | None = None

    def __init__(
        self,
        pretrained: Any,
        backend: str = "default",
        revision: str | None = "main",
        subfolder: str = "",
        tokenizer: Any = None,
        truncation: bool | None = False,
        logits_cache: bool = True,
        max_length: int | None = None,
        device: str | None = None,
        dtype: Any = "auto",
        softmax_dtype: Any = None,
        mixed_precision_dtype: Any = None,
        batch_size: int | str | None = "auto",
        max_batch_size: int | None = None,
        trust_remote_code: bool | None = False,
        use_fast_tokenizer: bool | None = True,
        add_bos_token: bool | None = None,
        prefix_token_id: int | None = None,
        parallelize: bool | None = False,
        max_memory_per_gpu: int | str | None = None,
        max_cpu_memory: int | str | None = None,
        offload_folder: str | None = "./offload",
        tp_plan: Any = None,
        peft: str | None = None,
        delta: str | None = None,
        autogptq: bool | str | None = False,
        gptqmodel: bool | None = False,
        gguf_file: str | None = None,
        think_end_token: str | int | None = None,
        enable_thinking: bool | None = None,
        chat_template_args: dict[str, Any] | None = None,
        truncation_side: str = "left",
        device_map: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        arguments.check(
            autogptq=autogptq,
            gptqmodel=gptqmodel,
            truncation_side=truncation_side,
            enable_thinking=enable_thinking,
            think_end_token=think_end_token,
            tp_plan=tp_plan,
            parallelize=parallelize,
            peft=peft,
            delta=delta,
        )
        self.batch_size_per_gpu = arguments.batch_size(batch_size)
        self.softmax_dtype = None if softmax_dtype is None else _dtype(softmax_dtype)
        self.mixed_precision_dtype = (
            None if mixed_precision_dtype is None else _dtype(mixed_precision_dtype)
        )
        self._max_length = (
            None if max_length is None else arguments.whole_number("max_length", max_length, 1)
        )
        revision = None if revision is None else str(revision)
        self.pretrained, self.revision = pretrained, revision
        self.peft, self.delta = peft, delta
        self.lockstep = tp_plan is not None
        shared = {"revision": revision, "trust_remote_code": bool(trust_remote_code)}
        if subfolder:
            shared["subfolder"] = subfolder
        if isinstance(pretrained, str | os.PathLike):
            pretrained = os.fspath(pretrained)
            self._start_processes(device, tp_plan is not None)
            file = {"gguf_file": gguf_file} if gguf_file else {}
            self._get_config(pretrained, **shared, **file)
        else:
            if parallelize or tp_plan is not None:
                raise ConfigError("a model given as an object cannot be split; load it split.")
            told = {"dtype": dtype != "auto", "peft": peft, "delta": delta, "gguf_file": gguf_file}
            if late := [*(name for name, given in told.items() if given), *kwargs]:
                logger.warning(
                    "A model given as an object is loaded already: %s without effect.",
                    ", ".join(late),
                )
            self._model, self._config = pretrained, pretrained.config
            self._device = loading.device_of(pretrained)
        self._get_backend(self._config, backend)
        self._create_tokenizer(
            pretrained,
            tokenizer,
            use_fast_tokenizer=use_fast_tokenizer,
            gguf_file=gguf_file,
            add_bos_token=add_bos_token,
            **shared,
        )
        loading.set_pad_token(self.tokenizer, self._config)
        if isinstance(pretrained, str):
            options = {
                "dtype": dtype,
                "parallelize": bool(parallelize),
                "device_map": device_map,
                "max_memory_per_gpu": max_memory_per_gpu,
                "max_cpu_memory": max_cpu_memory,
                "offload_folder": offload_folder or "./offload",
                "peft": peft,
                "delta": delta,
                **shared,
                **({"gguf_file": gguf_file} if gguf_file else {}),
                **loading.split_by(tp_plan),
                **kwargs,
            }
            taken = arguments.taken_by(self._create_model, options, HuggingFaceModel.__init__)
            self._create_model(pretrained, **taken)
        loading.check_vocabulary(self.tokenizer, self._model)
        if isinstance(self._model, torch.nn.Module):
            self._model.eval()
        self.vocab_size = self.tokenizer.vocab_size
        self.truncation, self.logits_cache = truncation, logits_cache
        self.truncation_side = truncation_side
        self.add_bos_token = add_bos_token
        self.custom_prefix_token_id = loading.prefix_token(prefix_token_id, self._model)
        _ = self._own_length  # which refuses what the model cannot read
        self.max_batch_size = (
            None
            if max_batch_size is None
            else arguments.whole_number("max_batch_size", max_batch_size, 1)
        )
        self.batch_sizes: dict[int, int] = {}
        number = isinstance(think_end_token, str) and think_end_token.isdigit()
        self.think_end_token = int(think_end_token) if number else think_end_token  # type: ignore[arg-type]
        self.enable_thinking = enable_thinking
        thinking = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
        self.chat_template_args = {**(chat_template_args or {}), **thinking}

    @cached_property
    def _own_length(self) -> int:
        return loading.longest_text(
            self._max_length, self._config, self.tokenizer, self._DEFAULT_MAX_LENGTH
        )

    # -- how it is made -------------------------------------------------------------------------

    @classmethod
    def check_before_loading(
        cls, arguments: Mapping[str, Any], chat_template: bool | str = False
    ) -> None:
        """Looks for the chat template in the tokenizer's files, before the weights are loaded."""
        super().check_before_loading(arguments, chat_template)
        own = (cls.apply_chat_template, cls._create_tokenizer)
        ours = (HuggingFaceModel.apply_chat_template, HuggingFaceModel._create_tokenizer)
        source = arguments.get("tokenizer") or arguments.get("pretrained")
        if not chat_template or own != ours or not isinstance(source, str):
            return
        names = ("revision", "subfolder", "trust_remote_code")
        options = {name: arguments[name] for name in names if name in arguments}
        if arguments.get("gguf_file"):
            return  # its tokenizer is read with the weights
        try:
            tokenizer = loading.load_tokenizer(source, **options)
        except ModelError:
            return  # loading the model will tell more
        loading.check_chat_template(tokenizer, chat_template)

    def _start_processes(self, device: str | None, split: bool) -> None:
        """The device; and `accelerator`, which subclasses look for, where there are processes."""
        if split:  # all ask the same, and the first tells
            self._rank = launched_rank()
        together = None if split else accelerator()
        if together is None:
            self._device = loading.choose_device(device)
            return
        self.accelerator = together
        self._rank = int(together.process_index)
        self._world_size = int(together.num_processes)
        self._device = together.device

    def _get_config(self, pretrained: str, **options: Any) -> None:
        self._config = loading.load_config(pretrained, **options)

    def _get_backend(self, config: Any, backend: str = "default", **kwargs: Any) -> None:
        if backend not in ("default", "causal", "seq2seq"):
            raise ConfigError(f"backend is 'causal', 'seq2seq' or 'default', not {backend!r}.")
        if backend == "default":
            backend = "seq2seq" if loading.is_encoder_decoder(config) else "causal"
        self.backend = backend
        if self.AUTO_MODEL_CLASS is None:
            self.AUTO_MODEL_CLASS = (
                transformers.AutoModelForCausalLM
                if backend == "causal"
                else transformers.AutoModelForSeq2SeqLM
            )

    def _create_tokenizer(
        self,
        pretrained: Any,
        tokenizer: Any,
        use_fast_tokenizer: bool | None = True,
        gguf_file: str | None = None,
        add_bos_token: bool | None = None,
        **options: Any,
    ) -> None:
        if tokenizer is not None and not isinstance(tokenizer, str):
            self.tokenizer = tokenizer
            return
        if add_bos_token is not None:
            options["add_bos_token"] = add_bos_token
        if gguf_file and not tokenizer:
            options["gguf_file"] = gguf_file
        else:
            options["use_fast"] = use_fast_tokenizer
        name = tokenizer or (pretrained if isinstance(pretrained, str) else pretrained.name_or_path)
        self.tokenizer = loading.load_tokenizer(name, **options)

    def _create_model(self, pretrained: str, **options: Any) -> None:
        options.pop("gpus", None)  # published, for subclasses to hand on; so are these
        for name in ("autogptq", "gptqmodel", "tp_plan", "subfolder", "quantization_config"):
            if not options.get(name, True):
                del options[name]
        try:
            self._model = loading.load_model(
                self.AUTO_MODEL_CLASS,
                pretrained,
                device=self._device,
                vocabulary=len(self.tokenizer),
                **options,
            )
        except ModelError as error:
            cause = error.__cause__
            unknown = isinstance(cause, TypeError) and unknown_argument(cause, type(self))
            raise unknown or error from cause

    # -- what it is -----------------------------------------------------------------------------

    @property
    def config(self) -> Any:
        return self._config

    @property
    def model(self) -> Any:
        return self._model

    @property
    def eot_token_id(self) -> Any:
        """The end-of-text token's number; None where the tokenizer has none."""
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        if self.custom_prefix_token_id is not None:
            return self.custom_prefix_token_id
        for token in (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id):
            if token is not None:
                return int(token)
        raise ModelError(
            "the tokenizer has neither a beginning- nor an end-of-text token to stand for an empty "
            "context; name one by number: --model_args prefix_token_id=…"
        )

    @property
    def max_length(self) -> int:
        return self._max_length or self._own_length

    @property
    def max_gen_toks(self) -> int:
        return DEFAULT_MAX_GEN_TOKS

    @property
    def batch_size(self) -> int | str:
        return self.batch_size_per_gpu

    @property
    def tokenizer_name(self) -> str:
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def get_model_info(self) -> dict[str, Any]:
        """What tells this model from others, for the results file."""
        parameters = getattr(self._model, "parameters", None)
        return {
            "model_num_parameters": sum(p.numel() for p in parameters()) if parameters else -1,
            "model_dtype": str(getattr(self._model, "dtype", "")),
            "model_revision": self.revision,
            "model_sha": getattr(self._config, "_commit_hash", None) or "",
            **({"peft": self.peft} if self.peft else {}),
            **({"delta": self.delta} if self.delta else {}),
        }

    # -- processes ------------------------------------------------------------------------------

    def usage(self) -> dict[str, int]:
        return self.run_context.usage.totals()

    def all_gather(self, tensor: Tensor) -> Any:
        return tensor if self.world_size <= 1 else self.accelerator.gather(tensor)

    def barrier(self) -> None:
        if self.world_size > 1:
            self.accelerator.wait_for_everyone()

    # -- text -----------------------------------------------------------------------------------

    @property
    def text_encoder(self) -> TextEncoder:
        """Made for the tokenizer that is there: people exchange it on a finished object."""
        if self._encoder is None or self._encoder.tokenizer is not self.tokenizer:
            self._encoder = TextEncoder(
                self.tokenizer,
                add_bos_token=self.add_bos_token,
                causal=self.backend == "causal",
                embeddings=loading.embeddings_short_of(self.tokenizer, self._model),
            )
        return self._encoder

    def tok_encode(
        self,
        string: str,
        add_special_tokens: bool | None = None,
        left_truncate_len: int | None = None,
        **kwargs: Any,
    ) -> list[int]:
        tokens = self.text_encoder.encode(string, add_special_tokens)
        return tokens[-left_truncate_len:] if left_truncate_len else tokens

    def tok_batch_encode(
        self,
        strings: Sequence[str],
        padding_side: str = "left",
        left_truncate_len: int | None = None,
        truncation: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Texts as rows of tokens (B, T) filled up on one side, and a mask of what they hold."""
        rows = [self.tok_encode(text, left_truncate_len=left_truncate_len) for text in strings]
        if truncation:
            rows = [row[: self.max_length] for row in rows]
        width = max(map(len, rows), default=0)
        ids = torch.full((len(rows), width), self.tokenizer.pad_token_id or 0)
        mask = torch.zeros_like(ids)
        for r, row in enumerate(rows):
            place = slice(width - len(row), width) if padding_side == "left" else slice(len(row))
            ids[r, place], mask[r, place] = torch.tensor(row, dtype=torch.long), 1
        return ids, mask

    def tok_decode(self, tokens: int | Sequence[int], skip_special_tokens: bool = True) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens))

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        loading.check_chat_template(self.tokenizer)
        settings = dict(self.chat_template_args)
        if self.run_context.chat_template is not None:
            settings.setdefault("chat_template", self.run_context.chat_template)
        return apply_chat_template(self.tokenizer, chat_history, add_generation_prompt, **settings)

    # -- the model as functions, for subclasses to replace ----------------------------------------

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.mixed_precision_dtype is None:
            return contextlib.nullcontext()
        cast: contextlib.AbstractContextManager[Any] = torch.autocast(
            self.device.type, dtype=self.mixed_precision_dtype
        )
        return cast

    def _model_call(
        self, inps: Tensor, attn_mask: Tensor | None = None, labels: Tensor | None = None
    ) -> Tensor:
        """All next-token scores (B, T, V) of tokens (B, T)."""
        with running, torch.no_grad(), self.autocast():
            if labels is not None:
                out = self._model(input_ids=inps, attention_mask=attn_mask, labels=labels)
            else:
                out = self._model(inps)
            scores: Tensor = out.logits
            return scores

    def _model_generate(
        self, context: Tensor, max_length: int, stop: list[str], **generation_kwargs: Any
    ) -> Tensor:
        """Whatever transformers generates for tokens (B, T) padded on the left."""
        usual = getattr(self._model, "generation_config", None)
        settings = whole_settings(generation_kwargs, usual, self.tokenizer)
        start = context.shape[1] if self.backend == "causal" else 1
        with running, torch.no_grad(), self.autocast():
            generated: Tensor = self._model.generate(
                input_ids=context,
                max_length=max_length,
                stopping_criteria=[StopStrings(self.tokenizer, stop, start)],
                logits_processor=[NumbersOnly(len(context))],
                **settings,
            )
        return generated


def _dtype(name: Any) -> torch.dtype:
    found = loading.read_dtype(name)
    if not isinstance(found, torch.dtype):
        raise ConfigError(f"{name!r} is not a number format: bfloat16, float16, float32 …")
    return found
