"""Arguments to model and tokenizer, with the mistakes people make told plainly."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES

from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.huggingface.network import text_config

logger = logging.getLogger(__name__)

POSITIONS = ("n_positions", "max_position_embeddings", "n_ctx")
NO_LIMIT = 10**9
"""What some tokenizers call their longest text when they know none."""


def choose_device(device: str | torch.device | None) -> torch.device:
    """The device asked for, if it is there; without one, the best there is."""
    if device is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ConfigError(
            f"device {device!r} is none that torch knows: cuda, cuda:1, cpu, mps …"
        ) from error
    if chosen.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            raise ModelError(
                f"device {str(device)!r} was asked for, but torch finds no CUDA device here; "
                "leave --device out, or say --device cpu."
            )
        if chosen.index is not None and chosen.index >= count:
            raise ModelError(f"there is no {device}: torch finds {count} CUDA device(s) here.")
    if chosen.type == "mps" and not torch.backends.mps.is_available():
        raise ModelError("device 'mps' was asked for, but torch finds no such device here.")
    return chosen


def read_dtype(dtype: str | torch.dtype | None) -> str | torch.dtype:
    """A number format by name; "auto" is the one the weights are stored in."""
    if dtype is None or dtype == "auto":
        return "auto"
    if isinstance(dtype, torch.dtype):
        return dtype
    found = getattr(torch, str(dtype).removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise ConfigError(f"dtype {dtype!r} is none that torch knows: bfloat16, float16, float32 …")
    return found


def explain(error: Exception, what: str, name: str) -> ModelError:
    """Say why something could not be loaded, in the words of the person who asked for it."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    looks_local = name.startswith((".", "/", "~")) or name.count("/") > 1
    if Path(name).is_dir():
        return ModelError(f"the folder {name} does not hold a {what} that loads: {reason}")
    if looks_local:
        return ModelError(f"there is no {what} {name!r}: no such folder.")
    if isinstance(error, (ImportError, TypeError)):
        return ModelError(f"the {what} {name!r} cannot be loaded: {reason}")
    switches = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    offline = any(os.environ.get(switch, "0") not in ("", "0") for switch in switches)
    if offline or "couldn't connect" in str(error).lower():
        why = "is switched off (HF_HUB_OFFLINE)" if offline else "cannot be reached"
        return ModelError(
            f"there is no {what} {name!r} here: no such folder, nothing of that name in the local "
            f"cache, and the hub {why}. Give the path of a folder, or download it first."
        )
    return ModelError(
        f"the hub has no {what} {name!r}, or not for you: check the name, the revision and "
        f"whether you are logged in. ({reason})"
    )


def load_config(name: str, **options: Any) -> Any:
    try:
        return transformers.AutoConfig.from_pretrained(name, **options)
    except Exception as error:
        raise explain(error, "model", name) from error


def is_encoder_decoder(config: Any) -> bool:
    """Whether a model reads with an encoder and answers with a decoder."""
    known = getattr(config, "model_type", None) in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    return known or bool(getattr(config, "is_encoder_decoder", False))


def load_model(
    make: Any,
    name: str,
    *,
    device: torch.device,
    dtype: str | torch.dtype | None,
    parallelize: bool,
    device_map: Any,
    max_memory_per_gpu: int | str | None,
    max_cpu_memory: int | str | None,
    offload_folder: str,
    peft: str | None,
    delta: str | None,
    vocabulary: int,
    **options: Any,
) -> Any:
    """The weights, put where they belong, with an adapter or difference applied."""
    if peft and delta:
        raise ConfigError("peft and delta exclude each other: give one of them.")
    options = {**quantised(options), "dtype": read_dtype(dtype)}
    tensor_parallel = "distributed_config" in options or "tp_plan" in options
    if parallelize or device_map is not None:
        options["device_map"] = device_map or "auto"
        options["offload_folder"] = offload_folder
        if memory := memory_map(max_memory_per_gpu, max_cpu_memory):
            options["max_memory"] = memory
    elif options.get("quantization_config") is not None and not tensor_parallel:
        options["device_map"] = {"": str(device)}
    placed = "device_map" in options or tensor_parallel
    try:
        model = make.from_pretrained(name, **options)
    except Exception as error:
        raise explain(error, "model", name) from error
    if delta:
        _add_delta(model, make, delta, {k: v for k, v in options.items() if k != "gguf_file"})
    if peft:
        model = _with_adapter(model, peft, options.get("revision"), vocabulary)
    if not placed:
        model = model.to(device)
    return model.eval()


