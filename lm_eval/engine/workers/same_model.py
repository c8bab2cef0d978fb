"""Checks that all workers hold the same model, and run the same software."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import platform

from lm_eval._version import __version__
from lm_eval.engine.workers.messages import ModelFacts
from lm_eval.errors import ModelError

logger = logging.getLogger(__name__)

#: Packages on which answers may depend. Their versions must be the same on all workers.
PACKAGES = ("numpy", "sglang", "tokenizers", "torch", "transformers", "vllm")


def installed_versions() -> dict[str, str]:
    """Returns the versions of Python, of lm_eval and of the `PACKAGES` that are installed."""
    found = {"lm_eval": __version__, "python": ".".join(platform.python_version_tuple()[:2])}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def check_driver(name: str, facts: ModelFacts) -> None:
    """Raises `ModelError` if a worker runs another version of lm_eval or Python than the driver.

    Other packages build no requests in the driver, so a difference in them only logs a warning.
    """
    ours, theirs = installed_versions(), dict(facts.packages)
    needed = {key: ours[key] for key in ("lm_eval", "python")}
    if different := _differences(needed, {key: theirs.get(key, "none") for key in needed}):
        raise ModelError(
            f"{name} on {facts.host} runs other software than the driver ({different}, in this "
            "order: driver, worker). Install the same versions on all machines, then run the same "
            "command again; stored answers are kept."
        )
    common = {key: value for key, value in ours.items() if key in theirs}
    if different := _differences(common, theirs):
        logger.warning(
            "%s on %s has other package versions than the driver: %s.", name, facts.host, different
        )


def check_same(first: ModelFacts, name: str, facts: ModelFacts) -> None:
    """Raises `ModelError` if a worker has another model or other packages than the first one.

    `name` is the worker, for the message. Its answers would not be comparable.
    """
    remedy = (
        "Give all machines the same files and packages, then run the same command again; stored "
        "answers are kept."
    )
    if facts.identity != first.identity:
        raise ModelError(
            f"{name} on {facts.host} has loaded another model than the first worker on "
            f"{first.host}{_differing_parts(first.identity, facts.identity)}. {remedy}"
        )
    if different := _differences(dict(first.packages), dict(facts.packages)):
        raise ModelError(
            f"{name} on {facts.host} has other package versions than the first worker on "
            f"{first.host} ({different}). {remedy}"
        )


def _differences(ours: dict[str, str], theirs: dict[str, str]) -> str:
    """Returns the packages whose versions differ: "torch 2.4 and 2.5"; empty if none does."""
    found = [
        f"{name} {ours.get(name, 'none')} and {theirs.get(name, 'none')}"
        for name in sorted({*ours, *theirs})
        if ours.get(name) != theirs.get(name) and name in ours
    ]
    return ", ".join(found)


def _differing_parts(one: str, two: str) -> str:
    """Returns which parts of two identities differ, in parentheses; empty if it is not known."""
    try:
        first, second = json.loads(one), json.loads(two)
        parts = [part for part in {**first, **second} if first.get(part) != second.get(part)]
    except (ValueError, TypeError, AttributeError):
        return ""
    return f" (different: {', '.join(parts)})"
