"""Writes the YAML files of benchmarks with many similar tasks, by their `_generate.py` scripts.

usage: python tools/generate_tasks.py [FOLDER …]

A `_generate.py` has a function `files()`, which returns the text of every file that it generates,
keyed by its path relative to the folder. Without FOLDER, all benchmarks are written.
tests/test_library.py checks that the files are up to date.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "lm_eval" / "tasks"


def generators() -> list[Path]:
    """Returns the paths of all `_generate.py` scripts."""
    return sorted(LIBRARY.rglob("_generate.py"))


def generated(script: Path) -> dict[Path, str]:
    """Returns the text of each file that `script` generates, keyed by its absolute path."""
    files: dict[str, str] = runpy.run_path(str(script))["files"]()
    return {script.parent / name: text for name, text in files.items()}


def main(folders: list[str]) -> None:
    for script in generators():
        if folders and script.parent.name not in folders:
            continue
        wanted = generated(script)
        for path, text in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        print(f"{script.parent.relative_to(LIBRARY)}: {len(wanted)} files")


if __name__ == "__main__":
    main(sys.argv[1:])
