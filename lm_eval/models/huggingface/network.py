"""A causal model in two parts: the trunk, and the head that projects to the vocabulary.

The head is the expensive part for small models and large vocabularies, and most positions of a
prompt are not scored. So the trunk runs over all tokens and the head over scored rows only, some at
a time, with the log-softmax in float32.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lm_eval.models.huggingface.accelerated import reduce_rows
from lm_eval.models.huggingface.attention import configs_of, running
from lm_eval.models.huggingface.replaced_forwards import Forward, ReplacedForwards
from lm_eval.models.huggingface.torch_reduction import at_least_float32


class Scores(NamedTuple):
    """For wanted tokens: their log-probabilities, and whether each was the likeliest."""

    logprob: Tensor
    likeliest: Tensor


class Network:
    """Runs a causal language model for scoring."""

    def __init__(
        self,
        model: Any,
        softmax_dtype: torch.dtype | None = None,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.trunk: nn.Module = inner.base_model
        self.head: nn.Module = inner.get_output_embeddings()
        if self.head is None:
            raise TypeError("the model has no output embeddings")
        self.config: Any = text_config(inner.config)
        self.configs = configs_of(self.trunk)
        self.softmax_dtype = softmax_dtype or torch.float32
        self.autocast = autocast
        self.replaced = ReplacedForwards()
        """Kernels that stand in for modules of the trunk while it runs; none by default."""

    def with_forwards(self, forwards: Mapping[nn.Module, Forward]) -> Network:
        """Returns the same network with these functions in place of the modules' own forwards."""
        other = copy.copy(self)
        other.replaced = ReplacedForwards(forwards)
        return other

    def hidden(self, tokens: Tensor, position: Tensor | None = None) -> Tensor:
        """Returns the trunk's last hidden states (B, T, D) of tokens (B, T)."""
        places = {} if position is None else {"position_ids": position}
        with running, self.autocast(), self.replaced.switched_on():
            states: Tensor = self.trunk(input_ids=tokens, use_cache=False, **places)[0]
        return states

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns next-token scores of hidden states, scaled and capped as the model does it."""
        with self.autocast():
            scores: Tensor = self.head(hidden)
        if scale := getattr(self.config, "logits_scaling", None):  # Granite
            scores = scores / scale
        if scale := getattr(self.config, "logit_scale", None):  # Cohere
            scores = scores * scale
        if cap := getattr(self.config, "final_logit_softcapping", None):  # Gemma
            scores = torch.tanh(scores / cap) * cap
        return scores

    def score_rows(
        self, hidden: Tensor, row: Tensor, wanted: Tensor, cuts: list[tuple[int, int, int, int]]
    ) -> Scores:
        """Score tokens `wanted` (P) by rows `row` (P, ascending) of hidden states (R, D).

        `cuts` are the pieces to work in, `(first row, last row, first wanted, last wanted)`.
        """
        return score_pieces(
            lambda first, last: self.logits(hidden[first:last]),
            row,
            wanted,
            cuts,
            self.softmax_dtype,
        )


def score_pieces(
    logits_of: Callable[[int, int], Tensor],
    row: Tensor,
    wanted: Tensor,
    cuts: list[tuple[int, int, int, int]],
    dtype: torch.dtype,
) -> Scores:
    """Score wanted tokens from next-token scores that are made piece by piece."""
    logprobs, likeliest = [], []
    for first, last, begin, end in cuts:
        logits = logits_of(first, last)
        place = row[begin:end].to(logits.device) - first
        token = wanted[begin:end].to(logits.device)
        of_device = _score_on_cpu if logits.device.type == "cpu" else _score_on_device
        found = of_device(logits.to(dtype) if dtype != torch.float32 else logits, place, token)
        logprobs.append(found.logprob)
        likeliest.append(found.likeliest)
    return Scores(torch.cat(logprobs), torch.cat(likeliest))


def _score_on_device(logits: Tensor, place: Tensor, token: Tensor) -> Scores:
    """Scores with as few passes over the logits as possible, and without synchronisation."""
    total, best = reduce_rows(logits)
    return Scores(logits[place, token].to(total.dtype) - total[place], best[place] == token)


def _score_on_cpu(logits: Tensor, place: Tensor, token: Tensor) -> Scores:
    """Scores on a CPU, where argmax is slower than max."""
    logits = at_least_float32(logits)
    found, top = logits[place, token], logits.amax(dim=-1)
    likeliest = found == top[place]
    hits = likeliest.nonzero()[:, 0]  # of equals the first is taken, as argmax does
    likeliest[hits] = logits[place[hits]].argmax(dim=-1) == token[hits]
    total = logits.sub_(top[:, None]).exp_().sum(dim=-1).log_()
    return Scores(found - top[place] - total[place], likeliest)


def pieces(row: Any, rows: int, at_once: int) -> list[tuple[int, int, int, int]]:
    """Cut `rows` rows into pieces, with the stretch of the ascending `row` that reads each."""
    cuts = []
    for first in range(0, rows, at_once):
        last = min(first + at_once, rows)
        begin, end = row.searchsorted(first), row.searchsorted(last)
        if end > begin:
            cuts.append((first, last, int(begin), int(end)))
    return cuts


def text_config(config: Any) -> Any:
    """Returns the language model's own configuration, where a model has several."""
    read = getattr(config, "get_text_config", None)
    return read(decoder=True) if read is not None else config
