"""`--model hf`: how a Hugging Face model answers the three kinds of request."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from lm_eval.api.instance import Instance
from lm_eval.api.registry import register_model
from lm_eval.engine.progress import progress
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.conventions import Window, fit_window, rolling_windows
from lm_eval.models.huggingface.answering import Generator
from lm_eval.models.huggingface.base import HuggingFaceModel
from lm_eval.models.huggingface.check import Ways, check_ways
from lm_eval.models.huggingface.encoder_decoder import EncoderDecoderScorer
from lm_eval.models.huggingface.memory import Budget, without_collector
from lm_eval.models.huggingface.network import Network, text_config
from lm_eval.models.huggingface.scoring import (
    Numbered,
    PlainScorer,
    Scorer,
    TreeScorer,
)

logger = logging.getLogger(__name__)

PORTION = 1 << 20
FIRST_PORTION = 1 << 17
"""Letters that are encoded at once, ahead of the device: few first, so that it can begin."""

Encoded = tuple[tuple[str, str] | None, list[int], list[int]]


@register_model("hf", "huggingface", "hf-auto")
class HFLM(HuggingFaceModel):
    """A causal or encoder-decoder model of transformers, by name, path or as an object.

    The arguments are the published ones (see docs/huggingface.md) and these:

    Args:
        prefix_sharing: False ("off") scores every request by itself; the default shares prefixes
            where a check at the start finds that exact on this model.
        rolling_stride: how many tokens each window of a long text predicts; by default windows do
            not overlap.
        seed: where the random numbers of sampled answers begin.
    """

    def __init__(
        self,
        pretrained: Any,
        *args: Any,
        prefix_sharing: bool | str = True,
        rolling_stride: int | None = None,
        seed: int = 1234,
        **kwargs: Any,
    ) -> None:
        super().__init__(pretrained, *args, **kwargs)
        self.prefix_sharing = _switch("prefix_sharing", prefix_sharing)
        if rolling_stride is not None and not 0 < rolling_stride <= self.max_length:
            raise ConfigError(
                f"rolling_stride={rolling_stride} must be between 1 and max_length, "
                f"{self.max_length}."
            )
        self.rolling_stride = rolling_stride
        self.seed = seed
        self.budget = Budget(self._device)
        self._ways: Ways | None = None
        self._network: Network | None = None
        if type(self) is HFLM:
            _ = self.ways  # a subclass may not be finished yet: it is checked at its first request

    # -- ways of running the model ---------------------------------------------------------------

    @property
    def ways(self) -> Ways:
        """What the start-up check found exact on this model."""
        if self._ways is None:
            self._ways = self._check()
        return self._ways

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
            self.mixed_precision_dtype or self._model.dtype,
            self.vocabulary,
            self.max_length,
            share=self.prefix_sharing,
            full=self.budget,
        )
        if not found.tree and self.prefix_sharing:
            logger.warning(
                "Prefixes are not shared, every request is computed in full: on %s, %s.",
                type(self._model).__name__,
                found.reason,
            )
        return found

    @property
    def vocabulary(self) -> int:
        return int(text_config(self._config).vocab_size)

    @property
    def max_requests(self) -> int | None:
        """Most requests at once; None leaves it to the token budget."""
        return None if self.batch_size == "auto" else int(self.batch_size)

    def _tree_scorer(self) -> TreeScorer | None:
        if self.backend != "causal" or not self.ways.tree or self._network is None:
            return None
        return TreeScorer(self._network, *self._limits(), self.ways.flash)

    def _plain_scorer(self) -> Scorer:
        overridden = type(self)._model_call is not HuggingFaceModel._model_call
        if self.backend != "causal":
            call = self._model_call if overridden else None
            return EncoderDecoderScorer(self._model, *self._limits(), self.softmax_dtype, call)
        logits = None if self.ways.apart else self._model_call
        return PlainScorer(self._network, *self._limits(), logits)

    def _limits(self) -> tuple[torch.device, Budget, int, int | None]:
        return self._device, self.budget, self.vocabulary, self.max_requests

    # -- scoring ---------------------------------------------------------------------------------

    def _fit(self, context: list[int], continuation: list[int]) -> Window:
        """What is read and what its last positions predict, cut to what the model can read."""
        if self.backend != "causal":
            return context[-self.max_length :], continuation[-self.max_length :]
        if self.truncation_side == "right":
            context = context[: max(1, self.max_length + 1 - len(continuation))]
        return fit_window(context, continuation, self.max_length)

    def _too_long(self, context: list[int], continuation: list[int]) -> bool:
        if self.backend != "causal":
            return max(len(context), len(continuation)) > self.max_length
        return len(context) + len(continuation) > self.max_length + 1

    def _fit_all(self, windows: Iterable[tuple[int, Window]]) -> dict[int, Window]:
        """Fit numbered windows; those that read alike share what they read."""
        read: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        fitted = {}
        for number, (context, continuation) in windows:
            key = id(context), tuple(continuation[:-1])
            if key in read:
                fitted[number] = read[key], continuation[-len(read[key]) :]
            else:
                fitted[number] = self._fit(context, continuation)
                read[key] = fitted[number][0]
        return fitted

    def _score(self, portions: Iterable[Iterable[tuple[int, Window]]]) -> Iterator[Numbered]:
        """Score windows of context and continuation, each with its number.

        Whatever the tree does not take goes the plain way afterwards: windows longer than can be
        shared, and those whose score was no number. In a tree one request's NaN reaches its
        neighbours, since nothing times NaN is NaN; by itself each shows whose it was.
        """
        tree = self._tree_scorer()
        longest = self.ways.longest or self.max_length
        waiting: dict[int, Window] = {}
        others: dict[int, Window] = {}

        def shared() -> Iterator[dict[int, Window]]:
            for portion in portions:
                fitted = self._fit_all(portion)
                long = [n for n, (read, _) in fitted.items() if tree is None or len(read) > longest]
                others.update((n, fitted.pop(n)) for n in long)
                waiting.update(fitted)
                yield fitted

        for number, score in tree.score(shared()) if tree is not None else _exhaust(shared()):
            window = waiting.pop(number)
            if math.isnan(score[0]):
                others[number] = window
            else:
                yield number, score
        if others:
            for number, score in self._plain_scorer().score([others]):
                if math.isnan(score[0]):
                    raise NotANumberError(number)
                yield number, score

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        if (
            type(self).tok_encode is not HuggingFaceModel.tok_encode
            or type(self)._loglikelihood_tokens is not HFLM._loglikelihood_tokens
        ):
            return self._loglikelihood_by_parts(requests, disable_tqdm)
        scores: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        quiet = disable_tqdm or self.rank != 0
        bar_of = progress(len(requests), "Scoring continuations", disable=quiet)
        with bar_of as bar, without_collector():
            try:
                for i, score in self._score(self._encoded_ahead(requests)):
                    scores[i] = score
                    self.cache_hook.add_partial("loglikelihood", requests[i].args, score)
                    bar.update(1)
            except NotANumberError as error:
                raise _no_number(requests[error.number]) from error
        self._tell_truncated(requests)
        return scores

    def _loglikelihood_by_parts(
        self, requests: list[Instance], disable_tqdm: bool
    ) -> list[tuple[float, bool]]:
        """The same through the methods that a subclass has replaced, one after the other."""
        windows = [self._encode_request(*request.args) for request in requests]
        self._look_over(requests, enumerate(windows))
        encoded = [(r.args, *window) for r, window in zip(requests, windows, strict=True)]
        try:
            return self._loglikelihood_tokens(encoded, disable_tqdm=disable_tqdm)
        except NotANumberError as error:
            raise _no_number(requests[error.number]) from error

    def _encoded_ahead(self, requests: list[Instance]) -> Iterator[list[tuple[int, Window]]]:
        """Encode requests in portions, the next one while the device works on this one.

        Portions are cut in the order of the texts, so that what is shared stays together.
        """
        texts = [request.args for request in requests]
        prefix, causal = self.prefix_token_id, self.backend == "causal"

        def encode(numbers: list[int]) -> list[tuple[int, Window]]:
            pairs = [texts[i] for i in numbers]
            windows = self.encoder.encode_pairs(pairs, prefix, causal=causal)
            return list(zip(numbers, windows, strict=True))

        portions = list(in_portions(texts))
        with ThreadPoolExecutor(1) as ahead:
            following = ahead.submit(encode, portions[0]) if portions else None
            for portion in [*portions[1:], None]:
                assert following is not None
                found = following.result()
                following = ahead.submit(encode, portion) if portion is not None else None
                self._look_over(requests, found)
                yield found

    def _look_over(self, requests: list[Instance], windows: Iterable[tuple[int, Window]]) -> None:
        """Refuse answers without tokens; count requests that will lose some of theirs."""
        for i, window in windows:
            if not window[1]:
                raise ModelError(
                    f"{_named(requests[i])}: the answer {requests[i].args[1]!r} becomes no tokens "
                    "behind its context, so it has no probability; check doc_to_choice and "
                    "doc_to_target."
                )
            if self._too_long(*window):
                self.truncated[str(requests[i].task_name)] += 1

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
            for i, score in self._score([enumerate(windows)]):
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
            codes = self.encoder.encode_all(texts)
        else:
            codes = {text: self.tok_encode(text) for text in texts}
        windows: list[Encoded] = []
        owner: list[int] = []
        for i, text in enumerate(texts):
            cut = rolling_windows(
                codes[text], self.prefix_token_id, self.max_length, self.rolling_stride
            )
            windows += [(None, *window) for window in cut]
            owner += [i] * len(cut)
        try:
            parts = self._loglikelihood_tokens(windows, disable_tqdm=disable_tqdm)
        except NotANumberError as error:
            raise _no_number(requests[owner[error.number]]) from error
        totals = [0.0] * len(texts)
        for i, (score, _) in zip(owner, parts, strict=True):
            totals[i] += score
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    # -- generation ------------------------------------------------------------------------------

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        answers = [""] * len(requests)
        quiet = disable_tqdm or self.rank != 0
        with progress(len(requests), "Generating answers", disable=quiet) as bar:
            for i, text in Generator(self).answer(requests):
                answers[i] = text
                self.cache_hook.add_partial("generate_until", requests[i].args, text)
                bar.update(1)
        self._tell_truncated(requests)
        return answers

    def _tell_truncated(self, requests: list[Instance]) -> None:
        for task in dict.fromkeys(str(request.task_name) for request in requests):
            if count := self.truncated[task]:
                lost = "beginning" if self.truncation_side == "left" else "end of the context"
                logger.warning(
                    "%s: %d requests are longer than %d tokens and lose their %s.",
                    task,
                    count,
                    self.max_length,
                    lost,
                )


class NotANumberError(ModelError):
    """The model's answer to one request is not a number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"the model's scores of request {number} are not numbers (NaN).")
        self.number = number


