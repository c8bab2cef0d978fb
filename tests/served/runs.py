"""Evaluations against a `FaultyServer`, as a user starts them, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from tests.conftest import Folder
from tests.served import quick_models
from tests.served.faulty_server import MODEL, FaultyServer

COMPLETIONS = f"{quick_models.__file__}:QuickCompletions"
CHAT = f"{quick_models.__file__}:QuickChat"


def write_task(folder: Folder, count: int, name: str = "sums") -> None:
    """Writes a task whose documents ask for the sums of two numbers."""
    folder.rows(f"{name}.jsonl", [{"a": 100 + n, "b": n % 7} for n in range(count)])
    folder.write(
        f"{name}.yaml",
        f"""\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {name}.jsonl
test_split: test
output_type: generate_until
doc_to_text: "What is {{{{a}}}} plus {{{{b}}}}?"
doc_to_target: "{{{{a + b}}}}"
generation_kwargs:
  until: ["\\n"]
  max_gen_toks: 8
filter_list:
  - name: number
    filter:
      - function: regex
        regex_pattern: "(\\\\d+)"
      - function: take_first
metric_list:
  - metric: exact_match
metadata:
  version: 1.0
""",
    )


def questions(count: int) -> list[str]:
    """Returns the prompts of the task."""
    return [f"What is {100 + n} plus {n % 7}?" for n in range(count)]


def words(server: FaultyServer, *others: str, model: str = COMPLETIONS, **args: Any) -> list[str]:
    """Returns the words of a command that evaluates the task into the folder `out`."""
    given = {"base_url": server.url, "model": MODEL, "tokenizer_backend": "none", **args}
    options = ["--model_args", ",".join(f"{name}={value}" for name, value in given.items())]
    if model == CHAT:
        options.append("--apply_chat_template")
    paths = ["--include_path", ".", "--output_path", "out"]
    return ["run", "--model", model, "--tasks", "sums", *options, *paths, *others]


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """Returns the environment of a command, with a cache of its own."""
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    cache = str(folder / "cache")
    return {**os.environ, "PYTHONPATH": path, "LMEVAL_CACHE_DIR": cache, **variables}


def start(folder: Path, command: list[str], **variables: str) -> subprocess.Popen[str]:
    """Starts `lm-eval` with the words of a command, as a process."""
    return subprocess.Popen(
        [sys.executable, "-m", "lm_eval", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment(folder, **variables),
        # A background job of a shell ignores SIGINT, and its children inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


def results(folder: Path) -> Any:
    """Returns the latest results file."""
    return json.loads(max((folder / "out").rglob("results_2*.json")).read_text())


def samples(folder: Path) -> list[Any]:
    """Returns the latest log of samples."""
    file = max((folder / "out").rglob("samples_sums_*.jsonl"))
    return [json.loads(line) for line in file.read_text().splitlines()]


def check_answers(folder: Path, count: int, failed: Iterable[int] = ()) -> Any:
    """Asserts that every document is answered once, rightly, or named as failed; returns results.

    `failed` are the numbers of the documents that have no answer.
    """
    missing = sorted(failed)
    found = results(folder)
    named = found.get("unanswered_documents", {}).get("sums", {})
    assert sorted(map(int, named)) == missing
    assert all(named.values())
    assert found.get("partial", False) is bool(missing)
    assert found.get("failed_requests", {}).get("sums", 0) == len(missing)
    answered = [sample["doc_id"] for sample in samples(folder)]
    assert sorted(answered) == [n for n in range(count) if n not in missing]
    assert found["n-samples"]["sums"] == {"original": count, "effective": count - len(missing)}
    assert found["results"]["sums"]["exact_match,number"] == 1.0  # no answer at a wrong place
    return found
