"""Computes the identity of a model: a description of everything that could change its answers.

Stored answers are used again only for a model with the same identity: the same class, weights,
revision, tokenizer, precision and adapter. Settings that change only the speed are left out.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import sys
import uuid
from pathlib import Path
from typing import Any

from lm_eval.api.model import LM
from lm_eval.config.run import SPEED_ARGUMENTS, RunConfig
from lm_eval.engine.workers.remote_model import RemoteLM
from lm_eval.models.location import location_of, source_digest
from lm_eval.redaction import hide_secrets, without_secrets

logger = logging.getLogger(__name__)

#: The maximum number of files of a folder that are hashed, the largest first.
_MAX_FILES = 1000
#: How many values of each weight tensor of a loaded model are hashed.
_SAMPLED_VALUES = 64
#: Types of the attributes of a torch module that are hashed, such as the epsilon of a norm.
_HASHED_TYPES = (bool, int, float, str)
#: Files up to this size (bytes) are hashed completely.
_SMALL_FILE = 1 << 20
#: Of larger files this many blocks are hashed, including the first and the last. That is enough to
#: recognize other weights, because training changes weights everywhere.
_BLOCKS = 32
#: Size of a block in bytes.
_BLOCK_SIZE = 1 << 16


def model_identity(run: RunConfig, lm: LM) -> str:
    """Returns the identity of the model as one line of JSON.

    It contains the name and class of the model, its arguments except secrets and those that change
    only the speed, hashes of the files that the arguments name, and what the methods `identity` and
    `get_model_info` of the model return, if it has them. A model passed as an object has no
    arguments here; it is identified by what its method `answer_settings` returns, if it has one,
    and, without `identity`, by hashes of its weights and tokenizer. For a third-party class without
    `identity` that is given by name, a hash of its code is added (`source_digest`).
    """
    if isinstance(lm, RemoteLM):
        return lm.facts.identity
    own = lm.identity() if hasattr(lm, "identity") else None
    settings = None
    if not isinstance(run.model, str):
        settings = lm.answer_settings() if hasattr(lm, "answer_settings") else None
        own = _object_identity(lm) if own is None else own
    without_effect = SPEED_ARGUMENTS | set(getattr(lm, "speed_arguments", ()))
    given = {k: v for k, v in run.model_args.items() if k not in without_effect}
    arguments = without_secrets(given)
    located = location_of(run.model) is not None  # then the path does not matter, but the contents
    name = type(lm).__qualname__
    described = {
        "model": run.model if isinstance(run.model, str) and not located else None,
        "class": name if located else f"{type(lm).__module__}.{name}",
        "arguments": arguments,
        "files": {k: files for k, v in arguments.items() if (files := fingerprint(v)) is not None},
        "info": hide_secrets(lm.get_model_info()) if hasattr(lm, "get_model_info") else None,
        "own": hide_secrets(own),
    }
    if settings is not None:
        described["settings"] = hide_secrets(settings)
    if isinstance(run.model, str) and (source := source_digest(type(lm))) is not None:
        described["source"] = source  # an edited class may answer differently
    return json.dumps(described, sort_keys=True, default=str)


def _object_identity(lm: LM) -> dict[str, Any]:
    """Returns the identity of a model object without an `identity` method.

    The keys are `weights` and `tokenizer` (digests or None). Logs a warning if it has no weights
    that could be hashed.
    """
    weights = weights_digest(lm)
    if weights is None:
        logger.warning(
            "Stored answers are shared by all %s objects, because the harness cannot tell one "
            "from another. Use a separate cache file for each model, or add a method `identity` "
            "to the class that returns a dictionary of everything that affects its answers.",
            type(lm).__name__,
        )
    return {"weights": weights, "tokenizer": tokenizer_digest(lm)}


def weights_digest(lm: LM) -> str | None:
    """Returns a digest of the weights of `lm.model`; None if it is not a readable torch module.

    None also if it has no weights in memory. The digest covers the sum and a sample of each weight,
    the configuration, and the active adapters. It cannot cover what a forward hook or a replaced
    `forward` does: a model with these gets a new, random digest on each call.
    """
    module: Any = getattr(lm, "model", None)
    torch = sys.modules.get("torch")  # already imported if the model is a torch module
    if torch is None or not isinstance(module, torch.nn.Module):
        return None
    if any(map(_is_altered, module.modules())):
        return uuid.uuid4().hex
    digest, hashed = hashlib.sha256(), 0
    digest.update(str(getattr(module, "config", None)).encode())
    for part in module.modules():
        own = vars(part)
        simple = {name: own[name] for name in sorted(own) if type(own[name]) in _HASHED_TYPES}
        simple.pop("training", None)
        digest.update(f"{simple} {own.get('_active_adapter')}".encode())
    for name, weight in [*module.named_parameters(), *module.named_buffers()]:
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        if weight.is_meta:  # offloaded to disk or CPU, and loaded when needed
            continue
        step = _step(weight)
        try:
            flat = weight.detach().flatten()
            digest.update(str(flat[::step].tolist()).encode())
            if weight.is_floating_point():
                digest.update(str(flat.sum(dtype=torch.float64).item()).encode())
        except (RuntimeError, TypeError, ValueError) as error:  # for example packed formats
            logger.info(
                "The model is not identified by its weights: %s cannot be read: %s", name, error
            )
            return None
        hashed += len(flat)
    return digest.hexdigest() if hashed else None


def _is_altered(module: Any) -> bool:
    """Returns whether a module has hooks or a replaced `forward`, other than accelerate's."""
    own = vars(module)
    hooked = module._forward_hooks or module._forward_pre_hooks or "forward" in own
    return bool(hooked) and "_hf_hook" not in own


