"""What this installation can do, for code that runs with several versions: `capabilities`."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from types import MappingProxyType

from lm_eval._version import __version__
from lm_eval.models import MODEL_MAPPING, PACKAGES

PUBLISHED_VERSION = "0.4.13"
"""The version of the published harness whose task folders and model classes run unchanged."""

#: The features by name, each with the module (and the name in it) that provides it.
FEATURES = {
    "capabilities": "lm_eval.features:capabilities",
    "check_model": "lm_eval.models.contract.check:check_model",
    "code_tasks": "lm_eval.code_eval:pass_at_k",
    "confidence_intervals": "lm_eval.stats.intervals",
    "engines": "lm_eval.models.engines.base:EngineLM",
    "failures": "lm_eval.api.instance:Failure",
    "formats": "lm_eval.prompts.formats",
    "from_logits": "lm_eval.models:from_logits",
    "helpers": "lm_eval.helpers",
    "live_evaluation": "lm_eval.live:evaluate_live",
    "mirrors": "lm_eval.data.mirror",
    "model_locations": "lm_eval.models.location:location_of",
    "packs": "lm_eval.tasks.packs",
    "patched_methods": "lm_eval.models.huggingface.replaced_methods:replaced_methods",
    "plugins": "lm_eval.entry_points:plugin_entries",
    "reproduce": "lm_eval.cli.reproduce:execute",
    "resume": "lm_eval:resume",
    "score": "lm_eval:score",
    "scripted_model": "lm_eval.models.scripted:ScriptedLM",
    "served": "lm_eval.models.served.model:ServedLM",
    "stored_answers": "lm_eval.engine.store",
    "sweeps": "lm_eval.sweeps.sweep:run_sweep",
}


def capabilities() -> Mapping[str, bool | str]:
    """Returns what this installation can do, by name; imports nothing of it.

    A feature that this version has is True (`FEATURES` in this module lists them; docs/api.md
    explains them). `models.NAME` is whether the packages that a built-in model needs are installed.
    `version` and `published_version` are strings. Ask with `get`, since other versions have other
    features::

        if lm_eval.capabilities().get("from_logits"):
            ...

    The published package has no such function; code for both asks with
    `getattr(lm_eval, "capabilities", dict)().get(…)`.
    """
    found: dict[str, bool | str] = {
        "version": __version__,
        "published_version": PUBLISHED_VERSION,
        **{name: _exists(place.partition(":")[0]) for name, place in FEATURES.items()},
        **{f"models.{name}": _has_packages(name) for name in MODEL_MAPPING},
    }
    return MappingProxyType(found)


def _exists(module: str) -> bool:
    """Returns whether a module of this package can be found; imports only its parents."""
    return importlib.util.find_spec(module) is not None


def _has_packages(model: str) -> bool:
    """Returns whether the packages that a built-in model needs are installed."""
    return all(importlib.util.find_spec(package) is not None for package in PACKAGES.get(model, ()))
