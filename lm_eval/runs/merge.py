"""Merges the runs of several folders into one, with the answers of all; `lm-eval merge`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from lm_eval.engine.answer_index import keys_by_position
from lm_eval.engine.store import AnswerStore, models_in
from lm_eval.errors import OutputError
from lm_eval.runs.folder import (
    ANSWERS_FILE,
    LOCK_FILE,
    PARTIAL_RESULTS_FILE,
    RECORD_FILE,
    VERDICTS_FILE,
    RunFolder,
)
from lm_eval.runs.record import RunRecord

#: Files of a run folder that are not copied: they are written anew, or are caches.
_NOT_COPIED = {ANSWERS_FILE, LOCK_FILE, RECORD_FILE, PARTIAL_RESULTS_FILE, VERDICTS_FILE}
#: How many answers that differ are named in an error.
_MAX_NAMED = 3


@dataclass(frozen=True)
class Merged:
    """What was merged."""

    runs: int
    answers: int
    """The number of answers in the merged stores."""
    path: Path


def merge(sources: Sequence[str | Path], destination: str | Path) -> Merged:
    """Merges run folders, or stores, into a new one; returns what was merged.

    Args:
        sources: output paths of runs, or run folders; or files with stored answers (`--use_cache`).
        destination: the folder, or the file, to create. It must not exist.

    Raises `OutputError` if a source has no run, if two sources have different answers of the same
    model to the same request, or different records of the same run. Nothing is written then.
    """
    given, target = (
        [Path(source).expanduser() for source in sources],
        Path(destination).expanduser(),
    )
    if len(given) < 2:
        raise OutputError("give at least two folders or files to merge.")
    if target.exists():
        raise OutputError(f"{target}: exists already. Give the path of a new folder or file.")
    for source in given:
        if not source.exists():
            raise OutputError(f"{source}: there is no such file or folder.")
    if len({source.resolve() for source in given}) < len(given):
        raise OutputError("a folder or file is given twice; give each one once.")
    are_files = {source.is_file() for source in given}
    if len(are_files) > 1:
        raise OutputError("folders of runs and files with answers cannot be merged together.")
    unfinished = target.with_name(f".{target.name}.merging")
    _remove(unfinished)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    try:
        if are_files == {True}:
            merged = Merged(0, _merge_stores(given, unfinished, ()), target)
        else:
            merged = _merge_folders(given, unfinished, target)
        unfinished.rename(target)
    finally:
        _remove(unfinished)
    return merged


def _remove(path: Path) -> None:
    """Removes a folder, or a store with its log."""
    if path.is_dir():
        shutil.rmtree(path)
    for file in (path, *(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))):
        file.unlink(missing_ok=True)


def _merge_folders(sources: Sequence[Path], unfinished: Path, target: Path) -> Merged:
    """Merges the run folders below `sources`; those of one model become one folder."""
    by_name: dict[str, list[RunFolder]] = {}
    for source in sources:
        found = RunFolder.all_in(source)
        if not found:
            raise OutputError(
                f"{source}: contains no run (no {RECORD_FILE}). Give the --output_path of a run."
            )
        for folder in found:
            if any(folder.path.samefile(other.path) for other in by_name.get(folder.path.name, ())):
                raise OutputError(f"{source}: the folder {folder.path} is given twice.")
            by_name.setdefault(folder.path.name, []).append(folder)
    if len(by_name) > 1 and all((source / RECORD_FILE).is_file() for source in sources):
        raise OutputError("the folders belong to different models; give their output paths.")
    runs = answers = 0
    for name, folders in by_name.items():
        merged = RunFolder(unfinished / name)
        merged.path.mkdir(parents=True)
        with ExitStack() as locks:
            for folder in folders:
                locks.enter_context(folder.locked())
            runs += _merge_records(folders, merged)
            stores = [folder.answers for folder in folders if folder.answers.is_file()]
            answers += _merge_stores(stores, merged.answers, folders)
    return Merged(runs, answers, target)


def _merge_records(folders: Sequence[RunFolder], merged: RunFolder) -> int:
    """Writes the records of all runs and copies their files; returns the number of runs.

    A run that is in several folders is finished only if it is so in all, since each may have other
    answers.
    """
    found: dict[str, tuple[RunRecord, RunFolder]] = {}
    for folder in folders:
        for record in folder.records():
            if record.settings.get("use_cache"):
                raise OutputError(
                    f"{folder.path}: the answers of the run {record.id} are not in this folder, "
                    f"but in {record.settings['use_cache']} (--use_cache). Merge those files."
                )
            if record.id in found:
                record = _same_run(*found[record.id], record, folder)
            found[record.id] = (record, folder)
        for file in folder.path.iterdir():
            passing = file.name.startswith(".") or file.name.endswith(("-wal", "-shm"))
            if file.is_file() and file.name not in _NOT_COPIED and not passing:
                shutil.copy2(file, merged.path / file.name)
    merged.write_records([record for record, _ in found.values()])
    return len(found)


def _same_run(
    one: RunRecord, folder: RunFolder, other: RunRecord, other_folder: RunFolder
) -> RunRecord:
    """Returns the record of a run that is in two folders; the later one if it has finished twice.

    Raises `OutputError` if its tasks or its model differ.
    """
    if one.state != other.state:
        raise OutputError(
            f"{folder.path} and {other_folder.path}: the run {one.id} is in both, with another "
            "model or other tasks. Merge only runs of the same model and data."
        )
    both = sorted((one, other), key=lambda record: record.begun)
    return next((record for record in both if not record.finished), both[1])


def _merge_stores(stores: Sequence[Path], path: Path, folders: Sequence[RunFolder]) -> int:
    """Writes the answers of all stores to a new one; returns their number.

    Raises `OutputError` if two of them have different answers to the same request. `folders` are
    those of the runs, to name the documents.
    """
    identities = dict.fromkeys(identity for store in stores for identity in models_in(store))
    count = 0
    for identity in identities:
        with AnswerStore(path, identity) as merged:
            for store in stores:
                with AnswerStore(store, identity, read_only=True) as source:
                    if different := merged.merge(source):
                        raise OutputError(_conflict(store, different, folders))
            count += len(merged)
    return count


def _conflict(store: Path, keys: Sequence[bytes], folders: Sequence[RunFolder]) -> str:
    """Returns the message about answers that differ."""
    named = [place for key in keys[:_MAX_NAMED] if (place := _place_of(key, folders))]
    where = f" ({'; '.join(named)}{' …' if len(keys) > len(named) else ''})" if named else ""
    return (
        f"{store}: {len(keys)} of its answers differ from those of the same model to the same "
        f"requests in another source{where}. Nothing was merged. Answers of different machines may "
        "differ by rounding; leave one of the sources out, or ask for these tasks in one run only."
    )


def _place_of(key: bytes, folders: Sequence[RunFolder]) -> str | None:
    """Returns the task and document of a request by its key; None if no run has it."""
    for folder in folders:
        for record in folder.records():
            for task, index in folder.answer_index(record).items():
                for (document, _), keys in keys_by_position(index).items():
                    if key in keys:
                        return f"task {task}, document {document}"
    return None
