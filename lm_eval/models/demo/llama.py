"""A Llama model in numpy.

It runs in two ways. `Llama.read` takes a packed prefix tree (see `lm_eval.engine.plan`) and returns
the hidden state of every node; a node shared by several requests is computed once. `Decoder`
continues from the key-value caches of prompts and adds one token at a time to many answers.

Letters in shapes: N tokens, D model width, H query heads, K key-value heads, G = H/K query heads
per key-value head, E width of a head, V vocabulary size, T tokens of context, P prompts, R answers
per prompt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from lm_eval.engine.plan import Batch, Ints

Floats = NDArray[np.float32]
Attend = Callable[[int, Floats, Floats, Floats], Floats]
"""Maps layer index, queries (N, H, E), keys and values (N, K, E) to attention outputs (N, H, E)."""

MASKED = np.float32(-1e30)
"""Added to attention scores that are masked out."""
BLOCK = 96
"""The least number of tree nodes whose attention is computed together."""


@dataclass(frozen=True)
class Layer:
    """The weights of one layer; matrices have the shape (inputs, outputs), for `x @ matrix`."""

    attention_norm: Floats
    qkv: Floats
    out: Floats
    mlp_norm: Floats
    gate_up: Floats
    down: Floats


@dataclass(frozen=True)
class Cache:
    """A key-value cache: the keys and values of N tokens, both of shape (layers, N, K, E)."""

    keys: Floats
    values: Floats

    def take(self, nodes: Ints) -> Cache:
        """Returns the cache of the tokens with these indices, in this order."""
        return Cache(self.keys[:, nodes], self.values[:, nodes])

    def __len__(self) -> int:
        """Returns the number of tokens."""
        return int(self.keys.shape[1])


class Llama:
    """A Llama model: configuration, weights and forward pass, loaded from a folder."""

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        weights = {
            name.removeprefix("model."): tensor.astype(np.float32)
            for name, tensor in load_file(folder / "model.safetensors").items()
        }
        self.heads: int = config["num_attention_heads"]
        self.key_heads: int = config["num_key_value_heads"]
        self.head_width: int = config["head_dim"]
        self.max_length: int = config["max_position_embeddings"]
        self.eps = np.float32(config["rms_norm_eps"])
        self.embedding = weights["embed_tokens.weight"]
        self.final_norm = weights["norm.weight"]
        self.to_vocabulary = np.ascontiguousarray(self.embedding.T)

        def matrix(number: int, *names: str) -> Floats:
            parts = [weights[f"layers.{number}.{name}.weight"].T for name in names]
            return np.ascontiguousarray(np.concatenate(parts, axis=1))

        self.layers = [
            Layer(
                attention_norm=weights[f"layers.{i}.input_layernorm.weight"],
                qkv=matrix(i, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
                out=matrix(i, "self_attn.o_proj"),
                mlp_norm=weights[f"layers.{i}.post_attention_layernorm.weight"],
                gate_up=matrix(i, "mlp.gate_proj", "mlp.up_proj"),
                down=matrix(i, "mlp.down_proj"),
            )
            for i in range(config["num_hidden_layers"])
        ]
        half = np.arange(0, self.head_width, 2) / self.head_width
        angles = np.arange(self.max_length)[:, None] * config["rope_theta"] ** -half
        both = np.concatenate([angles, angles], axis=1)[:, None, :]
        self.cos, self.sin = np.cos(both).astype(np.float32), np.sin(both).astype(np.float32)

    def norm(self, x: Floats, weight: Floats) -> Floats:
        """Returns the RMS norm of each row of `x`, times `weight`."""
        mean_square = np.einsum("nd,nd->n", x, x) / np.float32(x.shape[1])
        scaled: Floats = x / np.sqrt(mean_square + self.eps)[:, None] * weight
        return scaled

    def rotate(self, x: Floats, position: Ints) -> Floats:
        """Returns `x` (N, heads, E) with the rotary embedding of the N positions applied.

        `position` counts from 0 and must be less than `max_length`.
        """
        left, right = np.split(x, 2, axis=-1)
        turned: Floats = np.concatenate([-right, left], axis=-1)
        rotated: Floats = x * self.cos[position] + turned * self.sin[position]
        return rotated

    def run(self, tokens: Ints, position: Ints, attend: Attend) -> Floats:
        """Runs all layers on N tokens and returns their hidden states (N, D).

        `position` is the position of each token in its sequence, from 0. `attend` computes
        attention, and so decides which tokens attend to which.
        """
        x: Floats = self.embedding[tokens]
        queries, keys = self.heads * self.head_width, self.key_heads * self.head_width
        for number, layer in enumerate(self.layers):
            qkv = self.norm(x, layer.attention_norm) @ layer.qkv
            q, k, v = np.split(qkv, [queries, queries + keys], axis=1)
            q = self.rotate(q.reshape(len(x), self.heads, self.head_width), position)
            k = self.rotate(k.reshape(len(x), self.key_heads, self.head_width), position)
            v = v.reshape(k.shape)
            mixed = attend(number, q * np.float32(self.head_width**-0.5), k, v)
            x = x + mixed.reshape(len(x), queries) @ layer.out
            gate, up = np.split(self.norm(x, layer.mlp_norm) @ layer.gate_up, 2, axis=1)
            with np.errstate(over="ignore"):
                x = x + (gate / (1 + np.exp(-gate)) * up) @ layer.down
        return x

    def logits(self, hidden: Floats) -> Floats:
        """Returns the next-token scores (N, V) of N hidden states."""
        scores: Floats = self.norm(hidden, self.final_norm) @ self.to_vocabulary
        return scores

    def empty_cache(self) -> Cache:
        """Returns a cache with no tokens."""
        none = np.zeros((len(self.layers), 0, self.key_heads, self.head_width), np.float32)
        return Cache(none, none)

    def read(self, batch: Batch, given: Cache | None = None) -> tuple[Floats, Cache]:
        """Runs the nodes of a packed prefix tree, except the first ones, whose cache is `given`.

        Those are the first `batch.num_cached` nodes; `given` may be None if there are none. Returns
        the hidden states of the nodes that were run, and the cache of all nodes. Attention is
        computed in blocks of consecutive nodes: a block attends to itself and to the ancestors of
        its nodes. Other nodes are not part of the computation.
        """
        shape = (len(self.layers), len(batch.tokens), self.key_heads, self.head_width)
        cache = Cache(np.empty(shape, np.float32), np.empty(shape, np.float32))
        first = batch.num_cached
        if given is not None:
            cache.keys[:, :first], cache.values[:, :first] = given.keys, given.values
        blocks = list(_blocks(batch))

        def attend(number: int, q: Floats, k: Floats, v: Floats) -> Floats:
            keys, values = cache.keys[number], cache.values[number]
            keys[first:], values[first:] = k, v
            mixed = np.empty_like(q)
            for span, seen, mask in blocks:
                mixed[span] = _tree_attention(q[span], keys[seen], values[seen], mask)
            return mixed

        return self.run(batch.tokens[first:], batch.position[first:], attend), cache


def _blocks(batch: Batch) -> Iterator[tuple[slice, Ints, Floats]]:
    """Splits the nodes to run into blocks; yields (block, nodes it attends to, attention mask).

    The block is a slice of the nodes to run, so it counts from `batch.num_cached`; the nodes it
    attends to are indices of all nodes. Blocks are split where the tree is shallow, so that a block
    has few ancestors. The mask has the shape (block, nodes attended to) and is added to the
    attention scores.
    """
    first, total = batch.num_cached, len(batch.tokens)
    while first < total:
        window = batch.position[first + BLOCK : first + 2 * BLOCK]
        last = first + BLOCK + int(window.argmin()) if len(window) else total
        seen = np.concatenate([batch.ancestors(first), np.arange(first, last)])
        node = np.arange(first, last)[:, None]
        visible = (seen <= node) & (node < batch.end[seen])
        span = slice(first - batch.num_cached, last - batch.num_cached)
        yield span, seen, np.where(visible, np.float32(0), MASKED)
        first = last


def _tree_attention(q: Floats, k: Floats, v: Floats, mask: Floats) -> Floats:
    """Returns attention outputs for queries (N, H, E), keys and values (T, K, E), mask (N, T)."""
    count, heads, width = q.shape
    groups = q.reshape(count, k.shape[1], -1, width).transpose(1, 2, 0, 3)
    scores = groups @ k.transpose(1, 2, 0)[:, None]
    scores += mask
    mixed = softmax(scores) @ v.transpose(1, 0, 2)[:, None]
    return mixed.transpose(2, 0, 1, 3).reshape(count, heads, width)


def softmax(scores: Floats) -> Floats:
    """Computes the softmax over the last axis in place, and returns its argument."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def log_softmax(logits: Floats) -> Floats:
    """Returns log-probabilities over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logs: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logs


class Decoder:
    """Generates R answers to each of P prompts, one token per step.

    The key-value caches of the prompts are padded to the longest prompt and shared by the R answers
    to a prompt. Each answer has its own cache for the tokens generated so far.

    Args:
        model: the model.
        prompts: the key-value caches of the prompts, without their last tokens.
        answers: R, the number of answers per prompt.
        max_tokens: the maximum number of steps.
    """

    def __init__(self, model: Llama, prompts: list[Cache], answers: int, max_tokens: int) -> None:
        self.model = model
        self.lengths = np.array([len(prompt) for prompt in prompts])
        layers, count, width = len(model.layers), len(prompts), model.head_width
        longest = int(self.lengths.max())
        shape = (layers, count, model.key_heads, longest, width)
        self.keys, self.values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        for i, prompt in enumerate(prompts):
            self.keys[:, i, :, : len(prompt)] = prompt.keys.swapaxes(1, 2)
            self.values[:, i, :, : len(prompt)] = prompt.values.swapaxes(1, 2)
        absent = np.arange(longest) >= self.lengths[:, None]
        self.mask = np.where(absent, MASKED, np.float32(0))[:, None, None, None]
        own = (layers, count, model.key_heads, answers, max_tokens, width)
        self.answer_keys, self.answer_values = np.empty(own, np.float32), np.empty(own, np.float32)
        self.answers, self.done = answers, 0

    def step(self, tokens: Ints) -> Floats:
        """Runs one more token of each answer; returns the scores of the next tokens (P * R, V).

        `tokens` has P * R tokens, with the R answers to a prompt next to each other.
        """
        position = np.repeat(self.lengths + self.done, self.answers)
        self.done += 1
        return self.model.logits(self.model.run(tokens, position, self._attend))

    def _attend(self, number: int, q: Floats, k: Floats, v: Floats) -> Floats:
        count, now = len(self.lengths), self.done
        grid = (count, self.answers, self.model.key_heads, -1, self.model.head_width)
        q = q.reshape(grid).swapaxes(1, 2)  # P, K, R, G, E
        self.answer_keys[number, :, :, :, now - 1] = k.reshape(grid)[:, :, :, 0].swapaxes(1, 2)
        self.answer_values[number, :, :, :, now - 1] = v.reshape(grid)[:, :, :, 0].swapaxes(1, 2)
        flat = q.reshape(*q.shape[:2], -1, q.shape[-1])
        over_prompt = (flat @ self.keys[number].swapaxes(-1, -2)).reshape(
            *q.shape[:4], -1
        ) + self.mask
        own = q @ self.answer_keys[number, :, :, :, :now].swapaxes(-1, -2)
        weights = softmax(np.concatenate([over_prompt, own], axis=-1))
        longest = over_prompt.shape[-1]
        mixed: Floats = weights[..., :longest].reshape(*flat.shape[:3], -1) @ self.values[number]
        mixed = mixed.reshape(q.shape)
        mixed += weights[..., longest:] @ self.answer_values[number, :, :, :, :now]
        return mixed.swapaxes(1, 2).reshape(-1, self.model.heads, self.model.head_width)

    def keep(self, prompts: Ints) -> None:
        """Drops all prompts but these (indices); the others are finished."""
        self.lengths, self.mask = self.lengths[prompts], self.mask[prompts]
        self.keys, self.values = self.keys[:, prompts], self.values[:, prompts]
        self.answer_keys = self.answer_keys[:, prompts]
        self.answer_values = self.answer_values[:, prompts]
