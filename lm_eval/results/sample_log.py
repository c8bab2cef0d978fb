"""Sample logs as files: as published, or compact; and what is needed of them to score again.

`jsonl` is the published form: a line a document and filter pipeline, answers as text. `zst` and
`parquet` hold the same in a row a document, however many pipelines, with each prompt once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from lm_eval.errors import DataError, OutputError
from lm_eval.results.names import LONGEST, file_name
from lm_eval.results.samples import sample_line
from lm_eval.results.serialise import handle_non_serializable

#: How a log's file name ends, by its format.
ENDINGS = {"jsonl": ".jsonl", "zst": ".jsonl.zst", "parquet": ".parquet"}
_NAME = re.compile(r"samples_(?P<task>.+)_(?P<stamp>\d{4}-\d\d-\d\dT[\d.-]+?)(?P<end>\.[a-z].*)")
#: What belongs to a document; everything else in a sample belongs to a pipeline.
_OF_DOCUMENT = ("doc_id", "doc", "target", "doc_hash", "prompt_hash", "target_hash", "thinking")
#: What a log says of a document under each pipeline, beside the values of its metrics.
_ANSWERS = ("arguments", "resps", "filter", "metrics")


@dataclass(frozen=True)
class Recorded:
    """One document of a log: what was asked of it, and what was answered, a list a repeat."""

    doc_id: int
    doc: Any
    arguments: list[tuple[Any, ...]]
    resps: list[list[Any]]


# -- writing ----------------------------------------------------------------------------------


def write_log(file: BinaryIO, samples: Sequence[Mapping[str, Any]], format: str) -> None:
    """A task's samples, in one of the formats."""
    if format == "jsonl":
        file.writelines(_encoded(sample_line(sample)) for sample in samples)
        return
    import pyarrow

    rows = compact(samples)
    if format == "zst":
        with pyarrow.CompressedOutputStream(file, "zstd") as stream:
            for row in rows:
                stream.write(_encoded(_json(row)))
        return
    import pyarrow.parquet

    columns: dict[str, list[Any]] = {name: [] for name in (*_OF_DOCUMENT, *_PARQUET_OWN)}
    for row in rows:
        for name, column in columns.items():
            value = row.get(name)
            plain = name in ("doc_id", "prompts", "target_hash", "prompt_hash", "doc_hash")
            column.append(value if plain or value is None else _json(value))
    pyarrow.parquet.write_table(pyarrow.table(columns), file, compression="zstd")


_PARQUET_OWN = ("prompts", "arguments", "resps", "pipelines")


