"""The part of the start-up check that finds out how tokens may be decoded on a model.

Random tokens are decoded one by one, in each way that is fast, and the logits are compared with
those of one forward pass over all tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lm_eval.api.usage import Usage
from lm_eval.models.conventions import Generation
from lm_eval.models.huggingface import accelerated
from lm_eval.models.huggingface.attention import AttentionKernels
from lm_eval.models.huggingface.continuous_batching import ContinuousBatch, Decoding
from lm_eval.models.huggingface.generation import Prompt
from lm_eval.models.huggingface.kv_cache import KeyValueCache
from lm_eval.models.huggingface.memory import (
    TokenBudget,
    free_unused_memory,
    is_out_of_memory,
)
from lm_eval.models.huggingface.network import Network
from lm_eval.models.partial_answers import StopConditions

logger = logging.getLogger(__name__)

CONTINUOUS_DEVICES = ("cuda",)
"""The device types on which continuous batching is used."""
Logits = Callable[[Tensor], Tensor]
"""A forward pass, from tokens (B, T) to next-token logits (B, T, V)."""

FORCED_STEPS = 3
"""Number of steps decoded in each trial. The first is launched as usual, the others replayed."""
TRIAL_PROGRAMS = (140, 2048)
"""Besides a small batch, batches with so many rows times key heads are tried, unless real batches
are smaller: kernels of larger batches are others."""
COMPARED_ROWS = 64
"""Only about so many rows of a large batch are compared."""
MAX_TIMES_NOISE = 3.0
"""Decoding in pages may differ this many times as much as decoding with plain rows, which has been
found to be right: both differ by rounding only."""
MIN_NOISE_SHARE = 0.1
"""A difference of this part of the tolerance is allowed at any rate."""
COMPARED_TOKENS = 50
"""Only so many of the most likely tokens are compared: the others are hardly ever chosen."""
DECODING_MODES = {
    "continuous batching with CUDA graphs": Decoding(cascade=True, graphs=True),
    "continuous batching without CUDA graphs": Decoding(cascade=True, graphs=False),
    "continuous batching without cascade attention": Decoding(cascade=False, graphs=False),
}
"""The ways to decode with continuous batching, the fastest first."""


def find_decoding(
    network: Network,
    logits: Logits,
    texts: Sequence[Sequence[int]],
    device: torch.device,
    attention_kernels: AttentionKernels,
    tolerance: float,
    max_rows: int,
) -> Decoding | None:
    """Returns the fastest way to decode with continuous batching that is exact on this model.

    Returns None if none is, if there is no GPU or no compiler for our kernels, and if the model is
    spread over several devices: then each answer has a row of its own in a key-value cache. Logs
    the reason why a faster way is not used.

    Args:
        network: the model.
        logits: the model's own forward pass.
        texts: random tokens, some with common prefixes.
        device: where the model reads its tokens.
        attention_kernels: the attention kernels that may be used for prompts.
        tolerance: the largest difference (`logprob_difference`) that is allowed.
        max_rows: the maximum number of answers at a time.
    """
    if device.type not in CONTINUOUS_DEVICES or not accelerated.can_compile():
        return None
    if len({weight.device for weight in network.trunk.parameters()}) != 1:
        logger.info("Continuous batching is not used: the model is spread over several devices.")
        return None
    with torch.inference_mode():
        expected = [
            logits(torch.tensor([text], device=device))[0, -FORCED_STEPS:] for text in texts
        ]
    trial = Trial(network, texts, expected, device, attention_kernels, max_rows)
    for name, decoding in DECODING_MODES.items():
        if decoding.graphs and has_hooks(network):
            problem = "the model has hooks, which a graph would run only once"
        else:
            problem = trial.problem(decoding, tolerance)
        if not problem:
            return decoding
        logger.info("Decoding by %s is not used on this model: %s.", name, problem)
    return None


def has_hooks(network: Network) -> bool:
    """Returns whether Python code is attached to modules, such as hooks or another forward."""
    modules: list[nn.Module] = [*network.trunk.modules(), *network.head.modules()]
    return any(m._forward_hooks or m._forward_pre_hooks or "forward" in vars(m) for m in modules)


@dataclass(frozen=True)
class Trial:
    """Decodes random tokens in pages, in batches of several sizes."""

    network: Network
    texts: Sequence[Sequence[int]]
    """The tokens; the last `FORCED_STEPS` of each are decoded."""
    expected: Sequence[Tensor]
    """The logits of the last positions of each text, by one forward pass over all tokens."""
    device: torch.device
    attention_kernels: AttentionKernels
    max_rows: int
    """The maximum number of answers at a time."""

    def problem(self, decoding: Decoding, tolerance: float) -> str:
        """Returns in words how decoding differs from one forward pass over all tokens.

        Returns an empty string if the log-probabilities differ by at most `tolerance`
        (`logprob_difference`). If decoding raises an error, returns a description of it; only a
        lack of memory is raised.
        """
        try:
            worst = self._worst_difference(decoding)
        except CaptureError as error:
            return str(error)
        except Exception as error:  # third-party model code can raise anything
            if is_out_of_memory(error):
                raise
            return describe_error(error)
        logger.debug("Decoding by %s: log-probabilities differ by %.2g.", decoding, worst)
        return "" if worst <= tolerance else f"log-probabilities differ by {worst:.2g} per token"

    def _worst_difference(self, decoding: Decoding) -> float:
        """Returns the largest difference of batches of all sizes that use different kernels."""
        small = self._decode(len(self.texts), decoding)
        large, largest = (-(-programs // small.key_heads) for programs in TRIAL_PROGRAMS)
        found = [small, self._decode(large, decoding)]
        if decoding.cascade:  # rows without common pages are decoded by other kernels
            found.append(self._decode(large, decoding._replace(cascade=False)))
        if largest <= self.max_rows:
            found += self._decode_if_it_fits(largest, decoding)
        return max(batch.difference for batch in found)

    def _decode_if_it_fits(self, rows: int, decoding: Decoding) -> list[DecodedBatch]:
        """Decodes a batch of so many rows; returns an empty list if memory runs out."""
        try:
            return [self._decode(rows, decoding)]
        except Exception as error:  # torch raises errors of several classes
            if not is_out_of_memory(error):
                raise
            logger.info("A batch of %d rows was not tried: %s.", rows, describe_error(error))
        free_unused_memory()  # the error, which refers to the batch, is gone
        return []

    def _decode(self, rows: int, decoding: Decoding) -> DecodedBatch:
        """Decodes a batch of so many rows.

        Raises `CaptureError` if steps are to be captured but cannot be.
        """
        chosen = list(islice(cycle(range(len(self.texts))), rows))
        prompts = [self.texts[i][:-FORCED_STEPS] for i in chosen]
        batch = make_batch(
            self.network, prompts, FORCED_STEPS, self.device, self.attention_kernels, decoding
        )
        worst, every = 0.0, -(-rows // COMPARED_ROWS)
        with torch.inference_mode():
            owners = [chosen[n] for n in batch.start()]
            for step in range(FORCED_STEPS):
                forced = [self.texts[i][step - FORCED_STEPS] for i in owners]
                given = torch.tensor(forced, device=self.device)
                found = batch.step_with(given, captured=step > 0)
                true = torch.stack([self.expected[i][step] for i in owners[::every]])
                worst = max(worst, logprob_difference(found[::every], true))
        if decoding.graphs and not batch.step.graphs:
            raise CaptureError("a step cannot be captured")
        return DecodedBatch(worst, batch.cache.key_heads)


class DecodedBatch(NamedTuple):
    """What was found out with one batch of a trial."""

    difference: float
    """The largest difference of log-probabilities (`logprob_difference`)."""
    key_heads: int
    """The number of key heads of the model's layers."""


