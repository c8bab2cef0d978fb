"""Prints the parts of an installed package that its adapter uses, as JSON.

Run with the Python of an environment that has the package:

    python tests/engines/read_interface.py vllm

`interfaces.json` has what it prints. SGLang cannot be installed without a GPU: its part was read
from the source.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from typing import Any

CALLED = {
    "vllm": (
        "vllm:LLM",
        "vllm:EngineArgs",
        "vllm:SamplingParams",
        "vllm.lora.request:LoRARequest",
        "vllm.v1.engine.llm_engine:LLMEngine.add_request",
        "vllm.v1.engine.llm_engine:LLMEngine.step",
        "vllm.v1.engine.llm_engine:LLMEngine.abort_request",
        "vllm.v1.engine.llm_engine:LLMEngine.get_metrics",
        "vllm.inputs:tokens_input",
        "vllm.platforms.interface:Platform.is_cpu",
        "vllm.outputs:RequestOutput",
        "vllm.outputs:CompletionOutput",
        "vllm.logprobs:Logprob",
    ),
    "llama_cpp": (
        "llama_cpp:Llama",
        "llama_cpp:Llama.create_completion",
        "llama_cpp:Llama.eval",
        "llama_cpp:Llama.reset",
        "llama_cpp:Llama.tokenize",
        "llama_cpp:Llama.detokenize",
        "llama_cpp:Llama.n_ctx",
        "llama_cpp:Llama.token_bos",
        "llama_cpp:Llama.token_eos",
        "llama_cpp._internals:LlamaContext.kv_cache_seq_rm",
        "llama_cpp._internals:LlamaModel.add_bos_token",
    ),
}
LISTS = {"vllm": ("vllm.model_executor.layers.quantization:QUANTIZATION_METHODS",), "llama_cpp": ()}


def find(location: str) -> Any:
    """Returns what `module:name.name` locates."""
    module, _, names = location.partition(":")
    found = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return found


def written(function: Any) -> str:
    """Returns a signature without types, with `...` for every default: `(a, b=..., *, c=...)`."""
    parts, starred = [], False
    for parameter in inspect.signature(function).parameters.values():
        name = parameter.name
        if parameter.kind is parameter.VAR_POSITIONAL:
            name, starred = f"*{name}", True
        elif parameter.kind is parameter.VAR_KEYWORD:
            name = f"**{name}"
        elif parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        has_default = parameter.default is not parameter.empty
        parts.append(f"{name}=..." if has_default else name)
    return f"({', '.join(parts)})"


def read(package: str) -> dict[str, Any]:
    """Returns the interface of an installed package."""
    return {
        "version": importlib.import_module(package).__version__,
        "signatures": {location: written(find(location)) for location in CALLED[package]},
        "lists": {location: list(find(location)) for location in LISTS[package]},
    }


if __name__ == "__main__":
    print(json.dumps(read(sys.argv[1])))
