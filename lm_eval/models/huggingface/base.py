"""The parts of a Hugging Face model, and the methods that subclasses replace.

The class loads the weights and the tokenizer, encodes text and runs forward passes. Methods and
attributes have the names of the published `HFLM`, so that subclasses written for it work.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import torch
import transformers
from torch import Tensor

from lm_eval.api.model import TemplateLM
from lm_eval.defaults import DEFAULT_MAX_GEN_TOKS, DEFAULT_MAX_LENGTH
from lm_eval.errors import ConfigError, ModelError
from lm_eval.launch import launched_rank
from lm_eval.models.context_length import own_length
from lm_eval.models.huggingface import arguments, loading
from lm_eval.models.huggingface.arguments import unknown_argument_error
from lm_eval.models.huggingface.attention import model_lock
from lm_eval.models.huggingface.encoding import TextEncoder
from lm_eval.models.huggingface.processes import create_accelerator
from lm_eval.models.huggingface.stopping import (
    RaiseOnNaN,
    StopStrings,
    complete_generation_settings,
)
from lm_eval.models.thinking import check_budget, read_budget
from lm_eval.models.tokenizer import apply_chat_template

logger = logging.getLogger(__name__)


class HuggingFaceModel(TemplateLM):
    """A model of transformers with its tokenizer, device and processes.

    It loads them, encodes text and runs forward passes. `HFLM`, its subclass, processes requests.
    """

    AUTO_MODEL_CLASS: Any = None
    _DEFAULT_MAX_LENGTH = DEFAULT_MAX_LENGTH
    # Defaults for subclasses that do not call this class's constructor.
    batch_size_per_gpu: int | str = "auto"
    max_batch_size: int | None = None
    softmax_dtype: torch.dtype | None = None
    mixed_precision_dtype: torch.dtype | None = None
    truncation_side = "left"
    add_bos_token: bool | None = None
    custom_prefix_token_id: int | None = None
    think_end_token: str | int | None = None
    enable_thinking: bool | None = None
    thinking_budget: int | None = None
    chat_template_args: Mapping[str, Any] = MappingProxyType({})
    truncation: bool | None = False
    logits_cache = True
    pretrained: Any = None
    revision: str | None = None
    peft: str | None = None
    delta: str | None = None
    _model: Any = None
    _config: Any = None
    _max_length: int | None = None
    _encoder: TextEncoder | None = None

    def __init__(
        self,
        pretrained: Any = None,
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
        thinking_budget: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.thinking_budget = read_budget(thinking_budget, think_end_token, enable_thinking)
        arguments.check_arguments(
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
        self.batch_size_per_gpu = arguments.parse_batch_size(batch_size)
        self.softmax_dtype = None if softmax_dtype is None else _parse_dtype(softmax_dtype)
        self.mixed_precision_dtype = (
            None if mixed_precision_dtype is None else _parse_dtype(mixed_precision_dtype)
        )
        self._max_length = (
            None if max_length is None else arguments.parse_integer("max_length", max_length, 1)
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
            self._set_device_and_rank(device, tp_plan is not None)
            file = {"gguf_file": gguf_file} if gguf_file else {}
            self._get_config(pretrained, **shared, **file)
        elif pretrained is None:  # a subclass sets the model after this constructor
            self._set_device_and_rank(device, False)
        else:
            if parallelize or tp_plan is not None:
                raise ConfigError(
                    "parallelize and tp_plan cannot be used with a model that is passed as an "
                    "object. Remove them, or split the model over the devices when you load it."
                )
            given = {"dtype": dtype != "auto", "peft": peft, "delta": delta, "gguf_file": gguf_file}
            if unused := [*(name for name, value in given.items() if value), *kwargs]:
                logger.warning(
                    "The model was passed as an object and is loaded already. These arguments have "
                    "no effect: %s. Apply them when you load the model.",
                    ", ".join(unused),
                )
            self._model, self._config = pretrained, pretrained.config
            self._device = loading.device_of(pretrained)
        self._get_backend(self._config, backend)
        if self.thinking_budget is not None and self.backend != "causal":
            raise ConfigError(
                "thinking_budget needs a model that continues its prompt; an encoder-decoder model "
                "does not. Remove it."
            )
        if pretrained is not None or tokenizer is not None:
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
                **loading.tensor_parallel_options(tp_plan),
                **kwargs,
            }
            accepted = arguments.accepted_options(
                self._create_model, options, HuggingFaceModel.__init__
            )
            self._create_model(pretrained, **accepted)
        if pretrained is not None:
            loading.check_vocabulary(self.tokenizer, self._model)
            self.vocab_size = self.tokenizer.vocab_size
        if isinstance(self._model, torch.nn.Module):
            self._model.eval()
        self.truncation, self.logits_cache = truncation, logits_cache
        self.truncation_side = truncation_side
        self.add_bos_token = add_bos_token
        self.custom_prefix_token_id = loading.check_prefix_token(prefix_token_id, self._model)
        _ = self._resolved_max_length  # raises now if max_length is more than the model can read
        self.max_batch_size = (
            None
            if max_batch_size is None
            else arguments.parse_integer("max_batch_size", max_batch_size, 1)
        )
        self.batch_sizes: dict[int, int] = {}
        is_index = isinstance(think_end_token, str) and think_end_token.isdigit()
        self.think_end_token = int(think_end_token) if is_index else think_end_token  # type: ignore[arg-type]
        self.enable_thinking = enable_thinking
        thinking = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
        self.chat_template_args = {**(chat_template_args or {}), **thinking}

    @cached_property
    def _resolved_max_length(self) -> int:
        """The maximum number of tokens that the model reads at once.

        It is the argument `max_length`, else what the configuration or the tokenizer states, else
        `_DEFAULT_MAX_LENGTH`. Raises `ModelError` if `max_length` is more than the configuration
        allows.
        """
        return loading.choose_max_length(
            self._max_length, self.config, self.tokenizer, self._DEFAULT_MAX_LENGTH
        )

    # -- loading --------------------------------------------------------------------------------

    @classmethod
    def check_before_loading(
        cls, arguments: Mapping[str, Any], chat_template: bool | str = False
    ) -> None:
        """Raises `ModelError` if the run needs a chat template that the tokenizer does not have.

        It loads the tokenizer but not the weights. The check is skipped if a subclass replaces
        `apply_chat_template` or `_create_tokenizer`, and if the tokenizer is not given by name, is
        part of a GGUF file or cannot be loaded.

        Args:
            arguments: the `model_args` of the run.
            chat_template: whether the run applies a chat template, or the name of the template.
        """
        super().check_before_loading(arguments, chat_template)
        length = arguments.get("max_length") or own_length(arguments)
        check_budget(arguments, length, partial(cls._tokenizer_of, arguments))
        own = (cls.apply_chat_template, cls._create_tokenizer)
        ours = (HuggingFaceModel.apply_chat_template, HuggingFaceModel._create_tokenizer)
        source = arguments.get("tokenizer") or arguments.get("pretrained")
        if not chat_template or own != ours or not isinstance(source, str):
            return
        tokenizer = cls._tokenizer_of(arguments)
        if tokenizer is not None:
            loading.check_chat_template(tokenizer, chat_template)

    @classmethod
    def _tokenizer_of(cls, arguments: Mapping[str, Any]) -> Any:
        """Returns the tokenizer that `arguments` name; None if it cannot be loaded by itself."""
        source = arguments.get("tokenizer") or arguments.get("pretrained")
        if not isinstance(source, str) or arguments.get("gguf_file"):
            return None  # the tokenizer of a GGUF file is loaded together with the weights
        names = ("revision", "subfolder", "trust_remote_code")
        options = {name: arguments[name] for name in names if name in arguments}
        try:
            return loading.load_tokenizer(source, **options)
        except ModelError:
            return None  # loading the model raises an error with more details

    def _set_device_and_rank(self, device: str | None, tensor_parallel: bool) -> None:
        """Sets the device, the rank and the number of processes.

        Sets `accelerator` too, which subclasses look for, if `accelerate launch` started several
        processes; each then gets its own device, and `device` is ignored. `tensor_parallel` means
        that all processes together hold one model. Raises `ConfigError` or `ModelError` if `device`
        cannot be used.
        """
        if tensor_parallel:  # all processes get the same requests; rank 0 reports the answers
            self._rank = launched_rank()
        accelerator = None if tensor_parallel else create_accelerator()
        if accelerator is None:
            self._device = loading.choose_device(device)
            return
        self.accelerator = accelerator
        self._rank = int(accelerator.process_index)
        self._world_size = int(accelerator.num_processes)
        self._device = accelerator.device

    def _get_config(self, pretrained: str, **options: Any) -> None:
        """Loads the configuration of the model `pretrained` and stores it in `_config`.

        Raises `ModelError` if it cannot be loaded. `options` are arguments of
        `AutoConfig.from_pretrained`.
        """
        self._config = loading.load_config(pretrained, **options)

    def _get_backend(self, config: Any, backend: str = "default", **kwargs: Any) -> None:
        """Sets `backend` to "causal" or "seq2seq", and `AUTO_MODEL_CLASS` if it is not set.

        The backend "default" is replaced by the one that fits the configuration. `AUTO_MODEL_CLASS`
        is the transformers class that loads the model. Raises `ConfigError` for another backend.
        `kwargs` are ignored.
        """
        if backend not in ("default", "causal", "seq2seq"):
            raise ConfigError(f"backend must be 'causal', 'seq2seq' or 'default', not {backend!r}.")
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
        """Sets `tokenizer`: the given object, or the one loaded by name.

        Raises `ModelError` if it cannot be loaded.

        Args:
            pretrained: the name of the model, or the model itself.
            tokenizer: a tokenizer, or its name; None loads the model's own tokenizer.
            use_fast_tokenizer: whether to load the Rust version of the tokenizer if there is one.
            gguf_file: the GGUF file that contains the tokenizer, if `tokenizer` is None.
            add_bos_token: passed to the tokenizer unless it is None.
            **options: further arguments of `AutoTokenizer.from_pretrained`.
        """
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
        """Loads the weights of the model `pretrained` and stores the model in `_model`.

        `options` are those of `loading.load_model`. Raises `ModelError` if the model cannot be
        loaded, and `ConfigError` for an option that neither this class nor the model accepts.
        """
        # Published arguments that subclasses may pass on, even where they have no effect.
        options.pop("gpus", None)
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
            unknown = isinstance(cause, TypeError) and unknown_argument_error(cause, type(self))
            raise unknown or error from cause

    # -- properties -----------------------------------------------------------------------------

    @property
    def config(self) -> Any:
        """The model's configuration, usually a configuration object of transformers.

        It is None if neither this class nor the model has one.
        """
        return getattr(self._model, "config", None) if self._config is None else self._config

    @property
    def model(self) -> Any:
        """The loaded model, usually a torch module."""
        return self._model

    @property
    def _torch_device(self) -> torch.device:
        """`device` as a torch device; the model's own if the class sets none."""
        return loading.device_of(self._model) if self.device is None else torch.device(self.device)

    def _require_model(self, method: str) -> None:
        """Raises `ModelError` if there is no model, for a class that did not load one.

        `method` is the method that needs it, and that the class could override.
        """
        if self._model is None:
            raise ModelError(
                f"{type(self).__name__} has no model. Set self._model in its constructor, pass "
                f"pretrained=… to the constructor of HFLM, or override {method}."
            )

    def _require_tokenizer(self, method: str) -> Any:
        """Returns the tokenizer; raises `ModelError` if there is none.

        `method` is the method or property that needs it, and that the class could override.
        """
        if self.tokenizer is None:
            raise ModelError(
                f"{type(self).__name__} has no tokenizer. Set self.tokenizer in its constructor, "
                f"pass tokenizer=… to the constructor of HFLM, or override {method}."
            )
        return self.tokenizer

    @property
    def eot_token_id(self) -> Any:
        """The index of the end-of-text token; None if the tokenizer has none."""
        return self._require_tokenizer("eot_token_id").eos_token_id

    @property
    def prefix_token_id(self) -> int:
        """The index of the token that is read in place of an empty context.

        It is the argument `prefix_token_id`, else the tokenizer's beginning-of-text token, else its
        end-of-text token. Raises `ModelError` if there is none.
        """
        if self.custom_prefix_token_id is not None:
            return self.custom_prefix_token_id
        tokenizer = self._require_tokenizer("prefix_token_id")
        for token in (tokenizer.bos_token_id, tokenizer.eos_token_id):
            if token is not None:
                return int(token)
        raise ModelError(
            "the tokenizer has neither a beginning- nor an end-of-text token that could be read in "
            "place of an empty context. Choose a token: --model_args prefix_token_id=…"
        )

    @property
    def max_length(self) -> int:
        """The maximum number of tokens that the model reads at once.

        It is the argument `max_length`, else what the configuration or the tokenizer states, else
        2048.
        """
        return self._max_length or self._resolved_max_length

    @property
    def max_gen_toks(self) -> int:
        """The maximum number of tokens of an answer if its request does not set one."""
        return DEFAULT_MAX_GEN_TOKS

    @property
    def batch_size(self) -> int | str:
        """The maximum number of requests per batch, or "auto"."""
        return self.batch_size_per_gpu

    @property
    def tokenizer_name(self) -> str:
        """The name or path of the tokenizer, with `__` in place of each `/`."""
        tokenizer = self._require_tokenizer("tokenizer_name")
        return str(tokenizer.name_or_path).replace("/", "__")

    def get_model_info(self) -> dict[str, Any]:
        """Returns facts that identify the model, for the results file.

        The keys are `model_num_parameters` (-1 if unknown), `model_dtype`, `model_revision`,
        `model_sha` (the commit on the hub; "" if unknown) and, if they are used, `peft` and
        `delta`.
        """
        parameters = getattr(self._model, "parameters", None)
        return {
            "model_num_parameters": sum(p.numel() for p in parameters()) if parameters else -1,
            "model_dtype": str(getattr(self._model, "dtype", "")),
            "model_revision": self.revision,
            "model_sha": getattr(self.config, "_commit_hash", None) or "",
            **({"peft": self.peft} if self.peft else {}),
            **({"delta": self.delta} if self.delta else {}),
        }

    # -- processes ------------------------------------------------------------------------------

    def usage(self) -> dict[str, int]:
        """Returns the token and request counts so far, with the keys that `LM.usage` documents."""
        return self.run_context.usage.totals()

    def all_gather(self, tensor: Tensor) -> Any:
        """Returns the tensors of all processes, concatenated; for a single process, `tensor`."""
        return tensor if self.world_size <= 1 else self.accelerator.gather(tensor)

    def barrier(self) -> None:
        """Waits until all processes have called this method; does nothing for a single process."""
        if self.world_size > 1:
            self.accelerator.wait_for_everyone()

    # -- text -----------------------------------------------------------------------------------

    @property
    def text_encoder(self) -> TextEncoder:
        """The encoder for the current tokenizer, made anew if `tokenizer` was replaced."""
        if self._encoder is None or self._encoder.tokenizer is not self.tokenizer:
            tokenizer = self._require_tokenizer("tok_encode")
            self._encoder = TextEncoder(
                tokenizer,
                add_bos_token=self.add_bos_token,
                causal=self.backend == "causal",
                embeddings=loading.embedding_rows_if_too_few(tokenizer, self._model),
            )
        return self._encoder

    def tok_encode(
        self,
        string: str,
        add_special_tokens: bool | None = None,
        left_truncate_len: int | None = None,
        **kwargs: Any,
    ) -> list[int]:
        """Returns the tokens of `string`, with special tokens unless `add_special_tokens` is False.

        With `left_truncate_len`, only that many last tokens are returned; None and 0 return all.
        `kwargs` are ignored.
        """
        tokens = self.text_encoder.encode(string, add_special_tokens)
        return tokens[-left_truncate_len:] if left_truncate_len else tokens

    def tok_batch_encode(
        self,
        strings: Sequence[str],
        padding_side: str = "left",
        left_truncate_len: int | None = None,
        truncation: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Returns the padded tokens (B, T) of `strings` and a mask (B, T): 1 for tokens, else 0.

        Args:
            strings: the strings to encode.
            padding_side: "left" or "right".
            left_truncate_len: keep only this many last tokens of each text; None keeps all.
            truncation: whether to keep only the first `max_length` tokens of each text.
        """
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
        """Returns the text of one or several tokens, without special tokens by default."""
        tokenizer = self._require_tokenizer("tok_decode")
        return str(tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens))

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Returns the messages as one prompt in the model's chat format.

        Raises `ModelError` if the tokenizer has no chat template, or if the template fails.

        Args:
            chat_history: the messages, with "role" and "content".
            add_generation_prompt: whether the prompt ends with the header of a new assistant
                message. If False, the model continues the last message.
        """
        loading.check_chat_template(self._require_tokenizer("apply_chat_template"))
        settings = dict(self.chat_template_args)
        if self.run_context.chat_template is not None:
            settings.setdefault("chat_template", self.run_context.chat_template)
        return apply_chat_template(self.tokenizer, chat_history, add_generation_prompt, **settings)

    # -- forward passes, which subclasses may replace ---------------------------------------------

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the context manager under which the model runs.

        It is `torch.autocast` with `mixed_precision_dtype`, or one without effect if that is None.
        """
        if self.mixed_precision_dtype is None:
            return contextlib.nullcontext()
        cast: contextlib.AbstractContextManager[Any] = torch.autocast(
            self._torch_device.type, dtype=self.mixed_precision_dtype
        )
        return cast

    def _model_call(
        self, inps: Tensor, attn_mask: Tensor | None = None, labels: Tensor | None = None
    ) -> Tensor:
        """Returns the logits (B, T, V) of the token that follows each of the tokens `inps` (B, T).

        With `labels` (B, S), for encoder-decoder models, the encoder reads `inps` under the mask
        `attn_mask` (B, T), and the logits (B, S, V) are those of the labels. Without `labels`,
        `attn_mask` is ignored. Subclasses may replace this method.
        """
        self._require_model("_model_call")
        with model_lock, torch.no_grad(), self.autocast():
            if labels is not None:
                out = self._model(input_ids=inps, attention_mask=attn_mask, labels=labels)
            else:
                out = self._model(inps)
            scores: Tensor = out.logits
            return scores

    def _model_generate(
        self, context: Tensor, max_length: int, stop: list[str], **generation_kwargs: Any
    ) -> Tensor:
        """Returns the output of transformers' `generate`: tokens (B, S), padded to equal length.

        For causal models, they begin with `context`; for encoder-decoder models, with the decoder's
        start token. Raises `NaNScoresError` if logits are NaN. Subclasses may replace this method.

        Args:
            context: the tokens (B, T) of the prompts, padded on the left.
            max_length: the maximum number of tokens of prompt and answer together. For
                encoder-decoder models, it counts the answer and the decoder's start token.
            stop: strings that end an answer.
            **generation_kwargs: further arguments for `generate`.
        """
        self._require_model("_model_generate")
        defaults = getattr(self._model, "generation_config", None)
        settings = complete_generation_settings(generation_kwargs, defaults, self.tokenizer)
        start = context.shape[1] if self.backend == "causal" else 1
        with model_lock, torch.no_grad(), self.autocast():
            generated: Tensor = self._model.generate(
                input_ids=context,
                max_length=max_length,
                stopping_criteria=[StopStrings(self.tokenizer, stop, start)],
                logits_processor=[RaiseOnNaN(len(context))],
                **settings,
            )
        return generated


def _parse_dtype(name: Any) -> torch.dtype:
    """Returns the torch dtype called `name`.

    Raises `ConfigError` for an unknown name, and for "auto".
    """
    found = loading.read_dtype(name)
    if not isinstance(found, torch.dtype):
        raise ConfigError(
            "softmax_dtype and mixed_precision_dtype must be the name of a torch dtype, such as "
            f"bfloat16, float16 or float32, not {name!r}."
        )
    return found
