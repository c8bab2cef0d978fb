"""Make a mirror: copy the data sets that tasks asked for, each wholly or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval.data.fingerprint import fingerprint
from lm_eval.data.load import Loaded
from lm_eval.data.mirror import SOURCE_FILE, folder_name, read_source, split_files
from lm_eval.data.parquet import read_parquet, write_parquet
from lm_eval.data.splits import Splits
from lm_eval.errors import DataError, OutputError


@dataclass(frozen=True)
class Copied:
    """One data set in the mirror."""

    folder: Path
    rows: dict[str, int]
    #: False where the same rows lay there already.
    new: bool


def is_remote(loaded: Loaded) -> bool:
    """Whether a machine without a network would lack this; local files it has, or can be given."""
    return loaded.splits.origin.source in ("hub", "mirror") or "://" in json.dumps(
        loaded.kwargs, default=str
    )


def copy_to_mirror(loaded: Loaded, root: Path, force: bool = False) -> Copied:
    """Write a data set's splits under `root`, beside a note of their revision.

    The folder appears under its name when all of it is written. What is there already stays: the
    same rows are not written again, others only replaced by `force`.
    """
    splits = loaded.splits
    target = root / splits.origin.path / folder_name(splits.origin.name, loaded.kwargs)
    note = _note(loaded)
    rows = {split: part["rows"] for split, part in note["splits"].items()}
    if target.exists() and not force:
        held = _held(target)
        if held == note["splits"]:
            return Copied(target, rows, new=False)
        raise DataError(
            f"{target} is there already, with other rows (revision "
            f"{(read_source(target) or {}).get('revision') or 'unknown'}; now: "
            f"{note['revision'] or 'unknown'}). Give --force to replace it, or another folder."
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(splits, note, target)
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error.strerror or error}).") from error
    return Copied(target, rows, new=True)


def _write(splits: Splits, note: dict[str, Any], target: Path) -> None:
    """Write beside the place, then rename."""
    made = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        made.chmod(0o755)
        for split in splits:
            write_parquet(splits[split], made / f"{split}.parquet")
        text = json.dumps(note, indent=2, ensure_ascii=False) + "\n"
        (made / SOURCE_FILE).write_text(text, encoding="utf-8")
        if target.exists():
            old = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.old."))
            target.rename(old / target.name)
            made.rename(target)
            shutil.rmtree(old)
        else:
            made.rename(target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _note(loaded: Loaded) -> dict[str, Any]:
    splits = loaded.splits
    return {
        "path": splits.origin.path,
        "name": splits.origin.name,
        "revision": splits.origin.revision,
        "pinned": loaded.kwargs.get("revision"),
        "splits": {split: _described(splits[split]) for split in splits},
    }


def _held(target: Path) -> dict[str, Any]:
    """The rows a mirror holds, counted and hashed anew: the note may be older than the files."""
    return {split: _described(read_parquet(files)) for split, files in split_files(target).items()}


def _described(split: Any) -> dict[str, Any]:
    return {"rows": len(split), "fingerprint": fingerprint(split)}
