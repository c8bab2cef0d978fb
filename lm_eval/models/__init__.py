"""The backends, by the names `--model` takes. Each is imported when it is first asked for."""

from __future__ import annotations

from lm_eval.api.registry import model_registry

MODEL_MAPPING = {
    "demo": "lm_eval.models.demo:DemoLM",
    "dummy": "lm_eval.models.dummy:DummyLM",
    "hf": "lm_eval.models.huggingface:HFLM",
    "hf-auto": "lm_eval.models.huggingface:HFLM",
    "huggingface": "lm_eval.models.huggingface:HFLM",
}

#: The packages that a backend cannot do without, looked for before anything is loaded.
PACKAGES = dict.fromkeys(("hf", "hf-auto", "huggingface"), ("torch", "transformers"))

_CHECKPOINTS = "`--model hf` runs the models of transformers, from the hub or a folder."
_GGUF = "`--model hf --model_args pretrained=FOLDER,gguf_file=NAME` reads GGUF files."
_OWN_CLASS = "A model class of your own can ask a server or another library (docs/models.md)."

#: Back ends of the published harness (0.4.13) that are not here yet, with what to use today.
NOT_YET = {
    "anthropic-chat": _OWN_CLASS,
    "anthropic-chat-completions": _OWN_CLASS,
    "anthropic-completions": _OWN_CLASS,
    "ggml": _GGUF,
    "gguf": _GGUF,
    "habana": _CHECKPOINTS,
    "hf-audiolm-qwen": _OWN_CLASS,
    "hf-mistral3": _CHECKPOINTS,
    "hf-multimodal": _OWN_CLASS,
    "ipex": _CHECKPOINTS,
    "litellm": _OWN_CLASS,
    "litellm-chat": _OWN_CLASS,
    "litellm-chat-completions": _OWN_CLASS,
    "local-chat-completions": _OWN_CLASS,
    "local-completions": _OWN_CLASS,
    "mamba_ssm": _CHECKPOINTS,
    "megatron_lm": _OWN_CLASS,
    "nemo_lm": _OWN_CLASS,
    "neuronx": _CHECKPOINTS,
    "onnxruntime": _OWN_CLASS,
    "onnxruntime-genai": _OWN_CLASS,
    "openai-chat-completions": _OWN_CLASS,
    "openai-completions": _OWN_CLASS,
    "openvino": _CHECKPOINTS,
    "sglang": _CHECKPOINTS,
    "sglang-generate": _OWN_CLASS,
    "steered": _OWN_CLASS,
    "textsynth": _OWN_CLASS,
    "trtllm": _CHECKPOINTS,
    "vllm": _CHECKPOINTS,
    "vllm-vlm": _OWN_CLASS,
    "watsonx_llm": _OWN_CLASS,
    "winml": _OWN_CLASS,
}

for _name, _target in MODEL_MAPPING.items():
    model_registry.register(_name, target=_target)
for _name, _advice in NOT_YET.items():
    model_registry.explain_missing(
        _name,
        f"the model {_name!r} of the published harness is not available here yet. {_advice} "
        "Available today: hf, demo, dummy, and model classes of your own.",
    )

__all__ = ["MODEL_MAPPING", "NOT_YET", "PACKAGES"]
