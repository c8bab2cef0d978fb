"""Helpers of trackers, under the names of the published harness."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from lm_eval.results.environment import describe_environment, describe_tokenizer, git_hash
from lm_eval.results.serialize import handle_non_serializable as _handle_non_serializable

__all__ = [
    "_handle_non_serializable",
    "add_env_info",
    "add_tokenizer_info",
    "get_commit_from_path",
    "get_git_commit_hash",
    "remove_none_pattern",
]

logger = logging.getLogger(__name__)

#: What the published function adds; `describe_environment` returns more.
_ENVIRONMENT = ("pretty_env_info", "transformers_version", "lm_eval_version", "upper_git_hash")


def remove_none_pattern(input_string: str) -> tuple[str, bool]:
    """Returns the name of a metric without `,none` at its end, and whether there was one."""
    short = input_string.removesuffix(",none")
    return short, short != input_string


def get_commit_from_path(repo_path: Path | str) -> str | None:
    """Returns the commit of a git repository; None if the folder is not in one."""
    folder = Path(repo_path)
    return git_hash(folder) if folder.is_dir() else None


def get_git_commit_hash() -> str | None:
    """Returns the commit of the repository in the working directory; None outside of one."""
    return git_hash()


def add_env_info(storage: dict[str, Any]) -> None:
    """Adds the description of the software environment to `storage`."""
    described = describe_environment()
    storage.update({name: described[name] for name in _ENVIRONMENT})


def add_tokenizer_info(storage: dict[str, Any], lm: Any) -> None:
    """Adds the special tokens and the context length of a model to `storage`.

    Adds nothing if the model has no tokenizer.
    """
    storage.update(describe_tokenizer(lm))
