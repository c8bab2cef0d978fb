"""A causal model in two parts: the trunk, and the output head that computes the logits.

For small models with large vocabularies the head is the expensive part, and most positions of a
prompt are not scored. So the trunk runs over all tokens, and the head only over the scored
positions, in pieces, with the log-softmax in float32.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lm_eval.models.context_length import text_config
from lm_eval.models.huggingface.accelerated import reduce_rows
from lm_eval.models.huggingface.attention import configs_of, model_lock
from lm_eval.models.huggingface.replaced_forwards import Forward, ReplacedForwards
from lm_eval.models.huggingface.torch_reduction import at_least_float32


class Scores(NamedTuple):
    """The log-probabilities of target tokens, and whether each was the most likely token."""

    logprob: Tensor
    is_greedy: Tensor


class Network:
    """Runs a causal language model as trunk (all layers) and head (the projection to logits)."""

    def __init__(
        self,
        model: Any,
        softmax_dtype: torch.dtype | None = None,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """Splits `model` into trunk and head.

        Raises `TypeError` or `AttributeError` if the model cannot be split.

        Args:
            model: a causal model of transformers, possibly with PEFT adapters.
            softmax_dtype: the dtype of the log-softmax; None for float32.
            autocast: returns the context manager under which the model runs.
        """
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
        """Functions that replace those of modules while they run; none by default."""
        self._replaced_head = ReplacedForwards()
        """Those of them that belong to the head."""

    def with_forwards(self, forwards: Mapping[nn.Module, Forward]) -> Network:
        """Returns a network in which these functions replace the forwards of the given modules.

        It shares the modules and their weights with this one, but none of its replacements.
        """
        other = copy.copy(self)
        other.replaced = ReplacedForwards(forwards)
        of_head = {module: forwards[module] for module in self.head.modules() if module in forwards}
        other._replaced_head = ReplacedForwards(of_head)
        return other

    def with_more_forwards(self, forwards: Mapping[nn.Module, Forward]) -> Network:
        """Returns a network that has these replacements, too, besides those of this one."""
        return self.with_forwards({**self.replaced.forwards, **forwards}) if forwards else self

    def hidden(self, tokens: Tensor, position: Tensor | None = None) -> Tensor:
        """Returns the trunk's last hidden states (B, T, D) of tokens (B, T).

        `position` (B, T) are the positions of the tokens, from 0; None leaves them to the model.
        """
        positions = {} if position is None else {"position_ids": position}
        with model_lock, self.autocast(), self.replaced.active():
            states: Tensor = self.trunk(input_ids=tokens, use_cache=False, **positions)[0]
        return states

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns the next-token logits (…, V) of hidden states (…, D).

        They are scaled and capped as in the model.
        """
        with model_lock, self.autocast(), self._replaced_head.active():
            scores: Tensor = self.head(hidden)
        if scale := getattr(self.config, "logits_scaling", None):  # Granite
            scores = scores / scale
        if scale := getattr(self.config, "logit_scale", None):  # Cohere
            scores = scores * scale
        if cap := getattr(self.config, "final_logit_softcapping", None):  # Gemma
            scores = torch.tanh(scores / cap) * cap
        return scores

    def score_rows(
        self, hidden: Tensor, row: Tensor, targets: Tensor, cuts: list[tuple[int, int, int, int]]
    ) -> Scores:
        """Returns log-probabilities of the tokens `targets` (P), and which are the likeliest.

        They are predicted by hidden states (R, D): `row` (P), in ascending order, is the index of
        the one that predicts each target. `cuts` are the pieces to compute one after another, as
        `(first row, last row, first target, last target)` with exclusive ends
        (`split_into_pieces`).
        """
        return score_in_pieces(
            lambda first, last: self.logits(hidden[first:last]),
            row,
            targets,
            cuts,
            self.softmax_dtype,
        )


def score_in_pieces(
    logits_of: Callable[[int, int], Tensor],
    row: Tensor,
    targets: Tensor,
    cuts: list[tuple[int, int, int, int]],
    dtype: torch.dtype,
) -> Scores:
    """Returns the scores of the tokens `targets` (P), with logits that are computed piece by piece.

    Args:
        logits_of: returns the logits of the rows from `first` up to, not including, `last`.
        row: for each target, the row of logits that predicts it; in ascending order.
        targets: the tokens to score.
        cuts: the pieces of `split_into_pieces`.
        dtype: the dtype of the log-softmax.
    """
    logprobs, is_greedy = [], []
    for first, last, begin, end in cuts:
        logits = logits_of(first, last)
        place = row[begin:end].to(logits.device) - first
        token = targets[begin:end].to(logits.device)
        score = _score_on_cpu if logits.device.type == "cpu" else _score_on_device
        found = score(logits.to(dtype) if dtype != torch.float32 else logits, place, token)
        logprobs.append(found.logprob)
        is_greedy.append(found.is_greedy)
    return Scores(torch.cat(logprobs), torch.cat(is_greedy))


def _score_on_device(logits: Tensor, place: Tensor, token: Tensor) -> Scores:
    """Returns the scores of the tokens `token` (P), predicted by the rows `place` (P) of `logits`.

    It makes as few passes over the logits as possible, and does not synchronize with the device.
    """
    total, best = reduce_rows(logits)
    return Scores(logits[place, token].to(total.dtype) - total[place], best[place] == token)


def _score_on_cpu(logits: Tensor, place: Tensor, token: Tensor) -> Scores:
    """Returns the scores of the tokens `token` (P), predicted by the rows `place` (P) of `logits`.

    This is the version for CPUs, where argmax is slower than max. It may overwrite `logits`.
    """
    logits = at_least_float32(logits)
    found, top = logits[place, token], logits.amax(dim=-1)
    is_greedy = found == top[place]
    hits = is_greedy.nonzero()[:, 0]  # of several equal maxima only the first counts, as in argmax
    is_greedy[hits] = logits[place[hits]].argmax(dim=-1) == token[hits]
    total = logits.sub_(top[:, None]).exp_().sum(dim=-1).log_()
    return Scores(found - top[place] - total[place], is_greedy)


def split_into_pieces(row: Any, rows: int, at_once: int) -> list[tuple[int, int, int, int]]:
    """Splits `rows` rows of logits into pieces of at most `at_once` rows.

    Returns for each piece `(first row, last row, first target, last target)`, where the ends are
    exclusive and `row`, in ascending order, is the row of each target. Pieces without targets are
    omitted.
    """
    cuts = []
    for first in range(0, rows, at_once):
        last = min(first + at_once, rows)
        begin, end = row.searchsorted(first), row.searchsorted(last)
        if end > begin:
            cuts.append((first, last, int(begin), int(end)))
    return cuts
