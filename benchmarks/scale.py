"""Measures large evaluations: many documents, many tasks, a large group, one huge document.

usage: python benchmarks/scale.py [CASE ...] [--hf MODEL]

Each case runs in a process of its own, with the dummy model unless it is named otherwise; prints
seconds and the peak of its memory. `documents`: 300,000 documents with four choices. `tasks`: 5,000
task files. `group`: a group of 10,000 tasks, one document each. `text`: one document of 5 MB, with
the demo model; `hf_text`: the same with a transformers model, whose path `--hf` gives.

Measured on an idle machine with two cores and Python 3.11, seconds of CPU and peak of memory:

    documents   14.4 s,    835 MB
    tasks        4.5 s,    206 MB
    group        8.8 s,    358 MB
    text       235.5 s,  1,171 MB
    hf_text    129.6 s,  1,272 MB (stories260K)

The text of 5 MB is 2.8 million tokens of the demo model. Most of the memory is that of the
tokenizer, which encodes the text as a whole; the windows are read in batches.
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

CASES = ("documents", "tasks", "group", "text", "hf_text")
TASK = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "Question {{{{n}}}}: {{{{q}}}}"
doc_to_choice: [a, b, c, d]
doc_to_target: "{{{{n % 4}}}}"
metric_list:
  - metric: acc
"""
ROLLING = """\
task: huge
dataset_path: json
dataset_kwargs:
  data_files:
    test: data.jsonl
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - metric: byte_perplexity
"""


def write_rows(file: Path, count: int) -> None:
    with file.open("w") as opened:
        for n in range(count):
            opened.write(json.dumps({"n": n, "q": f"what is the answer to number {n}?"}) + "\n")


def prepare(case: str, folder: Path) -> list[str]:
    """Writes the tasks of a case to `folder`; returns the words of the command."""
    model, names = "dummy", "scale"
    if case == "documents":
        write_rows(folder / "data.jsonl", 300_000)
        (folder / "scale.yaml").write_text(TASK.format(name="scale", data="data.jsonl"))
    elif case in ("tasks", "group"):
        count = 5_000 if case == "tasks" else 10_000
        write_rows(folder / "data.jsonl", 1)
        members = [f"scale_{i:05}" for i in range(count)]
        for name in members:
            data = folder / "data.jsonl"
            (folder / f"{name}.yaml").write_text(TASK.format(name=name, data=data))
        listed = "".join(f"  - {name}\n" for name in members)
        metrics = "aggregate_metric_list:\n  - metric: acc\n" if case == "group" else ""
        (folder / "group.yaml").write_text(f"group: scale\ntask:\n{listed}{metrics}")
    else:
        model, names = ("demo" if case == "text" else "hf"), "huge"
        text = "".join(f"This is sentence {i} of a long text. " for i in range(140_000))[:5_000_000]
        (folder / "data.jsonl").write_text(json.dumps({"text": text}) + "\n")
        (folder / "huge.yaml").write_text(ROLLING)
    return ["run", "--model", model, "--tasks", names, "--include_path", str(folder)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=CASES, help=", ".join(CASES))
    parser.add_argument("--hf", metavar="MODEL", help="path of a transformers model for `hf_text`")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        from lm_eval.cli import main as command

        began, used = time.perf_counter(), time.process_time()
        code = command(json.loads(given.inside))
        took, used = time.perf_counter() - began, time.process_time() - used
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"MEASURED {took:.1f} s, {used:.1f} s of CPU, {peak:.0f} MB, exit code {code}")
        return 0
    for case in given.cases:
        if case == "hf_text" and not given.hf:
            print("hf_text: skipped; give --hf MODEL")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            words = prepare(case, Path(scratch))
            if case == "hf_text":
                words += ["--model_args", f"pretrained={given.hf}"]
            done = subprocess.run(
                [sys.executable, __file__, "--inside", json.dumps(words)],
                capture_output=True,
                text=True,
                check=False,
            )
            lines = (done.stdout + done.stderr).splitlines()
            measured = [line for line in lines if line.startswith("MEASURED")]
            errors = [line[:300] for line in lines if line.startswith("lm-eval: error")]
            print(f"{case}: {(measured or lines[-3:])} {' '.join(errors)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
