"""Engines that are not installed: fake packages with the embedded model behind them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lm_eval.engine.threads import numpy_on_one_thread
from lm_eval.models import llama_cpp_engine, sglang_causallms, vllm_causallms
from lm_eval.models.demo.model import WEIGHTS
from lm_eval.models.engines import base
from lm_eval.models.engines.base import EngineLM, OnlyEngine
from lm_eval.models.llama_cpp_engine import LlamaCpp
from lm_eval.models.sglang_causallms import SGLangLM
from lm_eval.models.vllm_causallms import VLLM
from tests.engines import fake_llama_cpp, fake_sglang, fake_vllm

CONTEXT = 256
CLASSES: dict[str, Any] = {"vllm": VLLM, "llama-cpp": LlamaCpp, "sglang": SGLangLM}
PACKAGES = {
    "vllm": fake_vllm.package,
    "llama-cpp": fake_llama_cpp.package,
    "sglang": fake_sglang.package,
}

Create = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> OnlyEngine:
    """Makes the process appear as one that runs no engine."""
    only = OnlyEngine()
    for module in (base, vllm_causallms, llama_cpp_engine, sglang_causallms):
        monkeypatch.setattr(module, "ONLY_ENGINE", only)
    return only


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Keeps numpy to one thread: several are much slower on a busy machine."""
    with numpy_on_one_thread():
        yield


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    """Returns a file that begins as GGUF files do."""
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + bytes(20))
    return file


def install(monkeypatch: pytest.MonkeyPatch, engine: str, **settings: Any) -> None:
    """Makes the fake package of an engine importable."""
    for name, module in PACKAGES[engine](**settings).items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def create(monkeypatch: pytest.MonkeyPatch, fresh_process: OnlyEngine, gguf: Path) -> Create:
    """Returns a function that creates the model of an engine; several in one process are fine."""

    def make(engine: str, fake: dict[str, Any] | None = None, **arguments: Any) -> EngineLM:
        install(monkeypatch, engine, **(fake or {}))
        fresh_process.__init__()  # type: ignore[misc]
        model = str(gguf) if engine == "llama-cpp" else str(WEIGHTS)
        length = "n_ctx" if engine == "llama-cpp" else "max_model_len"
        given = {"pretrained": model, length: CONTEXT, **arguments}
        lm: EngineLM = CLASSES[engine](**given)
        return lm

    return make
