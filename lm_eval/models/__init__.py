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

for _name, _target in MODEL_MAPPING.items():
    model_registry.register(_name, target=_target)

__all__ = ["MODEL_MAPPING", "PACKAGES"]
