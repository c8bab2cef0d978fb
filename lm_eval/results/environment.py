"""Describes the environment of a run: git commit, library versions, hardware, tokenizer."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from lm_eval._version import __version__

_LIBRARIES = ("numpy", "jinja2", "datasets", "tokenizers", "transformers", "torch")


def git_hash(folder: Path | None = None) -> str | None:
    """Returns `git describe --always --dirty` of `folder`: a tag name or abbreviated commit.

    The suffix `-dirty` means that files are modified. `folder` defaults to the working directory.
    Returns None outside a git repository or if git cannot be run.
    """
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None


def library_version(name: str) -> str | None:
    """Returns the installed version of a package without importing it, or None if not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe_environment() -> dict[str, Any]:
    """Returns the fields of a results file that describe software versions, commit and hardware."""
    versions = {name: library_version(name) for name in _LIBRARIES}
    lines = [
        f"python: {platform.python_version()}",
        f"platform: {platform.platform()}",
        *(f"{name}: {version}" for name, version in versions.items() if version),
    ]
    return {
        "hardware": describe_hardware(),
        "libraries": {name: version for name, version in versions.items() if version},
        "git_hash": git_hash(),
        "pretty_env_info": "\n".join(lines),
        "transformers_version": versions["transformers"] or "N/A",
        "lm_eval_version": __version__,
        "upper_git_hash": git_hash(Path.cwd().parent),
    }


def describe_hardware() -> dict[str, Any]:
    """Returns architecture, processor, core count, memory in GiB, and GPU names.

    The keys are `machine`, `processor`, `cores`, `memory_gib` (missing where the system does not
    report it) and `accelerators` (missing without CUDA GPUs, or if torch is not imported yet).
    """
    described: dict[str, Any] = {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        described["memory_gib"] = round(memory / 2**30, 1)
    cuda = getattr(sys.modules.get("torch"), "cuda", None)  # importing torch takes seconds
    if cuda is not None and cuda.is_available():
        count = cuda.device_count()
        described["accelerators"] = [cuda.get_device_name(i) for i in range(count)]
    return described


def _processor() -> str:
    """Returns the model name of the processor, possibly an empty string.

    Reads /proc/cpuinfo, because on Linux `platform.processor()` returns only the architecture. On
    other systems, returns what that function returns.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        named = []
    return named[0] if named else platform.processor()


def describe_tokenizer(lm: Any) -> dict[str, Any]:
    """Returns the special tokens and the context length of a model, for the results file.

    `tokenizer_pad_token`, `tokenizer_eos_token` and `tokenizer_bos_token` are `[text, id as a
    string]`; `eot_token_id` and `max_length` are those of the model, or None. Empty if the model
    has no `tokenizer` attribute with an `eos_token`.
    """
    tokenizer = getattr(lm, "tokenizer", None)
    if tokenizer is None or not hasattr(tokenizer, "eos_token"):
        return {}
    tokens = {
        f"tokenizer_{kind}_token": [
            getattr(tokenizer, f"{kind}_token", None),
            str(getattr(tokenizer, f"{kind}_token_id", None)),
        ]
        for kind in ("pad", "eos", "bos")
    }
    return {
        **tokens,
        "eot_token_id": getattr(lm, "eot_token_id", None),
        "max_length": getattr(lm, "max_length", None),
    }
