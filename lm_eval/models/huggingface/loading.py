"""Loads the model and its tokenizer; errors say what is wrong and what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES

from lm_eval.api.model import choose_template
from lm_eval.data import hub
from lm_eval.errors import ConfigError, ModelError, as_original_type
from lm_eval.models.context_length import configured_length, resolve_max_length, text_config
from lm_eval.models.huggingface.arguments import parse_integer


def choose_device(device: str | torch.device | None) -> torch.device:
    """Returns the torch device called `device`; if None, the best one available.

    That is CUDA, else MPS, else the CPU. Raises `ConfigError` for a name that torch does not know,
    and `ModelError` if the device is absent or cannot compute.
    """
    if device is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(
            f"torch does not know the device {device!r}; use cuda, cuda:1, cpu or mps, for example."
        ) from error
    if chosen.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            raise ModelError(
                f"cannot use device {str(device)!r}: torch finds no CUDA device on this machine. "
                "Remove --device, or use --device cpu."
            )
        if chosen.index is not None and chosen.index >= count:
            raise ModelError(
                f"cannot use device {str(device)!r}: torch finds only {count} CUDA device(s) on "
                "this machine, numbered from 0."
            )
    try:
        torch.zeros(1, device=chosen).item()
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"cannot use device {str(device)!r}: torch cannot compute there: {reason}"
        ) from error
    return chosen


def read_dtype(dtype: str | torch.dtype | None) -> str | torch.dtype:
    """Returns the torch dtype called `dtype`, or "auto", which means that of the stored weights.

    None means "auto". Raises `ConfigError` for a name that torch does not know.
    """
    if dtype is None or dtype == "auto":
        return "auto"
    if isinstance(dtype, torch.dtype):
        return dtype
    found = getattr(torch, str(dtype).removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise ConfigError(
            f"torch does not know the dtype {dtype!r}; use bfloat16, float16 or float32, for "
            "example."
        )
    return found


def load_or_explain(load: Callable[..., Any], kind: str, name: str, **options: Any) -> Any:
    """Returns `load(name, **options)`; raises a `ModelError` that explains why it failed.

    The error is also an instance of the original type, such as `OSError` for a missing folder. If
    the hub does not respond, huggingface_hub is restricted to its cache, so that it does not retry.

    Args:
        load: a `from_pretrained` function.
        kind: what is loaded ("model", "tokenizer" …), for the error message.
        name: a folder, or a name on the hub.
        **options: keyword arguments for `load`.
    """
    local = Path(name).exists() or is_local_path(name)
    hub_problem = None if local else hub.unreachable(hub.endpoint())
    try:
        with progress_bars_only_on_terminals(), offline() if hub_problem else nullcontext():
            return load(name, **options)
    except Exception as error:  # custom model code can raise anything
        raise as_original_type(loading_error(error, kind, name, hub_problem), error) from error


def is_local_path(name: str) -> bool:
    """Returns whether `name` has the form of a path and cannot be a name on the hub.

    That is so if it begins with ".", "/" or "~", or contains more than one "/".
    """
    return name.startswith((".", "/", "~")) or name.count("/") > 1


@contextmanager
def offline() -> Iterator[None]:
    """Restricts huggingface_hub to its local cache inside the `with` block.

    huggingface_hub reads the environment variable HF_HUB_OFFLINE once, when it is imported.
    Afterwards only its constant can be changed, which is restored at the end.
    """
    before = huggingface_hub.constants.HF_HUB_OFFLINE
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        huggingface_hub.constants.HF_HUB_OFFLINE = before


@contextmanager
def progress_bars_only_on_terminals() -> Iterator[None]:
    """Hides transformers' progress bars inside the `with` block unless stderr is a terminal."""
    bars = transformers.utils.logging
    hide = bars.is_progress_bar_enabled() and not sys.stderr.isatty()
    if hide:
        bars.disable_progress_bar()
    try:
        yield
    finally:
        if hide:
            bars.enable_progress_bar()


