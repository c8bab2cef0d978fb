"""Train the demo model: make the text, the tokenizer and the weights from one seed.

Run it from the root of the repository: `python -m tools.demo.train`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from tools.demo import overlap, tokenizer, world

WEIGHTS = Path(__file__).resolve().parents[2] / "lm_eval" / "models" / "demo" / "weights"
CONTEXT = 1024
ANSWER = re.compile(r"(?:Answer|A):([^\n]*)|asks \w+\. (.*) is the answer")
ANSWER_WEIGHT = 10.0
SHAPE = {
    "vocab_size": tokenizer.VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": CONTEXT,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.06,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "hidden_act": "silu",
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}


def make_shard(number: int) -> list[str]:
    """One shard of the training text without what it shares with the benchmark."""
    index = overlap.Index(overlap.benchmark_texts())
    return overlap.clean(list(world.shard(number)), index)


def make_text(shards: int) -> list[str]:
    """The training text, made by as many processes as there are cores."""
    with Pool(os.cpu_count()) as pool:
        return [text for made in pool.imap(make_shard, range(shards)) for text in made]


@dataclass(frozen=True)
class Stream:
    """The text as one stream of tokens, how much each counts, and where documents start."""

    tokens: NDArray[np.int64]
    weights: NDArray[np.float32]
    starts: NDArray[np.int64]


def encode(texts: list[str], coder: Tokenizer) -> Stream:
    """Encode the documents with an end-of-text token before each.

    A scene is mostly chance: who is where cannot be foreseen. What can be learnt stands in the
    answers, so their tokens count more.
    """
    tokens, weights, lengths = [], [], []
    for text, coded in zip(texts, coder.encode_batch(texts), strict=True):
        answered = np.zeros(len(text) + 1, dtype=bool)
        for answer in ANSWER.finditer(text):
            group = answer.lastindex or 0
            answered[answer.start(group) : answer.end(group)] = True
        firsts = np.array([0] + [end - 1 for _, end in coded.offsets])
        counts = np.where(answered[firsts], ANSWER_WEIGHT, 1.0)
        counts[0] = 1.0
        tokens.append(np.array([0, *coded.ids]))
        weights.append(counts.astype(np.float32))
        lengths.append(len(counts))
    starts = np.cumsum([0, *lengths[:-1]])
    return Stream(np.concatenate(tokens), np.concatenate(weights), starts)


def batches(
    stream: Stream, rows: int, length: int, steps: int, seed: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Rows that begin where a document begins, half of them without the end-of-text before it.

    Prompts are scored without a prefix token unless they are empty, so both must be familiar.
    """
    rng = np.random.default_rng(seed)
    usable = stream.starts[stream.starts < len(stream.tokens) - length - 1]
    for _ in range(steps):
        begin = rng.choice(usable, rows) + rng.integers(0, 2, rows)
        taken = begin[:, None] + np.arange(length)
        yield torch.from_numpy(stream.tokens[taken]), torch.from_numpy(stream.weights[taken])


def fit(stream: Stream, args: argparse.Namespace) -> LlamaForCausalLM:
    """Train with AdamW under a cosine schedule."""
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    model = LlamaForCausalLM(LlamaConfig(**SHAPE)).to(args.device)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.05},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    fused = args.device == "cuda"
    optimiser = torch.optim.AdamW(groups, lr=args.rate, betas=(0.9, 0.98), fused=fused)
    warm = max(1, min(200, args.steps // 10))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda step: min((step + 1) / warm, 0.5 + 0.5 * math.cos(math.pi * step / args.steps)),
    )
    begun = time.monotonic()
    drawn = batches(stream, args.rows, args.length, args.steps, args.seed)
    for step, (ids, weights) in enumerate(drawn):
        ids, weights = ids.to(args.device), weights[:, 1:].reshape(-1).to(args.device)
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.device != "cpu"):
            logits = model(input_ids=ids).logits
        losses = torch.nn.functional.cross_entropy(
            logits[:, :-1].float().reshape(-1, logits.shape[-1]),
            ids[:, 1:].reshape(-1),
            reduction="none",
        )
        loss = (losses * weights).sum() / weights.sum()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 100 == 0 or step == args.steps - 1:
            answers = losses[weights > 1].mean().item()
            spent = time.monotonic() - begun
            print(f"step {step} loss {loss.item():.4f} answers {answers:.4f} {spent:.0f} s")
    return model


def save(model: LlamaForCausalLM, coder: Tokenizer, folder: Path) -> None:
    """Write weights as float16, and a configuration that names nothing of this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: value.detach().to("cpu", torch.float16).contiguous()
        for name, value in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **SHAPE,
        "torch_dtype": "float16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tokenizer.save(coder, folder, CONTEXT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=6600)
    parser.add_argument("--rows", type=int, default=48)
    parser.add_argument("--length", type=int, default=CONTEXT)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shards", type=int, default=world.SHARDS)
    args = parser.parse_args()
    begun = time.monotonic()
    texts = make_text(args.shards)
    coder = tokenizer.train(texts[:20_000])
    stream = encode(texts, coder)
    print(f"{len(texts)} documents, {len(stream.tokens)} tokens, {time.monotonic() - begun:.0f} s")
    model = fit(stream, args)
    save(model, coder, args.out)


if __name__ == "__main__":
    main()
