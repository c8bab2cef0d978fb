"""Arguments of vLLM that are checked, or derived from others, before it is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lm_eval.engine.workers.devices import device_subsets
from lm_eval.errors import ConfigError
from lm_eval.models.engines.arguments import as_integer

#: The bytes that the log-probabilities of a prompt may take while vLLM computes them.
SCORE_BYTES = 2 << 30


def prefill_limit(arguments: Mapping[str, Any]) -> dict[str, int]:
    """Returns the argument that limits how many tokens of one prompt are computed at a time.

    Unless it has the model runner V2, vLLM computes the log-probabilities of all of them for the
    whole vocabulary before it goes on: 7.5 GiB for 8192 tokens and a vocabulary of 152,000. On a
    CPU there is no limit: memory is not scarce, and vLLM cannot sample an answer to a prompt that
    it has computed in several parts.

    Args:
        arguments: those of `vllm.LLM`. One that is given there is not returned.
    """
    from vllm.platforms import current_platform

    name = "long_prefill_token_threshold"
    if name in arguments or current_platform.is_cpu():
        return {}
    from transformers import AutoConfig

    remote = {k: arguments[k] for k in ("revision", "trust_remote_code")}
    try:
        config = AutoConfig.from_pretrained(arguments["model"], **remote).get_text_config()
    except (OSError, ValueError):  # a format that only vLLM can read
        return {}
    # Logits and log-probabilities, both in 32 bits.
    limit = max(1, SCORE_BYTES // (8 * int(config.vocab_size)))
    length = arguments["max_model_len"] or getattr(config, "max_position_embeddings", None)
    return {name: limit} if length is not None and limit < length else {}


def check_copies(arguments: Mapping[str, Any]) -> None:
    """Raises `ConfigError` if the engines of a data-parallel run cannot be started."""
    count = as_integer("data_parallel_size", arguments.get("data_parallel_size", 1))
    if count < 1:
        raise ConfigError(f"data_parallel_size must be 1 or more, not {count}.")
    if count == 1:
        return
    if arguments.get("enable_expert_parallel"):
        raise ConfigError(
            "enable_expert_parallel needs one engine; the engines of data_parallel_size are "
            "independent. Use tensor_parallel_size instead."
        )
    devices = as_integer("tensor_parallel_size", arguments.get("tensor_parallel_size", 1))
    device_variables(count, devices)


def device_variables(count: int, devices: int) -> list[dict[str, str]]:
    """Returns the environment variables that give each of `count` engines its devices."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return [{} for _ in range(count)]
    return device_subsets(count, devices, current_platform.device_control_env_var)


def check_adapter(arguments: Mapping[str, Any]) -> None:
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
