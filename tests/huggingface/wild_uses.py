"""The shapes in which public projects use `HFLM`, written with names that both packages have.

Each function stands for a kind of project. It gets a tiny Llama and its tokenizer, and returns the
model to ask. The file runs under the published package as well:

    python tests/huggingface/wild_uses.py lm_eval/models/demo/weights > \
        tests/huggingface/wild_uses_published.json

with an interpreter that has `lm-eval==0.4.13` writes what that answers; the tests compare ours.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterator
from types import MethodType, SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM, CacheHook, TemplateLM
from lm_eval.models.huggingface import HFLM

SHAPE = {
    "vocab_size": 1024,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
PAIRS = [
    ("Tom has", " three"),
    ("Tom has", " four apples"),
    ("A red hat and", " a blue one"),
    ("", "Once upon a time"),
]
TEXTS = ["Tom has three apples.", "A red hat and a blue one."]
CONTEXTS = ["Tom has", "A red hat and"]
SETTINGS = {"max_gen_toks": 6, "until": ["zz"], "do_sample": False}

Use = Callable[[Any, Any], Any]
#: The uses by name. A use returns the model to ask, in a context that takes patches back.
USES: dict[str, Callable[[Any, Any], contextlib.AbstractContextManager[Any]]] = {}


def use(function: Use) -> Use:
    """Registers a function that returns the model to ask."""

    @contextlib.contextmanager
    def opened(llama: Any, tokenizer: Any) -> Iterator[Any]:
        yield function(llama, tokenizer)

    USES[function.__name__] = opened
    return function


def make_llama() -> Any:
    """Returns a model whose weights do not depend on the versions of torch and transformers."""
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE)).eval()
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            if weight.dim() > 1:
                drawn = rng.normal(0, 0.3, tuple(weight.shape)).astype(np.float32)
                weight.copy_(torch.from_numpy(drawn))
    return model


def answers_of(lm: Any) -> dict[str, Any]:
    """Returns by request type what a model answers, or the name of the exception it raises."""
    arguments = {
        "loglikelihood": PAIRS,
        "loglikelihood_rolling": [(text,) for text in TEXTS],
        "generate_until": [(text, dict(SETTINGS)) for text in CONTEXTS],
    }
    found: dict[str, Any] = {}
    for kind, some in arguments.items():
        requests = [
            Instance(kind, {}, args, number, ("a_task", number, 1))  # type: ignore[arg-type]
            for number, args in enumerate(some)
        ]
        try:
            found[kind] = [
                list(a) if isinstance(a, tuple) else a for a in getattr(lm, kind)(requests)
            ]
        except Exception as error:
            found[kind] = type(error).__name__
    return found


def outcome_of(name: str, llama: Any, tokenizer: Any) -> dict[str, Any]:
    """Returns the answers of one use, or the name of the exception that its constructor raises."""
    try:
        with USES[name](llama, tokenizer) as lm:
            return answers_of(lm)
    except Exception as error:
        return {"constructor": type(error).__name__}


# -- methods that are patched, on the class or on the object --------------------------------------


def other_logits(lm: Any, inps: Any, attn_mask: Any = None, labels: Any = None) -> Any:
    with torch.no_grad():
        return lm.model(inps).logits.flip(-1)


def scores_by_length(lm: Any, requests: Any, disable_tqdm: bool = False, **kwargs: Any) -> Any:
    return [(-float(len(context) + 100 * len(rest)), False) for _, context, rest in requests]


def repeated_token(lm: Any, context: Any, max_length: int, stop: Any, **kwargs: Any) -> Any:
    new = context[:, -1:].repeat(1, max_length - context.shape[1])
    return torch.cat([context, new], dim=1)


def lower_tokens(lm: Any, string: str, *args: Any, **kwargs: Any) -> Any:
    return lm.tokenizer.encode(string.lower(), add_special_tokens=False)


def short_batch(
    lm: Any,
    strings: Any,
    padding_side: str = "left",
    left_truncate_len: Any = None,
    truncation: bool = False,
) -> Any:
    rows = [lm.tokenizer.encode(text, add_special_tokens=False)[:2] for text in strings]
    ids = torch.tensor(rows)
    return ids, torch.ones_like(ids)


def shouted_text(lm: Any, tokens: Any, skip_special_tokens: bool = True) -> str:
    return str(lm.tokenizer.decode(tokens, skip_special_tokens=skip_special_tokens)).upper()


def fixed_pair(lm: Any, context: str, continuation: str) -> Any:
    return [5, 6, 7], [8, 9]


PATCHES: dict[str, Callable[..., Any]] = {
    "_model_call": other_logits,
    "_loglikelihood_tokens": scores_by_length,
    "_model_generate": repeated_token,
    "tok_encode": lower_tokens,
    "tok_batch_encode": short_batch,
    "tok_decode": shouted_text,
    "_encode_pair": fixed_pair,
}


@contextlib.contextmanager
def patched_on(owner: Any, name: str, function: Any) -> Iterator[None]:
    """Assigns an attribute of a class, and takes it back at the end."""
    before = vars(owner).get(name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def unpatched(llama: Any, tokenizer: Any) -> Any:
    return HFLM(pretrained=llama, tokenizer=tokenizer, batch_size=2)


@contextlib.contextmanager
def on_the_class(name: str, llama: Any, tokenizer: Any) -> Iterator[Any]:
    lm = unpatched(llama, tokenizer)
    with patched_on(HFLM, name, PATCHES[name]):
        yield lm


@contextlib.contextmanager
def on_the_object(name: str, llama: Any, tokenizer: Any) -> Iterator[Any]:
    lm = unpatched(llama, tokenizer)
    setattr(lm, name, MethodType(PATCHES[name], lm))
    yield lm


@contextlib.contextmanager
def in_a_subclass(name: str, llama: Any, tokenizer: Any) -> Iterator[Any]:
    made = type("Subclass", (HFLM,), {name: PATCHES[name]})
    yield made(pretrained=llama, tokenizer=tokenizer, batch_size=2)


for _name in PATCHES:
    for _where in (on_the_class, on_the_object, in_a_subclass):
        USES[f"{_name} {_where.__name__}"] = functools.partial(_where, _name)


@contextlib.contextmanager
def _encode_pair_on_the_base_class(llama: Any, tokenizer: Any) -> Iterator[Any]:
    lm = unpatched(llama, tokenizer)
    with patched_on(TemplateLM, "_encode_pair", fixed_pair):
        yield lm


USES["_encode_pair on_the_base_class"] = _encode_pair_on_the_base_class


# -- classes with constructors of their own -------------------------------------------------------


@use
def plain(llama: Any, tokenizer: Any) -> Any:
    return unpatched(llama, tokenizer)


class StateSpaceModel(torch.nn.Module):
    """A model of another library, which shares only the form of the output with transformers."""

    def __init__(self, inner: Any, config: Any = None) -> None:
        super().__init__()
        self.inner = inner
        if config is not None:
            self.config = config

    def forward(self, input_ids: Any, position_ids: Any = None, num_last_tokens: int = 0) -> Any:
        return SimpleNamespace(logits=self.inner(input_ids).logits)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the class does not use it")


@use
def a_state_space_model(llama: Any, tokenizer: Any) -> Any:
    """Like mamba's evaluation script: calls only the constructor of `LM`."""

    class Wrapper(HFLM):
        AUTO_MODEL_CLASS = transformers.AutoModelForCausalLM

        def __init__(self, max_length: int = 128, batch_size: Any = None, device: str = "cpu"):
            LM.__init__(self)
            self._model = StateSpaceModel(llama, SimpleNamespace(d_model=32, vocab_size=1024))
            self.tokenizer = tokenizer
            self.tokenizer.pad_token_id = self.tokenizer.eos_token_id
            self.vocab_size = self.tokenizer.vocab_size
            self._batch_size = int(batch_size) if batch_size is not None else 64
            self._max_length = max_length
            self._device = torch.device(device)
            # What the published package needs besides, as current forks of the script set it.
            self.add_bos_token = None
            self.custom_prefix_token_id = None
            self.softmax_dtype = None
            self.mixed_precision_dtype = None
            self.enable_thinking = None
            self.logits_cache = True

        @property
        def batch_size(self) -> Any:
            return self._batch_size

        def _model_generate(self, context: Any, max_length: int, stop: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    return Wrapper()


@use
def a_state_space_model_with_nothing_else(llama: Any, tokenizer: Any) -> Any:
    """The same as first written, which relies on the attributes that `HFLM` had then."""

    class Wrapper(HFLM):
        def __init__(self) -> None:
            LM.__init__(self)
            self._model = StateSpaceModel(llama)
            self.tokenizer = tokenizer
            self.vocab_size = 1024
            self._batch_size = 64
            self._max_length = 128
            self._device = torch.device("cpu")

        @property
        def batch_size(self) -> Any:
            return self._batch_size

    return Wrapper()


@use
def an_accelerator_of_its_own(llama: Any, tokenizer: Any) -> Any:
    """Like optimum-habana: skips the constructor, names its device, pads inputs to buckets."""

    class Adapter(HFLM):
        def __init__(self, model: Any, text: Any, batch_size: int) -> None:
            TemplateLM.__init__(self)
            self.tokenizer = text
            self._model = model
            self._batch_size = batch_size
            self.buckets = [16, 32, 64, 128]
            self.pretrained = model
            self.peft = None
            self.delta = None
            self.custom_prefix_token_id = None
            self._config = model.config
            self._max_length = 128
            self.model_inputs = {"use_cache": False}
            self.batch_size_per_gpu = batch_size
            self.revision = "main"
            self.logits_cache = True
            self.add_bos_token = None
            self.softmax_dtype = None
            self.mixed_precision_dtype = None
            self.truncation = False
            self.enable_thinking = None
            self.think_end_token = None
            self._get_backend(config=self._config, backend="default", trust_remote_code=False)

        @property
        def eot_token_id(self) -> Any:
            return self._model.config.eos_token_id

        @property
        def max_length(self) -> int:
            return self.buckets[-1]

        @property
        def device(self) -> Any:
            return "cpu"

        def _model_call(self, inps: Any) -> Any:
            rows, length = inps.shape
            wide = next(bucket for bucket in self.buckets if bucket >= length)
            padded = torch.nn.functional.pad(
                inps, (0, wide - length, 0, self._batch_size - rows), value=3
            )
            with torch.no_grad():
                logits = self._model(padded, **self.model_inputs)["logits"]
            return logits[:rows, :length, :].to(torch.float32)

        def _model_generate(self, context: Any, max_length: int, stop: Any, **kwargs: Any) -> Any:
            return repeated_token(self, context, max_length, stop)

    return Adapter(llama, tokenizer, 4)


class TrainingTokenizer:
    """The tokenizer of a training framework: nothing of transformers' interface."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.eod_id = 0

    def tokenize(self, text: str) -> list[int]:
        return list(self._inner.encode(text, add_special_tokens=False))

    def detokenize(self, tokens: Any) -> str:
        return str(self._inner.decode(tokens))


@use
def a_training_framework(llama: Any, tokenizer: Any) -> Any:
    """Like gpt-neox: calls no constructor at all, and has its own loops and tokenizer."""

    class Adapter(HFLM):
        def __init__(self, model: Any, text: Any) -> None:
            self.cache_hook = CacheHook(None)
            self._model = model
            self.tokenizer = text
            self._device = torch.device("cpu")
            self._max_length = 128

        @property
        def eot_token_id(self) -> int:
            return int(self.tokenizer.eod_id)

        @property
        def prefix_token_id(self) -> int:
            return self.eot_token_id

        @property
        def max_length(self) -> int:
            return self._max_length

        @property
        def max_gen_toks(self) -> int:
            return 128

        @property
        def batch_size(self) -> int:
            return 2

        @property
        def device(self) -> Any:
            return self._device

        @property
        def rank(self) -> int:
            return 0

        @property
        def world_size(self) -> int:
            return 1

        @property
        def enable_thinking(self) -> None:
            return None

        def tok_encode(self, string: str, **kwargs: Any) -> Any:
            return self.tokenizer.tokenize(string)

        def tok_decode(self, tokens: Any, **kwargs: Any) -> Any:
            return self.tokenizer.detokenize(tokens)

        def _loglikelihood_tokens(
            self, requests: Any, disable_tqdm: bool = False, **kwargs: Any
        ) -> Any:
            found = []
            for _, context, rest in requests:
                read = torch.tensor([(context + rest)[:-1]])
                scores = torch.log_softmax(self._model_call(read)[0, -len(rest) :], -1)
                best = scores.argmax(-1).tolist() == rest
                found.append((float(scores[range(len(rest)), rest].sum()), best))
            return found

        def _model_call(self, inps: Any) -> Any:
            with torch.no_grad():
                return self._model(inps).logits

        def generate_until(self, requests: Any) -> Any:
            return [request.args[0][::-1] for request in requests]

    return Adapter(llama, TrainingTokenizer(tokenizer))


def one_at_a_time(pretrained: dict[str, Any], llama: Any, tokenizer: Any) -> Any:
    class Wrapper(HFLM):
        def __init__(self, model: Any, text: Any, max_seq_length: int = 128) -> None:
            super().__init__(**pretrained)
            self._model = model
            self._tokenizer = text
            self._device = torch.device("cpu")
            self._max_seq_length = max_seq_length

        @property
        def eot_token_id(self) -> int:
            return int(self._tokenizer.eod_id)

        @property
        def prefix_token_id(self) -> int:
            return self.eot_token_id

        @property
        def max_length(self) -> int:
            return self._max_seq_length

        @property
        def max_gen_toks(self) -> int:
            return 50

        @property
        def batch_size(self) -> int:
            return 1

        @property
        def device(self) -> Any:
            return self._device

        def tok_encode(self, string: str, **kwargs: Any) -> Any:
            return torch.tensor([1, *self._tokenizer.tokenize(string)]).tolist()

        def tok_decode(self, tokens: Any) -> Any:
            return self._tokenizer.detokenize(tokens)

        def _model_call(self, inps: Any) -> Any:
            assert inps.shape[0] == 1
            with torch.no_grad():
                return self._model(inps.squeeze(0).view(1, -1)).logits

        def _model_generate(self, context: Any, max_length: int, eos_token_id: Any) -> Any:
            raise NotImplementedError("unimplemented")

    return Wrapper(llama, TrainingTokenizer(tokenizer))


@use
def an_inference_script(llama: Any, tokenizer: Any) -> Any:
    """Like gpt-fast: calls the constructor with nothing, and has its own model and tokenizer."""
    return one_at_a_time({}, llama, tokenizer)


@use
def an_inference_script_with_a_stand_in(llama: Any, tokenizer: Any) -> Any:
    """The same with a model that is loaded only to be thrown away."""
    stand_in = {"pretrained": llama, "tokenizer": tokenizer}
    return one_at_a_time(stand_in, llama, tokenizer)


@use
def a_compiled_program(llama: Any, tokenizer: Any) -> Any:
    """Like executorch: there is no torch module, only a function; the tokenizer is a stand-in's."""

    class Wrapper(HFLM):
        def __init__(self) -> None:
            super().__init__(pretrained=llama, tokenizer=tokenizer, batch_size=1)
            self._model = None
            self._program = llama

        @property
        def max_length(self) -> int:
            return 128

        @property
        def model(self) -> Any:
            return self._model

        def _model_call(self, inps: Any) -> Any:
            assert inps.shape[0] == 1
            with torch.no_grad():
                return self._program(inps).logits

        def _model_generate(self, context: Any, max_length: int, **kwargs: Any) -> Any:
            return repeated_token(self, context, max_length, None)

    return Wrapper()


@use
def a_fine_tuning_recipe(llama: Any, tokenizer: Any) -> Any:
    """Like torchtune: a stand-in is loaded, and everything that concerns tokens is replaced."""

    class Wrapper(HFLM):
        def __init__(self) -> None:
            super().__init__(pretrained=llama, tokenizer=tokenizer, device="cpu")
            self._model = StateSpaceModel(llama)

        @property
        def model(self) -> Any:
            return self._model

        @property
        def eot_token_id(self) -> int:
            return 0

        @property
        def max_length(self) -> int:
            return 128

        @property
        def batch_size(self) -> int:
            return 2

        @property
        def device(self) -> Any:
            return torch.device("cpu")

        def tok_encode(self, text: str, **kwargs: Any) -> Any:
            return self.tokenizer.encode(text, add_special_tokens=False)

        def tok_batch_encode(self, text: Any, left_truncate_len: Any = None, **kwargs: Any) -> Any:
            rows = [self.tok_encode(one) for one in text]
            width = max(map(len, rows))
            ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
            return ids[:, -left_truncate_len:] if left_truncate_len else ids, (ids != 0).long()

        def tok_decode(self, tokens: Any, **kwargs: Any) -> Any:
            return self.tokenizer.decode([tokens] if isinstance(tokens, int) else tokens)

        def _model_call(self, inps: Any, **kwargs: Any) -> Any:
            with torch.no_grad():
                return self._model(inps).logits

        def _model_generate(self, context: Any, **generation_kwargs: Any) -> Any:
            return repeated_token(self, context, generation_kwargs["max_length"], None)

    return Wrapper()


if __name__ == "__main__":
    tokenizer_given = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
    model_given = make_llama()
    with contextlib.redirect_stdout(sys.stderr):
        recorded = {name: outcome_of(name, model_given, tokenizer_given) for name in USES}
    print(json.dumps(recorded, indent=1))
