"""Projects whose classes derive from `HFLM` and have constructors of their own."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .replaced_methods import repeated_token, unpatched
from .support import HF, answers_of, choice, llama, manager, scores, shipped_tokenizer, use


@use("a project that uses the class as it is", needs=HF)
def plain(folder: Path) -> Any:
    return answers_of(unpatched())


def state_space_model(config: Any = None) -> Any:
    """Returns a model of another library, which shares only the form of the output."""
    import torch

    class StateSpaceModel(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = llama()
            if config is not None:
                self.config = config

        def forward(self, input_ids: Any, position_ids: Any = None, num_last_tokens: int = 0):
            return SimpleNamespace(logits=self.inner(input_ids).logits)

        def generate(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("the class does not use it")

    return StateSpaceModel()


@use(
    "a state-space model whose class calls only the constructor of LM",
    needs=HF,
    difference="published: an attribute is missing; here: what the class itself raises",
    differs_in=("generate_until",),
)
def a_state_space_model(folder: Path) -> Any:
    """Like mamba's evaluation script: calls only the constructor of `LM`."""
    import torch
    import transformers

    from lm_eval.api.model import LM
    from lm_eval.models.huggingface import HFLM

    class Wrapper(HFLM):
        AUTO_MODEL_CLASS = transformers.AutoModelForCausalLM

        def __init__(self, max_length: int = 128, batch_size: Any = None, device: str = "cpu"):
            LM.__init__(self)
            self._model = state_space_model(SimpleNamespace(d_model=32, vocab_size=1024))
            self.tokenizer = shipped_tokenizer()
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

    return answers_of(Wrapper())


@use(
    "a state-space model as first written, for the attributes that HFLM had then",
    needs=HF,
    difference="published: attributes are missing; here: the class has defaults",
    differs_in=("loglikelihood", "loglikelihood_rolling", "generate_until"),
)
def a_state_space_model_with_nothing_else(folder: Path) -> Any:
    """The same as first written, which relies on the attributes that `HFLM` had then."""
    import torch

    from lm_eval.api.model import LM
    from lm_eval.models.huggingface import HFLM

    class Wrapper(HFLM):
        def __init__(self) -> None:
            LM.__init__(self)
            self._model = state_space_model()
            self.tokenizer = shipped_tokenizer()
            self.vocab_size = 1024
            self._batch_size = 64
            self._max_length = 128
            self._device = torch.device("cpu")

        @property
        def batch_size(self) -> Any:
            return self._batch_size

    return answers_of(Wrapper())


@use("an accelerator library that skips the constructor and pads to buckets", needs=HF)
def an_accelerator_of_its_own(folder: Path) -> Any:
    """Like optimum-habana: skips the constructor, names its device, pads inputs to buckets."""
    import torch

    from lm_eval.api.model import TemplateLM
    from lm_eval.models.huggingface import HFLM

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

    return answers_of(Adapter(llama(), shipped_tokenizer(), 4))


class TrainingTokenizer:
    """The tokenizer of a training framework: nothing of transformers' interface."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.eod_id = 0

    def tokenize(self, text: str) -> list[int]:
        return list(self._inner.encode(text, add_special_tokens=False))

    def detokenize(self, tokens: Any) -> str:
        return str(self._inner.decode(tokens))


@use("a training framework that calls no constructor and has its own tokenizer", needs=HF)
def a_training_framework(folder: Path) -> Any:
    """Like gpt-neox: calls no constructor at all, and has its own loops and tokenizer."""
    import torch

    from lm_eval.api.model import CacheHook
    from lm_eval.models.huggingface import HFLM

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

    return answers_of(Adapter(llama(), TrainingTokenizer(shipped_tokenizer())))


def one_at_a_time(**pretrained: Any) -> Any:
    import torch

    from lm_eval.models.huggingface import HFLM

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

    return answers_of(Wrapper(llama(), TrainingTokenizer(shipped_tokenizer())))


@use(
    "an inference script that calls the constructor with nothing",
    needs=HF,
    difference="published: a TypeError; here: only what is missing later is an error",
)
def an_inference_script(folder: Path) -> Any:
    """Like gpt-fast: calls the constructor with nothing, and has its own model and tokenizer."""
    return one_at_a_time()


@use("an inference script that loads a model to throw it away", needs=HF)
def an_inference_script_with_a_stand_in(folder: Path) -> Any:
    """The same with a model that is loaded only to be thrown away."""
    return one_at_a_time(pretrained=llama(), tokenizer=shipped_tokenizer())


@use("a compiler whose model is a program, not a module", needs=HF)
def a_compiled_program(folder: Path) -> Any:
    """Like executorch: there is no torch module, only a function; the tokenizer is a stand-in's."""
    import torch

    from lm_eval.models.huggingface import HFLM

    class Wrapper(HFLM):
        def __init__(self) -> None:
            super().__init__(pretrained=llama(), tokenizer=shipped_tokenizer(), batch_size=1)
            self._model = None
            self._program = llama()

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

    return answers_of(Wrapper())


@use("a fine-tuning recipe that replaces everything that concerns tokens", needs=HF)
def a_fine_tuning_recipe(folder: Path) -> Any:
    """Like torchtune: a stand-in is loaded, and everything that concerns tokens is replaced."""
    import torch

    from lm_eval.models.huggingface import HFLM

    class Wrapper(HFLM):
        def __init__(self) -> None:
            super().__init__(pretrained=llama(), tokenizer=shipped_tokenizer(), device="cpu")
            self._model = state_space_model()

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

    return answers_of(Wrapper())


@use("a quantization library that tries constructors until one works", needs=HF)
def a_constructor_that_is_tried(folder: Path) -> Any:
    """Like torchao: the constructor without a model is tried first, and a stand-in after it."""
    import torch

    import lm_eval
    from lm_eval.evaluator import evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import get_task_dict

    class Wrapper(HFLM):
        def __init__(self, model: Any, text: Any, max_seq_length: int = 128) -> None:
            try:
                super().__init__(device="cpu")
            except TypeError:
                super().__init__(llama(), tokenizer=shipped_tokenizer(), device="cpu")
            self._model = model
            self.tokenizer = text
            self._device = torch.device("cpu")
            self._max_seq_length = max_seq_length

        def _model_call(self, inps: Any) -> Any:
            assert len(inps) == 1
            return self._model(inps).logits

        def run_eval(self, tasks: Any, limit: int) -> Any:
            with contextlib.suppress(Exception):
                lm_eval.tasks.initialize_tasks()
            task_dict = get_task_dict(tasks, manager(folder, choice(folder)))
            with torch.no_grad():
                return evaluate(self, task_dict, limit=limit)

        @property
        def eot_token_id(self) -> Any:
            try:
                return self.tokenizer.eos_id()
            except AttributeError:
                return self.tokenizer.all_special_ids[0]

        @property
        def max_length(self) -> int:
            return self._max_seq_length

        @property
        def batch_size(self) -> int:
            return 1

        @property
        def device(self) -> Any:
            return self._device

        def tok_decode(self, tokens: Any, **kwargs: Any) -> Any:
            return self.tokenizer.decode(tokens, **kwargs)

        def tok_encode(self, string: str, **kwargs: Any) -> Any:
            return self.tokenizer.encode(string)

    lm = Wrapper(llama(), shipped_tokenizer())
    return [answers_of(lm)["loglikelihood"], scores(lm.run_eval(["colours"], 4))]
