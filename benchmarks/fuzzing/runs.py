"""Damages the files of finished runs, and checks what the commands do with them.

A trial copies a run folder, damages one file and runs a command on it in this process. It fails if
the command raises, prints a traceback, takes longer than `SLOW` seconds, ends with 2 without a
one-line error, or reports other scores than the undamaged run without a word about the damage.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import re
import shutil
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.cli import main

from .damage import damaged

#: A command may take this many seconds.
SLOW = 10.0
_TASKS = {
    "choice": (
        "output_type: multiple_choice\ndoc_to_text: 'Q: {{q}}'\ndoc_to_choice: [a, b, c]\n"
        "doc_to_target: '{{n % 3}}'\nmetric_list:\n  - metric: acc\n  - metric: acc_norm\n"
    ),
    "text": (
        "output_type: generate_until\ndoc_to_text: 'Q: {{q}}'\ndoc_to_target: '{{n % 3}}'\n"
        "repeats: 2\ngeneration_kwargs: {until: ['.'], do_sample: true, temperature: 1.0}\n"
        "metric_list:\n  - metric: exact_match\n"
    ),
    "rolling": (
        "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: 'A text {{q}}'\n"
        "metric_list:\n  - metric: word_perplexity\n"
    ),
}


@register_model("fuzzed")
class Steady(LM):
    """Answers each request by its hash, so that a request asked again has the same answer."""

    stand_in = True

    def __init__(self) -> None:
        super().__init__()

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return [(-_number(r) / 2**32, _number(r) % 2 == 0) for r in requests]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        return [-float(_number(r) % 1000) for r in requests]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return [str(_number(r) % 3) for r in requests]


def _number(request: Instance) -> int:
    digest = hashlib.md5(repr(request.args).encode()).hexdigest()
    return int(digest[:8], 16)


@dataclass
class Findings:
    """What happened in the trials."""

    trials: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0


def make_run(folder: Path, documents: int = 60) -> tuple[Path, str]:
    """Writes tasks and runs them into `folder/out`; returns that and the scores as text."""
    tasks = folder / "tasks"
    tasks.mkdir(parents=True)
    for name, rest in _TASKS.items():
        rows = [{"q": f"question {i} of {name}", "n": i} for i in range(documents)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tasks / f"{name}.jsonl").write_text(lines)
        (tasks / f"{name}.yaml").write_text(
            f"task: fuzz_{name}\ndataset_path: json\ndataset_kwargs:\n  data_files:\n"
            f"    test: {tasks / name}.jsonl\ntest_split: test\n{rest}"
        )
    out = folder / "out"
    names = ",".join(f"fuzz_{name}" for name in _TASKS)
    words = ["run", "--model", "fuzzed", "--tasks", names, "--include_path", str(tasks)]
    options = ["--log_samples", "--limit", str(documents - 5), "--bootstrap_iters", "50"]
    code, shown = _call([*words, "--output_path", str(out), *options])
    assert code == 0, shown
    return out, scores_in(shown)


def scores_in(shown: str) -> str:
    """Returns the rows of the table that a command has printed."""
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    return "\n".join(re.sub(r"\s+", " ", row) for row in rows)


def _call(words: list[str]) -> tuple[int, str]:
    """Runs a command in this process; returns its exit code and everything it printed."""
    shown = io.StringIO()
    with (
        contextlib.redirect_stdout(shown),
        contextlib.redirect_stderr(shown),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("always")
        code = main(words)
    return code, shown.getvalue()


def fuzz(kind: str, count: int, seed: int = 1) -> Findings:
    """Runs `count` trials; `kind` is `stores` or `folders` (all other files of a run)."""
    draw, found = random.Random(seed), Findings()
    with tempfile.TemporaryDirectory() as scratch:
        out, scores = make_run(Path(scratch))
        files = [
            file
            for file in sorted(p for p in out.rglob("*") if p.is_file())
            if (file.name == "answers.sqlite") is (kind == "stores") and file.name != "run.lock"
        ]
        for number in range(count):
            file = draw.choice(files).relative_to(out)
            copy = Path(scratch, "copy")
            shutil.copytree(out, copy)
            content = damaged((copy / file).read_bytes(), draw)
            (copy / file).write_bytes(content)
            for words in _commands(copy, file, draw):
                problem = _try(words, scores, found)
                if problem:
                    found.failures.append(f"trial {number}, {file}: {' '.join(words)}: {problem}")
            found.trials += 1
            shutil.rmtree(copy)
    return found


def _commands(copy: Path, file: Path, draw: random.Random) -> Iterator[list[str]]:
    """Yields the commands that read a damaged file."""
    if file.name.startswith("samples_"):
        yield ["score", str(copy / file)]
    elif file.name.startswith("results_"):
        yield ["reproduce", str(copy / file)]
        (log, *_) = sorted((copy / file).parent.glob("samples_*"))
        yield ["score", str(log)]
    else:
        yield ["score", str(copy)]
        if draw.random() < 0.5:
            yield ["resume", str(copy)]


def _try(words: list[str], scores: str, found: Findings) -> str | None:
    """Runs one command; returns what is wrong with its outcome, or None."""
    began = time.monotonic()
    try:
        code, shown = _call(words)
    except BaseException as error:
        return f"raised {type(error).__name__}: {error}"
    took = time.monotonic() - began
    found.slowest = max(found.slowest, took)
    if took > SLOW:
        return f"took {took:.1f} s"
    if "Traceback" in shown or "(run again with --debug" in shown:
        return f"shows an error of Python: {shown[-400:]}"
    if code == 2:
        found.outcomes["refused with a message"] += 1
        errors = [line for line in shown.splitlines() if line.startswith("lm-eval: error: ")]
        return None if len(errors) == 1 else f"ended with 2 and {len(errors)} messages: {shown}"
    warned = [w for w in ("damaged", "changed", "cannot be read", "differ") if w in shown]
    same = words[0] == "reproduce" or all(row in scores for row in scores_in(shown).splitlines())
    if same:
        found.outcomes["same scores, with a warning" if warned else "same scores"] += 1
        return None
    if warned:
        found.outcomes["other scores, with a warning"] += 1
        return None
    return f"other scores without a warning: {shown[-800:]}"


def report(kind: str, found: Findings) -> dict[str, Any]:
    """Returns the counts of a fuzzing run as JSON data."""
    return {
        "kind": kind,
        "trials": found.trials,
        **found.outcomes,
        "failures": len(found.failures),
        "slowest command (s)": round(found.slowest, 2),
    }
