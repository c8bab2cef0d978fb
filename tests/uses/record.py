"""Runs every use with the installed harness and writes the outcomes to `outcomes.json`.

    PYTHON_WITH_LM_EVAL_0.4.13 tests/uses/record.py
    python tests/uses/record.py

The first writes the published outcomes, the second ours. Run the file by its path, as above: then
the package that is installed (or on PYTHONPATH) is used.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path

HERE = Path(__file__).parent
OUTCOMES = HERE / "outcomes.json"


def main() -> None:
    """Writes the outcomes of the installed harness, and keeps those of the other one."""
    sys.path[0] = str(HERE.parent)  # so that `uses` is a package, and `lm_eval` the installed one
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    from uses import support

    import lm_eval
    import lm_eval.models  # the published harness finds no model if a project registers one first

    side = "published" if lm_eval.__version__.startswith("0.4.") else "ours"
    print(f"lm_eval from {Path(lm_eval.__file__).parent}: {side}", file=sys.stderr)
    recorded = json.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}
    found = {}
    wanted = sys.argv[1:]
    for name, one in sorted(support.load_uses().items()):
        found[name] = {"kind": one.kind, **recorded.get(name, {})}
        if wanted and name not in wanted:
            continue
        if lacking := support.missing(one):
            sys.exit(f"{name} needs {', '.join(lacking)}")
        with tempfile.TemporaryDirectory() as folder, silence():
            found[name] |= {"kind": one.kind, side: support.outcome(one, Path(folder))}
        print(name, json.dumps(found[name][side])[:300], file=sys.stderr)
    text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False)
    OUTCOMES.write_text(f"{text}\n", encoding="utf-8")


@contextlib.contextmanager
def silence():
    """Hides what the uses print and log."""
    logging.disable(logging.CRITICAL)
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):  # noqa: PTH123
        yield


if __name__ == "__main__":
    main()
