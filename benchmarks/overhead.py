"""Measures the overhead of the harness (all but the model), compared with the published harness.

usage: python benchmarks/overhead.py [PUBLISHED_VENV] [--documents N]
       (`make bench` creates both environments)

Both evaluate the dummy model on one generated task: 14,000 documents with four choices, five
few-shot examples in every prompt, with sample logs. The time is that of `simple_evaluate`, from
loading the data to the standard errors; the memory is the peak of the whole process. The two
harnesses run alternately.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
TASK = """\
task: overhead
dataset_path: json
dataset_kwargs:
  data_files:
    test: {folder}/test.jsonl
    dev: {folder}/dev.jsonl
test_split: test
fewshot_split: dev
fewshot_config:
  sampler: first_n
num_fewshot: 5
output_type: multiple_choice
doc_to_text: "{{{{question.strip()}}}}\\nA. {{{{choices[0]}}}}\\nB. {{{{choices[1]}}}}\\nC. {{{{choices[2]}}}}\\nD. {{{{choices[3]}}}}\\nAnswer:"
doc_to_choice: ["A", "B", "C", "D"]
doc_to_target: answer
description: "The following are multiple choice questions.\\n\\n"
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
  - metric: acc_norm
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""  # noqa: E501 (the prompt is one line of YAML)
TIMED = """
import logging, resource, sys, time
logging.disable(logging.ERROR)
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
manager = TaskManager(include_path={folder!r}, include_defaults=False)
start = time.perf_counter()
results = simple_evaluate(
    model="dummy", tasks=["overhead"], task_manager=manager, log_samples=True
)
took = time.perf_counter() - start
kept = len(results["samples"]["overhead"])
score = results["results"]["overhead"]["acc,none"]
print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, kept, score)
"""
WORDS = ("amber", "basin", "copper", "delta", "ember", "fjord", "garnet", "harbour", "island")


def write_task(folder: Path, documents: int) -> None:
    """Writes the task `overhead` with `documents` random documents to `folder`."""
    draw = random.Random(1)

    def text(least: int, most: int) -> str:
        return " ".join(draw.choice(WORDS) for _ in range(draw.randint(least, most)))

    for split, count in (("test", documents), ("dev", 5)):
        rows = (
            {
                "question": f"Question {i}: {text(20, 60)}?",
                "choices": [text(1, 8) for _ in range(4)],
                "answer": draw.randrange(4),
            }
            for i in range(count)
        )
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "overhead.yaml").write_text(TASK.format(folder=folder))


def measure(python: Path, folder: Path) -> tuple[float, float]:
    """Evaluates the task under one interpreter; returns seconds and peak memory in MB."""
    environment = {**os.environ, "HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [str(python), "-c", TIMED.format(folder=str(folder))],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        env=environment,
    )
    seconds, megabytes, kept, score = done.stdout.split()[-4:]
    print(f"  {kept} samples, acc {float(score):.3f}, {float(seconds):.2f} s, {megabytes} MB")
    return float(seconds), float(megabytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = HERE / ".venv" / "published"
    parser.add_argument(
        "published",
        nargs="?",
        type=Path,
        default=default,
        help="virtual environment to compare with",
    )
    parser.add_argument("--documents", type=int, default=14_000, help="documents of the task")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each harness")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_task(folder, given.documents)
        pythons = {"published": given.published / "bin" / "python", "ours": Path(sys.executable)}
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in pythons}
        for _ in range(given.rounds):
            for name, python in pythons.items():
                print(name)
                taken[name].append(measure(python, folder))
    (theirs, their_memory), (ours, our_memory) = (
        tuple(statistics.median(column) for column in zip(*taken[name], strict=True))
        for name in ("published", "ours")
    )
    print(f"time    published {theirs:.1f} s, ours {ours:.2f} s: {theirs / ours:.1f} times faster")
    print(
        f"memory  published {their_memory:.0f} MB, ours {our_memory:.0f} MB: "
        f"{our_memory / their_memory:.2f} times as much"
    )


if __name__ == "__main__":
    main()
