"""Finds out how many tokens a model reads at once, from its configuration and its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lm_eval.defaults import DEFAULT_MAX_LENGTH

MAX_LENGTH_KEYS = ("n_positions", "max_position_embeddings", "n_ctx")
"""Configuration keys that contain the maximum length of a text, in the order they are looked up."""
UNLIMITED_LENGTH = 10**9
"""A tokenizer's `model_max_length` from here on means that its limit is unknown."""


def text_config(config: Any) -> Any:
    """Returns the configuration of the language model inside `config`, if that has several parts.

    Otherwise returns `config` itself.
    """
    read = getattr(config, "get_text_config", None)
    if read is not None:
        return read(decoder=True)
    return getattr(config, "text_config", None) or config


def configured_length(config: Any) -> int | None:
    """Returns the context length that a model's configuration states; None if it states none."""
    own = text_config(config)
    stated = (getattr(own, name, None) for name in MAX_LENGTH_KEYS)
    return next((int(length) for length in stated if length and length > 0), None)


def resolve_max_length(
    config: Any, tokenizer: Any = None, *, default: int = DEFAULT_MAX_LENGTH
) -> int:
    """Returns the context length that the configuration states, or else the tokenizer.

    Returns `default` if neither states one. Either may be None.
    """
    configured = configured_length(config)
    if configured is not None:
        return configured
    longest = getattr(tokenizer, "model_max_length", None)
    return int(longest) if longest and longest < UNLIMITED_LENGTH else default


def own_length(arguments: Mapping[str, Any]) -> int | None:
    """Returns the context length in `config.json` of the folder `pretrained`; None if not known.

    Also None for a model on the hub, if the configuration is overridden, and if it scales
    positions: another length is then computed from it.
    """
    if arguments.get("hf_overrides") or arguments.get("json_model_override_args"):
        return None
    try:
        file = Path(str(arguments.get("pretrained"))).expanduser() / "config.json"
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("model_max_length"):
        return None
    config = found.get("text_config", found)
    scaled = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not set(scaled) <= {"rope_theta", "rope_type", "partial_rotary_factor"}:
        return None
    length = config.get("max_position_embeddings")
    return length if isinstance(length, int) else None
