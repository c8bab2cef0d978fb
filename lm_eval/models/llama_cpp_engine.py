"""`--model llama-cpp`: runs a GGUF file with llama.cpp in this process."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lm_eval.api.instance import Completion
from lm_eval.api.registry import register_model
from lm_eval.errors import ConfigError, ModelError, describe_cause
from lm_eval.models.engines.arguments import read_length, unknown_argument
from lm_eval.models.engines.base import ONLY_ENGINE, EngineLM, Generated, Scored
from lm_eval.models.engines.gguf_template import GGUFTemplates
from lm_eval.models.planned.jobs import GenerationJob
from lm_eval.models.planned.score_plan import Abilities, NextJob, ScorePlan, WholeJob
from lm_eval.models.planned.tokenizers import TokenCoder, load_tokenizer

logger = logging.getLogger(__name__)

#: llama.cpp penalizes repetitions and restricts sampling unless these are given.
_NEUTRAL = {"repeat_penalty": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
#: Parameters of `create_completion` that cannot be given as generation settings.
_OWN_SETTINGS = frozenset(
    {"self", "prompt", "suffix", "max_tokens", "temperature", "stop", "seed", "stream", "echo"}
    | {"logprobs", "model"}
)
#: How many rows of logits are normalized at once: 64-bit copies of all of them may not fit.
_ROWS = 64


@register_model("llama-cpp")
class LlamaCpp(EngineLM):
    """A GGUF file that llama.cpp runs in this process.

    Requests are run one after the other in the order of their tokens; what a prompt has in common
    with the one before is not computed again.

    Args:
        pretrained: the GGUF file.
        max_length, max_model_len, n_ctx: the context length; three names for the same. By default
            that of the model.
        tokenizer: a folder or hub name of a transformers tokenizer; by default that of the file.
        add_bos_token: whether prompts begin with a beginning-of-text token; None for what the
            tokenizer does by default.
        prefix_token_id: the token that stands for an empty context.
        max_gen_toks: the maximum length of an answer, if the request does not set it.
        seed: the seed for sampled answers; None for that of the run.
        n_gpu_layers: how many layers run on the GPU; -1 for all.
        n_threads: the number of threads; None for llama.cpp's choice.
        n_batch: how many tokens of a prompt are computed at once.
        batch_size, max_batch_size, device: accepted, without effect.
        think_end_token: the string that ends the model's thinking text.
        long_prompts: "refuse" to end a run before the model is loaded if a request does not fit
            into the context length given; "cut" to cut its prompt.
        thinking_budget: after how many tokens a thought is cut (docs/reasoning.md).
        kwargs: further arguments of `llama_cpp.Llama`.
    """

    engine = "llama.cpp"
    length_names = ("max_length", "max_model_len", "n_ctx")
    speed_arguments: ClassVar[frozenset[str]] = frozenset(
        {"n_gpu_layers", "n_threads", "n_batch", "long_prompts"}
    )

    def __init__(
        self,
        pretrained: str,
        max_length: int | None = None,
        max_model_len: int | None = None,
        n_ctx: int | None = None,
        tokenizer: str | None = None,
        add_bos_token: bool | None = None,
        prefix_token_id: int | None = None,
        max_gen_toks: int = 256,
        seed: int | None = None,
        n_gpu_layers: int = -1,
        n_threads: int | None = None,
        n_batch: int = 512,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
        think_end_token: str | None = None,
        long_prompts: str = "refuse",
        thinking_budget: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            pretrained,
            tokenizer,
            max_gen_toks,
            seed,
            add_bos_token,
            prefix_token_id,
            think_end_token,
            thinking_budget=thinking_budget,
        )
        self._own_tokenizer = tokenizer is None
        length = read_length(max_length=max_length, max_model_len=max_model_len, n_ctx=n_ctx)
        self.model_args = {
            "n_ctx": length or 0,
            "n_gpu_layers": int(n_gpu_layers),
            "n_threads": n_threads,
            "n_batch": int(n_batch),
            **kwargs,
        }
        with ONLY_ENGINE.starting(f"llama-cpp, {pretrained}"):
            self.model = self._start()

    @classmethod
    def check_before_loading(
        cls, arguments: Mapping[str, Any], chat_template: bool | str = False
    ) -> None:
        """Raises `ConfigError` for a file that is not a GGUF file and for unknown arguments."""
        from llama_cpp import Llama

        super().check_before_loading(arguments, chat_template)
        # `Llama` ignores arguments that it does not know.
        known = {*inspect.signature(cls).parameters, *inspect.signature(Llama).parameters}
        if unknown := unknown_argument(cls.engine, arguments, known):
            raise unknown
        file = Path(str(arguments.get("pretrained", ""))).expanduser()
        if not file.is_file():
            raise ConfigError(f"pretrained: there is no GGUF file {file}.")
        with file.open("rb") as opened:
            if opened.read(4) != b"GGUF":
                raise ConfigError(f"pretrained: {file} is not a GGUF file.")

    @classmethod
    def _tokenizer_before_loading(cls, arguments: Mapping[str, Any]) -> tuple[str, TokenCoder]:
        if arguments.get("tokenizer"):
            return super()._tokenizer_before_loading(arguments)
        from llama_cpp import Llama

        file = str(Path(arguments["pretrained"]).expanduser())
        try:
            vocabulary = Llama(file, vocab_only=True, verbose=False)
        except Exception as error:  # llama.cpp raises ValueError and AssertionError, and more
            raise ModelError(
                f"llama.cpp could not load {arguments['pretrained']}: {describe_cause(error)}"
            ) from error
        return arguments["pretrained"], _GGUFCoder(vocabulary)

    @classmethod
    def _tokenizer_object(cls, arguments: Mapping[str, Any]) -> Any:
        """Returns the transformers tokenizer that `arguments` name; None for that of the file."""
        return super()._tokenizer_object(arguments) if arguments.get("tokenizer") else None

    def _start(self) -> Any:
        from llama_cpp import Llama

        # All logits are kept, since those of the prompt are needed.
        settings = {"verbose": False, **self.model_args, "logits_all": True}
        try:
            engine = Llama(str(Path(self.pretrained).expanduser()), **settings)
        except Exception as error:  # llama.cpp raises ValueError and AssertionError, and more
            raise ModelError(
                f"llama.cpp could not load {self.pretrained}: {describe_cause(error)}"
            ) from error
        trained = _trained_length(engine.metadata)
        scaled = any(name.startswith(("rope_", "yarn_")) for name in self.model_args)
        if trained is not None and settings["n_ctx"] > trained and not scaled:
            raise ConfigError(
                f"the context length of {settings['n_ctx']} is larger than that of the model, "
                f"{trained}. Pass a smaller one."
            )
        return engine

    # -- tokens -----------------------------------------------------------------------------------

    @cached_property
    def _coder(self) -> TokenCoder:
        return (
            _GGUFCoder(self.model) if self._own_tokenizer else load_tokenizer(self.tokenizer_name)
        )

    @property
    def max_length(self) -> int:
        """The number of tokens of a prompt: the context length less one token to generate."""
        return int(self.model.n_ctx()) - 1

    def identity(self) -> dict[str, Any]:
        """Returns the version of llama.cpp's bindings and the settings that affect the answers."""
        import llama_cpp

        return {"llama_cpp": llama_cpp.__version__, "n_ctx": self.model.n_ctx()}

    # -- requests ---------------------------------------------------------------------------------

    @property
    def abilities(self) -> Abilities:
        return Abilities(whole=True, next_tokens=True)

    @property
    def gives_samples(self) -> bool:
        return False

    def score(self, plan: ScorePlan) -> Iterator[Scored]:
        for job in plan.jobs():
            if isinstance(job, NextJob):
                logits = self._logits(job.contexts[0], len(job.contexts[0]) - 1)
                found: Any = _next_scores(logits[0], job.tokens)
            else:
                found = self._window_score(plan, job)
            yield [(job, [found])]

    def _window_score(self, plan: ScorePlan, job: WholeJob) -> tuple[float, bool]:
        window = plan.windows[job.windows[0]]
        # The last token is predicted, but need not be read.
        logits = self._logits(window.tokens[:-1], window.start - 1)
        wanted = np.array(window.tokens[window.start :])
        total, greedy = 0.0, True
        for start in range(0, len(wanted), _ROWS):
            some = wanted[start : start + _ROWS]
            scores = _log_softmax(logits[start : start + _ROWS])
            total += float(scores[np.arange(len(some)), some].sum())
            greedy = greedy and bool((scores.argmax(axis=1) == some).all())
        return total, greedy

    def _logits(self, tokens: Sequence[int], first: int) -> np.ndarray[Any, Any]:
        """Returns the logits (N, V) of the token that follows each of `tokens` from `first` on.

        What the tokens have in common with those computed before is not computed again.
        """
        engine = self.model
        known = engine.input_ids[: engine.n_tokens]
        length = min(len(known), len(tokens))
        differ = np.nonzero(known[:length] != np.array(tokens[:length]))[0]
        common = int(differ[0]) if len(differ) else length
        if common < len(tokens):
            common = self._forget_from(common)
            engine.eval(list(tokens[common:]))
        # Otherwise nothing changes: what is computed goes on after `tokens`.
        self.run_context.usage.count_prompt(len(tokens), len(tokens) - common)
        return np.asarray(engine.scores[first : len(tokens)])

    def _forget_from(self, count: int) -> int:
        """Keeps the first `count` tokens of those that are computed; returns how many are kept.

        That is 0 if the state of the model cannot be cut there: that of recurrent layers is one for
        all tokens, and a sliding window has lost those before it.
        """
        engine = self.model
        if count < engine.n_tokens and (
            self._has_window or engine._ctx.kv_cache_seq_rm(-1, count, -1) is False
        ):
            engine.reset()
            return 0
        engine.n_tokens = count
        return count

    @cached_property
    def _has_window(self) -> bool:
        """Whether the cache of sliding-window layers has only the tokens of the last window.

        By default it has all; `swa_full=False` saves memory. llama.cpp removes the end of such a
        cache without an error, although tokens in the window before it are no longer there.
        """
        metadata = self.model.metadata
        name = f"{metadata.get('general.architecture')}.attention.sliding_window"
        return name in metadata and self.model_args.get("swa_full") is False

    @cached_property
    def setting_names(self) -> frozenset[str]:
        known = inspect.signature(type(self.model).create_completion).parameters
        return frozenset(known) - _OWN_SETTINGS

    def generate(self, jobs: Iterable[GenerationJob | None]) -> Iterator[Generated]:
        for job in filter(None, jobs):
            sampling = job.sampling
            if self._has_window:
                self.model.reset()  # otherwise it would cut the cache to what prompts share
            reply = self.model.create_completion(
                list(job.prompt.tokens or ()),
                max_tokens=sampling.max_tokens,
                temperature=sampling.temperature,
                stop=self._stops_to_send(sampling),
                seed=sampling.seed,
                **{**_NEUTRAL, **sampling.others},
            )
            choice, counted = reply["choices"][0], reply["usage"]
            usage = self.run_context.usage
            usage.count_prompt(counted["prompt_tokens"], counted["prompt_tokens"])
            usage.count_answer(counted["completion_tokens"])
            usage.count_generated(counted["completion_tokens"])
            answer = Completion(
                choice["text"],
                finish_reason=choice["finish_reason"],
                tokens=counted["completion_tokens"],
            )
            yield [(job, [answer])]


