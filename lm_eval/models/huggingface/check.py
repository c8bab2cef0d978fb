"""The start-up check: which fast execution modes are exact on this very model.

Some random tokens are scored by the definition, one request at a time through the model's own
forward pass, and then by each fast mode. A mode whose scores differ by more than the model's number
format explains is not used. Nothing is assumed about an architecture: one that ignores positions,
has windows, states or code of its own, shows here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm_eval.models.conventions import Window
from lm_eval.models.huggingface import accelerated
from lm_eval.models.huggingface.attention import NO_KERNELS, Attend
from lm_eval.models.huggingface.memory import Budget, is_out_of_memory
from lm_eval.models.huggingface.network import Network
from lm_eval.models.huggingface.rows import Rows
from lm_eval.models.huggingface.scoring import PlainScorer, Scorer, TreeScorer

logger = logging.getLogger(__name__)

Logits = Callable[[Tensor], Tensor]

TOLERANCE = {torch.float64: 2e-4, torch.float32: 2e-4, torch.float16: 0.03, torch.bfloat16: 0.15}
"""By how much a token's log-probability may differ."""
LONGEST_WINDOW = 600
"""Sliding windows up to this length are checked with texts that are longer."""


@dataclass(frozen=True)
class ExecutionModes:
    """Which ways of running a model are exact."""

    apart: bool = False
    """Trunk and head can be run separately, so only scored positions are projected."""
    tree: bool = False
    """Prefixes can be shared."""
    attend: Attend = NO_KERNELS
    """The kernels that attention can be left to."""
    longest: int | None = None
    """Longest text that may be run with others: longer ones share neither prefix nor batch."""
    alone: bool = False
    """Requests must be run one by one: in a batch, even padding at the end changes their scores."""
    reason: str = ""
    """Why prefixes cannot be shared."""


