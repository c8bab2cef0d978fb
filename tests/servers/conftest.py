"""Real servers of small models, one process each, started when the first test asks for them.

The tests of this folder run only if LMEVAL_TEST_SERVERS is 1 (`make test-servers`), because the
environments of the servers take minutes and gigabytes to install.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import start
from tests.servers.process import Server

collect_ignore_glob = [] if os.environ.get("LMEVAL_TEST_SERVERS") == "1" else ["test_*.py"]

MakeFolder = pytest.TempPathFactory


@pytest.fixture(scope="session")
def demo_folder(tmp_path_factory: MakeFolder) -> Path:
    """Returns a copy of the embedded model with a chat template. Its tokenizer adds no BOS."""
    return start.write_demo(tmp_path_factory.mktemp("demo") / "demo")


@pytest.fixture(scope="session")
def bos_folder(tmp_path_factory: MakeFolder) -> Path:
    """Returns the model of gguf_model.py, also as `model.gguf`. Its tokenizer adds a BOS."""
    return start.write_bos(tmp_path_factory.mktemp("bos") / "bos")


@pytest.fixture(scope="session")
def offline(tmp_path_factory: MakeFolder) -> dict[str, str]:
    """Returns environment variables that keep a server from the network; its hub cache is empty."""
    return start.offline_variables(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def vllm_server(
    demo_folder: Path, offline: dict[str, str], tmp_path_factory: MakeFolder
) -> Iterator[Server]:
    """Runs vLLM with the embedded model, which is called `demo`."""
    with start.vllm(demo_folder, offline, tmp_path_factory.mktemp("vllm")) as server:
        yield server


@pytest.fixture(scope="session")
def llama_cpp_server(
    bos_folder: Path, offline: dict[str, str], tmp_path_factory: MakeFolder
) -> Iterator[Server]:
    """Runs llama-cpp-python's server with a model that adds a BOS to prompts."""
    with start.llama_cpp(bos_folder, offline, tmp_path_factory.mktemp("llama-cpp")) as server:
        yield server


@pytest.fixture(scope="session")
def llama_cpp_server_without_bos(
    bos_folder: Path, offline: dict[str, str], tmp_path_factory: MakeFolder
) -> Iterator[Server]:
    """Runs llama-cpp-python's server with the same model, told not to add the BOS."""
    work = tmp_path_factory.mktemp("llama-cpp-without-bos")
    option = ("--kv_overrides", "tokenizer.ggml.add_bos_token=bool:false")
    with start.llama_cpp(bos_folder, offline, work, *option) as server:
        yield server


@pytest.fixture(scope="session")
def transformers_server(
    demo_folder: Path, offline: dict[str, str], tmp_path_factory: MakeFolder
) -> Iterator[Server]:
    """Runs `transformers serve` with the embedded model, which is called by its path."""
    work = tmp_path_factory.mktemp("transformers")
    with start.transformers_serve(demo_folder, offline, work) as server:
        yield server


LogProbabilities = Callable[[Server, list[int]], Any]


@pytest.fixture(scope="session")
def log_probabilities() -> LogProbabilities:
    """Returns a function that asks transformers for log-probabilities, computed with 32 bits.

    Row i of its result is the distribution of the token after `ids[: i + 1]`.
    """
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    models: dict[Path, Any] = {}

    def compute(server: Server, ids: list[int]) -> Any:
        if server.folder not in models:
            models[server.folder] = transformers.AutoModelForCausalLM.from_pretrained(
                server.folder, dtype=torch.float32
            )
        with torch.no_grad():
            return models[server.folder](torch.tensor([ids])).logits[0].log_softmax(-1)

    return compute