def loading_error(error: Exception, kind: str, name: str, hub_problem: str | None) -> ModelError:
    """Returns a `ModelError` that explains why something could not be loaded, and what to do.

    Args:
        error: the exception raised while loading.
        kind: what was loaded ("model", "tokenizer" …).
        name: the folder, or the name on the hub.
        hub_problem: why the hub cannot be reached; None if it can be.
    """
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if isinstance(error, ImportError):
        return ModelError(f"the {kind} {name!r} needs a package that is not installed: {reason}")
    if Path(name).is_dir():
        article = "an" if kind[0] in "aeiou" else "a"
        return ModelError(
            f"the folder {name} does not contain {article} {kind} that can be loaded: {reason}"
        )
    if is_local_path(name):
        return ModelError(f"cannot load the {kind} {name!r}: there is no such folder.")
    if isinstance(error, TypeError):
        return ModelError(f"cannot load the {kind} {name!r}: {reason}")
    if hub_problem or "couldn't connect" in str(error).lower():
        return ModelError(
            f"cannot find the {kind} {name!r}: there is no such folder, the local cache of the hub "
            f"does not contain it, and {hub_problem or 'the hub cannot be reached'}. Pass the path "
            "of a folder, or download it first."
        )
    return ModelError(
        f"the hub has no {kind} {name!r}, or you have no access to it. Check the name, the "
        f"revision and whether you are logged in. ({reason})"
    )


def load_config(name: str, **options: Any) -> Any:
    """Returns the configuration of the model `name`; raises `ModelError` if it cannot be loaded.

    `options` are arguments of `AutoConfig.from_pretrained`. A `gguf_file` among them must be in the
    folder `name`, if there is one.
    """
    file = options.get("gguf_file")
    if file and Path(name).is_dir() and not (Path(name) / file).is_file():
        raise ModelError(f"gguf_file={file}: there is no file {file} in the folder {name}.")
    return load_or_explain(transformers.AutoConfig.from_pretrained, "model", name, **options)


def is_encoder_decoder(config: Any) -> bool:
    """Returns whether the configuration belongs to an encoder-decoder model."""
    known = getattr(config, "model_type", None) in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    return known or bool(getattr(config, "is_encoder_decoder", False))


def load_model(
    auto_class: Any,
    name: str,
    *,
    device: torch.device,
    vocabulary: int,
    dtype: str | torch.dtype | None = "auto",
    parallelize: bool = False,
    device_map: Any = None,
    max_memory_per_gpu: int | str | None = None,
    max_cpu_memory: int | str | None = None,
    offload_folder: str = "./offload",
    peft: str | None = None,
    delta: str | None = None,
    **options: Any,
) -> Any:
    """Loads the weights and returns the model, on its devices and in evaluation mode.

    Raises `ModelError` if the weights, the adapter or the delta weights cannot be loaded, and
    `ConfigError` for an unknown dtype.

    Args:
        auto_class: the class whose `from_pretrained` loads the model.
        name: a folder, or a name on the hub.
        device: where the model is put, unless it is split over several devices.
        vocabulary: the number of tokens of the tokenizer, for adapters with added tokens.
        dtype: the dtype of the weights, see `read_dtype`.
        parallelize: whether accelerate distributes the layers over all devices.
        device_map: accelerate's device map; implies `parallelize`.
        max_memory_per_gpu: how much memory of each GPU accelerate may use.
        max_cpu_memory: how much main memory accelerate may use.
        offload_folder: where accelerate puts weights that do not fit into memory.
        peft: folder or name of a PEFT adapter to apply.
        delta: folder or name of a model whose weights are added to the model's.
        **options: keyword arguments for `from_pretrained`.
    """
    options = {**with_quantization_config(options), "dtype": read_dtype(dtype)}
    tensor_parallel = "distributed_config" in options or "tp_plan" in options
    if parallelize or device_map is not None:
        options["device_map"] = device_map or "auto"
        options["offload_folder"] = offload_folder
        if memory := max_memory_per_device(max_memory_per_gpu, max_cpu_memory):
            options["max_memory"] = memory
    elif options.get("quantization_config") is not None and not tensor_parallel:
        options["device_map"] = {"": str(device)}
    placed = "device_map" in options or tensor_parallel
    model = load_or_explain(auto_class.from_pretrained, "model", name, **options)
    if delta:
        _add_delta(model, auto_class, delta, {k: v for k, v in options.items() if k != "gguf_file"})
    if peft:
        model = _with_adapter(model, peft, options.get("revision"), vocabulary)
    if not placed:
        model = model.to(device)
    return model.eval()