class _GGUFCoder:
    """The tokenizer in a GGUF file."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.name = "the GGUF file"
        bos, eos = int(engine.token_bos()), int(engine.token_eos())
        self.bos_id: int | None = bos if bos >= 0 else None
        self.eos_id: int | None = eos if eos >= 0 else None
        self.eos_text: str | None = _token_text(engine, eos) if eos >= 0 else None
        bos_text = _token_text(engine, bos) if bos >= 0 else ""
        self.object = GGUFTemplates(engine.metadata, bos_text, self.eos_text or "")
        self._adds_bos = engine.tokenize(b"", add_bos=True)[:1] == [bos] and self._flag()

    def _flag(self) -> bool:
        """Returns whether the file says that prompts begin with a beginning-of-text token.

        If the file does not say, this is llama.cpp's default for its kind of tokenizer.
        """
        return bool(self._engine._model.add_bos_token())

    def encode(self, texts: Sequence[str], special: bool | None = None) -> list[list[int]]:
        adds = self._adds_bos if special is None else special
        found = []
        for text in texts:
            ids = self._engine.tokenize(text.encode(), add_bos=False, special=True)
            begun = ids[:1] == [self.bos_id]
            head = [self.bos_id] if adds and not begun and self.bos_id is not None else []
            found.append([*head, *ids])
        return found

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._engine.detokenize(list(tokens), special=True).decode("utf-8", "replace"))


def _trained_length(metadata: Mapping[str, str]) -> int | None:
    """Returns the context length that a GGUF file states; None if it does not."""
    length = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    return int(length) if length is not None and str(length).isdigit() else None


def _token_text(engine: Any, token: int) -> str:
    return str(engine.detokenize([token], special=True).decode("utf-8", "replace"))


def _log_softmax(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns log-probabilities over the last axis, computed with 64 bits."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def _next_scores(
    logits: np.ndarray[Any, Any], tokens: Sequence[int]
) -> dict[int, tuple[float, bool]]:
    scores, best = _log_softmax(logits), int(logits.argmax())
    return {token: (float(scores[token]), token == best) for token in tokens}
