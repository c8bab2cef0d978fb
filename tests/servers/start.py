"""Starts the servers that the tests and benchmarks use, each with a small model on the CPU."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lm_eval.models.demo.model import WEIGHTS
from tests.servers.environments import ROOT, python_of
from tests.servers.process import Server, free_port, running

HERE = Path(__file__).parent
CHAT_TEMPLATE = HERE / "chat_template.jinja"
CONTEXT = 256
"""The context length of the servers that let one choose it."""
NAME = "demo"
"""The name of the model on the servers that let one choose it."""


def write_demo(folder: Path) -> Path:
    """Copies the embedded model to a new folder and adds a chat template; returns the folder.

    Its tokenizer adds no BOS.
    """
    shutil.copytree(WEIGHTS, folder)
    shutil.copy(CHAT_TEMPLATE, folder)
    return folder


def write_bos(folder: Path) -> Path:
    """Writes the model of gguf_model.py, also as `model.gguf`; returns the folder.

    Its tokenizer adds a BOS.
    """
    subprocess.run([python_of("llama-cpp"), HERE / "gguf_model.py", folder], check=True)
    return folder


def write_thinking_bos(folder: Path) -> Path:
    """Writes the model of `write_bos` with the weights of a model that thinks for ever."""
    subprocess.run(
        [python_of("llama-cpp"), HERE / "gguf_model.py", folder, "thinks"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    return folder


def offline_variables(home: Path) -> dict[str, str]:
    """Returns environment variables that keep a server from the network; its hub cache is empty."""
    (home / "hub").mkdir()
    return {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(home),
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }


@contextmanager
def vllm(
    folder: Path,
    variables: dict[str, str],
    work: Path,
    context: int = CONTEXT,
    options: Sequence[str] = (),
) -> Iterator[Server]:
    """Runs vLLM with the model of a folder that `write_demo` made; `options` are added."""
    port = free_port()
    command = [
        *(python_of("vllm"), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", folder, "--served-model-name", NAME, "--dtype", "float32"),
        *("--max-model-len", str(context), "--enforce-eager"),
        *("--chat-template", folder / CHAT_TEMPLATE.name),
        *("--enable-prompt-tokens-details", "--host", "127.0.0.1", "--port", str(port)),
        *options,
    ]
    # Dynamo would compile the function that computes log-probabilities, which takes 20 seconds.
    own = {"VLLM_CPU_KVCACHE_SPACE": "1", "TORCHDYNAMO_DISABLE": "1"}
    with running(
        command, port=port, health="/health", work=work, variables={**variables, **own}
    ) as started:
        url, log = started
        yield Server(url, NAME, folder, log)


@contextmanager
def llama_cpp(
    folder: Path, variables: dict[str, str], work: Path, *options: str
) -> Iterator[Server]:
    """Runs llama-cpp-python's server with the model of a folder that `write_bos` made."""
    port = free_port()
    command = [
        *(python_of("llama-cpp"), "-m", "llama_cpp.server"),
        *("--model", folder / "model.gguf", "--model_alias", NAME, "--n_ctx", str(CONTEXT)),
        # A 32-bit key-value cache; with the default of 16 bits, log-probabilities are off by 0.01.
        *("--type_k", "0", "--type_v", "0", "--n_gpu_layers", "0"),
        *("--host", "127.0.0.1", "--port", str(port), *options),
    ]
    with running(
        command, port=port, health="/v1/models", work=work, variables=variables
    ) as started:
        url, log = started
        yield Server(url, NAME, folder, log)


@contextmanager
def transformers_serve(folder: Path, variables: dict[str, str], work: Path) -> Iterator[Server]:
    """Runs `transformers serve` with the model of a folder, which is called by its path."""
    port = free_port()
    command = [
        *(python_of("transformers-serve").with_name("transformers"), "serve", folder),
        *("--device", "cpu", "--dtype", "float32", "--host", "127.0.0.1", "--port", str(port)),
    ]
    with running(command, port=port, health="/health", work=work, variables=variables) as started:
        url, log = started
        yield Server(url, str(folder), folder, log)
