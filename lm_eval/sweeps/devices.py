"""The GPUs of this machine, and how many of them a model needs."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval.config.run import RunConfig
from lm_eval.models import PACKAGES

#: How much of a GPU's memory the weights may take; the rest is for activations and caches.
_SHARE_FOR_WEIGHTS = 0.8
#: A GPU counts as free if no more than this share of its memory is used.
_FREE_BELOW = 0.1
#: Beginnings of the names of files that a trainer writes beside the weights of a checkpoint.
_NO_WEIGHTS = ("optimizer", "scheduler", "scaler", "training_args", "rng_state", "random_states")
_WEIGHT_FILES = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
#: Model arguments whose product is the number of GPUs that an engine takes.
_ENGINE_SIZES = ("tensor_parallel_size", "data_parallel_size", "tp_size", "dp_size")
_TRANSFORMERS = ("hf", "hf-auto", "huggingface")


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Attributes:
        name: its identifier for `CUDA_VISIBLE_DEVICES`: a number, or `GPU-…`.
        memory: its memory in bytes.
        used: how many bytes of it are used.
    """

    name: str
    memory: int
    used: int

    @property
    def is_free(self) -> bool:
        """Whether hardly any of its memory is used."""
        return self.used <= _FREE_BELOW * self.memory


def visible_gpus(environment: Mapping[str, str] = os.environ) -> list[Gpu]:
    """Returns the GPUs that `nvidia-smi` lists and `CUDA_VISIBLE_DEVICES` allows; or none."""
    query = "--query-gpu=index,uuid,memory.total,memory.used"
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return read_gpus(done.stdout, environment.get("CUDA_VISIBLE_DEVICES"))


def read_gpus(listed: str, visible: str | None) -> list[Gpu]:
    """Returns the GPUs in the output of `nvidia-smi`, in the order of `visible` if it is given.

    `visible` is the value of `CUDA_VISIBLE_DEVICES`: numbers or beginnings of UUIDs. As in CUDA,
    the first name that does not exist ends the list.
    """
    found: list[tuple[str, Gpu]] = []
    for line in listed.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 4 and parts[2].isdigit() and parts[3].isdigit():
            index, uuid, total, used = parts
            found.append((uuid, Gpu(index, int(total) << 20, int(used) << 20)))
    if visible is None:
        return [gpu for _, gpu in found]
    chosen = []
    for name in (part.strip() for part in visible.split(",")):
        own = [g for uuid, g in found if name and (g.name == name or uuid.startswith(name))]
        if len(own) != 1:
            break
        chosen.append(Gpu(name, own[0].memory, own[0].used))
    return chosen


def needs_gpu(run: RunConfig) -> bool:
    """Returns whether the model of a run takes a GPU that the sweep may choose.

    Not if it runs on the CPU, behind a server or on a cluster, or if the user chose the device.
    """
    device = run.device or run.model_args.get("device")
    if device is not None and str(device) != "cuda":
        return False
    if getattr(run, "executor", None) not in (None, "in_process"):
        return False  # its workers choose their devices
    packages = PACKAGES.get(str(run.model), ())
    return bool({"torch", "vllm", "sglang"} & set(packages))


def weights_size(run: RunConfig) -> int | None:
    """Returns the size of the weights in bytes; None if they are not in a folder on this machine.

    Of weights in several formats, the largest counts.
    """
    pretrained = run.model_args.get("pretrained")
    folder = Path(os.path.expanduser(str(pretrained)))  # noqa: PTH111 - `~nobody` is no error
    if not isinstance(pretrained, str) or not folder.is_dir():
        folder = _cached(str(pretrained), run.model_args.get("revision")) or Path(os.devnull)
    sizes = [
        sum(
            file.stat().st_size
            for file in folder.glob(kind)
            if not file.name.startswith(_NO_WEIGHTS) and file.is_file()
        )
        for kind in _WEIGHT_FILES
    ]
    return max(sizes) or None


def _cached(name: str, revision: Any) -> Path | None:
    """Returns the folder of a model in the cache of the hub; None if it is not there."""
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(name, "config.json", revision=revision and str(revision))
    except (ImportError, ValueError, OSError):  # not the name of a repository
        return None
    return Path(found).parent if isinstance(found, str) else None


def gpus_needed(run: RunConfig, gpus: Sequence[Gpu]) -> int:
    """Returns how many of the GPUs a model needs; 0 for a model that needs none.

    An engine states it in its arguments. Otherwise, it is as many as its weights fill, at least 1
    and at most all.
    """
    if not gpus or not needs_gpu(run):
        return 0
    stated = [run.model_args.get(name) for name in _ENGINE_SIZES]
    wanted = math.prod(int(size) for size in stated if str(size).isdigit() and int(size) > 0)
    smallest = min(gpu.memory for gpu in gpus)
    filled = math.ceil((weights_size(run) or 0) / (_SHARE_FOR_WEIGHTS * smallest))
    return min(len(gpus), max(1, wanted, filled if wanted == 1 else 0))


def split_arguments(run: RunConfig, gpus: int) -> dict[str, Any]:
    """Returns the model arguments that split a transformers model over several GPUs.

    Empty for one GPU, for other models, and if the run states how it is split.
    """
    stated = {"parallelize", "device_map", "tp_plan"} & set(run.model_args)
    return {"parallelize": True} if gpus > 1 and run.model in _TRANSFORMERS and not stated else {}
