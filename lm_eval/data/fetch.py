"""Copies datasets into a mirror folder, each one completely or not at all (`lm-eval fetch`)."""

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
    """What `copy_to_mirror` returns: a dataset in the mirror."""

    folder: Path
    #: Number of rows by split.
    rows: dict[str, int]
    #: False if the mirror already contained the same rows, so that nothing was written.
    new: bool


def is_remote(loaded: Loaded) -> bool:
    """Returns whether a dataset came from the hub, a mirror or a URL, not from local files."""
    return loaded.splits.origin.source in ("hub", "mirror") or "://" in json.dumps(
        loaded.kwargs, default=str
    )


def copy_to_mirror(loaded: Loaded, root: Path, force: bool = False) -> Copied:
    """Writes all splits of a dataset, and a `source.json` with their revision, into a mirror.

    The folder gets its final name only when it is complete. If the mirror already contains the same
    rows, nothing is written, unless `force` is set.

    Args:
        loaded: the dataset, as a task has loaded it.
        root: the folder of the mirror.
        force: whether to replace an existing copy.

    Raises:
        DataError: if the mirror contains the dataset with other rows, and `force` is False.
        OutputError: if the files cannot be written.
    """
    splits = loaded.splits
    target = root / splits.origin.path / folder_name(splits.origin.name, loaded.kwargs)
    source = _source_content(loaded)
    rows = {split: part["rows"] for split, part in source["splits"].items()}
    if target.exists() and not force:
        existing = _rows_in_folder(target)
        if existing == source["splits"]:
            return Copied(target, rows, new=False)
        raise DataError(
            f"{target}: the mirror already contains this dataset with other rows (revision "
            f"{(read_source(target) or {}).get('revision') or 'unknown'}; the new revision is "
            f"{source['revision'] or 'unknown'}). Use --force to replace it, or another folder."
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(splits, source, target)
    except OSError as error:
        raise OutputError(
            f"{target}: the dataset cannot be written to this folder "
            f"({error.strerror or error}). Pass another folder with --to."
        ) from error
    return Copied(target, rows, new=True)


def _write(splits: Splits, source: dict[str, Any], target: Path) -> None:
    """Writes splits and `source.json` to a temporary folder, then renames it to `target`.

    An existing `target` is replaced. If anything fails, the temporary folder is deleted.
    """
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        temporary.chmod(0o755)
        for split in splits:
            write_parquet(splits[split], temporary / f"{split}.parquet")
        text = json.dumps(source, indent=2, ensure_ascii=False) + "\n"
        (temporary / SOURCE_FILE).write_text(text, encoding="utf-8")
        if target.exists():
            old = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.old."))
            target.rename(old / target.name)
            temporary.rename(target)
            shutil.rmtree(old)
        else:
            temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _source_content(loaded: Loaded) -> dict[str, Any]:
    """Returns the content of the `source.json` of a dataset."""
    splits = loaded.splits
    return {
        "path": splits.origin.path,
        "name": splits.origin.name,
        "revision": splits.origin.revision,
        "pinned": loaded.kwargs.get("revision"),
        "splits": {split: _describe_split(splits[split]) for split in splits},
    }


def _rows_in_folder(target: Path) -> dict[str, Any]:
    """Returns the number (`rows`) and hash (`fingerprint`) of the rows of each split in a folder.

    Read from the Parquet files, because `source.json` may be out of date.
    """
    return {
        split: _describe_split(read_parquet(files)) for split, files in split_files(target).items()
    }


def _describe_split(split: Any) -> dict[str, Any]:
    return {"rows": len(split), "fingerprint": fingerprint(split)}
