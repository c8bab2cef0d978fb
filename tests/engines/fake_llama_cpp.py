"""A package `llama_cpp` with the embedded model behind the interface that the adapter uses.

The state of the model is that of llama.cpp: tokens in a cache, of which the last ones can be
removed (not those of a recurrent model), and the logits of the last batch.
"""

from __future__ import annotations

from itertools import takewhile
from types import ModuleType
from typing import Any

import numpy as np

from tests.engines.interface import INTERFACES, modules, pinned, pinned_class
from tests.served.fake_server import fake_model

TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n"
TEMPLATE += "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"


class Context:
    """The key-value cache.

    Attributes:
        tokens: what is in the cache.
        computed: how many tokens were computed.
    """

    def __init__(self, recurrent: bool, window: int | None) -> None:
        self.tokens: list[int] = []
        self.computed = 0
        self._recurrent, self._window = recurrent, window

    @pinned("llama_cpp._internals:LlamaContext.kv_cache_seq_rm")
    def kv_cache_seq_rm(self, seq_id: int, p0: int, p1: int) -> bool:
        if self._recurrent and 0 < p0 < len(self.tokens):
            return False
        is_cut = self._window is not None and p0 < len(self.tokens)
        lost = max(0, len(self.tokens) - self._window) if is_cut else 0
        del self.tokens[p0:]
        self.tokens[: min(lost, p0)] = [0] * min(lost, p0)
        return True


class Model:
    """The weights and the vocabulary."""

    @pinned("llama_cpp._internals:LlamaModel.add_bos_token")
    def add_bos_token(self) -> bool:
        return False


@pinned_class("llama_cpp:Llama")
class Llama:
    """A GGUF file.

    Attributes:
        recurrent: of the class: whether the state of the model cannot be cut.
        window: of the class: how many tokens the cache keeps with `swa_full=False`; None for all.
        asked: the settings of all calls of `create_completion`.
    """

    recurrent = False
    window: int | None = None
    trained_length = 1024

    def __init__(
        self, model_path: str, n_ctx: int = 512, logits_all: bool = False, **given: Any
    ) -> None:
        assert logits_all or given.get("vocab_only"), "the logits of the prompt are needed"
        window = self.window if given.get("swa_full") is False else None
        self._fake, self._model, self._ctx = fake_model(), Model(), Context(self.recurrent, window)
        self._n_ctx = n_ctx or self.trained_length
        self.n_tokens = 0
        self.input_ids = np.zeros(self._n_ctx, dtype=np.intc)
        self.scores = np.zeros((self._n_ctx, self._fake.vocabulary), dtype=np.single)
        self.metadata = {
            "general.architecture": "llama",
            "llama.context_length": str(self.trained_length),
            "tokenizer.chat_template": TEMPLATE,
        }
        if self.window is not None:
            self.metadata["llama.attention.sliding_window"] = str(self.window)
        self.asked: list[dict[str, Any]] = []
        self.given = given

    @pinned("llama_cpp:Llama.n_ctx")
    def n_ctx(self) -> int:
        return self._n_ctx

    @pinned("llama_cpp:Llama.token_bos")
    def token_bos(self) -> int:
        return self._fake.end

    @pinned("llama_cpp:Llama.token_eos")
    def token_eos(self) -> int:
        return self._fake.end

    @pinned("llama_cpp:Llama.tokenize")
    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        return [*([self._fake.end] if add_bos else []), *self._fake.encode(text.decode())]

    @pinned("llama_cpp:Llama.detokenize")
    def detokenize(
        self, tokens: list[int], prev_tokens: Any = None, special: bool = False
    ) -> bytes:
        return self._fake.decode(tokens, special=special).encode()

    @pinned("llama_cpp:Llama.reset")
    def reset(self) -> None:
        self.n_tokens = 0
        self._ctx.tokens.clear()

    @pinned("llama_cpp:Llama.eval")
    def eval(self, tokens: list[int]) -> None:
        self._ctx.kv_cache_seq_rm(-1, self.n_tokens, -1)
        start, end = self.n_tokens, self.n_tokens + len(tokens)
        assert end <= self._n_ctx, "llama_decode returned 1"
        self._ctx.tokens.extend(tokens)  # after what is really there
        self._ctx.computed += len(tokens)
        self.input_ids[start:end] = tokens
        self.scores[start:end] = self._fake.after(self._ctx.tokens)[-len(tokens) :]
        self.n_tokens = end
        self._last = self.scores[end - 1].copy()

    @pinned("llama_cpp:Llama.create_completion")
    def create_completion(
        self,
        prompt: list[int],
        max_tokens: int = 16,
        temperature: float = 0.8,
        stop: Any = (),
        seed: int | None = None,
        **settings: Any,
    ) -> Any:
        self.asked.append({"prompt": prompt, "stop": stop, "seed": seed, **settings})
        assert len(prompt) + max_tokens <= self._n_ctx
        known = self.input_ids[: self.n_tokens].tolist()
        # A prompt that is computed exactly is continued from the logits of the last batch.
        if known != prompt:
            pairs = zip(known, prompt, strict=False)
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            shared = min(shared, len(prompt) - 1)
            if shared and self._ctx.kv_cache_seq_rm(-1, shared, -1):
                self.n_tokens = shared
            else:
                self.reset()
            self.eval(prompt[self.n_tokens :])
        first = int(self._last.argmax())
        answer = self._fake.generate(prompt, max_tokens, temperature, seed, stop)
        assert temperature > 0 or answer.ended or answer.tokens[0] == first
        if "" in stop:  # llama-cpp-python finds it at once
            answer = self._fake.generate(prompt, 0)
        choice = {"text": answer.text, "index": 0, "finish_reason": answer.finish}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(answer.tokens)}
        return {"choices": [choice], "usage": usage}


class RecurrentLlama(Llama):
    """A model with recurrent layers."""

    recurrent = True


class WindowLlama(Llama):
    """A model with sliding-window attention."""

    window = 8


KINDS = {"": Llama, "recurrent": RecurrentLlama, "window": WindowLlama}


def package(kind: str = "") -> dict[str, ModuleType]:
    """Returns the modules of the package, with one of the kinds of model."""
    version = INTERFACES["llama_cpp"]["version"]
    return modules({"llama_cpp": {"__version__": version, "Llama": KINDS[kind]}})