def check_execution_modes(
    network: Network | None,
    logits: Logits,
    device: torch.device,
    dtype: torch.dtype,
    vocabulary: int,
    max_length: int,
    *,
    share: bool = True,
    full: Budget | None = None,
) -> tuple[ExecutionModes, Network | None]:
    """Returns the modes that are exact on random tokens, and the network to run them with.

    That is the one given, with kernels in the place of some modules where they are exact too.

    Args:
        network: the model as trunk and head; None where it cannot be taken apart.
        logits: the model's own forward pass, from tokens (B, T) to next-token scores (B, T, V).
        share: whether prefixes may be shared.
        full: the budget of real batches. On a GPU one of that size is run too, so that a lack of
            memory shows at the start, and halves it.
    """
    full = full or Budget(device)
    window = None if network is None else sliding_window(network.config)
    beyond = window is not None and window <= LONGEST_WINDOW
    windows = trial(vocabulary, min(max_length, window + 24 if window and beyond else 56))
    if not windows:
        return ExecutionModes(reason="it reads single tokens"), network
    expected = by_definition(logits, windows, device)
    budget = Budget(device)
    tolerance = TOLERANCE.get(dtype, 0.15)

    def differs(scorer: Scorer) -> str:
        try:
            found = dict(scorer.score([dict(enumerate(windows))]))
        except Exception as error:  # of third-party model code; the reason is logged below
            if is_out_of_memory(error):
                raise
            return failure(error)
        off = [abs(found[i][0] - expected[i]) / len(windows[i][1]) for i in range(len(windows))]
        worst = np.max(off)  # NaN, if there is one
        return "" if worst <= tolerance else f"scores differ by {worst:.2g} a token"

    def whole(reason: str, longest: int | None = None) -> ExecutionModes:
        """The model's own forward pass only, on several rows if that is exact."""
        alone = bool(differs(PlainScorer(None, device, budget, vocabulary, None, logits)))
        return ExecutionModes(alone=alone, longest=longest, reason=reason)

    if network is None:
        return whole("it cannot be taken apart into trunk and head"), None
    limits = [None if beyond else window, first_rotation(network.config, max_length)]
    longest = min((limit for limit in limits if limit is not None), default=None)
    half = device.type == "cuda" and dtype in (torch.float16, torch.bfloat16)
    # Several batches, so that nodes are handed on from one to the next.
    small = Budget(device, tokens=3 * len(windows[0][0]) // 2)

    def taken_apart(network: Network) -> ExecutionModes:
        """The modes that take the model apart."""
        if problem := differs(PlainScorer(network, device, budget, vocabulary, None)):
            return whole(problem, longest)
        if not share:
            return ExecutionModes(apart=True, longest=longest, reason="prefix_sharing is off")
        for kernels in (True, False) if half and accelerated.can_compile() else (False,):
            scorer = TreeScorer(network, device, small, vocabulary, None, kernels)
            problem = differs(scorer) or bypassed(scorer, network)
            if problem:
                logger.info("Sharing prefixes%s: %s.", " by kernels" if kernels else "", problem)
                continue
            for flash in (True, False) if half else (False,):
                attend = Attend(kernels, flash)
                problem = decoding_differs(network, logits, windows, device, attend, tolerance)
                if not problem:
                    return ExecutionModes(apart=True, tree=True, attend=attend, longest=longest)
                logger.info("Decoding%s: %s.", " by flash attention" if flash else "", problem)
        return ExecutionModes(apart=True, longest=longest, reason=problem)

    chosen = network.with_forwards(accelerated.fused_forwards(network.trunk))
    found = taken_apart(chosen)
    if chosen.replaced.forwards and not (found.apart if not share else found.tree):
        as_it_is = taken_apart(network)
        if (as_it_is.apart, as_it_is.tree) > (found.apart, found.tree):
            logger.info("Operations are not fused: %s.", found.reason)
            found, chosen = as_it_is, network
    if found.tree and device.type == "cuda":
        kernels = found.attend.kernels
        try_full_batch(TreeScorer(chosen, device, full, vocabulary, None, kernels), max_length)
    return found, chosen


def try_full_batch(scorer: TreeScorer, max_length: int) -> None:
    """Runs as many random tokens as the budget allows, in requests of medium length."""
    length = min(max_length, 128)
    rng = np.random.default_rng(1)
    texts = rng.integers(1, scorer.vocabulary, (max(1, scorer.budget.tokens // length), length))
    windows = {i: (text[:-1], text[-length // 2 :]) for i, text in enumerate(texts.tolist())}
    for _ in scorer.score([windows]):
        pass


def bypassed(scorer: TreeScorer, network: Network) -> str:
    """Returns why the layout is not in control: layers that mix tokens without asking it."""
    layers = getattr(network.config, "num_hidden_layers", None)
    asked = 0 if scorer.last is None else len(scorer.last.layers)
    return "" if asked == layers else f"{asked} of {layers} layers attend by exchangeable functions"


def sliding_window(config: Any) -> int | None:
    """Returns how far back the model's layers look, where some do not look all the way."""
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or ()
    if any("chunked" in kind for kind in kinds):  # Llama 4
        window = getattr(config, "attention_chunk_size", None) or window
    if not window or getattr(config, "use_sliding_window", True) is False:
        return None
    if kinds and not any("sliding" in kind or "chunked" in kind for kind in kinds):
        return None
    return int(window)


def first_rotation(config: Any, max_length: int) -> int | None:
    """Returns the longest text under the first of two sets of position frequencies, if any.

    Phi-3 turns all of a forward pass's positions by the second set once one of them lies beyond
    the length it was first trained on; in one batch, short texts would be turned with a long one.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = rope.values() if "rope_type" not in rope else [rope]
    firsts = [
        kind.get("original_max_position_embeddings")
        or getattr(config, "original_max_position_embeddings", None)
        for kind in kinds
        if isinstance(kind, Mapping) and kind.get("rope_type") == "longrope"
    ]
    limits = [int(first) for first in firsts if first and first < max_length]
    return min(limits, default=None)


def trial(vocabulary: int, length: int) -> list[Window]:
    """Returns requests of random tokens that share prefixes, one being a prefix of another."""
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


def by_definition(logits: Logits, windows: Sequence[Window], device: torch.device) -> list[float]:
    """Returns log-probabilities by the definition: one request at a time, every position."""
    sums = []
    for read, wanted in windows:
        with torch.inference_mode():
            scores = logits(torch.tensor([read], device=device))[0]
            own = torch.log_softmax(scores[-len(wanted) :].float(), dim=-1)
            target = torch.tensor(wanted, device=own.device)
            sums.append(float(own.gather(1, target[:, None]).double().sum()))
    return sums


def decoding_differs(
    network: Network,
    logits: Logits,
    windows: Sequence[Window],
    device: torch.device,
    attend: Attend,
    tolerance: float,
) -> str:
    """Returns how scores differ between decoding token by token and reading all at once, if so."""
    texts = [read for read, _ in windows[:3]]
    prompts = [text[:-2] for text in texts]
    budget = Budget(device)
    try:
        with torch.inference_mode():
            rows = Rows([len(prompt) for prompt in prompts], 2, attend)
            owners = [[i] for i in range(len(prompts))]
            rows.prefill(network, prompts, owners, budget.tokens, device)
            for back in (2, 1):
                tokens = torch.tensor([[text[-back]] for text in texts], device=device)
                found = rows.step(network, tokens)
    except Exception as error:  # of third-party model code; the caller logs the reason
        if is_out_of_memory(error):
            raise
        return failure(error)
    for row, text in zip(found, texts, strict=True):
        with torch.inference_mode():
            worst = likely_difference(row, logits(torch.tensor([text], device=device))[0, -1])
        if not worst <= tolerance:
            return f"decoding differs by {worst:.2g} a token"
    return ""


def likely_difference(found: Tensor, true: Tensor) -> float:
    """Returns the largest difference between log-probabilities of the likeliest tokens."""
    expected = torch.log_softmax(true.float(), -1)
    likely = expected.topk(min(50, len(expected))).indices
    ours = torch.log_softmax(found.float(), -1).to(expected.device)
    return float((ours - expected)[likely].abs().max())


def failure(error: Exception) -> str:
    """Returns an error of third-party code in one line; its traceback is logged for debugging."""
    logger.debug("The start-up check met an error.", exc_info=error)
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
