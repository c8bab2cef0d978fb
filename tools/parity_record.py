"""Boil a parity record down to what may be kept here: hashes and scores, no benchmark's rows.

usage: MIRROR=../shared/data PUBLISHED_VENV/bin/python ../shared/parity/record.py \
           tests/parity/cases.json record.json
       python tools/parity_record.py record.json tests/parity/published.json

`record.py` runs a harness over the cases with a model whose answers are hashes of the questions.
What the published harness asked and scored is kept as `tests/parity/published.json`; for the
cases of our own library, `tests/parity/library_cases.json`, as `library_published.json`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

KEPT = ("results", "n-shot", "versions", "higher_is_better")


def condense(record: dict[str, Any]) -> dict[str, Any]:
    """The scores of every case as they are, the requests of every task as one hash."""
    return {
        case: {
            **{key: found[key] for key in KEPT},
            "requests": {
                task: {
                    "n": asked["n"],
                    "hash": hashlib.sha256("\n".join(asked["digest"]).encode()).hexdigest()[:16],
                }
                for task, asked in found["requests"].items()
            },
        }
        for case, found in record.items()
    }


def main() -> None:
    source, target = map(Path, sys.argv[1:3])
    condensed = condense(json.loads(source.read_text(encoding="utf-8")))
    lines = (f"{json.dumps(case)}: {json.dumps(condensed[case])}" for case in sorted(condensed))
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
