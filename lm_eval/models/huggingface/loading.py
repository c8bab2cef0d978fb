"""Loads model and tokenizer from arguments, with errors that name the mistake."""

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
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.huggingface.arguments import whole_number
from lm_eval.models.huggingface.network import text_config

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
    try:
        torch.zeros(1, device=chosen).item()
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"device {str(device)!r} was asked for, but torch cannot compute there: {reason}"
        ) from error
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


def loaded(load: Callable[..., Any], what: str, name: str, **options: Any) -> Any:
    """Returns what `load` makes of a folder or a name on the hub; failures become a `ModelError`.

    A hub that does not answer is not asked repeatedly; what the cache holds still loads.
    """
    local = Path(name).exists() or looks_local(name)
    away = None if local else hub.unreachable(hub.endpoint())
    try:
        with quietly(), offline() if away else nullcontext():
            return load(name, **options)
    except Exception as error:  # custom model code can raise anything
        raise explain(error, what, name, away) from error


def looks_local(name: str) -> bool:
    """Whether a name can only be meant as a path."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1


@contextmanager
def offline() -> Iterator[None]:
    """Restricts huggingface_hub to its cache inside the `with` block.

    It reads the environment variable once, when it is imported; its constant is the only switch
    after that, and is restored at the end.
    """
    before = huggingface_hub.constants.HF_HUB_OFFLINE
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        huggingface_hub.constants.HF_HUB_OFFLINE = before


@contextmanager
def quietly() -> Iterator[None]:
    """Show transformers' progress bars on a terminal only."""
    bars = transformers.utils.logging
    hide = bars.is_progress_bar_enabled() and not sys.stderr.isatty()
    if hide:
        bars.disable_progress_bar()
    try:
        yield
    finally:
        if hide:
            bars.enable_progress_bar()


def explain(error: Exception, what: str, name: str, away: str | None) -> ModelError:
    """Say why something could not be loaded, in the words of the person who asked for it."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if isinstance(error, ImportError):
        return ModelError(f"a package is missing that the {what} {name!r} needs: {reason}")
    if Path(name).is_dir():
        article = "an" if what[0] in "aeiou" else "a"
        return ModelError(f"the folder {name} does not hold {article} {what} that loads: {reason}")
    if looks_local(name):
        return ModelError(f"there is no {what} {name!r}: no such folder.")
    if isinstance(error, TypeError):
        return ModelError(f"the {what} {name!r} cannot be loaded: {reason}")
    if away or "couldn't connect" in str(error).lower():
        return ModelError(
            f"there is no {what} {name!r} here: no such folder, nothing of that name in the local "
            f"cache, and {away or 'the hub cannot be reached'}. Give the path of a folder, or "
            "download it first."
        )
    return ModelError(
        f"the hub has no {what} {name!r}, or not for you: check the name, the revision and "
        f"whether you are logged in. ({reason})"
    )


def load_config(name: str, **options: Any) -> Any:
    file = options.get("gguf_file")
    if file and Path(name).is_dir() and not (Path(name) / file).is_file():
        raise ModelError(f"gguf_file: there is no file {file} in the folder {name}.")
    return loaded(transformers.AutoConfig.from_pretrained, "model", name, **options)


def is_encoder_decoder(config: Any) -> bool:
    """Whether a model reads with an encoder and answers with a decoder."""
    known = getattr(config, "model_type", None) in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    return known or bool(getattr(config, "is_encoder_decoder", False))


def load_model(
    make: Any,
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
    """The weights, put where they belong, with an adapter or difference applied."""
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
    model = loaded(make.from_pretrained, "model", name, **options)
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
    other = loaded(make.from_pretrained, "set of delta weights", name, **options)
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
            weight.add_(differences[key].to(weight.device))


def _with_adapter(model: Any, name: str, revision: str | None, vocabulary: int) -> Any:
    try:
        from peft import PeftModel
    except ImportError as error:
        raise ModelError("peft=… needs the package peft: pip install peft.") from error
    if text_config(model.config).vocab_size < vocabulary:
        # Adapters trained with added tokens bring embeddings for them.
        model.resize_token_embeddings(vocabulary)
    return loaded(partial(PeftModel.from_pretrained, model), "adapter", name, revision=revision)


def load_tokenizer(name: str, **options: Any) -> Any:
    return loaded(transformers.AutoTokenizer.from_pretrained, "tokenizer", name, **options)


def check_chat_template(tokenizer: Any, wanted: bool | str = True) -> None:
    """Raises if the tokenizer has no chat template, or none of the name that is wanted."""
    if not tokenizer.chat_template:
        raise ModelError(
            f"the tokenizer {tokenizer.name_or_path!r} has no chat template; run without "
            "--apply_chat_template."
        )
    if isinstance(wanted, str) and isinstance(tokenizer.chat_template, Mapping):
        choose_template(tokenizer.chat_template, wanted)


def set_pad_token(tokenizer: Any, config: Any) -> None:
    """Gives the tokenizer a padding token if it has none; padding is masked, so any token will do.

    Even a tokenizer that the user passed as an object is changed, as the published class does it:
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
    """Where a live model is; a wrapper may not tell, but its weights do."""
    stated = getattr(model, "device", None)
    if stated is None and isinstance(model, torch.nn.Module):
        stated = next((p.device for p in model.parameters()), None)
    return torch.device(stated or "cpu")


