"""The start-up check: which fast execution modes give exact scores on this model.

Some random tokens are scored by the definition (one request at a time, through the model's own
forward pass), and then in each fast mode. A mode is not used if its scores differ by more than the
rounding of the model's dtype explains. Nothing is assumed about an architecture: if a model ignores
position ids, has sliding windows, recurrent states or custom code, the comparison shows it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lm_eval.models.conventions import Window
from lm_eval.models.huggingface import accelerated
from lm_eval.models.huggingface.attention import NO_KERNELS, AttentionKernels
from lm_eval.models.huggingface.continuous_batching import Decoding
from lm_eval.models.huggingface.decoding_check import (
    Logits,
    allowed_difference,
    decoding_difference,
    describe_error,
    find_decoding,
)
from lm_eval.models.huggingface.memory import TokenBudget, is_out_of_memory
from lm_eval.models.huggingface.network import Network
from lm_eval.models.huggingface.pages import PAGE
from lm_eval.models.huggingface.scoring import PlainScorer, Scorer, TreeScorer

logger = logging.getLogger(__name__)

TOLERANCE = {torch.float64: 2e-4, torch.float32: 2e-4, torch.float16: 0.03, torch.bfloat16: 0.15}
"""By how much log-probabilities may differ, by dtype: each, or a mean over likely tokens."""
MAX_CHECKED_WINDOW = 600
"""Up to this size of a sliding window, the check uses texts that are longer than the window."""


@dataclass(frozen=True)
class ExecutionModes:
    """Which ways of running a model give exact scores."""

    separate_head: bool = False
    """Trunk and output head can be run separately, so that only scored positions are projected."""
    prefix_sharing: bool = False
    """Requests can share prefixes."""
    attention_kernels: AttentionKernels = NO_KERNELS
    """The attention kernels that can be used."""
    decoding: Decoding | None = None
    """How tokens are decoded with continuous batching; None if that is not possible."""
    max_batched_length: int | None = None
    """The maximum number of tokens of a text that may be run together with others. Longer texts
    share neither a prefix nor a batch. None for no limit."""
    one_by_one: bool = False
    """Requests must be run one by one, because in a batch even padding on the right changes their
    scores."""
    reason: str = ""
    """Why prefixes cannot be shared; empty if they can."""


def check_execution_modes(
    network: Network | None,
    logits: Logits,
    device: torch.device,
    dtype: torch.dtype,
    vocabulary: int,
    max_length: int,
    *,
    share: bool = True,
    full: TokenBudget | None = None,
    max_rows: int,
) -> tuple[ExecutionModes, Network | None]:
    """Returns the modes that give exact scores on random tokens, and the network to run them with.

    The network is `network` or, if that is exact too, a copy of it in which kernels replace some of
    the modules. It is None if `network` is None. If `max_length` is too small for the check, no
    mode is exact.

    Args:
        network: the model, split into trunk and head; None if it cannot be split.
        logits: the model's own forward pass.
        device: where the model reads its tokens.
        dtype: the dtype in which the model computes, which determines the tolerance.
        vocabulary: the number of tokens of the model.
        max_length: the maximum number of tokens that the model reads at once.
        share: whether prefixes may be shared.
        full: the budget of real batches. On a GPU, a batch of that size is run at the end. If
            memory runs out, this halves the budget at the start, not in the middle of the
            evaluation.
        max_rows: the maximum number of answers at a time.
    """
    full = full or TokenBudget(device)
    window = None if network is None else sliding_window(network.config)
    window_checked = window is not None and window <= MAX_CHECKED_WINDOW
    windows = make_trial_windows(
        vocabulary, min(max_length, window + 24 if window and window_checked else 56)
    )
    if not windows:
        return (
            ExecutionModes(reason="max_length is too small for the start-up check"),
            network,
        )
    # Long enough for several pages of the key-value cache.
    long_windows = make_trial_windows(vocabulary, min(max_length, len(windows[0][0]) + 4 * PAGE))
    long_texts = [read for read, _ in long_windows[:3]]
    expected = reference_scores(logits, windows, device)
    budget = TokenBudget(device)
    tolerance = TOLERANCE.get(dtype, 0.15)

    def difference(scorer: Scorer) -> str:
        """Returns how the scorer's scores differ from the reference; empty if they do not."""
        try:
            found = dict(scorer.score([dict(enumerate(windows))]))
        except Exception as error:  # third-party model code can raise anything
            if is_out_of_memory(error):
                raise
            return describe_error(error)
        off = [abs(found[i][0] - expected[i]) / len(windows[i][1]) for i in range(len(windows))]
        worst = np.max(off)  # NaN if any of them is NaN
        return "" if worst <= tolerance else f"scores differ by {worst:.2g} per token"

    def unsplit_modes(reason: str, max_batched_length: int | None = None) -> ExecutionModes:
        """Returns the modes that use the model's own forward pass, in batches if that is exact.

        `reason` is why prefixes cannot be shared. Texts longer than `max_batched_length` are run
        alone; None for no limit.
        """
        one_by_one = bool(difference(PlainScorer(None, device, budget, vocabulary, None, logits)))
        return ExecutionModes(
            one_by_one=one_by_one, max_batched_length=max_batched_length, reason=reason
        )

    if network is None:
        return unsplit_modes("the model cannot be split into trunk and output head"), None
    limits = [None if window_checked else window, longrope_limit(network.config, max_length)]
    max_batched_length = min((limit for limit in limits if limit is not None), default=None)
    half_precision = device.type == "cuda" and dtype in (torch.float16, torch.bfloat16)
    # So small that there are several batches, which pass on keys and values.
    small = TokenBudget(device, tokens=3 * len(windows[0][0]) // 2)

    def split_modes(network: Network) -> ExecutionModes:
        """Returns the modes for a model that is run as trunk and head."""
        if problem := difference(PlainScorer(network, device, budget, vocabulary, None)):
            return unsplit_modes(problem, max_batched_length)
        if not share:
            return ExecutionModes(
                separate_head=True,
                max_batched_length=max_batched_length,
                reason="prefix_sharing is off",
            )
        for kernels in (True, False) if half_precision and accelerated.can_compile() else (False,):
            scorer = TreeScorer(network, device, small, vocabulary, None, kernels)
            problem = difference(scorer) or layers_bypassing_layout(scorer, network)
            if problem:
                logger.info(
                    "Prefix sharing%s is not exact on this model and is not used: %s.",
                    " with our attention kernel" if kernels else "",
                    problem,
                )
                continue
            for flash in (True, False) if half_precision else (False,):
                attention_kernels = AttentionKernels(kernels, flash)
                plain = decoding_difference(
                    network,
                    logits,
                    [read for read, _ in windows[:3]],
                    device,
                    attention_kernels,
                    tolerance,
                )
                problem = plain.problem
                if not problem:
                    allowed = allowed_difference(tolerance, plain.size)
                    return ExecutionModes(
                        separate_head=True,
                        prefix_sharing=True,
                        attention_kernels=attention_kernels,
                        decoding=find_decoding(
                            network,
                            logits,
                            long_texts,
                            device,
                            attention_kernels,
                            allowed,
                            max_rows,
                        ),
                        max_batched_length=max_batched_length,
                    )
                logger.info(
                    "Decoding with a key-value cache%s is not exact on this model and is not used: "
                    "%s.",
                    " and flash attention" if flash else "",
                    problem,
                )
        return ExecutionModes(
            separate_head=True, max_batched_length=max_batched_length, reason=problem
        )

    chosen = network.with_forwards(accelerated.faster_forwards(network.trunk, network.head))
    found = split_modes(chosen)
    # Kernels may be wrong in a tree alone. Products are not: if rows are exact, sharing fails for
    # another reason, and the check need not be repeated.
    may_share = share and accelerated.uses_kernels(chosen.replaced.forwards)
    is_best = found.prefix_sharing if may_share else found.separate_head
    if chosen.replaced.forwards and not is_best:
        plain = split_modes(network)
        if (plain.separate_head, plain.prefix_sharing) > (
            found.separate_head,
            found.prefix_sharing,
        ):
            logger.info("The model's own modules are used, not ours: %s.", found.reason)
            found, chosen = plain, network
    run_largest_batch(chosen, found, device, full, vocabulary, max_length)
    return found, chosen


def run_largest_batch(
    network: Network | None,
    modes: ExecutionModes,
    device: torch.device,
    budget: TokenBudget,
    vocabulary: int,
    max_length: int,
) -> None:
    """Runs a batch that is as large as the budget, if prefixes are shared on a GPU.

    If memory runs out, this halves the budget at the start, not in the middle of the evaluation.
    """
    if network is not None and modes.prefix_sharing and device.type == "cuda":
        kernels = modes.attention_kernels.tree
        run_full_batch(TreeScorer(network, device, budget, vocabulary, None, kernels), max_length)


def run_full_batch(scorer: TreeScorer, max_length: int) -> None:
    """Scores random tokens, as many as the scorer's token budget, and drops the scores.

    If memory runs out, the scorer halves its budget. The requests have `max_length` tokens, but at
    most 128.
    """
    length = min(max_length, 128)
    rng = np.random.default_rng(1)
    texts = rng.integers(1, scorer.vocabulary, (max(1, scorer.budget.tokens // length), length))
    windows = {i: (text[:-1], text[-length // 2 :]) for i, text in enumerate(texts.tolist())}
    for _ in scorer.score([windows]):
        pass


def layers_bypassing_layout(scorer: TreeScorer, network: Network) -> str:
    """Returns what is wrong if some layers did not use the layout; else an empty string.

    Counts the layers that called the layout of the scorer's last batch. Layers that did not call it
    mix tokens in a way that the layout does not control.
    """
    layers = getattr(network.config, "num_hidden_layers", None)
    called = 0 if scorer.last is None else len(scorer.last.layers)
    if called == layers:
        return ""
    return f"only {called} of {layers} layers use the attention function that transformers selects"


def sliding_window(config: Any) -> int | None:
    """Returns the size of the sliding window or chunk of the model's layers, in tokens.

    Returns None if no layer has one, or if the configuration turns it off (`use_sliding_window`).
    """
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or ()
    if any("chunked" in kind for kind in kinds):  # Llama 4
        window = getattr(config, "attention_chunk_size", None) or window
    if not window or getattr(config, "use_sliding_window", True) is False:
        return None
    if kinds and not any("sliding" in kind or "chunked" in kind for kind in kinds):
        return None
    return int(window)


def longrope_limit(config: Any, max_length: int) -> int | None:
    """Returns the length up to which a LongRoPE model uses its first set of rotary frequencies.

    Phi-3 switches all positions of a forward pass to the second set as soon as one position exceeds
    the original training length. In a batch with a long text, short texts would be affected.
    Returns None for models without such a switch, or if the length is not less than `max_length`.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = rope.values() if "rope_type" not in rope else [rope]
    lengths = [
        kind.get("original_max_position_embeddings")
        or getattr(config, "original_max_position_embeddings", None)
        for kind in kinds
        if isinstance(kind, Mapping) and kind.get("rope_type") == "longrope"
    ]
    limits = [int(length) for length in lengths if length and length < max_length]
    return min(limits, default=None)


def make_trial_windows(vocabulary: int, length: int) -> list[Window]:
    """Returns requests of random tokens that share prefixes, one of them a prefix of another.

    Each is `(tokens read, tokens predicted)`, where the last positions read predict up to 4 tokens.
    The longest has `length` tokens, the last of which is predicted but not read. The tokens are the
    same in every call. Returns an empty list if `length` is less than 2.
    """
    rng = np.random.default_rng(0)
    low = min(8, vocabulary // 2)

    def draw(count: int) -> list[int]:
        return [int(token) for token in rng.integers(low, vocabulary, max(count, 0))]

    stem = draw(length // 2)
    question = stem + draw(length // 4)
    rest = length - len(question)
    texts = [question + draw(rest) for _ in range(2)] + [question + draw(rest // 2)]
    texts += [stem + draw(length // 3), question + draw(1), draw(length // 2)]
    return [(text[:-1], text[-min(4, len(text) - 1) :]) for text in texts if len(text) > 1]


def reference_scores(
    logits: Logits, windows: Sequence[Window], device: torch.device
) -> list[float]:
    """Returns the log-probability of each window by the definition, one request at a time.

    It is summed over the tokens predicted. `logits` is the model's own forward pass; a window is
    `(tokens read, tokens predicted)`.
    """
    sums = []
    for read, targets in windows:
        with torch.inference_mode():
            scores = logits(torch.tensor([read], device=device))[0]
            own = torch.log_softmax(scores[-len(targets) :].float(), dim=-1)
            target = torch.tensor(targets, device=own.device)
            sums.append(float(own.gather(1, target[:, None]).double().sum()))
    return sums
