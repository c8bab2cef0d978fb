"""Unpacks the task folder of the published wheel lm_eval-*.whl, which must be in FOLDER.

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
    # Unpacked files have the wheel's old dates; make compares the date of the folder.
    (folder / PART).touch()


if __name__ == "__main__":
    main()