def split_by(tp_plan: Any) -> dict[str, Any]:
    """The plan by which several processes hold parts of one model, as transformers wants it."""
    if tp_plan is None:
        return {}
    if hasattr(transformers, "DistributedConfig"):
        return {"distributed_config": transformers.DistributedConfig(tp_plan=tp_plan)}
    return {"tp_plan": tp_plan}  # transformers before 5.18


def quantised(options: dict[str, Any]) -> dict[str, Any]:
    """The options with `load_in_4bit` and its kin as the settings object transformers 5 wants."""
    names = {n for n in options if n.startswith(("load_in_", "bnb_4bit_", "llm_int8_"))}
    given = {name: options[name] for name in names}
    others = {name: value for name, value in options.items() if name not in names}
    if not any(given.get(n) for n in ("load_in_4bit", "load_in_8bit")):
        return others
    if "bnb_4bit_compute_dtype" in given:
        given["bnb_4bit_compute_dtype"] = read_dtype(given["bnb_4bit_compute_dtype"])
    return {**others, "quantization_config": transformers.BitsAndBytesConfig(**given)}


def memory_map(per_gpu: int | str | None, cpu: int | str | None) -> dict[Any, int | str]:
    """How much accelerate may use of each device."""
    limits: dict[Any, int | str] = {}
    if per_gpu is not None:
        limits = dict.fromkeys(range(torch.cuda.device_count()), per_gpu)
    if cpu is not None:
        limits["cpu"] = cpu
    return limits


def _add_delta(model: Any, make: Any, name: str, options: dict[str, Any]) -> None:
    try:
        other = make.from_pretrained(name, **options)
    except Exception as error:
        raise explain(error, "set of delta weights", name) from error
    differences = other.state_dict()
    for key, weight in model.state_dict().items():
        if key not in differences:
            raise ModelError(
                f"the delta weights {name!r} have no {key}; they belong to another model."
            )
        if differences[key].shape != weight.shape:
            raise ModelError(
                f"the delta weights {name!r} have {key} of shape {tuple(differences[key].shape)}, "
                f"the model {tuple(weight.shape)}; they belong to another model."
            )
        if weight.is_floating_point():
            weight.data += differences[key].to(weight.device)


def _with_adapter(model: Any, name: str, revision: str | None, vocabulary: int) -> Any:
    try:
        from peft import PeftModel
    except ImportError as error:
        raise ModelError("peft=… needs the package peft: pip install peft.") from error
    if text_config(model.config).vocab_size < vocabulary:
        # Adapters trained with added tokens bring embeddings for them.
        model.resize_token_embeddings(vocabulary)
    try:
        return PeftModel.from_pretrained(model, name, revision=revision)
    except Exception as error:
        raise explain(error, "adapter", name) from error


def load_tokenizer(name: str, **options: Any) -> Any:
    try:
        return transformers.AutoTokenizer.from_pretrained(name, **options)
    except Exception as error:
        raise explain(error, "tokenizer", name) from error


def set_pad_token(tokenizer: Any, config: Any) -> None:
    """Some token to fill rows up with; it is never looked at."""
    if tokenizer.pad_token_id is not None:
        return
    for candidate in (tokenizer.unk_token, tokenizer.eos_token):
        if candidate is not None:
            tokenizer.pad_token = candidate
            return
    tokenizer.pad_token_id = getattr(text_config(config), "pad_token_id", None) or 0


def check_vocabulary(tokenizer: Any, model: Any) -> None:
    """Refuse a tokenizer that makes tokens the model does not have."""
    embeddings = model.get_input_embeddings()
    rows = getattr(embeddings, "num_embeddings", None)
    if rows is None:
        return
    top = max(tokenizer.get_vocab().values(), default=0)
    # Added tokens past the end are common and harmless unless a text uses them.
    base = getattr(tokenizer, "vocab_size", top + 1)
    if min(base, top + 1) > rows:
        raise ModelError(
            f"tokenizer and model disagree: the tokenizer {tokenizer.name_or_path!r} makes token "
            f"numbers up to {top}, and the model has {rows} embeddings. Name the tokenizer that "
            "belongs to the model (tokenizer=…)."
        )


def longest_text(asked: int | None, config: Any, tokenizer: Any, default: int) -> int:
    """Most tokens the model reads: as asked, else as its configuration or tokenizer says."""
    own = text_config(config)
    limit = next((int(v) for n in POSITIONS if (v := getattr(own, n, None))), None)
    if asked is not None:
        if limit is not None and asked > limit:
            raise ModelError(
                f"max_length={asked} is more than the model can read: its configuration says "
                f"{limit} tokens. Give at most that."
            )
        return asked
    if limit is not None:
        return limit
    stated = getattr(tokenizer, "model_max_length", None)
    return int(stated) if stated and stated < NO_LIMIT else default
