"""Measures the Hugging Face backend on a GPU, on the workload of `../shared/bench`.

usage: MIRROR=DATA PYTHONPATH=. python benchmarks/huggingface_gpu.py BENCH TOKENIZER OUT.json TASKS

BENCH is the folder with `workload.py`, `published_gpu.py` and `local_data.py`; TASKS is a folder
with the published task files. Also run `published_gpu.py TOKENIZER PUBLISHED.json` in the same
session on the same machine: only the ratio of the two is meaningful. Measures the time of
`loglikelihood`, including tokenization, the time of the whole evaluation, and the peak GPU memory.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

bench, tokenizer_folder, out, tasks_folder = sys.argv[1:5]
sys.path.insert(0, bench)
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("LMEVAL_DATA_DIR", os.environ["MIRROR"])

import datasets  # noqa: E402, F401 (the published script imports it before it measures, too)
import torch  # noqa: E402
import workload  # noqa: E402

import lm_eval  # noqa: E402
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402


def measure(
    net: Any, tokenizer: Any, manager: TaskManager, task: str, shots: int, limit: int
) -> Any:
    """Returns the measurements of one task: times in seconds, peak memory in MiB."""
    start = time.time()
    lm = HFLM(pretrained=net, tokenizer=tokenizer, max_length=4096)
    torch.cuda.synchronize()
    made = time.time() - start
    torch.cuda.reset_peak_memory_stats()
    span: dict[str, float] = {}
    plain = lm.loglikelihood

    def timed(requests: list[Instance], **kwargs: Any) -> list[tuple[float, bool]]:
        torch.cuda.synchronize()
        begun = time.time()
        answers = plain(requests, **kwargs)
        torch.cuda.synchronize()
        span["forward_s"] = time.time() - begun
        return answers

    lm.loglikelihood = timed  # type: ignore[method-assign]
    start = time.time()
    results = lm_eval.simple_evaluate(
        model=lm,
        tasks=[task],
        num_fewshot=shots,
        limit=limit,
        task_manager=manager,
        bootstrap_iters=0,
        log_samples=False,
    )
    assert results is not None
    return {
        "task": task,
        "shots": shots,
        "docs": sum(n["effective"] for n in results["n-samples"].values()),
        **span,
        "whole_s": time.time() - start,
        "model_made_s": made,
        "peak_mib": torch.cuda.max_memory_allocated() >> 20,
    }


def main() -> None:
    net, tokenizer = workload.model(), workload.tokenizer(tokenizer_folder)
    manager = TaskManager(include_path=tasks_folder, include_defaults=False)
    found = []
    for task, shots, limit in workload.TASKS:
        found.append(measure(net, tokenizer, manager, task, shots, limit))
        print(json.dumps(found[-1]), flush=True)
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
