"""What a run was made with: code, libraries, machine, tokenizer."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

from lm_eval import __version__

_LIBRARIES = ("numpy", "jinja2", "datasets", "tokenizers", "transformers", "torch")


def git_hash(folder: Path | None = None) -> str | None:
    """The commit checked out where the command was given; None outside a repository."""
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
    """A library's version without importing it."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe_environment() -> dict[str, Any]:
    """The keys of a results file that say where its numbers were made."""
    versions = {name: library_version(name) for name in _LIBRARIES}
    lines = [
        f"python: {platform.python_version()}",
        f"platform: {platform.platform()}",
        *(f"{name}: {version}" for name, version in versions.items() if version),
    ]
    return {
        "git_hash": git_hash(),
        "pretty_env_info": "\n".join(lines),
        "transformers_version": versions["transformers"] or "N/A",
        "lm_eval_version": __version__,
        "upper_git_hash": git_hash(Path.cwd().parent),
    }


def describe_tokenizer(lm: Any) -> dict[str, Any]:
    """The special tokens and window of a model that shows its tokenizer."""
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
