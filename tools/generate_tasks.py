"""Write the member files of the families that repeat, from the `_generate.py` beside them.

usage: python tools/generate_tasks.py [FOLDER …]

A `_generate.py` has one function, `files()`: the text of every file it is responsible for, by its
path within the folder. A test checks that the files are what it says.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "lm_eval" / "tasks"


def generators() -> list[Path]:
    return sorted(LIBRARY.rglob("_generate.py"))


def generated(script: Path) -> dict[Path, str]:
    """What a script wants to stand where."""
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
