"""`--model hf`: the class that processes the three types of requests with a Hugging Face model."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import is_not
from typing import Any

import torch
from torch import Tensor

from lm_eval.api.instance import Instance
from lm_eval.api.model import ENCODE_PAIR
from lm_eval.api.registry import register_model
from lm_eval.engine.gc_pause import full_gc_postponed, gc_paused
from lm_eval.engine.progress import progress, stage
from lm_eval.errors import ConfigError, EvalError, ModelError, as_original_type, nearest
from lm_eval.models.context_length import text_config
from lm_eval.models.conventions import (
    TextScores,
    Window,
    rolling_windows,
    sampling_seed,
    task_of,
    warn_truncated,
)
from lm_eval.models.huggingface.accelerated import faster_forwards
from lm_eval.models.huggingface.answering import (
    BuiltinLoop,
    Generator,
    TextModel,
    TransformersLoop,
)
from lm_eval.models.huggingface.arguments import parse_switch
from lm_eval.models.huggingface.batch_compatibility import (
    BatchCompatibility,
    find_compatibility,
    next_scores,
    next_tokens,
)
from lm_eval.models.huggingface.check import (
    ExecutionModes,
    check_execution_modes,
    run_largest_batch,
)
from lm_eval.models.huggingface.continuations import (
    InputLimits,
    NumberedWindow,
    check_windows,
    encode_ahead,
    score_windows,
)
from lm_eval.models.huggingface.decoding_check import launch_a_step
from lm_eval.models.huggingface.encoder_decoder import EncoderDecoderScorer
from lm_eval.models.huggingface.generation import Prompt
from lm_eval.models.huggingface.loading import dtype_of, embedding_rows
from lm_eval.models.huggingface.memory import (
    TokenBudget,
    max_answers_at_once,
    max_answers_in_memory,
)
from lm_eval.models.huggingface.model_state import eval_mode, has_custom_generate, model_fingerprint
from lm_eval.models.huggingface.network import Network
from lm_eval.models.huggingface.published_helpers import LoopSupport
from lm_eval.models.huggingface.remembered_checks import check_key, recall, remember
from lm_eval.models.huggingface.replaced_methods import (
    method_of,
    methods_of,
    patched_methods,
    replaced_methods,
)
from lm_eval.models.huggingface.request_errors import NaNScoresError
from lm_eval.models.huggingface.scoring import NumberedScore, PlainScorer, Scorer, TreeScorer
from lm_eval.models.huggingface.text_decoding import fast_decoder, one_by_one
from lm_eval.models.huggingface.thought_budget import ThoughtBudget
from lm_eval.models.partial_answers import DecodeMany, special_tokens

logger = logging.getLogger(__name__)

UNKNOWN_VOCABULARY = 1 << 15
"""The size of an unknown vocabulary, for estimates of memory."""

Encoded = tuple[tuple[str, str] | None, list[int], list[int]]
"""A request's context and continuation as text (or None), and the tokens of both."""


