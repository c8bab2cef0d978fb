"""Writes results files and sample logs. Every file is written atomically."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from lm_eval.api.instance import Failure
from lm_eval.errors import OutputError
from lm_eval.redaction import SHORTEST_IN_DATA, known_redactor
from lm_eval.results.assemble import task_hashes
from lm_eval.results.checksums import with_checksum
from lm_eval.results.names import file_name
from lm_eval.results.sample_log import EXTENSIONS, write_log
from lm_eval.results.serialize import handle_non_serializable, sanitize_list, to_json_data


def check_writable(output_path: str | Path) -> None:
    """Raises `OutputError` if results cannot be written to `output_path`.

    Tests it by creating the folder and a temporary file, and removes both again.
    """
    folder = _folder(Path(output_path))
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(
            f"output_path {output_path}: results cannot be written there "
            f"({error.strerror or error}). Nothing has been run. Choose another path, or make "
            "this one writable."
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
    """Writes the results file and one sample log per task; returns the path of the results file.

    If `output_path` ends in .json, the results are written to `<name>_<time>.json` beside it, and
    the sample logs to the same folder. Otherwise `output_path` is a folder, and the files
    `results_<time>.json` and `samples_<task>_<time>.jsonl` are written to a subfolder named after
    the model. `reader.read_results` reads the results back.

    Args:
        results: the results, without `samples`.
        output_path: a folder, or a path that ends in .json.
        model_name: names the subfolder.
        samples: the samples by task. If None, no sample log is written.
        samples_format: the format of the sample logs: `jsonl`, `zst` or `parquet`.

    The field `task_hashes` is computed from `samples`, or copied from `results` if they are None.
    Raises `OutputError` if writing fails.
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
        content = to_json_data({**results, "task_hashes": hashes})
        content = with_checksum(known_redactor().data(content))
        write_atomically(target, [json.dumps(content, indent=2, ensure_ascii=False)])
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
    """Writes the sample log of one task to `folder` and returns its path.

    `stamp` is the timestamp in the name of the results file that the log belongs to.
    `samples_format` is `jsonl`, `zst` or `parquet`. If the file exists, `_` is added before the
    name until it is new. Raises `OSError` if writing fails.
    """
    file = _sample_file(folder, task, stamp, samples_format)
    while file.exists():  # two task names can map to the same file name
        file = file.with_name(f"_{file.name}")
    with atomic_file(file) as opened:
        write_log(opened, samples, samples_format)
    return file


def sample_files(results: Path, tasks: Iterable[str]) -> dict[str, Path | None]:
    """Returns by task name the path of its sample log beside the file `results`; None if missing.

    `tasks` must be in the order in which `save` wrote the logs, which is that of `task_hashes`.
    """
    stamp = results.stem.rpartition("_")[2]
    found: dict[str, Path | None] = {}
    for task in tasks:
        for samples_format in EXTENSIONS:
            file = _sample_file(results.parent, task, stamp, samples_format)
            while file in found.values():  # the same rule as in save_samples
                file = file.with_name(f"_{file.name}")
            if file.is_file():
                break
        found[task] = file if file.is_file() else None
    return found


def _sample_file(folder: Path, task: str, stamp: str, samples_format: str) -> Path:
    return folder / f"samples_{file_name(task)}_{stamp}{EXTENSIONS[samples_format]}"


def save_unscored_answers(answers: Mapping[str, list[dict[str, Any]]]) -> Path:
    """Writes answers that could not be scored to a new temporary folder; returns the folder.

    `answers` holds a list of requests with their answers per task. Each task becomes a sample log
    without scores, which `lm-eval score` reads. Documents with a failed request are left out.
    """
    folder = Path(tempfile.mkdtemp(prefix="lm_eval_answers_"))
    redactor = known_redactor(SHORTEST_IN_DATA)
    stamp = datetime.now().isoformat().replace(":", "-")
    for name, requests in answers.items():
        documents: dict[Any, list[dict[str, Any]]] = {}
        for request in requests:
            documents.setdefault(request["doc_id"], []).append(request)
        lines = (
            redactor.text(
                json.dumps(_unscored(asked), default=handle_non_serializable, ensure_ascii=False)
            )
            + "\n"
            for asked in documents.values()
            if not any(isinstance(a, Failure) for request in asked for a in request["resps"])
        )
        write_atomically(_sample_file(folder, name, stamp, "jsonl"), lines)
    return folder


def _unscored(asked: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns a line of a sample log for a document, from its requests with their answers."""
    arguments = {
        f"gen_args_{i}": {f"arg_{j}": value for j, value in enumerate(request["arguments"])}
        for i, request in enumerate(asked)
    }
    return {
        "doc_id": asked[0]["doc_id"],
        "doc": asked[0]["doc"],
        "arguments": arguments,
        "resps": [sanitize_list(request["resps"]) for request in asked],
    }


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Context manager that yields a binary file and moves it to `path` when the block ends.

    Readers of `path` see the complete new file or the previous state, never a part of it. If the
    block raises, the temporary file is deleted. The file is fsynced before it is renamed, because
    otherwise a power failure could leave an empty file at `path`.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        with temporary.open("rb+") as written:  # the block may have closed `file`
            os.fsync(written.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, parts: Iterable[str]) -> None:
    """Writes the concatenated `parts` as UTF-8 to `path` with `atomic_file`, or nothing at all."""
    with atomic_file(path) as file:
        # A lone surrogate has no UTF-8 encoding; it is written as a JSON escape.
        file.writelines(part.encode("utf-8", "backslashreplace") for part in parts)


def _folder(path: Path) -> Path:
    """Returns the folder that an output path refers to: its parent if it ends in .json."""
    return path.parent if path.suffix == ".json" else path
