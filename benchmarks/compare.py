"""Measures how long `lm-eval compare` takes on stored runs of models with random answers.

    python benchmarks/compare.py                      # two runs of 14,000 documents
    python benchmarks/compare.py --models 20 --tasks 60 --documents 234

The runs are made first and stored in a temporary folder, or in `--folder`, where a later call uses
them again. Each document has four choices.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TASK = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {{test: {name}.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}\\nAnswer:"
doc_to_choice: choices
doc_to_target: answer
metric_list:
  - metric: acc
  - metric: acc_norm
metadata:
  version: 1.0
"""


def write_tasks(folder: Path, tasks: int, documents: int) -> None:
    """Writes a group `all` of `tasks` tasks with so many documents each."""
    names = [f"task_{i}" for i in range(tasks)]
    for number, name in enumerate(names):
        (folder / f"{name}.yaml").write_text(TASK.format(name=name))
        rows = (
            {
                "question": f"Question {i} of task {number}: {'which of these is right? ' * 8}",
                "choices": [f"answer {c} of question {i}" for c in "abcd"],
                "answer": i % 4,
            }
            for i in range(documents)
        )
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    listed = ", ".join(names)
    (folder / "all.yaml").write_text(
        f"group: all\ntask: [{listed}]\naggregate_metric_list: [{{metric: acc}}]\n"
    )


def lm_eval(*words: object) -> tuple[float, float]:
    """Runs `lm-eval` in a process of its own; returns the seconds and processor seconds it took."""
    began, used = time.perf_counter(), _processor_seconds()
    subprocess.run(
        [sys.executable, "-m", "lm_eval", *map(str, words)], check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - began, _processor_seconds() - used


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Makes the runs and prints how long their comparison takes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=2, help="number of runs")
    parser.add_argument("--tasks", type=int, default=1, help="tasks per run")
    parser.add_argument("--documents", type=int, default=14_000, help="documents per task")
    parser.add_argument("--repeats", type=int, default=3, help="comparisons; the fastest counts")
    parser.add_argument("--folder", type=Path, help="where the runs are stored")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        write_tasks(folder, given.tasks, given.documents)
        runs = [folder / f"run_{i}" for i in range(given.models)]
        for seed, run in enumerate(runs):
            if not run.exists():
                words = ["--model", "dummy", "--model_args", f"pretrained=model_{seed}"]
                words += ["--seed", f"{seed},{seed},{seed},1234", "--bootstrap_iters", "0"]
                lm_eval("run", *words, "--tasks", "all", "--include_path", folder, "-o", run)
        taken = [lm_eval("compare", *runs, "--format", "json") for _ in range(given.repeats)]
    print(
        f"{given.models} runs of {given.tasks} tasks with {given.documents} documents each: "
        f"{min(one[0] for one in taken):.2f} s, {min(one[1] for one in taken):.2f} s of processor "
        "time"
    )


if __name__ == "__main__":
    main()
