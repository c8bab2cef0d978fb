"""`--model hf`: how a Hugging Face model answers the three kinds of request."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.engine.collector import without_collector
from lm_eval.engine.progress import progress, stage
from lm_eval.errors import ConfigError
from lm_eval.models.conventions import TextScores, Window, rolling_windows, task_of
from lm_eval.models.huggingface.answering import Generator
from lm_eval.models.huggingface.arguments import switch
from lm_eval.models.huggingface.base import HuggingFaceModel
from lm_eval.models.huggingface.check import Ways, check_ways
from lm_eval.models.huggingface.company import Company
from lm_eval.models.huggingface.continuations import Continuations
from lm_eval.models.huggingface.encoder_decoder import EncoderDecoderScorer
from lm_eval.models.huggingface.live import evaluating, state_of
from lm_eval.models.huggingface.loading import dtype_of, embedding_rows
from lm_eval.models.huggingface.loops import WithLoops
from lm_eval.models.huggingface.memory import Budget
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
        seed: where the random numbers of sampled answers begin; by default the run's.
    """

    # As they are before anything is told, for subclasses that are made otherwise.
    prefix_sharing = True
    rolling_stride: int | None = None
    seed: int | None = None
    company: Company | None = None
    """Which prompts transformers may continue together; None before it was tried."""
    _ways: Ways | None = None
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
            _ = self.ways, self.text_encoder

    def answer_settings(self) -> dict[str, Any]:
        """What of its settings changes its answers, the weights apart."""
        names = "backend max_length max_gen_toks truncation_side add_bos_token softmax_dtype "
        names += "custom_prefix_token_id mixed_precision_dtype think_end_token rolling_stride seed"
        return {name: str(getattr(self, name, None)) for name in names.split()}

    # -- ways of running the model ---------------------------------------------------------------

    @property
    def ways(self) -> Ways:
        """What the start-up check found exact on this model; a changed one is checked anew."""
        if self._ways is None or self._checked[0] is not self._model:
            self._checked = self._model, state_of(self._model)
            self.company = None
            self._ways = self._check()
        return self._ways

    @contextmanager
    def _at_work(self, requests: list[Instance]) -> Iterator[None]:
        """Around each call: look whether the model was changed, ask it without dropout, and say
        afterwards what was cut.
        """
        if self._ways is not None and self._checked[1] != state_of(self._model):
            self._ways = None
        before = Counter(self.run_context.usage.truncated)
        with evaluating(self._model):
            yield
        self._tell_truncated(requests, before)

    @stage("Checking what is exact on this model")
    def _check(self) -> Ways:
        if self.backend != "causal":
            return Ways(reason="an encoder-decoder encodes each context once as it is")
        if type(self)._model_call is not HuggingFaceModel._model_call:
            return Ways(reason="the class has a _model_call of its own")
        try:
            self._network = Network(self._model, self.softmax_dtype, self.autocast)
        except (AttributeError, TypeError):
            self._network = None
        found = check_ways(
            self._network,
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
        """Most requests at once; None leaves it to the token budget."""
        return self.max_batch_size if self.batch_size == "auto" else int(self.batch_size)

    def tree_scorer(self) -> TreeScorer | None:
        """What shares prefixes, where that is exact."""
        if self.backend != "causal" or not self.ways.tree or self._network is None:
            return None
        plain = PlainScorer(self._network, *self._limits())
        return TreeScorer(self._network, *self._limits(), self.ways.attend.kernels, plain)

    def plain_scorer(self) -> Scorer:
        overridden = type(self)._model_call is not HuggingFaceModel._model_call
        if self.backend != "causal":
            call = self._model_call if overridden else None
            return EncoderDecoderScorer(
                self._model, *self._limits(), self.softmax_dtype, call, self.autocast
            )
        logits = None if self.ways.apart else self._model_call
        device, budget, vocabulary, rows = self._limits()
        rows = 1 if self.ways.alone else rows
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
        with self._at_work(requests), bar_of as bar, without_collector():
            for i, score in Continuations(self).score(requests):
                scores[i] = score
                self.cache_hook.add_partial("loglikelihood", requests[i].args, score)
                bar.update(1)
        return scores

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
        """The same through the methods that a subclass has replaced, one after the other."""
        windows = [self._encode_request(*request.args) for request in requests]
        Continuations(self).look_over(requests, enumerate(windows))
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
            for i, score in Continuations(self).score_windows([enumerate(windows)]):
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
        """Score windows that belong to no request; through what a subclass has replaced."""
        if type(self)._loglikelihood_tokens is HFLM._loglikelihood_tokens:
            return Continuations(self).score_windows([enumerate(windows)])
        encoded: list[Encoded] = [(None, *window) for window in windows]
        return enumerate(self._loglikelihood_tokens(encoded, disable_tqdm=True))

    # -- generation ------------------------------------------------------------------------------

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        answers = [""] * len(requests)
        quiet = disable_tqdm or self.rank != 0
        tokens = partial(getattr, self.run_context.usage, "tokens_generated")
        bar_of = progress(len(requests), "Generating answers", disable=quiet, tokens=tokens)
        with self._at_work(requests), bar_of as bar:
            for i, text in Generator(self).answer(requests):
                answers[i] = text
                self.cache_hook.add_partial("generate_until", requests[i].args, text)
                bar.update(1)
        return answers

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
