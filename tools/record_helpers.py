"""Records what the published harness returns for the inputs in `tests/helper_cases.py`.

usage: PUBLISHED_VENV/bin/python tools/record_helpers.py tests/parity/helpers_published.json

The record has, for each function, the number of results and errors and a hash of every 25 results.
Needs the packages of lm-eval's extras `math` and `ifeval`, and transformers before version 5.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

#: The number of results that one hash covers.
GROUP = 25


def condense(results: list[str]) -> dict[str, Any]:
    """Returns the number of results and of errors among them, and a hash of every `GROUP`."""
    groups = [results[start : start + GROUP] for start in range(0, len(results), GROUP)]
    hashes = [
        hashlib.sha256("\n".join(group).encode("utf-8", "surrogatepass")).hexdigest()[:8]
        for group in groups
    ]
    return {"n": len(results), "errors": results.count("error"), "hashes": hashes}


def main() -> None:
    sys.path[0] = str(Path(__file__).parents[1] / "tests")
    import evaluate
    import helper_cases
    import langdetect
    import nltk

    langdetect.DetectorFactory.seed = 0
    nltk.download = lambda *_: False  # no case needs it
    evaluate.load = lambda *_: type("Metric", (), {"compute": lambda *_, **__: None})()
    record = {name: condense(helper_cases.outcomes(name)) for name in helper_cases.CASES}
    lines = (f"{json.dumps(name)}: {json.dumps(found)}" for name, found in record.items())
    Path(sys.argv[1]).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
