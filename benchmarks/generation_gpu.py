"""Measures generation on a GPU, by this package or by the published harness.

usage: MIRROR=DATA PYTHONPATH=. python benchmarks/generation_gpu.py BENCH TOKENIZER OUT.json \
           {ours|published} WORKLOAD …

BENCH is the folder with `workload.py` and `local_data.py`, DATA the folder of Parquet files. The
workloads, on a randomly initialized Llama with 1.24 billion parameters in bfloat16, whose answers
do not end by themselves:

    a  gsm8k, 512 prompts with examples of their own, 256 new tokens
    b  gsm8k_cot, 512 prompts with common examples, 256 new tokens
    c  gsm8k_cot, 32 prompts, 256 new tokens
    d  gsm8k_cot, 64 prompts, each answered 64 times, 512 new tokens, temperature 0.7
    e  gsm8k_cot, 4,096 requests, at most 512 at a time, answers of 16 to 1,024 tokens
    f  like b, with a model of 8 billion parameters

Run both harnesses in the same session on the same machine: only ratios are meaningful. The time is
that of `generate_until`, including tokenization. `busy` is the share of that time in which the GPU
computes; it is measured in a second run, because the profiler takes time (`--busy`). `--new=N`
changes the number of new tokens.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

bench, tokenizer_folder, out, who = sys.argv[1:5]
workloads = [name for name in sys.argv[5:] if not name.startswith("--")]
measure_busy = "--busy" in sys.argv
new_tokens = next((int(a.split("=")[1]) for a in sys.argv if a.startswith("--new=")), None)
sys.path.insert(0, bench)
os.environ["HF_HUB_OFFLINE"] = "1"
if who == "ours":
    os.environ.setdefault("LMEVAL_DATA_DIR", os.environ["MIRROR"])
else:
    import local_data  # noqa: F401

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
import workload  # noqa: E402

import lm_eval  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402

WORKLOADS: dict[str, dict[str, Any]] = {
    "a": {"task": "gsm8k", "docs": 512, "new": 256},
    "b": {"task": "gsm8k_cot", "docs": 512, "new": 256},
    "c": {"task": "gsm8k_cot", "docs": 32, "new": 256},
    "d": {"task": "gsm8k_cot", "docs": 64, "new": 512, "repeats": 64},
    "e": {"task": "gsm8k_cot", "docs": 512, "new": 1024, "copies": 8, "lengths": (16, 1024)},
    "f": {"task": "gsm8k_cot", "docs": 512, "new": 256, "large": True},
}
BATCH_SIZE = 128
"""The batch size of the published harness."""
BANDWIDTH = 4.2e12
"""Bytes per second that the GPU reads from its memory, as measured."""
FLOPS = 790e12
"""Operations per second of matrix products in bfloat16, as measured."""


def large_model() -> Any:
    """Returns a randomly initialized Llama with 8 billion parameters."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, head_dim=128, max_position_embeddings=8192,
        rope_theta=500000.0,
    )  # fmt: skip
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        net = transformers.LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    return net


def force_lengths(lm: Any, end_token: int, lengths: tuple[int, int]) -> list[int]:
    """Makes answers end after random numbers of tokens, which the generation loop does not know.

    The logits of decoding steps get an end-of-text token that is certain when its time has come.
    Returns a list to which the lengths are appended.
    """
    from lm_eval.models.huggingface.decoding_step import DecodingStep
    from lm_eval.models.huggingface.packing import copy_to_device

    rng = random.Random(0)
    drawn: list[int] = []
    network = lm._network
    running: list[tuple[Any, int]] = []
    plain_step, plain_rows = DecodingStep._step, DecodingStep.choose_rows
    plain_logits: Callable[[Any], Any] = network.logits
    ends: dict[int, Any] = {}

    def choose_rows(self: Any, source: Any, tokens: Any, draws: Any) -> None:
        plain_rows(self, source, tokens, draws)
        if id(self) not in ends:
            ends[id(self)] = torch.zeros_like(self.token)
        new = [rng.randint(*lengths) for _ in range(len(tokens))]
        drawn.extend(new)
        # As in the decoding step, without waiting for the device.
        fresh = copy_to_device(np.array(new, dtype=np.int64), self.device)
        held = torch.cat([ends[id(self)], fresh])
        index = copy_to_device(source, self.device)
        ends[id(self)][: len(source)] = held.index_select(0, index)

    def step(self: Any, size: int) -> None:
        running.append((self, size))
        try:
            plain_step(self, size)
        finally:
            running.pop()

    def logits(hidden: Any) -> Any:
        scores = plain_logits(hidden)
        if running:
            own, size = running[-1]
            due = own._buffers["chosen"][:size] + 1 >= ends[id(own)][:size]
            scores[:, end_token] = torch.where(due, torch.inf, -torch.inf)
        return scores

    DecodingStep.choose_rows = choose_rows  # type: ignore[method-assign]
    DecodingStep._step = step  # type: ignore[method-assign]
    network.logits = logits
    return drawn


