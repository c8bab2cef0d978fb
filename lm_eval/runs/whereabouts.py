"""Where a run was given: a model may be named by a path that is relative to that directory."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lm_eval.errors import OutputError

logger = logging.getLogger(__name__)


@contextmanager
def where_it_was_run(
    directory: str, model_args: Mapping[str, Any], identity: Mapping[str, Any] | str | None
) -> Iterator[None]:
    """Makes the directory in which a run was given the current one, for as long as this lasts.

    If the directory is gone, that matters only for a model whose files were named relative to it:
    the model's identity tells which arguments named files.
    """
    if not Path(directory).is_dir():
        _check_relative_paths(directory, model_args, identity)
        yield
        return
    before = Path.cwd()
    if before == Path(directory):
        yield
        return
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


def _check_relative_paths(
    directory: str, model_args: Mapping[str, Any], identity: Mapping[str, Any] | str | None
) -> None:
    """Raises if the model was named by a path that leads nowhere from the current directory."""
    for name, path in relative_paths(identity).items():
        if str(model_args.get(name)) != path:
            continue
        if not Path(path).exists():
            raise OutputError(
                f"the model was given as {name}={path}, seen from {directory}, and that folder is "
                f"not there any more. Go to the folder from which {path} is the model, and give "
                "the command there."
            )
        logger.warning(
            "%s, where the run was given, is not there any more: %s=%s is taken from %s.",
            directory,
            name,
            path,
            Path.cwd(),
        )


def relative_paths(identity: Mapping[str, Any] | str | None) -> dict[str, str]:
    """Returns the arguments of a model that named files by a relative path."""
    try:
        known = json.loads(identity) if isinstance(identity, str) else identity or {}
        arguments = {name: str(known["arguments"][name]) for name in known.get("files") or {}}
    except (ValueError, TypeError, KeyError, AttributeError):  # of another version's making
        return {}
    return {n: path for n, path in arguments.items() if not Path(path).expanduser().is_absolute()}
