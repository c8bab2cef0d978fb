"""Measures how long scoring takes, compared with the published harness.

usage: python benchmarks/scoring.py [PUBLISHED_VENV]      (`make bench` creates both environments)

Choices: 125,000 documents of four choices, so 500,000 answers. The time is that from the start of
the filters to the results (scores, means, standard errors).

Bootstrap: the standard error of BLEU, chrF, TER, F1 and MCC over 2,000 documents and 1,000
replicates. The published code would take hours for some metrics, so it computes only
`PUBLISHED_REPLICATES` of them and its time is extrapolated; ours computes all. Both resample the
same documents, so with equal numbers of replicates both standard errors must be equal; this is
checked.

Times are CPU seconds, so that other load on the machine does not count. All of the work is done by
one thread.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROUNDS = 3
DOCUMENTS, CHOICES = 125_000, 4
SEGMENTS, REPLICATES = 2_000, 1_000
PUBLISHED_REPLICATES = {"bleu": 4, "chrf": 2, "ter": 2, "f1": 50, "mcc": 50}
HERE = Path(__file__).resolve().parents[1]

TASK = """\
task: choices
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: question
doc_to_choice: choices
doc_to_target: answer
metric_list:
  - metric: acc
  - metric: acc_norm
"""


def write_task(folder: Path) -> None:
    """Writes the task `choices` with random documents to `folder`."""
    rnd = random.Random(0)
    words = [str(n) for n in range(1000)]
    with (folder / "rows.jsonl").open("w") as rows:
        for number in range(DOCUMENTS):
            choices = [" ".join(rnd.choices(words, k=3)) for _ in range(CHOICES)]
            row = {"question": f"{number}?", "choices": choices, "answer": rnd.randrange(CHOICES)}
            rows.write(json.dumps(row) + "\n")
    (folder / "choices.yaml").write_text(TASK.format(file=folder / "rows.jsonl"))


# -- the work, which runs in the environment of either harness --------------------------------


def score_choices(folder: str) -> dict[str, Any]:
    """Returns the scores of an instant model, and the seconds from the first filter on."""
    from lm_eval import evaluate
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager, get_task_dict

    class Instant(LM):
        def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
            rnd = random.Random(1)
            return [(-10 * rnd.random(), False) for _ in requests]

        def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
            raise NotImplementedError

        def generate_until(self, requests: list[Any]) -> list[str]:
            raise NotImplementedError

    manager = TaskManager(include_path=folder, include_defaults=False)
    tasks = get_task_dict(["choices"], manager)
    (task,) = tasks.values()
    task.set_config("num_fewshot", 0)
    task.set_fewshot_seed(seed=0)
    started, filters = [], task.apply_filters
    task.apply_filters = lambda: (started.append(time.process_time()), filters())
    results = evaluate(Instant(), tasks, log_samples=False)
    seconds = time.process_time() - started[0]
    assert results is not None
    row = results["results"]["choices"]
    return {"seconds": seconds, "scores": {k: v for k, v in row.items() if "," in k}}


def translations() -> list[tuple[str, str]]:
    """Returns random (reference, answer) pairs of sentences."""
    rnd = random.Random(0)
    words = [f"w{n}" for n in range(300)]
    pairs = []
    for _ in range(SEGMENTS):
        reference = rnd.choices(words, k=rnd.randint(8, 24))
        answer = [w if rnd.random() < 0.7 else rnd.choice(words) for w in reference]
        rnd.shuffle(answer[: len(answer) // 4])
        pairs.append((" ".join(reference), " ".join(answer)))
    return pairs


def labels() -> list[tuple[int, int]]:
    """Returns random (gold, predicted) pairs of 0 and 1."""
    rnd = random.Random(0)
    golds = [rnd.randrange(2) for _ in range(SEGMENTS)]
    return [(gold, gold if rnd.random() < 0.8 else 1 - gold) for gold in golds]


def bootstrap_published() -> dict[str, Any]:
    """Returns the seconds and the standard error of `PUBLISHED_REPLICATES` of each metric."""
    from lm_eval.api import metrics

    os.environ["DISABLE_MULTIPROC"] = "1"  # a process pool would not help: too few replicates
    functions = {
        "bleu": metrics.bleu,
        "chrf": metrics.chrf,
        "ter": metrics.ter,
        "f1": metrics.f1_score,
        "mcc": metrics.matthews_corrcoef,
    }
    found = {}
    for name, function in functions.items():
        items = labels() if name in ("f1", "mcc") else translations()
        function(items[:10])  # so that imports are not measured
        start = time.process_time()
        error = metrics.bootstrap_stderr(function, items, PUBLISHED_REPLICATES[name])
        found[name] = {"seconds": time.process_time() - start, "error": float(error)}
    return found


def bootstrap_ours() -> dict[str, Any]:
    """Returns the seconds of all replicates of each metric.

    The standard error is that of `PUBLISHED_REPLICATES`, for the comparison.
    """
    from lm_eval.metrics import classification, translation, uncertainty

    functions = {
        "bleu": translation.bleu,
        "chrf": translation.chrf,
        "ter": translation.ter,
        "f1": classification.f1_score,
        "mcc": classification.matthews_corrcoef,
    }
    uncertainty._TRANSLATION_REPLICATES = REPLICATES
    found = {}
    for name, function in functions.items():
        items: Any = labels() if name in ("f1", "mcc") else translations()
        function(items[:10])
        seconds = []
        for _ in range(ROUNDS):
            start = time.process_time()
            uncertainty.standard_error(function, items, REPLICATES)
            seconds.append(time.process_time() - start)
        few = uncertainty.standard_error(function, items, PUBLISHED_REPLICATES[name])
        found[name] = {"seconds": statistics.median(seconds), "error": few}
    return found


# -- the comparison ---------------------------------------------------------------------------


def run_work(python: str, *words: str) -> dict[str, Any]:
    """Runs this script with `--work` under the interpreter `python`; returns its JSON output."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, str(Path(__file__).resolve()), "--work", *words],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        env=environment,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def same(one: Any, other: Any) -> bool:
    """Returns whether two numbers are equal up to rounding."""
    return abs(one - other) <= 1e-9 * max(abs(one), abs(other))


