"""`--model hf`: answers the three kinds of request with a Hugging Face model."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.engine.gc_pause import gc_paused
from lm_eval.engine.progress import progress, stage
from lm_eval.errors import ConfigError
from lm_eval.models.conventions import (
    TextScores,
    Window,
    drawing_seed,
    rolling_windows,
    task_of,
)
from lm_eval.models.huggingface.answering import (
    Generator,
    OwnLoop,
    TextModel,
    TransformersLoop,
    special_tokens,
)
from lm_eval.models.huggingface.arguments import switch
from lm_eval.models.huggingface.base import HuggingFaceModel
from lm_eval.models.huggingface.batch_compatibility import (
    BatchCompatibility,
    next_scores,
    next_tokens,
    try_batches,
)
from lm_eval.models.huggingface.check import ExecutionModes, check_execution_modes
from lm_eval.models.huggingface.continuations import (
    NumberedWindow,
    ReadingLimits,
    check_windows,
    encoded_ahead,
    score_windows,
)
from lm_eval.models.huggingface.encoder_decoder import EncoderDecoderScorer
from lm_eval.models.huggingface.generation import Prompt
from lm_eval.models.huggingface.live import evaluating, has_own_generate, state_of
from lm_eval.models.huggingface.loading import dtype_of, embedding_rows
from lm_eval.models.huggingface.loops import WithLoops
from lm_eval.models.huggingface.memory import Budget, rows_in_memory
from lm_eval.models.huggingface.naming import NotANumberError
from lm_eval.models.huggingface.network import Network, text_config
from lm_eval.models.huggingface.scoring import Numbered, PlainScorer, Scorer, TreeScorer

logger = logging.getLogger(__name__)

Encoded = tuple[tuple[str, str] | None, list[int], list[int]]


@register_model("hf", "huggingface", "hf-auto")
class HFLM(WithLoops):
    """A causal or encoder-decoder model of transformers, by name, path or as an object.

    The arguments are the published ones (see docs/huggingface.md) and these:

    Args:
        prefix_sharing: False ("off") scores every request by itself; the default shares prefixes
            where a check at the start finds that exact on this model.
        rolling_stride: how many tokens each window of a long text predicts; by default windows do
            not overlap.
        seed: the seed for sampled answers; by default the run's.
    """

    # Defaults for subclasses that do not call this class's constructor.
    prefix_sharing = True
    rolling_stride: int | None = None
    seed: int | None = None
    batch_compatibility: BatchCompatibility | None = None
    """Which prompts transformers may continue in one batch; None before it was tried."""
    _execution_modes: ExecutionModes | None = None
    _checked: Any = None
    _network: Network | None = None

    def __init__(
        self,
        pretrained: Any,
        *args: Any,
        prefix_sharing: bool | str = True,
        rolling_stride: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(pretrained, *args, **kwargs)
        self.prefix_sharing = switch("prefix_sharing", prefix_sharing)
        if rolling_stride is not None and not 0 < rolling_stride <= self.max_length:
            raise ConfigError(
                f"rolling_stride={rolling_stride} must be between 1 and max_length, "
                f"{self.max_length}."
            )
        self.rolling_stride = rolling_stride
        self.seed = seed
        if type(self) is HFLM:  # a subclass may not be finished yet: its first request does this
            _ = self.execution_modes, self.text_encoder

    def answer_settings(self) -> dict[str, Any]:
        """Returns the settings that change answers, apart from the weights."""
        names = "backend max_length max_gen_toks truncation_side add_bos_token softmax_dtype "
        names += "custom_prefix_token_id mixed_precision_dtype think_end_token rolling_stride seed"
        return {name: str(getattr(self, name, None)) for name in names.split()}

    # -- execution modes -------------------------------------------------------------------------

    @property
    def execution_modes(self) -> ExecutionModes:
        """What the start-up check found exact on this model; a changed model is checked again."""
        if self._execution_modes is None or self._checked[0] is not self._model:
            self._checked = self._model, state_of(self._model)
            self.batch_compatibility = None
            self._execution_modes = self._check()
        return self._execution_modes

    @contextmanager
    def _at_work(self, requests: list[Instance]) -> Iterator[None]:
        """Surrounds each call: notices changes of the model, turns dropout off, and warns about
        truncated requests at the end.
        """
        if self._execution_modes is not None and self._checked[1] != state_of(self._model):
            self._execution_modes = None
        before = Counter(self.run_context.usage.truncated)
        with evaluating(self._model):
            yield
        self._tell_truncated(requests, before)

    @stage("Checking what is exact on this model")
    def _check(self) -> ExecutionModes:
        if self.backend != "causal":
            return ExecutionModes(reason="an encoder-decoder encodes each context once as it is")
        if type(self)._model_call is not HuggingFaceModel._model_call:
            return ExecutionModes(reason="the class has a _model_call of its own")
        try:
            network = Network(self._model, self.softmax_dtype, self.autocast)
        except (AttributeError, TypeError) as error:
            logger.info("%s is not taken apart: %s.", type(self._model).__name__, error)
            network = None
        found, self._network = check_execution_modes(
            network,
            self._model_call,
            self._device,
            self.mixed_precision_dtype or dtype_of(self._model),
            self.vocabulary,
            self.max_length,
            share=self.prefix_sharing,
            full=self.budget,
        )
        if not found.tree and self.prefix_sharing:
            logger.warning(
                "Prefixes are not shared, every request is computed in full%s: on %s, %s.",
                ", one by one" if found.alone else "",
                type(self._model).__name__,
                found.reason,
            )
        return found

    @property
    def vocabulary(self) -> int:
        config = text_config(self._config)
        stated = config.get if isinstance(config, Mapping) else partial(getattr, config)
        return int(stated("vocab_size", None) or embedding_rows(self._model) or len(self.tokenizer))

    @property
    def max_requests(self) -> int | None:
        """Most requests in one batch; None leaves it to the token budget."""
        return self.max_batch_size if self.batch_size == "auto" else int(self.batch_size)

    def tree_scorer(self) -> TreeScorer | None:
        """Returns the scorer that shares prefixes; None where that is not exact."""
        if self.backend != "causal":
            return None
        modes = self.execution_modes
        if not modes.tree or self._network is None:
            return None
        plain = PlainScorer(self._network, *self._limits())
        return TreeScorer(self._network, *self._limits(), modes.attend.kernels, plain)

    def plain_scorer(self) -> Scorer:
        """Returns the scorer that computes every request in full."""
        overridden = type(self)._model_call is not HuggingFaceModel._model_call
        if self.backend != "causal":
            call = self._model_call if overridden else None
            return EncoderDecoderScorer(
                self._model, *self._limits(), self.softmax_dtype, call, self.autocast
            )
        logits = None if self.execution_modes.apart else self._model_call
        device, budget, vocabulary, rows = self._limits()
        rows = 1 if self.execution_modes.alone else rows
        return PlainScorer(
            self._network, device, budget, vocabulary, rows, logits, self.softmax_dtype
        )

    def _limits(self) -> tuple[torch.device, Budget, int, int | None]:
        return self._device, self.budget, self.vocabulary, self.max_requests

    # -- scoring ---------------------------------------------------------------------------------

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        self._refuse_thinking(requests)
        if (
            type(self).tok_encode is not HuggingFaceModel.tok_encode
            or type(self)._encode_pair is not TemplateLM._encode_pair
            or type(self)._loglikelihood_tokens is not HFLM._loglikelihood_tokens
        ):
            return self._loglikelihood_by_parts(requests, disable_tqdm)
        scores: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        quiet = disable_tqdm or self.rank != 0
        bar_of = progress(len(requests), "Scoring continuations", disable=quiet)
        with self._at_work(requests), bar_of as bar, gc_paused():
            limits, usage = self._reading_limits(), self.run_context.usage
            portions = encoded_ahead(requests, self._encode_pairs, limits, usage)
            try:
                for i, score in self._score_portions(portions):
                    scores[i] = score
                    self.cache_hook.add_partial("loglikelihood", requests[i].args, score)
                    bar.update(1)
            except NotANumberError as error:
                raise error.of(requests[error.number]) from error
        return scores

    def _encode_pairs(self, pairs: list[tuple[str, str]]) -> list[Window]:
        causal = self.backend == "causal"
        return self.text_encoder.encode_pairs(pairs, self.prefix_token_id, causal=causal)

    def _reading_limits(self) -> ReadingLimits:
        return ReadingLimits(self.max_length, self.backend == "causal", self.truncation_side)

    def _score_portions(self, portions: Iterable[Iterable[NumberedWindow]]) -> Iterator[Numbered]:
        """Yields the number of each window and its score, by the scorers that are exact."""
        tree, plain = self.tree_scorer(), self.plain_scorer()
        longest = self.execution_modes.longest
        usage = self.run_context.usage
        return score_windows(portions, self._reading_limits(), tree, plain, longest, usage)

    def _refuse_thinking(self, requests: list[Instance]) -> None:
        if self.enable_thinking and requests:
            tasks = sorted({task_of(request) for request in requests})
            raise ConfigError(
                "enable_thinking is for tasks that generate: a continuation would be scored in "
                f"the place of a thought. Leave it out for {', '.join(tasks)}."
            )

    def _loglikelihood_by_parts(
        self, requests: list[Instance], disable_tqdm: bool
    ) -> list[tuple[float, bool]]:
        """Scores through the methods that a subclass has replaced, one after the other."""
        windows = [self._encode_request(*request.args) for request in requests]
        usage = self.run_context.usage
        check_windows(requests, enumerate(windows), self._reading_limits(), usage)
        encoded = [(r.args, *window) for r, window in zip(requests, windows, strict=True)]
        try:
            with self._at_work(requests):
                return self._loglikelihood_tokens(encoded, disable_tqdm=disable_tqdm)
        except NotANumberError as error:
            raise error.of(requests[error.number]) from error

    def _loglikelihood_tokens(
        self,
        requests: Sequence[Encoded],
        disable_tqdm: bool = False,
        override_bs: int | None = None,
        **kwargs: Any,
    ) -> list[tuple[float, bool]]:
        scores: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        windows = [(context, continuation) for _, context, continuation in requests]
        quiet = disable_tqdm or self.rank != 0
        with progress(len(requests), "Scoring continuations", disable=quiet) as bar:
            for i, score in self._score_portions([enumerate(windows)]):
                scores[i] = score
                asked = requests[i][0]
                if asked is not None:
                    self.cache_hook.add_partial("loglikelihood", asked, score)
                bar.update(1)
        return scores

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        texts = [request.args[0] for request in requests]
        if type(self).tok_encode is HuggingFaceModel.tok_encode:
            codes = self.text_encoder.encode_all(texts)
        else:
            codes = {text: self.tok_encode(text) for text in texts}
        windows: list[Window] = []
        owner: list[int] = []
        for i, text in enumerate(texts):
            cut = rolling_windows(
                codes[text], self.prefix_token_id, self.max_length, self.rolling_stride
            )
            windows += cut
            owner += [i] * len(cut)
        totals = TextScores(owner, len(texts))
        quiet = disable_tqdm or self.rank != 0
        bar_of = progress(len(texts), "Reading texts", unit="text", disable=quiet)
        with self._at_work(requests), bar_of as bar:
            try:
                for number, (score, _) in self._score_windows(windows):
                    whole = totals.add(number, score)
                    if whole is not None:
                        args, total = requests[whole].args, totals.of[whole]
                        self.cache_hook.add_partial("loglikelihood_rolling", args, total)
                        bar.update(1)
            except NotANumberError as error:
                raise error.of(requests[owner[error.number]]) from error
        return totals.of

    def _score_windows(self, windows: list[Window]) -> Iterable[Numbered]:
        """Scores windows that belong to no request, through a method that a subclass replaced."""
        if type(self)._loglikelihood_tokens is HFLM._loglikelihood_tokens:
            return self._score_portions([enumerate(windows)])
        encoded: list[Encoded] = [(None, *window) for window in windows]
        return enumerate(self._loglikelihood_tokens(encoded, disable_tqdm=True))

    # -- generation ------------------------------------------------------------------------------

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        answers = [""] * len(requests)
        quiet = disable_tqdm or self.rank != 0
        tokens = partial(getattr, self.run_context.usage, "tokens_generated")
        bar_of = progress(len(requests), "Generating answers", disable=quiet, tokens=tokens)
        with self._at_work(requests), bar_of as bar:
            for i, text in self._generator().answer(requests):
                answers[i] = text
                self.cache_hook.add_partial("generate_until", requests[i].args, text)
                bar.update(1)
        return answers

    def _generator(self) -> Generator:
        model = TextModel(
            encode=self._encode_contexts,
            decode=self.tok_decode,
            causal=self.backend == "causal",
            max_length=self.max_length,
            max_gen_toks=self.max_gen_toks,
            truncation_side=self.truncation_side,
            end_token=self.eot_token_id,
            special_tokens=special_tokens(self.tokenizer),
            think_end_token=self.think_end_token,
            defaults=getattr(self.model, "generation_config", None),
            device=self.device,
        )
        transformers = TransformersLoop(
            generate=self._model_generate,
            compatibility=self._compatibility_of,
            pad_token=getattr(self.tokenizer, "pad_token_id", None) or 0,
            name=type(self).__name__,
        )
        return Generator(
            model,
            self._own_loop(),
            transformers,
            rows_at_once=self._rows_at_once,
            seed=self._sampling_seed(),
            usage=self.run_context.usage,
        )

    def _encode_contexts(self, texts: Iterable[str]) -> dict[str, list[int]]:
        """Returns the tokens of each context, by the methods that a subclass has replaced."""
        if type(self).tok_batch_encode is not HuggingFaceModel.tok_batch_encode:
            rows = ((text, self.tok_batch_encode([text])) for text in dict.fromkeys(texts))
            codes = {text: ids[0][mask[0].bool()].tolist() for text, (ids, mask) in rows}
        elif type(self).tok_encode is not HuggingFaceModel.tok_encode:
            codes = {text: self.tok_encode(text) for text in dict.fromkeys(texts)}
        else:
            codes = self.text_encoder.encode_all(texts)
        return {text: tokens or [self.prefix_token_id] for text, tokens in codes.items()}

    def _own_loop(self) -> OwnLoop | None:
        """Returns our generation loop, where it is exact and the model has no other."""
        replaced = type(self)._model_generate is not HuggingFaceModel._model_generate
        if self.backend != "causal" or replaced or has_own_generate(self.model):
            return None
        modes = self.execution_modes
        if not modes.tree or self._network is None:
            return None
        return OwnLoop(self._network, modes.attend, self.budget, modes.longest)

    def _rows_at_once(self, length: int) -> int:
        """Returns how many answers of so many tokens are generated in one batch."""
        if self.max_requests is not None:
            return self.max_requests
        config = text_config(self.config)
        return rows_in_memory(config, self.device, dtype_of(self.model), length)

    def _sampling_seed(self) -> int:
        """Returns the model's seed, or the run's.

        Outside a run each call samples anew, following torch's own seed; processes that hold parts
        of one model must sample the same.
        """
        given = self.seed is not None or self.run_context.seed is not None or self.lockstep
        return drawing_seed(self) if given else int(torch.randint(1 << 62, ()))

    def _compatibility_of(self, prompts: list[Prompt]) -> BatchCompatibility:
        """Returns which prompts, sorted by length, transformers may continue in one batch."""
        if self.max_requests == 1:
            return "any"
        if self.batch_compatibility is None:
            self.batch_compatibility = try_batches(
                self._continue,
                prompts[0].tokens,
                prompts[-1].tokens,
                self.device,
                self.mixed_precision_dtype or dtype_of(self.model),
                type(self.model).__name__,
            )
        return self.batch_compatibility

    def _continue(self, tokens: Tensor, mask: Tensor) -> Tensor:
        if type(self)._model_generate is not HuggingFaceModel._model_generate:
            return next_tokens(self._model_generate, tokens, mask)
        with self.autocast():
            return next_scores(self.model, self.tokenizer.pad_token_id, tokens, mask)

    def _tell_truncated(self, requests: list[Instance], before: Counter[str]) -> None:
        for task in dict.fromkeys(task_of(request) for request in requests):
            if count := self.run_context.usage.truncated[task] - before[task]:
                lost = "beginning" if self.truncation_side == "left" else "end of the context"
                logger.warning(
                    "%s: %d requests are longer than %d tokens and lose their %s.",
                    task,
                    count,
                    self.max_length,
                    lost,
                )