def _exhaust(portions: Iterable[Any]) -> Iterator[Numbered]:
    """Ask for all portions, and answer nothing."""
    for _ in portions:
        yield from ()


def in_portions(texts: Sequence[tuple[str, str]]) -> Iterator[list[int]]:
    """Numbers of texts in the order of their contexts, cut into portions that encode quickly."""
    portion: list[int] = []
    size, most, before = 0, FIRST_PORTION, None
    for i in sorted(range(len(texts)), key=lambda i: texts[i]):
        context, continuation = texts[i]
        if context != before and size > most:
            yield portion
            portion, size, most = [], 0, min(2 * most, PORTION)
        size += len(continuation) + (len(context) if context != before else 0)
        portion.append(i)
        before = context
    if portion:
        yield portion


def _named(request: Instance) -> str:
    return f"task {request.task_name!r}, document {request.doc_id}"


def _no_number(request: Instance) -> ModelError:
    return ModelError(
        f"{_named(request)}: the model's scores are not numbers (NaN). Its weights may be broken, "
        "or overflow in this dtype; try dtype=float32 or bfloat16."
    )


def _switch(name: str, value: bool | str) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("on", "auto"):
        return True
    if value == "off":
        return False
    raise ConfigError(f"{name} is on or off, not {value!r}.")
