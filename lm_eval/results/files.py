"""Write results and samples where the user asked, wholly or not at all."""

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
from lm_eval.results.names import file_name
from lm_eval.results.sample_log import ENDINGS, write_log
from lm_eval.results.samples import task_hash
from lm_eval.results.serialise import handle_non_serializable


def check_writable(output_path: str | Path) -> None:
    """Fail now if results could not be written later; leaves nothing behind."""
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
    """Write `results_<time>.json`, and `samples_<task>_<time>.jsonl` where samples are given.

    A path ending in .json says what the results file begins with, `<name>_<time>.json`; any other
    is a folder, in which the model has a folder of its own.
    """
    path = Path(output_path)
    stamp = datetime.now().isoformat().replace(":", "-")
    folder = _folder(path)
    if path.suffix == ".json":
        target = path.with_name(f"{path.stem}_{stamp}.json")
    else:
        folder = folder / file_name(model_name)
        target = folder / f"results_{stamp}.json"
    hashes = {name: task_hash(logged) for name, logged in (samples or {}).items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, logged in (samples or {}).items():
            save_samples(folder, name, stamp, logged, samples_format)
        text = json.dumps(
            {**results, "task_hashes": hashes},
            indent=2,
            default=handle_non_serializable,
            ensure_ascii=False,
        )
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
    """Write a task's samples beside the results of that time."""
    file = folder / f"samples_{file_name(task)}_{stamp}{ENDINGS[samples_format]}"
    while file.exists():  # two names may be one after what files cannot hold is replaced
        file = file.with_name(f"_{file.name}")
    with atomic_file(file) as opened:
        write_log(opened, samples, samples_format)
    return file


def keep_answers(answers: Mapping[str, list[dict[str, Any]]]) -> Path:
    """Write what a model answered where answers could not be scored and nobody named a place."""
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
    """A file to write that takes its name when it is whole: a reader sees all of it or none.

    It is on the disk before it takes the name, or a power cut could leave the name with nothing.
    A private one may be read by nobody else.
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
    """Write text, wholly or not at all."""
    with atomic_file(path, private) as file:
        # Half of a character pair cannot be written as UTF-8; JSON can spell it.
        file.writelines(part.encode("utf-8", "backslashreplace") for part in parts)


def _folder(path: Path) -> Path:
    return path.parent if path.suffix == ".json" else path
