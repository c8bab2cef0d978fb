"""The model classes by the names that `--model` accepts; each is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval._lazy import lazy_exports
from lm_eval.api.registry import model_registry

if TYPE_CHECKING:
    from lm_eval.models.logits_adapter.model import from_logits as from_logits

__getattr__, __dir__ = lazy_exports(
    __name__, {"from_logits": "lm_eval.models.logits_adapter.model"}
)

MODEL_MAPPING = {
    "anthropic-chat": "lm_eval.models.anthropic_llms:AnthropicChat",
    "anthropic-chat-completions": "lm_eval.models.anthropic_llms:AnthropicChat",
    "anthropic-completions": "lm_eval.models.anthropic_llms:AnthropicLM",
    "azure-openai-chat-completions": (
        "lm_eval.models.openai_completions:AzureOpenaiChatCompletionsLM"
    ),
    "demo": "lm_eval.models.demo:DemoLM",
    "dummy": "lm_eval.models.dummy:DummyLM",
    "gguf": "lm_eval.models.gguf:GGUFLM",
    "ggml": "lm_eval.models.gguf:GGUFLM",
    "hf": "lm_eval.models.huggingface:HFLM",
    "hf-auto": "lm_eval.models.huggingface:HFLM",
    "huggingface": "lm_eval.models.huggingface:HFLM",
    "llama-cpp": "lm_eval.models.llama_cpp_engine:LlamaCpp",
    "litellm": "lm_eval.models.litellm_llms:LiteLLMChatCompletion",
    "litellm-chat": "lm_eval.models.litellm_llms:LiteLLMChatCompletion",
    "litellm-chat-completions": "lm_eval.models.litellm_llms:LiteLLMChatCompletion",
    "local-chat-completions": "lm_eval.models.openai_completions:LocalChatCompletion",
    "local-completions": "lm_eval.models.openai_completions:LocalCompletionsAPI",
    "openai-chat-completions": "lm_eval.models.openai_completions:OpenAIChatCompletion",
    "openai-completions": "lm_eval.models.openai_completions:OpenAICompletionsAPI",
    "sglang": "lm_eval.models.sglang_causallms:SGLangLM",
    "sglang-generate": "lm_eval.models.sglang_generate_API:SGLANGGENERATEAPI",
    "vllm": "lm_eval.models.vllm_causallms:VLLM",
}

#: For each model name the packages that it needs; checked before anything is loaded.
PACKAGES = {
    **dict.fromkeys(("hf", "hf-auto", "huggingface"), ("torch", "transformers")),
    **dict.fromkeys(("litellm", "litellm-chat", "litellm-chat-completions"), ("litellm",)),
    "llama-cpp": ("llama_cpp",),
    "sglang": ("sglang",),
    "vllm": ("vllm",),
}

_CHECKPOINTS = "Use `--model hf`, which runs transformers models from the hub or a folder."
_SERVER = "Start its server and use `--model local-completions --model_args base_url=…,model=…`."
_CHAT_SERVER = (
    "Start a server that takes images, such as vLLM's, and use "
    "`--model local-chat-completions --model_args base_url=…,model=…`."
)
_HOOKS = (
    "Register forward hooks on a transformers model that steer it, and pass the model: "
    "`HFLM(pretrained=model, tokenizer=…)` (lm_eval.models.huggingface)."
)
_CUSTOM_CLASS = "A custom model class can call a server or another library (docs/extending.md)."

#: Models of the published harness (0.4.13) that are not available here yet, with an alternative.
NOT_YET = {
    "habana": _CHECKPOINTS,
    "hf-audiolm-qwen": _CUSTOM_CLASS,
    "hf-mistral3": _CHECKPOINTS,
    "hf-multimodal": _CHAT_SERVER,
    "ipex": _CHECKPOINTS,
    "mamba_ssm": _CHECKPOINTS,
    "megatron_lm": _CUSTOM_CLASS,
    "nemo_lm": _CUSTOM_CLASS,
    "neuronx": _CHECKPOINTS,
    "onnxruntime": _CUSTOM_CLASS,
    "onnxruntime-genai": _CUSTOM_CLASS,
    "openvino": _CHECKPOINTS,
    "steered": _HOOKS,
    "textsynth": _CUSTOM_CLASS,
    "trtllm": _SERVER,
    "vllm-vlm": _CHAT_SERVER,
    "watsonx_llm": _CUSTOM_CLASS,
    "winml": _CUSTOM_CLASS,
}

#: Names that a third-party class may take, because the published harness does not have them.
_REPLACEABLE = ("demo", "llama-cpp")

for _name, _target in MODEL_MAPPING.items():
    model_registry.register(_name, target=_target, replaceable=_name in _REPLACEABLE)
for _name, _advice in NOT_YET.items():
    model_registry.explain_missing(
        _name,
        f"the model {_name!r} of the published harness is not available here yet. {_advice} "
        f"Available models: {', '.join(sorted(MODEL_MAPPING))}, and custom model classes.",
    )

__all__ = ["MODEL_MAPPING", "NOT_YET", "PACKAGES", "from_logits"]
