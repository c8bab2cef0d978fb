"""Writes small GGUF files with random weights, of architectures whose state cannot be cut.

The tokenizer is that of `gguf_model.py`. Run by the Python of the environment `llama-cpp`:

    python tests/servers/random_gguf.py FILE ARCHITECTURE

ARCHITECTURE is `mamba` (recurrent layers) or `gemma2` (sliding-window attention in every second
layer).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf_model import Floats, _add_tokenizer, with_bos

LAYERS, WIDTH, HEADS, CONTEXT, WINDOW = 2, 64, 4, 512, 16
INNER, STATE, KERNEL, RANK = 128, 8, 4, 8


def mamba(draw: Any) -> Iterator[tuple[str, Floats]]:
    """Yields the tensors of the layers of a Mamba model by name."""
    for layer in range(LAYERS):
        yield f"blk.{layer}.attn_norm.weight", np.ones(WIDTH, np.float32)
        yield f"blk.{layer}.ssm_in.weight", draw(2 * INNER, WIDTH)
        yield f"blk.{layer}.ssm_conv1d.weight", draw(INNER, KERNEL)
        yield f"blk.{layer}.ssm_conv1d.bias", draw(INNER)
        yield f"blk.{layer}.ssm_x.weight", draw(RANK + 2 * STATE, INNER)
        yield f"blk.{layer}.ssm_dt.weight", draw(INNER, RANK)
        yield f"blk.{layer}.ssm_dt.bias", draw(INNER)
        # A state that decays slowly, so that every token before has an effect.
        yield f"blk.{layer}.ssm_a", -np.abs(draw(INNER, STATE)) * 0.1
        yield f"blk.{layer}.ssm_d", draw(INNER)
        yield f"blk.{layer}.ssm_out.weight", draw(WIDTH, INNER)


def gemma2(draw: Any) -> Iterator[tuple[str, Floats]]:
    """Yields the tensors of the layers of a Gemma 2 model by name."""
    for layer in range(LAYERS):
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            yield f"blk.{layer}.{name}.weight", np.ones(WIDTH, np.float32)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"blk.{layer}.{name}.weight", draw(WIDTH, WIDTH)
        for name in ("ffn_gate", "ffn_up"):
            yield f"blk.{layer}.{name}.weight", draw(INNER, WIDTH)
        yield f"blk.{layer}.ffn_down.weight", draw(WIDTH, INNER)


def write(file: Path, architecture: str) -> None:
    """Writes a model with random weights."""
    config, tokenizer, _ = with_bos()
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_layer_norm_rms_eps(1e-5)
    if architecture == "mamba":
        writer.add_feed_forward_length(0)
        writer.add_head_count(0)
        writer.add_ssm_conv_kernel(KERNEL)
        writer.add_ssm_inner_size(INNER)
        writer.add_ssm_state_size(STATE)
        writer.add_ssm_time_step_rank(RANK)
    else:
        writer.add_feed_forward_length(INNER)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(HEADS)
        writer.add_key_length(WIDTH // HEADS)
        writer.add_value_length(WIDTH // HEADS)
        writer.add_attn_logit_softcapping(50.0)
        writer.add_final_logit_softcapping(30.0)
        writer.add_sliding_window(WINDOW)
    _add_tokenizer(writer, config, tokenizer)
    random = np.random.default_rng(0)

    def draw(*shape: int) -> Floats:
        return (random.standard_normal(shape) * 0.5 / np.sqrt(shape[-1])).astype(np.float32) * 4

    writer.add_tensor("token_embd.weight", draw(config["vocab_size"], WIDTH))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for name, tensor in (mamba if architecture == "mamba" else gemma2)(draw):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2])
