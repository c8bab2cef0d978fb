"""Tiny models of many architectures, with weights large enough that a wrong mask shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lm_eval.api.instance import Instance
from lm_eval.models.demo.model import WEIGHTS

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

VOCABULARY = 1024
LONGEST = 256
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": LONGEST,
}
GROUPED = {**SHAPE, "num_key_value_heads": 2}
GPT = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": LONGEST}

#: Class, configuration, settings, and whether prefixes can be shared.
ARCHITECTURES: dict[str, tuple[str, str, dict[str, Any], bool]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED, True),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT, True),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", SHAPE, True),
    "opt": (
        "OPTForCausalLM",
        "OPTConfig",
        {**SHAPE, "ffn_dim": 64, "word_embed_proj_dim": 32},
        True,
    ),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED, True),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**GROUPED, "head_dim": 8}, True),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**GROUPED, "head_dim": 8}, True),
    "gemma2": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        {**GROUPED, "head_dim": 8, "sliding_window": 16, "query_pre_attn_scalar": 8},
        True,
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        {**GROUPED, "head_dim": 8, "sliding_window": 16},
        True,
    ),
    "mistral-window": (
        "MistralForCausalLM",
        "MistralConfig",
        {**GROUPED, "sliding_window": 16},
        True,
    ),
    "phi": ("PhiForCausalLM", "PhiConfig", SHAPE, True),
    "bloom": (
        "BloomForCausalLM",
        "BloomConfig",
        {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4},
        False,
    ),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", {**GPT, "rotary_dim": 8}, False),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {**GROUPED, "num_local_experts": 4}, True),
    "granite": ("GraniteForCausalLM", "GraniteConfig", {**SHAPE, "logits_scaling": 8.0}, True),
    "mamba": (
        "MambaForCausalLM",
        "MambaConfig",
        {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
        False,
    ),
    "gpt-oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        {**GROUPED, "head_dim": 8, "num_local_experts": 4, "sliding_window": 16},
        True,
    ),
}
T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_ff": 64,
    "d_kv": 8,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}


def make_model(model: str, config: str, settings: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    made = getattr(transformers, model)(getattr(transformers, config)(**settings)).eval()
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if weight.dim() > 1:
                weight.mul_(4)
            elif name.endswith("sinks"):
                weight.normal_()
    return made


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets no start-up check, slow on a busy machine, decide for models of other tests."""
    from lm_eval.models.huggingface import remembered_checks

    monkeypatch.setattr(remembered_checks, "MIN_SECONDS", float("inf"))


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(WEIGHTS)


@pytest.fixture(scope="session")
def llama() -> Any:
    return make_model(*ARCHITECTURES["llama"][:3])


Make = Callable[..., Any]


@pytest.fixture
def make_lm(llama: Any, tokenizer: Any) -> Make:
    """Returns a function that wraps the tiny Llama in an `HFLM`."""
    from lm_eval.models.huggingface import HFLM

    def make(model: Any = llama, **options: Any) -> Any:
        options = {"tokenizer": tokenizer, "seed": 1234, **options}
        return HFLM(pretrained=model, **options)

    return make


def ask(kind: str, *arguments: Any, task: str = "a_task", number: int = 7) -> Instance:
    return Instance(kind, {}, arguments, 0, (task, number, 1))  # type: ignore[arg-type]