def compact(samples: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row a document: prompts once each, and by pipeline what it made of the answers."""
    rows: dict[int, dict[str, Any]] = {}
    for sample in samples:
        row = rows.get(sample["doc_id"])
        if row is None:
            row = {name: sample[name] for name in _OF_DOCUMENT if name in sample}
            prompts: dict[Any, int] = {}
            places = [prompts.setdefault(given[0], len(prompts)) for given in sample["arguments"]]
            row["prompts"] = list(prompts)
            row["arguments"] = [
                [place, *given[1:]]
                for place, given in zip(places, sample["arguments"], strict=True)
            ]
            row["resps"] = sample["resps"]
            row["pipelines"] = {}
            rows[sample["doc_id"]] = row
        row["pipelines"][sample["filter"]] = {
            name: value
            for name, value in sample.items()
            if name not in _OF_DOCUMENT and name not in _ANSWERS
        }
    return list(rows.values())


def _json(value: Any) -> str:
    return json.dumps(value, default=handle_non_serializable, ensure_ascii=False)


def _encoded(line: str) -> bytes:
    # Half of a character pair cannot be written as UTF-8; JSON can spell it.
    return line.encode("utf-8", "backslashreplace") + b"\n"


# -- finding ----------------------------------------------------------------------------------


def find_logs(path: Path) -> dict[str, Path]:
    """The logs at a path, by task: one file, or the last of each task in a folder or one below."""
    if path.is_file():
        found = _NAME.fullmatch(path.name)
        if found is None:
            raise OutputError(
                f"{path}: is no sample log: those are called samples_<task>_<time>.jsonl."
            )
        return {_task_name(path, found["task"]): path}
    folders = [path, *sorted(p for p in path.iterdir() if p.is_dir())] if path.is_dir() else []
    holding = [f for f in folders if any(_NAME.fullmatch(p.name) for p in f.glob("samples_*"))]
    if len(holding) > 1:
        raise OutputError(
            f"{path}: holds the sample logs of several models; name one of "
            f"{', '.join(str(folder) for folder in holding)}."
        )
    logs: dict[str, tuple[str, Path]] = {}
    for file in holding[0].glob("samples_*") if holding else ():
        found = _NAME.fullmatch(file.name)
        if found is not None and found["end"] in ENDINGS.values():
            name = _task_name(file, found["task"])
            logs[name] = max(logs.get(name, ("", file)), (found["stamp"], file))
    return {name: file for name, (_, file) in sorted(logs.items())}


def results_beside(logs: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """By task, the results that were written with its log; nothing where there are none."""
    read: dict[tuple[Path, str], dict[str, Any]] = {}
    found: dict[str, dict[str, Any]] = {}
    for name, log in logs.items():
        named = _NAME.fullmatch(log.name)
        key = log.parent, named["stamp"] if named else ""
        if key not in read:  # one file for many logs
            read[key] = _results(*key)
        found[name] = read[key]
    return found


def _results(folder: Path, stamp: str) -> dict[str, Any]:
    for file in folder.glob(f"*_{stamp}.json") if stamp else ():
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(content, dict):
            return content
    return {}


def _task_name(log: Path, written: str) -> str:
    """The task's true name, where the file's could not spell it."""
    if "__" in written or len(written.encode(errors="replace")) >= LONGEST - 3:
        for name in results_beside({written: log})[written].get("configs", {}):
            if file_name(name) == written:
                return str(name)
    return written


# -- reading ----------------------------------------------------------------------------------


def read_log(path: Path) -> list[Recorded]:
    """The documents of a log in any of the formats, each once, in the order of the file."""
    documents: dict[Any, Recorded] = {}
    try:
        for number, row in enumerate(_rows(path), start=1):
            try:
                recorded = _recorded(row)
            except (KeyError, TypeError, IndexError, AttributeError) as error:
                raise DataError(
                    f"{path}:{number}: is no sample: {type(error).__name__}: {error}."
                ) from error
            documents.setdefault(recorded.doc_id, recorded)
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: cannot be read as a sample log ({error}).") from error
    if not documents:
        raise DataError(f"{path}: holds no samples.")
    return list(documents.values())


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.name.endswith(ENDINGS["parquet"]):
        import pyarrow.parquet

        for row in pyarrow.parquet.read_table(path).to_pylist():
            coded = ("doc", "arguments", "resps")
            yield {**row, **{name: json.loads(row[name]) for name in coded}}
        return
    if path.name.endswith(ENDINGS["zst"]):
        import pyarrow

        with pyarrow.input_stream(str(path), compression="zstd") as stream:
            lines = stream.read().split(b"\n")
    else:
        lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise DataError(f"{path}:{number}: is no line of JSON ({error}).") from error


def _recorded(row: Mapping[str, Any]) -> Recorded:
    if "prompts" in row:
        prompts = row["prompts"]
        arguments = [(prompts[given[0]], *given[1:]) for given in row["arguments"]]
    else:
        named = row["arguments"]
        numbered = (named[f"gen_args_{i}"] for i in range(len(named)))
        arguments = [tuple(given[f"arg_{j}"] for j in range(len(given))) for given in numbered]
    return Recorded(int(row["doc_id"]), row["doc"], arguments, row["resps"])


def read_answer(kind: str, given: Any) -> Any:
    """An answer of a log, which may be text throughout, as the model gave it."""
    if kind == "generate_until":
        return str(given)
    if kind == "loglikelihood_rolling":
        return float(given)
    value, greedy = given
    return (float(value), greedy if isinstance(greedy, bool) else str(greedy) == "True")
