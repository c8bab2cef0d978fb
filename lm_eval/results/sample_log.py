"""Sample logs: the published format and two compact ones, written and read.

`jsonl` is the published format: one line per document and filter pipeline, answers as text. `zst`
and `parquet` hold the same in one row per document, with each prompt once.
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
#: Keys of a sample that belong to its document; all others belong to a filter pipeline.
_OF_DOCUMENT = ("doc_id", "doc", "target", "doc_hash", "prompt_hash", "target_hash", "thinking")
#: Keys that a compact row stores once per document, or as the name of the pipeline.
_ANSWERS = ("arguments", "resps", "filter", "metrics")
#: Keys of a pipeline in a compact row that are no metrics.
_NO_METRICS = ("filtered_resps", "extraction_failed")


@dataclass(frozen=True)
class Recorded:
    """One document of a log: its requests' arguments, and their answers, one list per request."""

    doc_id: int
    doc: Any
    arguments: list[tuple[Any, ...]]
    resps: list[list[Any]]


# -- writing ----------------------------------------------------------------------------------


def write_log(file: BinaryIO, samples: Sequence[Mapping[str, Any]], format: str) -> None:
    """Writes a task's samples in one of the formats."""
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
            column.append(value if name in _NOT_CODED or value is None else _json(value))
    pyarrow.parquet.write_table(pyarrow.table(columns), file, compression="zstd")


_PARQUET_OWN = ("prompts", "arguments", "resps", "pipelines")
#: Columns of a Parquet file that hold values; the others hold JSON texts.
_NOT_CODED = ("doc_id", "prompts", "target_hash", "prompt_hash", "doc_hash")


def compact(samples: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns one row per document: each prompt once, and by pipeline the filtered answers and
    metric values.
    """
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
    # A lone surrogate has no UTF-8 encoding; it is written as a JSON escape.
    return line.encode("utf-8", "backslashreplace") + b"\n"


# -- finding ----------------------------------------------------------------------------------


def find_logs(path: Path) -> dict[str, Path]:
    """Returns logs by task: the file at `path`, or each task's newest in a folder or one below."""
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
    """Returns by task the results file written with its log; empty where there is none."""
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
    """Returns the task's name, from the results where the file name is an altered form of it."""
    if "__" in written or len(written.encode(errors="replace")) >= LONGEST - 3:
        for name in results_beside({written: log})[written].get("configs", {}):
            if file_name(name) == written:
                return str(name)
    return written


# -- reading ----------------------------------------------------------------------------------


def read_log(path: Path) -> list[Recorded]:
    """Returns the documents of a log in any of the formats, each once, in the file's order."""
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
            yield {
                name: value if name in _NOT_CODED or value is None else json.loads(value)
                for name, value in row.items()
            }
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
    arguments = _arguments(row)
    return Recorded(int(row["doc_id"]), row["doc"], arguments, row["resps"])


def _arguments(row: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Returns the arguments of a row's requests."""
    if "prompts" in row:
        prompts = row["prompts"]
        return [(prompts[given[0]], *given[1:]) for given in row["arguments"]]
    named = row["arguments"]
    numbered = (named[f"gen_args_{i}"] for i in range(len(named)))
    return [tuple(given[f"arg_{j}"] for j in range(len(given))) for given in numbered]


def read_samples_file(path: Path) -> list[dict[str, Any]]:
    """Returns the samples of a log in any of the formats, as plain JSON data.

    `zst` and `parquet` give back what was written; in a `jsonl` log, targets and answers are text.
    """
    try:
        rows = list(_rows(path))
        pipelines = dict.fromkeys(name for row in rows for name in row.get("pipelines", ()))
        if not pipelines:
            return [
                {**row, "arguments": [list(given) for given in _arguments(row)]} for row in rows
            ]
        return [
            _expanded(row, pipeline)
            for pipeline in pipelines
            for row in rows
            if pipeline in row["pipelines"]
        ]
    except DataError:
        raise
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise DataError(
            f"{path}: cannot be read as a sample log ({type(error).__name__}: {error})."
        ) from error


def _expanded(row: Mapping[str, Any], pipeline: str) -> dict[str, Any]:
    """Returns the sample of one pipeline from a compact row: the inverse of `compact`."""
    own = row["pipelines"][pipeline]
    # A Parquet file has the column `thinking` even if no sample has that key.
    absent = {"thinking"} if row.get("thinking") is None else set()
    return {
        **{name: row[name] for name in _OF_DOCUMENT if name in row and name not in absent},
        "arguments": [list(given) for given in _arguments(row)],
        "resps": row["resps"],
        "filter": pipeline,
        "metrics": [name for name in own if name not in _NO_METRICS],
        **own,
    }


def read_answer(kind: str, given: Any) -> Any:
    """Returns an answer of a log with the types that models return; `jsonl` logs hold text."""
    if kind == "generate_until":
        return str(given)
    if kind == "loglikelihood_rolling":
        return float(given)
    value, greedy = given
    return (float(value), greedy if isinstance(greedy, bool) else str(greedy) == "True")