def compare_choices(pythons: dict[str, str]) -> None:
    """Prints the times of scoring multiple choice, and whether the scores are equal."""
    times: dict[str, list[float]] = {who: [] for who in pythons}
    scores: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        write_task(Path(folder))
        for _ in range(ROUNDS):  # alternately, so that noise affects both alike
            for who, python in pythons.items():
                answer = run_work(python, "choices", folder)
                times[who].append(answer["seconds"])
                scores[who] = answer["scores"]
    equal = all(same(value, scores["ours"][key]) for key, value in scores["published"].items())
    median = {who: statistics.median(values) for who, values in times.items()}
    print(
        f"500,000 answers  published {median['published']:.2f} s   ours {median['ours']:.2f} s   "
        f"{median['published'] / median['ours']:.1f} times faster   scores equal: {equal}"
    )


def compare_bootstrap(pythons: dict[str, str]) -> None:
    """Prints the times of the bootstrap for each metric, and whether the errors are equal."""
    found = {who: run_work(python, f"bootstrap_{who}") for who, python in pythons.items()}
    for name, published in found["published"].items():
        ours = found["ours"][name]
        whole = published["seconds"] * REPLICATES / PUBLISHED_REPLICATES[name]
        print(
            f"bootstrap {name:5}  published {whole:8.1f} s (from {PUBLISHED_REPLICATES[name]} "
            f"replicates)   ours {ours['seconds']:6.2f} s   {whole / ours['seconds']:7.0f} times "
            f"faster   errors equal: {same(published['error'], ours['error'])}"
        )


def main() -> None:
    published = Path(sys.argv[1] if len(sys.argv) > 1 else HERE / ".venv" / "published").resolve()
    pythons = {"published": str(published / "bin" / "python"), "ours": sys.executable}
    compare_choices(pythons)
    compare_bootstrap(pythons)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        works = {
            "choices": score_choices,
            "bootstrap_published": bootstrap_published,
            "bootstrap_ours": bootstrap_ours,
        }
        print(json.dumps(works[sys.argv[2]](*sys.argv[3:])))
    else:
        main()
