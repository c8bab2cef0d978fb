"""A model that is being trained: evaluated as it is, on all processes, and left as it was."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from lm_eval.api.model import LM
from lm_eval.errors import ConfigError
from lm_eval.launch import torch_distributed
from lm_eval.models.conventions import Window
from lm_eval.models.huggingface.encoding import TextEncoder
from lm_eval.models.huggingface.loading import embedding_rows_if_too_few
from lm_eval.models.huggingface.model import HFLM
from lm_eval.models.huggingface.model_state import eval_mode, is_sharded

_WRAPPERS = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)


def live_model(model: Any, tokenizer: Any, **arguments: Any) -> LiveModel:
    """Returns the model that answers requests with the model object of a training program.

    A `ShardedLiveModel` if each process holds only a part of the weights. The arguments are those
    of `LiveModel`. Raises `ConfigError` if `model` is not a transformers model.
    """
    model = unwrapped(model)
    if not hasattr(model, "config"):
        raise ConfigError(
            f"a {type(model).__name__} cannot be evaluated: it is no transformers model (it has no "
            "`config`). Pass the model that it contains, or evaluate it with lm_eval.from_logits."
        )
    chosen = ShardedLiveModel if is_sharded(model) else LiveModel
    return chosen(model, tokenizer, **arguments)


def unwrapped(model: Any) -> Any:
    """Returns the model inside wrappers that hold a whole copy of it in every process.

    These are `DistributedDataParallel` and `DataParallel`, also if they were compiled.
    """
    while isinstance(inner := getattr(model, "_orig_mod", model), _WRAPPERS):
        model = inner.module
    return model


class LiveModel(HFLM):
    """The model object of a training program, without a second copy of its weights.

    If processes are connected by `torch.distributed`, each with a copy of the model, they share the
    requests. Texts are encoded once, however often they are asked.

    Args:
        model: the model, a transformers model on its device.
        tokenizer: its tokenizer, which is copied: encoding texts changes its state.
        arguments: arguments of `HFLM`.
    """

    def __init__(self, model: Any, tokenizer: Any, **arguments: Any) -> None:
        with eval_mode(model):  # the constructor turns off training mode
            super().__init__(model, tokenizer=copy.deepcopy(tokenizer), **arguments)
        connected = torch_distributed()
        if connected is not None:
            self._rank, self._world_size = connected.get_rank(), connected.get_world_size()

    def barrier(self) -> None:
        """Waits until all processes have called this method."""
        LM.barrier(self)

    @property
    def text_encoder(self) -> TextEncoder:
        """The encoder for the tokenizer, which keeps the tokens of every text."""
        if self._encoder is None:
            self._encoder = RememberingEncoder(
                self.tokenizer,
                add_bos_token=self.add_bos_token,
                causal=self.backend == "causal",
                embeddings=embedding_rows_if_too_few(self.tokenizer, self._model),
            )
        return self._encoder


class ShardedLiveModel(LiveModel):
    """A live model whose weights are divided over the processes (FSDP, DeepSpeed ZeRO-3).

    All processes run all requests, in the same batches, and the first one reports the answers.
    Every request runs the whole model as it is wrapped.
    """

    def __init__(self, model: Any, tokenizer: Any, **arguments: Any) -> None:
        super().__init__(model, tokenizer, **{**arguments, "prefix_sharing": False})
        self._world_size, self.lockstep = 1, True

    def _model_call(
        self, inps: Tensor, attn_mask: Tensor | None = None, labels: Tensor | None = None
    ) -> Tensor:
        """Returns the logits of the token that follows each token; see `HFLM._model_call`.

        Weights are gathered in buffers that training uses again. They must not be made in inference
        mode, which forbids to change them later.
        """
        with torch.inference_mode(False):
            copied = [None if one is None else one.clone() for one in (attn_mask, labels)]
            return super()._model_call(inps.clone(), *copied)


class RememberingEncoder(TextEncoder):
    """An encoder that encodes each text once, for requests that are asked again and again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._texts: dict[tuple[str, bool], list[int]] = {}
        self._pairs: dict[tuple[str, str], Window] = {}

    def encode_all(self, texts: Iterable[str], special: bool | None = None) -> dict[str, list[int]]:
        """Returns the tokens of each text, by text; see `TextEncoder.encode_all`."""
        wanted, plain = list(texts), special is False
        new = [text for text in wanted if (text, plain) not in self._texts]
        found = super().encode_all(new, special) if new else {}
        self._texts.update(((text, plain), tokens) for text, tokens in found.items())
        return {text: self._texts[text, plain] for text in wanted}

    def encode_pairs(
        self, pairs: list[tuple[str, str]], prefix_token: int, *, causal: bool
    ) -> list[Window]:
        """Returns the tokens of each context and continuation; see `TextEncoder.encode_pairs`."""
        new = list(dict.fromkeys(pair for pair in pairs if pair not in self._pairs))
        if new:
            found = super().encode_pairs(new, prefix_token, causal=causal)
            self._pairs.update(zip(new, found, strict=True))
        return [self._pairs[pair] for pair in pairs]
