"""Remembers the outcome of start-up checks that took long, in the user's cache folder.

An outcome depends on the model's code and shape, not on its weights. It is therefore found again by
a digest of the model's configuration, the shapes of its weights, the device, the number formats,
the versions of the libraries and our own code. Models with code that is not part of torch or
transformers are always checked.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lm_eval._version import __version__
from lm_eval.engine import plan
from lm_eval.folders import cache_folder
from lm_eval.models.huggingface import accelerated, onednn
from lm_eval.models.huggingface.attention import AttentionKernels
from lm_eval.models.huggingface.check import ExecutionModes
from lm_eval.models.huggingface.continuous_batching import Decoding
from lm_eval.models.huggingface.model_state import has_foreign_code

logger = logging.getLogger(__name__)

MIN_SECONDS = 1.0
"""Checks that took less time are not remembered."""
LIBRARIES = ("torch", "transformers", "triton", "kernels", "flash-attn")
"""The libraries whose versions matter."""
IGNORED_SETTINGS = ("_name_or_path", "transformers_version")
"""Names in a model's configuration that do not affect its computation."""


def check_key(model: Any, device: torch.device, settings: Mapping[str, Any]) -> str | None:
    """Returns the key under which the outcome of a model's check is stored.

    Returns None for models whose outcome cannot be remembered: third-party classes, and models with
    hooks or replaced forward functions.

    Args:
        model: the model.
        device: where it runs.
        settings: what else the outcome depends on, by name; values are compared as text.
    """
    config = getattr(model, "config", None)
    if not isinstance(model, nn.Module) or has_foreign_code(model) or config is None:
        return None
    stated = config.to_dict() if hasattr(config, "to_dict") else dict(config)
    weights = [(name, tuple(x.shape), str(x.dtype)) for name, x in model.named_parameters()]
    facts = {
        "config": {name: stated[name] for name in stated if name not in IGNORED_SETTINGS},
        "attention": str(getattr(config, "_attn_implementation", None)),
        "classes": sorted(
            {f"{type(m).__module__}.{type(m).__qualname__}" for m in model.modules()}
        ),
        "weights": weights,
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else "",
        "kernels": accelerated.can_compile(),
        "compiler": _c_compiler() if device.type == "cuda" else "",
        "precision": _matmul_precision(),
        "onednn": device.type == "cpu" and onednn.is_faster(),
        "settings": {name: str(value) for name, value in settings.items()},
        "versions": {name: _version_of(name) for name in LIBRARIES},
        "ours": [__version__, _own_code()],
    }
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def recall(key: str) -> tuple[ExecutionModes, bool] | None:
    """Returns the remembered outcome, and whether forwards are replaced; None without one."""
    try:
        stored = json.loads(_file(key).read_text(encoding="utf-8"))
        modes = dict(stored["modes"])
        modes["attention_kernels"] = AttentionKernels(*modes["attention_kernels"])
        if modes["decoding"] is not None:
            modes["decoding"] = Decoding(*modes["decoding"])
        return ExecutionModes(**modes), bool(stored["replaced"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        logger.debug("A remembered start-up check cannot be read: %s", error)
        return None


def remember(key: str, modes: ExecutionModes, replaced: bool, seconds: float) -> None:
    """Stores the outcome of a check that took so many seconds, if that is long enough."""
    if seconds < MIN_SECONDS:
        return
    stored = {
        "modes": {
            **asdict(modes),
            "attention_kernels": list(modes.attention_kernels),
            "decoding": None if modes.decoding is None else list(modes.decoding),
        },
        "replaced": replaced,
    }
    file = _file(key)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=file.parent, delete=False
        ) as new:
            json.dump(stored, new)
        Path(new.name).replace(file)
    except OSError as error:
        logger.debug("The outcome of the start-up check is not remembered: %s", error)


def _file(key: str) -> Path:
    return cache_folder() / "model_checks" / f"{key}.json"


def _version_of(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


def _c_compiler() -> str:
    """Returns the C compiler that Triton calls; empty without one, so that no kernel can be used.

    If one is installed later, the model is checked again.
    """
    return os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or ""


def _matmul_precision() -> list[str]:
    """Returns how float32 matrix products are computed: with TF32, fewer modes are exact.

    `torch.get_float32_matmul_precision` raises an error if the settings of torch 2.9 are used.
    """
    owners = (
        torch.backends,
        torch.backends.cuda.matmul,
        getattr(torch.backends.mkldnn, "matmul", None),
    )
    stated = [str(getattr(owner, "fp32_precision", "")) for owner in owners]
    return stated if any(stated) else [torch.get_float32_matmul_precision()]


@cache
def _own_code() -> str:
    """Returns a digest of the code that runs models: if it changes, models are checked again."""
    digest = hashlib.sha256()
    for file in [Path(plan.__file__), *sorted(Path(__file__).parent.rglob("*.py"))]:
        digest.update(file.read_bytes())
    return digest.hexdigest()
