"""Restores the working directory of a run, which relative paths in model arguments refer to."""

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
def in_original_directory(
    directory: str | None,
    model_args: Mapping[str, Any],
    identity: Mapping[str, Any] | str | None,
) -> Iterator[None]:
    """Changes to the working directory of the original command inside the `with` block.

    If `directory` no longer exists, stays in the current one. If the model was given by a relative
    path, this logs a warning, or raises `OutputError` if the path does not exist here.

    Args:
        directory: the working directory of the original command. None for a run that was not made
            here: code could be imported from there.
        model_args: the model arguments of the run.
        identity: the recorded identity of the model, as JSON text or parsed. It lists the arguments
            that are paths of files.
    """
    if directory is None or not Path(directory).is_dir():
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
    directory: str | None,
    model_args: Mapping[str, Any],
    identity: Mapping[str, Any] | str | None,
) -> None:
    """Raises `OutputError` if a relative path in `model_args` does not exist here.

    Logs a warning if it exists, because it may be another model. `directory` is named in both.
    """
    reason = "this run was not made here"
    if directory is not None:
        reason = f"the directory {directory}, in which the run was started, no longer exists"
    for name, path in relative_paths(identity).items():
        if str(model_args.get(name)) != path:
            continue
        if not Path(path).exists():
            raise OutputError(
                f"the model was given by the relative path {name}={path}, and {reason}. Change to "
                f"the directory that contains {path} and run the command there."
            )
        logger.warning(
            "%s; %s=%s is read relative to %s instead.",
            reason[0].upper() + reason[1:],
            name,
            path,
            Path.cwd(),
        )


def relative_paths(identity: Mapping[str, Any] | str | None) -> dict[str, str]:
    """Returns the model arguments that are relative paths of files, by argument name.

    Empty if the `identity` is None or was written in an unknown format.
    """
    try:
        known = json.loads(identity) if isinstance(identity, str) else identity or {}
        arguments = {name: str(known["arguments"][name]) for name in known.get("files") or {}}
    except (ValueError, TypeError, KeyError, AttributeError):  # written by another version
        return {}
    return {n: path for n, path in arguments.items() if not Path(path).expanduser().is_absolute()}