def limit_seconds(net: Any, sizes: dict[str, int], rows: int, steps: float, own: float) -> float:
    """Returns the least time that the hardware allows, in seconds.

    That is the matrix products of the distinct prompt tokens and, for each step, the larger of the
    weights' matrix products and the time to read them, and the time to read the keys and values.
    `own` is the average number of keys of a row that it shares with no other.
    """
    config = net.config
    weights = sum(p.numel() for p in net.parameters())
    if not config.tie_word_embeddings:
        weights -= config.vocab_size * config.hidden_size
    token = 4 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    products = max(2 * weights * rows / FLOPS, 2 * weights / BANDWIDTH)
    prefill = sizes["distinct"] * 2 * (weights - config.vocab_size * config.hidden_size) / FLOPS
    return prefill + steps * (products + rows * own * token / BANDWIDTH)


def measure(name: str, net: Any, tokenizer: Any, profiler: Any = None) -> dict[str, Any]:
    """Returns the measurements of one workload: times in seconds, peak memory in MiB.

    `profiler` is a context manager under which the answers are generated.
    """
    spec = WORKLOADS[name]
    repeats, new = spec.get("repeats", 1), new_tokens or spec["new"]
    start = time.time()
    kwargs = {} if who == "ours" else {"batch_size": BATCH_SIZE}
    lm = HFLM(pretrained=net, tokenizer=tokenizer, max_length=4096, **kwargs)
    torch.cuda.synchronize()
    made = time.time() - start
    lengths: list[int] = []
    if "lengths" in spec:
        lengths = force_lengths(lm, lm.eot_token_id, spec["lengths"])
    found: dict[str, Any] = {}
    plain = lm.generate_until

    def timed(requests: list[Any], **more: Any) -> list[str]:
        requests = requests * spec.get("copies", 1)
        if "copies" in spec:  # requests that differ, but are as long
            requests = [
                type(r)(r.request_type, r.doc, (f"{r.args[0]}{n % 10}{n // 10}", r.args[1]), n)
                for n, r in enumerate(requests)
            ]
        texts = [
            tokenizer(text)["input_ids"] for text in dict.fromkeys(r.args[0] for r in requests)
        ]
        _, found["distinct"], found["tokens_in"] = workload.compute_limit_seconds(net, texts)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        with profiler or nullcontext():
            begun = time.time()
            answers = plain(requests, **more)
            torch.cuda.synchronize()
            found["generate_s"] = time.time() - begun
        found["answers"] = len(requests)
        own = found["distinct"] / len({r.args[0] for r in requests}) + new / 2
        rows = min(512, len(requests))
        steps = len(requests) * (sum(lengths) / len(lengths) if lengths else new) / rows
        found["limit_s"] = limit_seconds(net, found, rows, steps, own)
        found["first"] = answers[0][:60]
        return answers[: len(requests) // spec.get("copies", 1)]

    lm.generate_until = timed
    sampled = {"do_sample": True, "temperature": 0.7} if repeats > 1 else {}
    start = time.time()
    lm_eval.simple_evaluate(
        model=lm,
        tasks=[{"task": spec["task"], "repeats": repeats} if repeats > 1 else spec["task"]],
        limit=spec["docs"],
        bootstrap_iters=0,
        log_samples=False,
        gen_kwargs={"max_gen_toks": new, "until": ["@@never@@"], **sampled},
    )
    tokens = sum(lengths) if lengths else found["answers"] * new
    return {
        "workload": name, "who": who, "new": new, **found, "tokens_out": tokens,
        "tokens_per_s": round(tokens / found["generate_s"]),
        "times_limit": round(found["generate_s"] / found["limit_s"], 2),
        "whole_s": time.time() - start, "model_made_s": made,
        "peak_mib": torch.cuda.max_memory_allocated() >> 20,
    }  # fmt: skip


def busy_share(name: str, net: Any, tokenizer: Any) -> float:
    """Returns the share of the time of `generate_until` in which the GPU computes."""
    from torch.profiler import ProfilerActivity, profile

    profiler = profile(activities=[ProfilerActivity.CUDA])
    found = measure(name, net, tokenizer, profiler)
    computed = sum(event.self_device_time_total for event in profiler.key_averages()) / 1e6
    return float(round(computed / found["generate_s"], 3))


def main() -> None:
    tokenizer = workload.tokenizer(tokenizer_folder)
    rows, net, is_large = [], None, None
    for name in workloads:
        if net is None or WORKLOADS[name].get("large", False) != is_large:
            net, is_large = None, WORKLOADS[name].get("large", False)
            torch.cuda.empty_cache()
            net = large_model() if is_large else workload.model()
        rows.append(measure(name, net, tokenizer))
        if measure_busy:
            rows[-1]["busy"] = busy_share(name, net, tokenizer)
        print(json.dumps(rows[-1]), flush=True)
        Path(out).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
