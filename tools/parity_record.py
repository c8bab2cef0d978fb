"""Condenses a parity record to hashes and scores, without the text of any benchmark.

usage: MIRROR=../shared/data PUBLISHED_VENV/bin/python ../shared/parity/record.py \
           tests/parity/cases.json record.json
       python tools/parity_record.py record.json tests/parity/published.json

`record.py` runs a harness on the cases, with a model whose answers are hashes of its requests.
The requests and scores of the published harness are stored as `tests/parity/published.json`; those
of the cases in `tests/parity/library_cases.json`, which use our task library, as
`library_published.json`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

KEPT = ("results", "n-shot", "versions", "higher_is_better")


def condense(record: dict[str, Any]) -> dict[str, Any]:
    """Returns the record with the requests of each task replaced by their number and one hash."""
    return {
        case: {
            **{key: found[key] for key in KEPT},
            "requests": {
                task: {
                    "n": sent["n"],
                    "hash": hashlib.sha256("\n".join(sent["digest"]).encode()).hexdigest()[:16],
                }
                for task, sent in found["requests"].items()
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