class CaptureError(RuntimeError):
    """A step cannot be captured as a CUDA graph."""


def make_batch(
    network: Network,
    prompts: Sequence[Sequence[int]],
    steps: int,
    device: torch.device,
    attention_kernels: AttentionKernels,
    decoding: Decoding,
) -> ContinuousBatch:
    """Returns a batch with one row for each of the given tokens, to be continued by some steps."""
    return ContinuousBatch(
        network,
        lambda tokens: "",
        [Prompt(str(n), list(tokens), (n,)) for n, tokens in enumerate(prompts)],
        Generation(max_gen_toks=steps + 1),
        StopConditions(frozenset(), ()),
        seed=0,
        device=device,
        max_tokens=TokenBudget(device).tokens,
        max_rows=len(prompts),
        attention_kernels=attention_kernels,
        decoding=decoding,
        usage=Usage(),
        min_pages_saved=1,
    )


@torch.inference_mode()  # type: ignore[untyped-decorator]
def launch_a_step(
    network: Network,
    device: torch.device,
    attention_kernels: AttentionKernels,
    decoding: Decoding,
) -> None:
    """Decodes one token without capturing the step, for models that are not checked again.

    Code that prepares something when it runs for the first time must run before it is captured.
    """
    batch = make_batch(network, [[0, 0]], 1, device, attention_kernels, decoding)
    batch.start()
    batch.step_with(torch.tensor([0], device=device), captured=False)


