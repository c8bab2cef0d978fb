"""Unpack the task folder, and nothing else, of a published wheel that lies in a folder.

usage: python tools/unpack_tasks.py FOLDER
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

PART = "lm_eval/tasks/"


def main() -> None:
    folder = Path(sys.argv[1])
    (wheel,) = folder.glob("lm_eval-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(PART)])
    # Unpacked files carry the wheel's dates; make looks at the folder's.
    (folder / PART).touch()


if __name__ == "__main__":
    main()
