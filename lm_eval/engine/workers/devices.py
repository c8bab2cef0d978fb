"""Divides the devices of this machine among processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from lm_eval.errors import ConfigError

#: The environment variable that limits the GPUs of a process.
GPUS_VARIABLE = "CUDA_VISIBLE_DEVICES"


def device_subsets(copies: int, each: int, variable: str) -> list[dict[str, str]]:
    """Returns for each copy of an engine the environment variable that gives it its devices.

    Args:
        copies: the number of engines.
        each: the number of devices of each.
        variable: the name of the variable. If it is set, its devices are divided.
    """
    given = os.environ.get(variable)
    names = given.split(",") if given else [str(number) for number in range(copies * each)]
    if len(names) < copies * each:
        raise ConfigError(
            f"{copies} engines with {each} device{'s' if each > 1 else ''} each need "
            f"{copies * each} devices; {variable}={given} has {len(names)}."
        )
    return [
        {variable: ",".join(names[number * each : (number + 1) * each])} for number in range(copies)
    ]


def visible_gpus() -> list[str]:
    """Returns the names of the GPUs that this process may use, without loading a driver for them.

    They are those of `CUDA_VISIBLE_DEVICES` or, if it is not set, those that `nvidia-smi` lists.
    """
    given = os.environ.get(GPUS_VARIABLE)
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip() not in ("", "-1")]
    program = shutil.which("nvidia-smi")
    if program is not None:
        try:
            listed = subprocess.run(
                [program, "-L"], capture_output=True, text=True, timeout=30, check=True
            ).stdout
            return [str(i) for i, _ in enumerate(re.findall(r"(?m)^GPU \d+", listed))]
        except (OSError, subprocess.SubprocessError):
            pass
    devices = [path for path in Path("/dev").glob("nvidia*") if re.search(r"\d$", path.name)]
    return [str(i) for i, _ in enumerate(devices)]


def usable_cpus() -> int:
    """Returns the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