class Difference(NamedTuple):
    """How a way of decoding differs from one forward pass over all tokens."""

    size: float
    """The difference of the log-probabilities (`logprob_difference`)."""
    problem: str
    """Why this way cannot be used, in words; empty if it can."""


def decoding_difference(
    network: Network,
    logits: Logits,
    texts: Sequence[Sequence[int]],
    device: torch.device,
    attention_kernels: AttentionKernels,
    tolerance: float,
) -> Difference:
    """Returns how decoding token by token differs from one forward pass over all tokens.

    It is a problem if the log-probabilities differ by more than `tolerance`
    (`logprob_difference`), or if decoding raises an error; only a lack of memory is raised.

    Args:
        network: the model, which decodes with a key-value cache.
        logits: the model's own forward pass.
        texts: random tokens, some with common prefixes.
        device: where the model reads its tokens.
        attention_kernels: the attention kernels to use.
        tolerance: the largest difference that is allowed.
    """
    prompts = [text[:-2] for text in texts]
    budget = TokenBudget(device)
    try:
        with torch.inference_mode():
            cache = KeyValueCache([len(prompt) for prompt in prompts], 2, attention_kernels)
            owners = [[i] for i in range(len(prompts))]
            cache.prefill(network, prompts, owners, budget.tokens, device)
            for back in (2, 1):
                tokens = torch.tensor([[text[-back]] for text in texts], device=device)
                found = cache.step(network, tokens)
    except Exception as error:  # third-party model code can raise anything
        if is_out_of_memory(error):
            raise
        return Difference(float("inf"), describe_error(error))
    with torch.inference_mode():
        true = torch.cat([logits(torch.tensor([text], device=device))[0, -1:] for text in texts])
    size = logprob_difference(found, true)
    problem = "" if size <= tolerance else f"log-probabilities differ by {size:.2g} per token"
    return Difference(size, problem)


def allowed_difference(tolerance: float, noise: float) -> float:
    """Returns by how much a way of decoding may differ, at most `tolerance`.

    `noise` is the difference of a way that is right. Tolerances hold for all models; most differ by
    far less, so that a mistake could hide below the tolerance.
    """
    return min(tolerance, max(MIN_NOISE_SHARE * tolerance, MAX_TIMES_NOISE * noise))


def logprob_difference(found: Tensor, true: Tensor) -> float:
    """Returns how much the log-probabilities of rows of logits (rows, V) differ, in the worst row.

    That is the root mean square over the 50 tokens that are most likely by `true`. A wrong state
    changes all of them; of rounding errors the largest grows with the size of the model, and with
    the number of tokens that are compared. NaN counts as an infinite difference.
    """
    expected = torch.log_softmax(true.float(), -1)
    likely = expected.topk(min(COMPARED_TOKENS, expected.shape[1])).indices
    actual = torch.log_softmax(found.float(), -1).to(expected.device)
    off = (actual - expected).gather(1, likely)
    worst = float(off.square().mean(dim=1).sqrt().max())
    return worst if worst == worst else float("inf")


def describe_error(error: Exception) -> str:
    """Returns the type of an error and the first line of its message.

    The error comes from third-party code; its traceback is logged at debug level.
    """
    logger.debug("Model code raised an error during a check; the mode is not used.", exc_info=error)
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
