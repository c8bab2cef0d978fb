"""Which model gave an answer: everything about it that could change what it says.

Another backend, other weights, another revision, tokenizer, precision or adapter is another model,
and never gets this one's answers. What only changes how fast it answers is left out.
"""

from __future__ import annotations

import hashlib
import json
import logging
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
#: Of a file longer than this, so many blocks of so many bytes are read, first and last included:
#: weights that were trained on differ everywhere.
_SMALL, _BLOCKS, _BLOCK = 1 << 20, 32, 1 << 16


def model_identity(run: RunConfig, lm: LM) -> str:
    """The model's identity as one line of JSON."""
    own = lm.identity() if hasattr(lm, "identity") else None
    if own is not None and isinstance(run.model, str):
        # The run's seed, which belongs to drawn answers alone, or among the arguments.
        own = {name: value for name, value in own.items() if name != "seed"}
    if not isinstance(run.model, str) and own is None:
        own = {"weights": weights_of(getattr(lm, "model", None))}
        if own["weights"] is None:
            logger.warning(
                "Answers are kept for every %s object alike: nothing tells one from another. Use "
                "another file for another model, or give the class a method `identity` that "
                "returns a dictionary of what it is made of.",
                type(lm).__name__,
            )
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


def weights_of(module: Any) -> str | None:
    """What tells a live model's weights from others: some numbers of each, since training changes
    them all. None for what has none.
    """
    parameters = getattr(module, "named_parameters", None)
    if parameters is None:
        return None
    digest = hashlib.sha256()
    for name, weight in parameters():
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        if not weight.is_meta:  # else it lies elsewhere, and comes when it is needed
            flat = weight.detach().flatten()
            digest.update(str(flat[:: max(1, flat.numel() // _NUMBERS)].tolist()).encode())
    return digest.hexdigest()


def fingerprint(path: Any) -> list[list[Any]] | None:
    """What tells the files that an argument names from others; None where it names none."""
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
