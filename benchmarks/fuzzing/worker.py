"""Tries one damaged input after the other in a process of its own.

A mode is a module of this package with two functions: `make(seed, folder)` writes a damaged input
into an empty folder, and `attempt(folder)` uses it as a user would and returns what came of it, in
a word or two. Errors for users (`EvalError`) are an outcome; any other exception is a finding.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import traceback
from pathlib import Path


def try_seed(mode: str, seed: int) -> dict[str, str]:
    """Returns the outcome of one seed: `{"outcome": …}`, or `{"traceback": …}` for a finding."""
    module = importlib.import_module(f"{__package__}.{mode}")
    with tempfile.TemporaryDirectory(prefix="lm_eval_fuzz_") as folder:
        module.make(seed, Path(folder))
        try:
            return {"outcome": module.attempt(Path(folder))}
        except BaseException:
            return {"traceback": traceback.format_exc()}


def main() -> None:
    """Answers each seed on standard input with a line of JSON on standard output."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what is tried may print
    for line in sys.stdin:
        print(json.dumps(try_seed(sys.argv[1], int(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