@register_model("hf", "huggingface", "hf-auto")
class HFLM(LoopSupport):
    """A causal or encoder-decoder model of transformers, given by name, by path or as an object.

    It accepts the arguments of the published class (see docs/huggingface.md) and these:

    Args:
        prefix_sharing: whether requests share the computation of common prefixes. It is used only
            if a check at the start finds it exact on the model. False ("off") computes every
            request in full.
        rolling_stride: how many tokens each window of a long text predicts. By default, windows do
            not overlap.
        seed: the seed for sampled answers; by default that of the run.
    """

    # Defaults for subclasses that do not call this class's constructor.
    prefix_sharing = True
    rolling_stride: int | None = None
    seed: int | None = None
    batch_compatibility: BatchCompatibility | None = None
    """Which prompts transformers may continue in one batch; None until it was tried out."""
    _compatibility_of_method: Any = None
    _execution_modes: ExecutionModes | None = None
    _checked: Any = None
    _network: Network | None = None

    def __init__(
        self,
        pretrained: Any = None,
        *args: Any,
        prefix_sharing: bool | str = True,
        rolling_stride: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        if pretrained is None and type(self) is HFLM:
            raise missing_model_error(kwargs)
        super().__init__(pretrained, *args, **kwargs)
        self.prefix_sharing = parse_switch("prefix_sharing", prefix_sharing)
        if rolling_stride is not None and not 0 < rolling_stride <= self.max_length:
            raise ConfigError(
                f"rolling_stride={rolling_stride} must be between 1 and max_length, "
                f"{self.max_length}."
            )
        self.rolling_stride = rolling_stride
        self.seed = seed
        # The constructor of a subclass may not be finished yet; it is checked at its first request.
        if type(self) is HFLM:
            _ = self.execution_modes, self.text_encoder

    def answer_settings(self) -> dict[str, Any]:
        """Returns the settings that affect the answers, other than the weights, by name.

        Each value is converted to a string; a setting that is not set has the value "None".
        """
        names = "backend max_length max_gen_toks truncation_side add_bos_token softmax_dtype "
        names += "custom_prefix_token_id mixed_precision_dtype think_end_token rolling_stride seed"
        names += " thinking_budget" * (self.thinking_budget is not None)
        return {name: str(getattr(self, name, None)) for name in names.split()}

    def get_model_info(self) -> dict[str, Any]:
        """Returns facts that identify the model; see `HuggingFaceModel.get_model_info`.

        If methods were patched on the class or on this object, `patched_methods` has a digest of
        each: answers of a patched model are not taken for those of the model itself.
        """
        patched = patched_methods(self, OUR_METHODS)
        return super().get_model_info() | ({"patched_methods": patched} if patched else {})

    # -- execution modes -------------------------------------------------------------------------

    @property
    def execution_modes(self) -> ExecutionModes:
        """The fast modes that give the scores of the model's own forward pass, within tolerance.

        Such modes are prefix sharing and attention kernels. A check on random tokens finds them on
        first access, and again if the model or `_model_call` was replaced.
        """
        running = self._model, method_of(self, "_model_call")
        if self._execution_modes is None or any(map(is_not, self._checked[0], running)):
            self._checked = running, model_fingerprint(self._model)
            self.batch_compatibility = None
            self._execution_modes = self._check_model()
        return self._execution_modes

    def _replaces(self, *names: str) -> bool:
        """Returns whether one of these methods is overridden in a subclass or patched.

        A patch is an assignment to the class (`HFLM._model_call = …`) or to this object.
        """
        return bool(replaced_methods(self, {name: OUR_METHODS[name] for name in names}))

    @contextmanager
    def _evaluation_call(self, requests: list[Instance]) -> Iterator[None]:
        """Context manager around each call of a request method.

        Drops the results of the start-up check if the model has changed, turns off dropout, and
        logs a warning about truncated requests at the end.
        """
        if self._execution_modes is not None and self._checked[1] != model_fingerprint(self._model):
            self._execution_modes = None
        before = Counter(self.run_context.usage.truncated)
        with eval_mode(self._model):
            yield
        self._warn_truncated(requests, before)

    @stage("Checking which fast modes are exact on this model")
    def _check_model(self) -> ExecutionModes:
        """Returns the fast modes that a check on random tokens finds exact on this model.

        Sets `_network` to the network to run them with, or to None if the model cannot be split
        into trunk and output head. Logs a warning if prefix sharing is on but not exact.
        Encoder-decoder models, and models whose `_model_call` is replaced, are not checked and get
        no fast mode.
        """
        if self.backend != "causal":
            return ExecutionModes(reason="encoder-decoder models encode each context once anyway")
        if self._replaces("_model_call"):
            return ExecutionModes(reason="_model_call is replaced")
        self._require_model("_model_call")
        try:
            network = Network(self._model, self.softmax_dtype, self.autocast)
        except (AttributeError, TypeError) as error:
            logger.info(
                "%s cannot be split into trunk and output head: %s. Its own forward pass is used, "
                "which computes the logits of all positions.",
                type(self._model).__name__,
                error,
            )
            network = None
        found = self._find_modes(network)
        if not found.prefix_sharing and self.prefix_sharing:
            logger.warning(
                "Prefix sharing is not used on %s: %s. Every request is computed in full%s.",
                type(self._model).__name__,
                found.reason,
                ", one by one" if found.one_by_one else "",
            )
        return found

    def _find_modes(self, network: Network | None) -> ExecutionModes:
        """Returns the outcome of the check, which may be remembered from an earlier run.

        Sets `_network`. `network` is the model as trunk and head; None if it cannot be split.
        """
        dtype = self.mixed_precision_dtype or dtype_of(self._model)
        limits = self._torch_device, dtype, self.vocabulary, self.max_length
        settings = {
            "limits": limits,
            "sharing": self.prefix_sharing,
            "softmax": self.softmax_dtype,
            "rows": self._max_rows,
        }
        key = check_key(self._model, self._torch_device, settings)
        known = None if key is None else recall(key)
        if known is not None:
            found, replaced = known
            self._network = network
            if network is not None and replaced:
                self._network = network.with_forwards(faster_forwards(network.trunk, network.head))
            run_largest_batch(self._network, found, self._torch_device, self.budget, *limits[2:])
            if self._network is not None and found.decoding is not None:
                launch_a_step(
                    self._network, self._torch_device, found.attention_kernels, found.decoding
                )
            return found
        start = time.monotonic()
        found, self._network = check_execution_modes(
            network,
            self._model_call,
            *limits,
            share=self.prefix_sharing,
            full=self.budget,
            max_rows=self._max_rows,
        )
        if key is not None:
            replaced = self._network is not None and bool(self._network.replaced.forwards)
            remember(key, found, replaced, time.monotonic() - start)
        return found

    @property
    def vocabulary(self) -> int:
        """The number of tokens in the model's vocabulary.

        It is `vocab_size` of the configuration, else the number of embeddings, else the length of
        the tokenizer, else `vocab_size` of this object. Raises `ModelError` if none is known.
        """
        config = text_config(self.config)
        stated = config.get if isinstance(config, Mapping) else partial(getattr, config)
        known = stated("vocab_size", None) or embedding_rows(self._model)
        if not known and hasattr(type(self.tokenizer), "__len__"):
            known = len(self.tokenizer)
        known = known or getattr(self, "vocab_size", None)
        if known:
            return int(known)
        if self._replaces("_model_call"):
            return UNKNOWN_VOCABULARY
        raise ModelError(
            f"the number of tokens in the vocabulary of {type(self).__name__} is not known. Set "
            "self.vocab_size in its constructor."
        )

    @property
    def max_requests(self) -> int | None:
        """The maximum number of requests per batch; None if only the token budget limits it."""
        return self.max_batch_size if self.batch_size == "auto" else int(self.batch_size)

    @property
    def _max_rows(self) -> int:
        """The maximum number of answers that are generated at a time."""
        return self.max_requests or max_answers_at_once(self._torch_device)

    def tree_scorer(self) -> TreeScorer | None:
        """Returns a new scorer that shares prefixes between requests.

        Returns None for encoder-decoder models, and if prefix sharing is off or not exact on this
        model.
        """
        if self.backend != "causal":
            return None
        modes = self.execution_modes
        if not modes.prefix_sharing or self._network is None:
            return None
        plain = PlainScorer(self._network, *self._limits())
        return TreeScorer(self._network, *self._limits(), modes.attention_kernels.tree, plain)

    def plain_scorer(self) -> Scorer:
        """Returns a new scorer that computes every request in full.

        It is a `PlainScorer`, or an `EncoderDecoderScorer` for encoder-decoder models.
        """
        if self.backend != "causal":
            call = self._model_call if self._replaces("_model_call") else None
            return EncoderDecoderScorer(
                self._model, *self._limits(), self.softmax_dtype, call, self.autocast
            )
        logits = None if self.execution_modes.separate_head else self._model_call
        device, budget, vocabulary, rows = self._limits()
        rows = 1 if self.execution_modes.one_by_one else rows
        return PlainScorer(
            self._network, device, budget, vocabulary, rows, logits, self.softmax_dtype
        )

    def _limits(self) -> tuple[torch.device, TokenBudget, int, int | None]:
        """Returns the device, token budget, vocabulary size and maximum requests per batch."""
        return self._torch_device, self.budget, self.vocabulary, self.max_requests

    # -- scoring ---------------------------------------------------------------------------------

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Returns `(log-likelihood, is_greedy)` for each request, in order; see `LM.loglikelihood`.

        Requests that are too long are truncated, with a warning. Raises `ConfigError` if
        `enable_thinking` is set, and `ModelError` if a continuation has no tokens or its score is
        NaN. `disable_tqdm` hides the progress bar.
        """
        self._reject_thinking(requests)
        if self._replaces("tok_encode", "_encode_pair", "_loglikelihood_tokens"):
            return self._loglikelihood_through_overrides(requests, disable_tqdm)
        scores: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        quiet = disable_tqdm or self.rank != 0
        bar_of = progress(len(requests), "Scoring continuations", disable=quiet)
        with self._evaluation_call(requests), bar_of as bar, gc_paused():
            limits, usage = self._input_limits(), self.run_context.usage
            portions = encode_ahead(requests, self._encode_pairs, limits, usage)
            try:
                for i, score in self._score_portions(portions):
                    scores[i] = score
                    self.cache_hook.add_partial("loglikelihood", requests[i].args, score)
                    bar.update(1)
            except NaNScoresError as error:
                raise error.for_request(requests[error.request_index]) from error
        return scores

    def _encode_pairs(self, pairs: list[tuple[str, str]]) -> list[Window]:
        """Returns the tokens of the context and of the continuation, for each pair of texts.

        An empty context becomes the prefix token.
        """
        causal = self.backend == "causal"
        return self.text_encoder.encode_pairs(pairs, self.prefix_token_id, causal=causal)

    def _input_limits(self) -> InputLimits:
        return InputLimits(self.max_length, self.backend == "causal", self.truncation_side)

    def _score_portions(
        self, portions: Iterable[Iterable[NumberedWindow]]
    ) -> Iterator[NumberedScore]:
        """Yields the index and the score, `(log-probability, is_greedy)`, of each window.

        The order is not that of the windows. `portions` contain windows `(index, (context tokens,
        continuation tokens))`, which are truncated if they are too long. Prefixes are shared if
        that is exact on this model. Raises `NaNScoresError` if a score is NaN.
        """
        tree, plain = self.tree_scorer(), self.plain_scorer()
        max_shared = self.execution_modes.max_batched_length
        usage = self.run_context.usage
        return score_windows(portions, self._input_limits(), tree, plain, max_shared, usage)

    def _reject_thinking(self, requests: list[Instance]) -> None:
        """Raises `ConfigError` if `enable_thinking` is set and there are requests to score.

        Thinking is possible only for generation.
        """
        if self.enable_thinking and requests:
            tasks = sorted({task_of(request) for request in requests})
            raise ConfigError(
                "enable_thinking works only for tasks that generate text. These tasks score given "
                f"texts; run them without it: {', '.join(tasks)}."
            )

    def _loglikelihood_through_overrides(
        self, requests: list[Instance], disable_tqdm: bool
    ) -> list[tuple[float, bool]]:
        """Returns what `loglikelihood` returns, through methods that were replaced.

        These are `tok_encode`, `_encode_pair` and `_loglikelihood_tokens`. Raises `ModelError` if a
        continuation has no tokens or its score is NaN.
        """
        windows = [self._encode_request(*request.args) for request in requests]
        usage = self.run_context.usage
        check_windows(requests, enumerate(windows), self._input_limits(), usage)
        encoded = [(r.args, *window) for r, window in zip(requests, windows, strict=True)]
        try:
            with self._evaluation_call(requests):
                return self._loglikelihood_tokens(encoded, disable_tqdm=disable_tqdm)
        except NaNScoresError as error:
            raise error.for_request(requests[error.request_index]) from error

    def _loglikelihood_tokens(
        self,
        requests: Sequence[Encoded],
        disable_tqdm: bool = False,
        override_bs: int | None = None,
        **kwargs: Any,
    ) -> list[tuple[float, bool]]:
        """Returns `(log-likelihood, is_greedy)` for each encoded request, in order.

        `is_greedy` is whether greedy decoding gives the continuation. The published class has this
        method too, so subclasses may call or replace it. Raises `NaNScoresError` if a score is NaN.

        Args:
            requests: `((context, continuation), context tokens, continuation tokens)` each. Scores
                are reported to the cache hook, unless None is in place of the two texts.
            disable_tqdm: whether to hide the progress bar.
            override_bs: ignored, as are `kwargs`.
        """
        scores: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        windows = [(context, continuation) for _, context, continuation in requests]
        quiet = disable_tqdm or self.rank != 0
        with progress(len(requests), "Scoring continuations", disable=quiet) as bar:
            for i, score in self._score_portions([enumerate(windows)]):
                scores[i] = score
                text = requests[i][0]
                if text is not None:
                    self.cache_hook.add_partial("loglikelihood", text, score)
                bar.update(1)
        return scores

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """Returns the log-likelihood of each text, in the order of the requests.

        See `LM.loglikelihood_rolling`. Long texts are read in windows (`rolling_stride`). A text
        without tokens gets 0. Raises `ModelError` if a score is NaN. `disable_tqdm` hides the
        progress bar.
        """
        texts = [request.args[0] for request in requests]
        if self._replaces("tok_encode"):
            codes = {text: self.tok_encode(text) for text in texts}
        else:
            codes = self.text_encoder.encode_all(texts)
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
        with self._evaluation_call(requests), bar_of as bar:
            try:
                for number, (score, _) in self._score_windows(windows):
                    whole = totals.add(number, score)
                    if whole is not None:
                        args, total = requests[whole].args, totals.of[whole]
                        self.cache_hook.add_partial("loglikelihood_rolling", args, total)
                        bar.update(1)
            except NaNScoresError as error:
                raise error.for_request(requests[owner[error.request_index]]) from error
        return totals.of

    def _score_windows(self, windows: list[Window]) -> Iterable[NumberedScore]:
        """Yields the index and the score, `(log-probability, is_greedy)`, of each window.

        The windows are parts of long texts, as context and continuation tokens. Uses
        `_loglikelihood_tokens` if it was replaced.
        """
        if not self._replaces("_loglikelihood_tokens"):
            return self._score_portions([enumerate(windows)])
        encoded: list[Encoded] = [(None, *window) for window in windows]
        return enumerate(self._loglikelihood_tokens(encoded, disable_tqdm=True))

    # -- generation ------------------------------------------------------------------------------

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Returns the generated text of each request, in order; see `LM.generate_until`.

        Contexts that leave too little room for the answer are truncated, with a warning. Raises
        `ConfigError` for invalid generation settings, and `ModelError` if the answer leaves no room
        for a context or logits are NaN. `disable_tqdm` hides the progress bar.
        """
        answers = [""] * len(requests)
        quiet = disable_tqdm or self.rank != 0
        usage = self.run_context.usage
        bar_of = progress(
            len(requests),
            "Generating answers",
            disable=quiet,
            tokens=lambda: usage.tokens_generated,
        )
        with self._evaluation_call(requests), bar_of as bar, full_gc_postponed():
            hook = self.cache_hook
            by_position = getattr(hook, "takes_positions", False)
            for i, text in self._generator().answer(requests, in_order=not by_position):
                answers[i] = text
                if by_position:
                    hook.add_at("generate_until", [i], [text])
                else:
                    hook.add_partial("generate_until", requests[i].args, text)
                bar.update(1)
        return answers

    def _generator(self) -> Generator:
        """Returns the object that answers generation requests with this model."""
        special, mark = special_tokens(self.tokenizer), self.think_end_token
        model = TextModel(
            encode=self._encode_contexts,
            decode=self.tok_decode,
            batch_decoder=self._batch_decoder,
            causal=self.backend == "causal",
            max_length=self.max_length,
            max_gen_toks=self.max_gen_toks,
            truncation_side=self.truncation_side,
            end_token=self.eot_token_id,
            special_tokens=special,
            think_end_token=special.get(mark, mark) if isinstance(mark, str) else mark,
            thought_budget=self._thought_budget(),
            defaults=getattr(self.model, "generation_config", None),
            device=self._torch_device,
        )
        transformers = TransformersLoop(
            generate=self._model_generate,
            compatibility=self._compatibility_of,
            pad_token=getattr(self.tokenizer, "pad_token_id", None) or 0,
            name=type(self).__name__,
        )
        return Generator(
            model,
            self._builtin_loop(),
            transformers,
            answers_per_batch=self._answers_per_batch,
            seed=self._sampling_seed(),
            usage=self.run_context.usage,
        )

    def _thought_budget(self) -> ThoughtBudget | None:
        """Returns after how many tokens thoughts are cut; None if they are not."""
        mark = self.think_end_token
        if self.thinking_budget is None or mark is None:
            return None
        tokens = (
            [mark] if isinstance(mark, int) else self.tok_encode(mark, add_special_tokens=False)
        )
        return ThoughtBudget(self.thinking_budget, tuple(tokens))

    def _encode_contexts(self, texts: Iterable[str]) -> dict[str, list[int]]:
        """Returns the tokens of each distinct context, by its text.

        A context without tokens gets `[prefix_token_id]`. Uses `tok_batch_encode` or `tok_encode`
        if one of them was replaced.
        """
        if self._replaces("tok_batch_encode"):
            rows = ((text, self.tok_batch_encode([text])) for text in dict.fromkeys(texts))
            codes = {text: ids[0][mask[0].bool()].tolist() for text, (ids, mask) in rows}
        elif self._replaces("tok_encode"):
            codes = {text: self.tok_encode(text) for text in dict.fromkeys(texts)}
        else:
            codes = self.text_encoder.encode_contexts(texts)
        return {text: tokens or [self.prefix_token_id] for text, tokens in codes.items()}

    def _batch_decoder(self) -> DecodeMany:
        """Returns a function that decodes several rows of tokens; uses a replaced `tok_decode`."""
        if self._replaces("tok_decode"):
            return one_by_one(self.tok_decode)
        return fast_decoder(self.tokenizer, self.tok_decode)

    def _builtin_loop(self) -> BuiltinLoop | None:
        """Returns the built-in generation loop, or None if transformers must generate.

        That is so for encoder-decoder models, if prefix sharing is off or not exact on this model,
        if the model has a `generate` of its own, and if `_model_generate` is replaced.
        """
        replaced = self._replaces("_model_generate")
        if self.backend != "causal" or replaced or has_custom_generate(self.model):
            return None
        modes = self.execution_modes
        if not modes.prefix_sharing or self._network is None:
            return None
        return BuiltinLoop(
            self._network,
            modes.attention_kernels,
            self.budget,
            modes.max_batched_length,
            modes.decoding,
            self._max_rows,
        )

    def _answers_per_batch(self, length: int) -> int:
        """Returns how many answers are generated in one batch, at least 1.

        That is the maximum number of requests per batch if one is set, else as many as fit into
        memory. `length` is the number of tokens of prompt and answer together.
        """
        if self.max_requests is not None:
            return self.max_requests
        config = text_config(self.config)
        return max_answers_in_memory(config, self._torch_device, dtype_of(self.model), length)

    def _sampling_seed(self) -> int:
        """Returns the seed for sampled answers: the model's `seed`, else that of the run.

        Without either, it is a new random number, so that each call samples differently. But it is
        1234 if several processes hold parts of one model, because they must all sample the same.
        """
        given = self.seed is not None or self.run_context.seed is not None or self.lockstep
        return sampling_seed(self) if given else int(torch.randint(1 << 62, ()))

    def _compatibility_of(self, prompts: list[Prompt]) -> BatchCompatibility:
        """Returns which prompts transformers may continue in one batch: "any", "equal" or "none".

        "equal" means only prompts of equal length, "none" that each prompt needs a batch of its
        own. It is found by a trial with the first (longest) and the last of the given prompts,
        which must be sorted by length. Later calls return the same. With a batch size of 1 there is
        no trial, and the result is "any".
        """
        if self.max_requests == 1:
            return "any"
        generate = method_of(self, "_model_generate")
        if self.batch_compatibility is None or self._compatibility_of_method is not generate:
            self._compatibility_of_method = generate
            self.batch_compatibility = find_compatibility(
                self._continue_batch,
                prompts[0].tokens,
                prompts[-1].tokens,
                self._torch_device,
                self.mixed_precision_dtype or dtype_of(self.model),
                type(self.model).__name__,
            )
        return self.batch_compatibility

    def _continue_batch(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Returns the logits (B, S, V) of the S tokens with which the model continues the prompts.

        If `_model_generate` is replaced, returns the tokens (B, S) that it generates.
        `tokens` and `mask` are the prompts (B, T), padded on the left.
        """
        if self._replaces("_model_generate"):
            return next_tokens(self._model_generate, tokens, mask)
        with self.autocast():
            return next_scores(self.model, self.tokenizer.pad_token_id, tokens, mask)

    def _warn_truncated(self, requests: list[Instance], before: Counter[str]) -> None:
        """Logs a warning for each task with requests that were truncated since the counts `before`.

        Only the tasks of `requests` are considered.
        """
        cut = "beginning" if self.truncation_side == "left" else "end of the context"
        truncated = self.run_context.usage.truncated
        warn_truncated(map(task_of, requests), truncated, before, self.max_length, cut)


#: Methods that subclasses override and that patches replace, on the class or on an object. A
#: method that differs from the one listed here is called, and faster code that would bypass it is
#: not used.
OUR_METHODS = {
    **methods_of(
        HFLM,
        (
            "_loglikelihood_tokens",
            "_model_call",
            "_model_generate",
            "tok_batch_encode",
            "tok_decode",
            "tok_encode",
        ),
    ),
    "_encode_pair": ENCODE_PAIR,
}


def missing_model_error(arguments: Mapping[str, Any]) -> EvalError:
    """Returns the error for an `HFLM` without a model; it is also a `TypeError`.

    `arguments` are those that were given.
    """
    close = nearest("pretrained", arguments, 1)
    meant = f" You passed {close[0]!r}; did you mean 'pretrained'?" if close else ""
    return as_original_type(
        ConfigError(
            f"the model 'hf' requires pretrained: pass --model_args pretrained=….{meant} It is the "
            "name, the folder or the object of a model."
        ),
        TypeError(),
    )
