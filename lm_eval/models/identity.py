"""The identity of a model: everything that could change its answers.

Another backend, other weights, another revision, tokenizer, precision or adapter is another model,
and never gets this one's stored answers. Settings that only change the speed are left out.
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
from lm_eval.config.run import SECRETS, RunConfig

logger = logging.getLogger(__name__)

#: Arguments that change the speed and not the answer.
_SPEED = {
    "batch_size",
    "max_batch_size",
    "device",
    "parallelize",
    "max_memory_per_gpu",
    "max_cpu_memory",
    "offload_folder",
    "num_concurrent",
    "max_retries",
    "timeout",
    "prefix_sharing",
}
#: Of a folder's many files, so many are looked at, the largest first.
_MOST_FILES = 1000
#: Of each of a live model's weights, so many numbers are looked at.
_NUMBERS = 64
#: A module's own settings, such as a norm's epsilon, are of these types.
_SIMPLE = (bool, int, float, str)
#: Of a file longer than this, so many blocks of so many bytes are read, first and last included:
#: weights that were trained on differ everywhere.
_SMALL, _BLOCKS, _BLOCK = 1 << 20, 32, 1 << 16


def model_identity(run: RunConfig, lm: LM) -> str:
    """The model's identity as one line of JSON."""
    own = lm.identity() if hasattr(lm, "identity") else None
    if own is None and not isinstance(run.model, str):
        own = _of_object(lm)
    arguments = {k: v for k, v in run.model_args.items() if k not in _SPEED | SECRETS}
    described = {
        "model": run.model if isinstance(run.model, str) else None,
        "class": f"{type(lm).__module__}.{type(lm).__qualname__}",
        "arguments": arguments,
        "files": {k: files for k, v in arguments.items() if (files := fingerprint(v)) is not None},
        "info": lm.get_model_info() if hasattr(lm, "get_model_info") else None,
        "own": own,
    }
    return json.dumps(described, sort_keys=True, default=str)


def _of_object(lm: LM) -> dict[str, Any]:
    """What can be told of a model that somebody made and that does not tell it itself."""
    weights = weights_of(lm)
    if weights is None:
        logger.warning(
            "Answers are kept for every %s object alike: nothing tells one from another. Use "
            "another file for another model, or give the class a method `identity` that "
            "returns a dictionary of what it is made of.",
            type(lm).__name__,
        )
    settings = lm.answer_settings() if hasattr(lm, "answer_settings") else None
    return {"weights": weights, "settings": settings, "tokenizer": tokenizer_of(lm)}


def weights_of(lm: LM) -> str | None:
    """Returns a digest that tells a live torch model from others; None where there is none.

    It covers the sum and a sample of each weight, the configuration, and the active adapters. It
    cannot cover what a hook or a replaced function does: such a model gets a new digest each time.
    """
    module: Any = getattr(lm, "model", None)
    torch = sys.modules.get("torch")  # loaded already, if the model is one of its modules
    if torch is None or not isinstance(module, torch.nn.Module):
        return None
    if any(map(_is_altered, module.modules())):
        return uuid.uuid4().hex
    digest, looked_at = hashlib.sha256(), 0
    digest.update(str(getattr(module, "config", None)).encode())
    for part in module.modules():
        own = vars(part)
        simple = {name: own[name] for name in sorted(own) if type(own[name]) in _SIMPLE}
        simple.pop("training", None)
        digest.update(f"{simple} {own.get('_active_adapter')}".encode())
    for name, weight in [*module.named_parameters(), *module.named_buffers()]:
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        if weight.is_meta:  # offloaded: it is loaded when it is needed
            continue
        step = _step(weight)
        try:
            flat = weight.detach().flatten()
            digest.update(str(flat[::step].tolist()).encode())
            if weight.is_floating_point():
                digest.update(str(flat.sum(dtype=torch.float64).item()).encode())
        except (RuntimeError, TypeError, ValueError) as error:  # as torch refuses packed formats
            logger.info("The numbers of the weight %s cannot be read: %s", name, error)
            return None
        looked_at += len(flat)
    return digest.hexdigest() if looked_at else None


def _is_altered(module: Any) -> bool:
    """Whether a module has hooks or a replaced forward, other than accelerate's."""
    own = vars(module)
    hooked = module._forward_hooks or module._forward_pre_hooks or "forward" in own
    return bool(hooked) and "_hf_hook" not in own


def _step(weight: Any) -> int:
    """Returns the step between sampled numbers, such that they do not all fall into one column."""
    step = max(1, weight.numel() // _NUMBERS)
    width = weight.shape[-1] if len(weight.shape) else 1
    while math.gcd(step, width) > 1:
        step += 1
    return int(step)


def tokenizer_of(lm: LM) -> str | None:
    """Returns a digest that tells a live tokenizer from others; its name if that is all it has."""
    tokenizer: Any = getattr(lm, "tokenizer", None)
    if tokenizer is None:
        return None
    core = getattr(tokenizer, "backend_tokenizer", None)
    write = getattr(tokenizer, "get_vocab", None) if core is None else getattr(core, "to_str", None)
    if write is not None:
        try:
            return hashlib.sha256(str(write()).encode()).hexdigest()
        except Exception as error:  # third-party code; tokenizers itself raises plain `Exception`
            logger.info("The tokenizer is known by its name alone: %s", error)
    return str(getattr(tokenizer, "name_or_path", None))


def fingerprint(path: Any) -> list[list[Any]] | None:
    """Returns the state of the files that an argument names; None where it names none."""
    if not isinstance(path, (str, Path)) or not str(path):
        return None
    try:
        root = Path(path).expanduser()
        if root.is_file():
            return [_state(root, root.name)]
        if not root.is_dir():
            return None
        files = [file for file in root.rglob("*") if file.is_file()]
        largest = sorted(files, key=lambda file: (-file.stat().st_size, file))[:_MOST_FILES]
        return sorted(_state(file, str(file.relative_to(root))) for file in largest)
    except OSError:
        return None


def _state(file: Path, name: str) -> list[Any]:
    """A file's name, size and contents; of a large one a sample, and then its time beside it."""
    status = file.stat()
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        if status.st_size <= _SMALL:
            digest.update(opened.read())
            return [name, status.st_size, digest.hexdigest()]
        last = status.st_size - _BLOCK
        for part in range(_BLOCKS):
            opened.seek(last * part // (_BLOCKS - 1))
            digest.update(opened.read(_BLOCK))
    return [name, status.st_size, digest.hexdigest(), status.st_mtime_ns]