def dtype_of(model: Any) -> torch.dtype:
    """The number format a model computes in; a wrapper may not tell, but its weights do."""
    stated = getattr(model, "dtype", None)
    if isinstance(stated, torch.dtype):
        return stated
    floating = (p.dtype for p in model.parameters() if p.is_floating_point())
    return next(floating, torch.float32)


def embedding_rows(model: Any) -> int | None:
    """How many tokens a model has embeddings for, where it tells."""
    if not isinstance(model, torch.nn.Module) or not hasattr(model, "get_input_embeddings"):
        return None
    rows = getattr(model.get_input_embeddings(), "num_embeddings", None)
    return None if rows is None else int(rows)


def prefix_token(asked: Any, model: Any) -> int | None:
    """The token that is to stand for an empty context, if the model has it."""
    if asked is None:
        return None
    token, rows = whole_number("prefix_token_id", asked, 0), embedding_rows(model)
    if rows is not None and token >= rows:
        raise ConfigError(
            f"prefix_token_id={token}: the model has {rows} embeddings, numbered from 0."
        )
    return token


def embeddings_short_of(tokenizer: Any, model: Any) -> int | None:
    """How many embeddings a model has, where its tokenizer makes more tokens than that."""
    rows = embedding_rows(model)
    top = max(tokenizer.get_vocab().values(), default=0)
    return None if rows is None or top < rows else rows


def check_vocabulary(tokenizer: Any, model: Any) -> None:
    """Refuse a tokenizer that makes tokens the model does not have.

    Added tokens past the end are common, and harmless unless a text holds one (`TextEncoder`).
    """
    rows = embeddings_short_of(tokenizer, model)
    if rows is None:
        return
    top = max(tokenizer.get_vocab().values())
    if min(getattr(tokenizer, "vocab_size", top + 1), top + 1) > rows:
        raise ModelError(
            f"tokenizer and model disagree: the tokenizer {tokenizer.name_or_path!r} makes token "
            f"numbers up to {top}, and the model has {rows} embeddings. Name the tokenizer that "
            "belongs to the model (tokenizer=…)."
        )


def longest_text(asked: int | None, config: Any, tokenizer: Any, default: int) -> int:
    """Most tokens the model reads: as asked, else as its configuration or tokenizer says."""
    own = text_config(config)
    stated = (getattr(own, name, None) for name in POSITIONS)
    limit = next((int(n) for n in stated if n and n > 0), None)
    if asked is not None:
        if limit is not None and asked > limit:
            raise ModelError(
                f"max_length={asked} is more than the model can read: its configuration says "
                f"{limit} tokens. Give at most that."
            )
        return asked
    if limit is not None:
        return limit
    longest = getattr(tokenizer, "model_max_length", None)
    return int(longest) if longest and longest < NO_LIMIT else default