def tensor_parallel_options(tp_plan: Any) -> dict[str, Any]:
    """Returns the `from_pretrained` options for the tensor parallel plan `tp_plan`; {} for None."""
    if tp_plan is None:
        return {}
    if hasattr(transformers, "DistributedConfig"):
        return {"distributed_config": transformers.DistributedConfig(tp_plan=tp_plan)}
    return {"tp_plan": tp_plan}  # transformers before 5.18


def with_quantization_config(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options with `load_in_4bit` and similar ones replaced by a `quantization_config`.

    transformers 5 no longer accepts them as separate options. They are dropped if neither
    `load_in_4bit` nor `load_in_8bit` is set.
    """
    names = {n for n in options if n.startswith(("load_in_", "bnb_4bit_", "llm_int8_"))}
    given = {name: options[name] for name in names}
    others = {name: value for name, value in options.items() if name not in names}
    if not any(given.get(n) for n in ("load_in_4bit", "load_in_8bit")):
        return others
    if "bnb_4bit_compute_dtype" in given:
        given["bnb_4bit_compute_dtype"] = read_dtype(given["bnb_4bit_compute_dtype"])
    return {**others, "quantization_config": transformers.BitsAndBytesConfig(**given)}


def max_memory_per_device(per_gpu: int | str | None, cpu: int | str | None) -> dict[Any, int | str]:
    """Returns accelerate's `max_memory`: the memory it may use, by GPU index and for "cpu".

    The limits are numbers of bytes or texts like "20GiB", and are passed on unchanged. None sets no
    limit, so the result is empty if both are None.
    """
    limits: dict[Any, int | str] = {}
    if per_gpu is not None:
        limits = dict.fromkeys(range(torch.cuda.device_count()), per_gpu)
    if cpu is not None:
        limits["cpu"] = cpu
    return limits


def _add_delta(model: Any, auto_class: Any, name: str, options: dict[str, Any]) -> None:
    """Adds the floating-point weights of the model `name` to those of `model`, in place.

    Raises `ModelError` if they cannot be loaded, or if one is missing or has another shape.
    `options` are arguments of `from_pretrained`.
    """
    other = load_or_explain(auto_class.from_pretrained, "set of delta weights", name, **options)
    differences = other.state_dict()
    for key, weight in model.state_dict().items():
        if key not in differences:
            raise ModelError(
                f"cannot apply the delta weights {name!r}: they have no weight {key}. They "
                "probably belong to another model."
            )
        if differences[key].shape != weight.shape:
            raise ModelError(
                f"cannot apply the delta weights {name!r}: their weight {key} has the shape "
                f"{tuple(differences[key].shape)}, that of the model {tuple(weight.shape)}. They "
                "probably belong to another model."
            )
        if weight.is_floating_point():
            weight.add_(differences[key].to(weight.device))


def _with_adapter(model: Any, name: str, revision: str | None, vocabulary: int) -> Any:
    """Returns the model with the PEFT adapter `name` applied.

    The model first gets as many embeddings as the tokenizer has tokens (`vocabulary`), if it has
    fewer. Raises `ModelError` if the package peft is not installed or the adapter cannot be loaded.
    """
    try:
        from peft import PeftModel
    except ImportError as error:
        raise ModelError("the argument peft=… needs the package peft: pip install peft.") from error
    if text_config(model.config).vocab_size < vocabulary:
        # Adapters trained with added tokens bring embeddings for them.
        model.resize_token_embeddings(vocabulary)
    return load_or_explain(
        partial(PeftModel.from_pretrained, model), "adapter", name, revision=revision
    )


def load_tokenizer(name: str, **options: Any) -> Any:
    """Returns the tokenizer `name`; raises `ModelError` if it cannot be loaded.

    `options` are arguments of `AutoTokenizer.from_pretrained`.
    """
    return load_or_explain(transformers.AutoTokenizer.from_pretrained, "tokenizer", name, **options)


def check_chat_template(tokenizer: Any, wanted: bool | str = True) -> None:
    """Raises `ModelError` if the tokenizer has no chat template.

    If `wanted` is a name and the tokenizer has several templates, there must be one of that name. A
    single template fits any name.
    """
    if not tokenizer.chat_template:
        raise ModelError(
            f"the tokenizer {tokenizer.name_or_path!r} has no chat template. Run without "
            "--apply_chat_template, or use a model with a chat template."
        )
    if isinstance(wanted, str) and isinstance(tokenizer.chat_template, Mapping):
        choose_template(tokenizer.chat_template, wanted)


def set_pad_token(tokenizer: Any, config: Any) -> None:
    """Gives the tokenizer a padding token if it has none.

    It is the token for unknown text, else the end-of-text token, else the `pad_token_id` of the
    configuration, else token 0. Padding is masked, so any token will do.

    Like the published class, it changes even a tokenizer that the user passed as an object:
    subclasses with their own loops pad with `self.tokenizer(texts, padding=True)`, which fails
    without a padding token.
    """
    if tokenizer.pad_token_id is not None:
        return
    for candidate in (tokenizer.unk_token, tokenizer.eos_token):
        if candidate is not None:
            tokenizer.pad_token = candidate
            return
    tokenizer.pad_token_id = getattr(text_config(config), "pad_token_id", None) or 0


def device_of(model: Any) -> torch.device:
    """Returns the device of a loaded model: its attribute `device`, or that of its first weight.

    It is the CPU if there is neither.
    """
    stated = getattr(model, "device", None)
    if stated is None and isinstance(model, torch.nn.Module):
        stated = next((p.device for p in model.parameters()), None)
    return torch.device(stated or "cpu")


def dtype_of(model: Any) -> torch.dtype:
    """Returns the dtype of a loaded model: its attribute `dtype`, or that of its weights.

    Of the weights, the first floating-point one counts; float32 if there is none.
    """
    stated = getattr(model, "dtype", None)
    if isinstance(stated, torch.dtype):
        return stated
    weights = model.parameters() if isinstance(model, torch.nn.Module) else ()
    floating = (p.dtype for p in weights if p.is_floating_point())
    return next(floating, torch.float32)


def embedding_rows(model: Any) -> int | None:
    """Returns the number of tokens the model has embeddings for; None if that is unknown."""
    if not isinstance(model, torch.nn.Module) or not hasattr(model, "get_input_embeddings"):
        return None
    rows = getattr(model.get_input_embeddings(), "num_embeddings", None)
    return None if rows is None else int(rows)


def check_prefix_token(prefix_token_id: Any, model: Any) -> int | None:
    """Returns the argument `prefix_token_id` as an integer; None if it was not given.

    Raises `ConfigError` if it is not an integer from 0 on, or not less than the model's number of
    embeddings (if that is known).
    """
    if prefix_token_id is None:
        return None
    token, rows = parse_integer("prefix_token_id", prefix_token_id, 0), embedding_rows(model)
    if rows is not None and token >= rows:
        raise ConfigError(
            f"prefix_token_id={token} is not a token of the model, which has {rows} embeddings, "
            "numbered from 0."
        )
    return token


def embedding_rows_if_too_few(tokenizer: Any, model: Any) -> int | None:
    """Returns the model's number of embeddings if the tokenizer has a token beyond them.

    Returns None if there is an embedding for every token, or if the number of embeddings is
    unknown.
    """
    rows = embedding_rows(model)
    top = max(tokenizer.get_vocab().values(), default=0)
    return None if rows is None or top < rows else rows


def check_vocabulary(tokenizer: Any, model: Any) -> None:
    """Raises `ModelError` if the tokenizer produces tokens for which the model has no embeddings.

    Added tokens without an embedding are common and do not count: they are harmless unless a text
    contains one, and then `TextEncoder` raises.
    """
    rows = embedding_rows_if_too_few(tokenizer, model)
    if rows is None:
        return
    top = max(tokenizer.get_vocab().values())
    if min(getattr(tokenizer, "vocab_size", top + 1), top + 1) > rows:
        raise ModelError(
            f"the tokenizer does not fit the model: {tokenizer.name_or_path!r} has tokens with "
            f"indices up to {top}, but the model has only {rows} embeddings. Pass the tokenizer "
            "that belongs to the model (tokenizer=…)."
        )


def choose_max_length(requested: int | None, config: Any, tokenizer: Any, default: int) -> int:
    """Returns the maximum number of tokens that the model reads at once.

    That is `requested` if given, else what `resolve_max_length` returns. Raises `ModelError` if
    `requested` is more than the configuration allows.
    """
    if requested is None:
        return resolve_max_length(config, tokenizer, default=default)
    limit = configured_length(config)
    if limit is not None and requested > limit:
        raise ModelError(
            f"max_length={requested} is more than the model can read: its configuration allows "
            f"at most {limit} tokens. Use max_length={limit} or less."
        )
    return requested
