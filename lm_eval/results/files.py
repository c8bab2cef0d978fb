"""Write results and samples to files, each completely or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from lm_eval.errors import OutputError
from lm_eval.results.assemble import task_hashes
from lm_eval.results.names import file_name
from lm_eval.results.sample_log import ENDINGS, write_log
from lm_eval.results.serialise import handle_non_serializable, plain


def check_writable(output_path: str | Path) -> None:
    """Raises `OutputError` if results cannot be written to a path. Leaves no file there."""
    folder = _folder(Path(output_path))
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(
            f"output_path {output_path}: results cannot be written there "
            f"({error.strerror or error}). Nothing has been run."
        ) from error
    finally:
        for parent in missing:
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()


def save(
    results: Mapping[str, Any],
    output_path: str | Path,
    model_name: str,
    samples: Mapping[str, list[dict[str, Any]]] | None = None,
    samples_format: str = "jsonl",
) -> Path:
    """Writes `results_<time>.json`, and `samples_<task>_<time>.jsonl` if samples are given.

    Returns the results file, which `reader.read_results` reads. A path ending in .json gives the
    beginning of its name, `<name>_<time>.json`; any other path is a folder, in which every model
    has a folder. `task_hashes` are those of the samples given, else those of the results.
    """
    path = Path(output_path)
    stamp = datetime.now().isoformat().replace(":", "-")
    folder = _folder(path)
    if path.suffix == ".json":
        target = path.with_name(f"{path.stem}_{stamp}.json")
    else:
        folder = folder / file_name(model_name)
        target = folder / f"results_{stamp}.json"
    hashes = results.get("task_hashes", {}) if samples is None else task_hashes(samples)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, logged in (samples or {}).items():
            save_samples(folder, name, stamp, logged, samples_format)
        text = json.dumps(plain({**results, "task_hashes": hashes}), indent=2, ensure_ascii=False)
        write_atomically(target, [text])
    except OSError as error:
        raise OutputError(
            f"output_path {output_path}: writing the results failed ({error.strerror or error})."
        ) from error
    return target


def save_samples(
    folder: Path,
    task: str,
    stamp: str,
    samples: Sequence[Mapping[str, Any]],
    samples_format: str = "jsonl",
) -> Path:
    """Writes a task's samples beside the results with the same time stamp."""
    file = _sample_file(folder, task, stamp, samples_format)
    while file.exists():  # two task names may give one file name
        file = file.with_name(f"_{file.name}")
    with atomic_file(file) as opened:
        write_log(opened, samples, samples_format)
    return file


def sample_files(results: Path, tasks: Iterable[str]) -> dict[str, Path | None]:
    """Returns the sample log of each task beside a results file, None where there is none.

    `tasks` are in the order in which their logs were written: that of `task_hashes`.
    """
    stamp = results.stem.rpartition("_")[2]
    found: dict[str, Path | None] = {}
    for task in tasks:
        for samples_format in ENDINGS:
            file = _sample_file(results.parent, task, stamp, samples_format)
            while file in found.values():  # see save_samples
                file = file.with_name(f"_{file.name}")
            if file.is_file():
                break
        found[task] = file if file.is_file() else None
    return found


def _sample_file(folder: Path, task: str, stamp: str, samples_format: str) -> Path:
    return folder / f"samples_{file_name(task)}_{stamp}{ENDINGS[samples_format]}"


def keep_answers(answers: Mapping[str, list[dict[str, Any]]]) -> Path:
    """Writes answers that could not be scored to a new temporary folder, and returns that."""
    folder = Path(tempfile.mkdtemp(prefix="lm_eval_answers_"))
    stamp = datetime.now().isoformat().replace(":", "-")
    for name, lines in answers.items():
        text = (
            json.dumps(line, default=handle_non_serializable, ensure_ascii=False) + "\n"
            for line in lines
        )
        write_atomically(folder / f"answers_{file_name(name)}_{stamp}.jsonl", text)
    return folder


@contextmanager
def atomic_file(path: Path, private: bool = False) -> Iterator[BinaryIO]:
    """Opens a file that gets its name once it is complete: a reader sees all of it or none.

    It is synced to the disk before it is renamed; otherwise a power cut could leave an empty file
    under that name. A private file is readable by its owner alone.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        with temporary.open("rb+") as written:  # whoever wrote it may have closed it
            os.fsync(written.fileno())
        if not private:
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, parts: Iterable[str], private: bool = False) -> None:
    """Writes text to a file, completely or not at all."""
    with atomic_file(path, private) as file:
        # A lone surrogate has no UTF-8 encoding; it is written as a JSON escape.
        file.writelines(part.encode("utf-8", "backslashreplace") for part in parts)


def _folder(path: Path) -> Path:
    return path.parent if path.suffix == ".json" else path