def _step(weight: Any) -> int:
    """Returns the distance between sampled values of a weight.

    It has no common factor with the width of the weight: otherwise the samples would all come from
    a few columns.
    """
    step = max(1, weight.numel() // _SAMPLED_VALUES)
    width = weight.shape[-1] if len(weight.shape) else 1
    while math.gcd(step, width) > 1:
        step += 1
    return int(step)


def tokenizer_digest(lm: LM) -> str | None:
    """Returns a digest of `lm.tokenizer`; its name if it cannot be hashed; None without one."""
    tokenizer: Any = getattr(lm, "tokenizer", None)
    if tokenizer is None:
        return None
    core = getattr(tokenizer, "backend_tokenizer", None)
    write = getattr(tokenizer, "get_vocab", None) if core is None else getattr(core, "to_str", None)
    if write is not None:
        try:
            return hashlib.sha256(str(write()).encode()).hexdigest()
        except Exception as error:  # third-party code; tokenizers itself raises plain `Exception`
            logger.info("The tokenizer cannot be hashed and is identified by its name: %s", error)
    return str(getattr(tokenizer, "name_or_path", None))


def fingerprint(path: Any) -> list[list[Any]] | None:
    """Returns the state of the file or folder at `path`; None if it cannot be read.

    The state is a sorted list with `[name, size, hash]` of each file, with the modification time as
    a fourth item for large files. Of a folder, only the `_MAX_FILES` largest files count, in all
    its subfolders. Also None if `path` does not exist, or is neither a string nor a `Path`.
    """
    if not isinstance(path, (str, Path)) or not str(path):
        return None
    try:
        root = Path(path).expanduser()
        if root.is_file():
            return [_file_state(root, root.name)]
        if not root.is_dir():
            return None
        files = [file for file in root.rglob("*") if file.is_file()]
        largest = sorted(files, key=lambda file: (-file.stat().st_size, file))[:_MAX_FILES]
        return sorted(_file_state(file, str(file.relative_to(root))) for file in largest)
    except OSError:
        return None


def _file_state(file: Path, name: str) -> list[Any]:
    """Returns `[name, size, hash]` of a file of at most `_SMALL_FILE` bytes.

    For a larger file, the hash covers only samples of it, and its modification time in nanoseconds
    is added.
    """
    status = file.stat()
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        if status.st_size <= _SMALL_FILE:
            digest.update(opened.read())
            return [name, status.st_size, digest.hexdigest()]
        last = status.st_size - _BLOCK_SIZE
        for part in range(_BLOCKS):
            opened.seek(last * part // (_BLOCKS - 1))
            digest.update(opened.read(_BLOCK_SIZE))
    return [name, status.st_size, digest.hexdigest(), status.st_mtime_ns]
