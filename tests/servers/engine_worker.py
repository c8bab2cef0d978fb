"""Creates an engine, sends it requests, and writes its answers as JSON.

Engines have environments of their own, so the tests run this file with the Python of one:

    python tests/servers/engine_worker.py JOB.json ANSWERS.json

JOB.json has these keys:

- `model`: the class, as `module:Class`;
- `arguments`: those of its constructor;
- `constants`: values for constants of the module, by name;
- `package`: the package of the engine, whose interface is read; optional;
- `steps`: what is asked, one after the other. Each has a `name` and a `method` of the model.
  `requests` are the arguments of the requests, and `repeats` how many answers each gets. With
  `alone`, each is asked after the engine was reset (llama.cpp). For other methods, `calls` are the
  arguments of each call.

ANSWERS.json has for each step, by name: `answers`, their `details` (token counts and more),
`seconds`, and the `counters` of the engine after it; and the `interface` of the package.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from tests.engines import read_interface

REQUESTS = ("loglikelihood", "loglikelihood_rolling", "generate_until")


def perform(lm: Any, step: dict[str, Any]) -> list[Any]:
    """Returns the answers to the requests or calls of a step."""
    method, function = step["method"], getattr(lm, step["method"])
    if method not in REQUESTS:
        return [function(*call) for call in step["calls"]]
    repeats = step.get("repeats", 1)
    requests = [
        Instance(method, {}, tuple(arguments), number, ("trial", number, repeats))
        for number, arguments in enumerate(step["requests"])
    ]
    if step.get("alone"):
        return [answer for request in requests for answer in _alone(lm, function, request)]
    # The repeats of a request are the same object.
    return list(function([request for request in requests for _ in range(repeats)]))


def _alone(lm: Any, function: Any, request: Instance) -> list[Any]:
    lm.model.reset()
    return list(function([request]))


def main(job_file: str, answers_file: str) -> None:
    """Does what the job says."""
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    module_name, class_name = job["model"].split(":")
    module = importlib.import_module(module_name)
    for name, value in job.get("constants", {}).items():
        setattr(module, name, value)
    lm = getattr(module, class_name)(**job["arguments"])
    done: dict[str, Any] = {}
    if "package" in job:
        done["interface"] = read_interface.read(job["package"])
    for step in job["steps"]:
        start = time.monotonic()
        answers = perform(lm, step)
        done[step["name"]] = {
            "answers": answers,
            "details": [getattr(answer, "details", None) for answer in answers],
            "seconds": time.monotonic() - start,
            "counters": lm.counters(),
        }
    Path(answers_file).write_text(json.dumps(done), encoding="utf-8")


if __name__ == "__main__":  # vLLM starts processes that import this file
    main(*sys.argv[1:])
