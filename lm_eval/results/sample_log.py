"""Writes and reads sample logs, in the published format and two compact ones.

`jsonl` is the published format: one line per document and filter pipeline, with answers as strings.
`zst` and `parquet` contain the same data with one row per document and each prompt stored once.
Versions of the published harness before 0.4.3 wrote one JSON list per file, which is read too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from lm_eval.errors import DataError
from lm_eval.redaction import SHORTEST_IN_DATA, Redactor, known_redactor
from lm_eval.results.checksums import (
    CHECKSUM,
    checked_line,
    checksum,
    is_changed,
    is_changed_line,
)
from lm_eval.results.samples import sample_line
from lm_eval.results.serialize import handle_non_serializable

logger = logging.getLogger(__name__)

#: File extension of each format.
EXTENSIONS = {"jsonl": ".jsonl", "zst": ".jsonl.zst", "parquet": ".parquet"}
#: Keys of a sample that describe its document. The others belong to a filter pipeline.
_DOCUMENT_KEYS = ("doc_id", "doc", "target", "doc_hash", "prompt_hash", "target_hash", "thinking")
#: The same, for what a model reported about its answers.
_DETAIL_KEYS = ("answer_tokens", "thinking_tokens", "finish_reasons")
#: The same, for keys that only samples of runs with `--decontaminate` have.
_CONTAMINATION_KEYS = ("contaminated", "contamination_overlap")
#: Keys of a sample that a compact row does not repeat in each pipeline.
_SHARED_KEYS = ("arguments", "resps", "filter", "metrics")
#: Keys of a pipeline in a compact row that are not metrics.
_NON_METRIC_KEYS = (
    *("filtered_resps", "filtered_repeats", "repeat_scores"),
    *("extraction_failed", "program_results"),
)


@dataclass(frozen=True)
class RecordedDocument:
    """One document of a sample log, with its requests and answers."""

    doc_id: int
    doc: Any
    arguments: list[tuple[Any, ...]]
    """The arguments of each request, such as prompt and continuation."""
    resps: list[list[Any]]
    """The answers to each request, one per repeat."""


# -- writing ----------------------------------------------------------------------------------


def write_log(file: BinaryIO, samples: Sequence[Mapping[str, Any]], format: str) -> None:
    """Writes the samples of a task to the open `file`.

    `format` is a key of `EXTENSIONS`: `jsonl` (one line per sample), or `zst` or `parquet` (one
    compact row per document, see `compact`).
    """
    hidden = known_redactor(SHORTEST_IN_DATA)  # short secrets may be part of a text by chance
    if format == "jsonl":
        file.writelines(_encoded(sample_line(sample), hidden) for sample in samples)
        return
    import pyarrow

    rows = compact(samples)
    if format == "zst":
        with pyarrow.CompressedOutputStream(file, "zstd") as stream:
            for row in rows:
                stream.write(_encoded(_json(row), hidden))
        return
    import pyarrow.parquet

    own = (*_DETAIL_KEYS, *_CONTAMINATION_KEYS)
    flags = [name for name in own if any(name in row for row in rows)]
    columns: dict[str, list[Any]] = {name: [] for name in (*_DOCUMENT_KEYS, *flags, *_COMPACT_KEYS)}
    for row in rows:
        for name, column in columns.items():
            value = row.get(name)
            if name == "prompts":
                value = [hidden.text(one) if isinstance(one, str) else one for one in value or ()]
            elif name not in _NATIVE_COLUMNS and value is not None:
                value = hidden.text(_json(value))
            column.append(value)
    columns[CHECKSUM] = [
        checksum(dict(zip(columns, row, strict=True)))
        for row in zip(*columns.values(), strict=True)
    ]
    pyarrow.parquet.write_table(pyarrow.table(columns), file, compression="zstd")


#: Keys of a compact row besides `_DOCUMENT_KEYS`.
_COMPACT_KEYS = ("prompts", "arguments", "resps", "pipelines")
#: Columns that a Parquet file stores with their own type. The others are stored as JSON strings.
_NATIVE_COLUMNS = ("doc_id", "prompts", "target_hash", "prompt_hash", "doc_hash")


def compact(samples: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the samples as compact rows, one per document. `_expanded` is the inverse.

    In a row, `prompts` contains each different prompt once, and `arguments` refers to prompts by
    their index. `pipelines` maps each filter pipeline to its filtered answers and metric values.
    """
    rows: dict[int, dict[str, Any]] = {}
    for sample in samples:
        row = rows.get(sample["doc_id"])
        if row is None:
            own = (*_DOCUMENT_KEYS, *_DETAIL_KEYS, *_CONTAMINATION_KEYS)
            row = {name: sample[name] for name in own if name in sample}
            prompts: dict[Any, int] = {}
            indices = [prompts.setdefault(given[0], len(prompts)) for given in sample["arguments"]]
            row["prompts"] = list(prompts)
            row["arguments"] = [
                [index, *given[1:]]
                for index, given in zip(indices, sample["arguments"], strict=True)
            ]
            row["resps"] = sample["resps"]
            row["pipelines"] = {}
            rows[sample["doc_id"]] = row
        row["pipelines"][sample["filter"]] = {
            name: value
            for name, value in sample.items()
            if name not in (*_DOCUMENT_KEYS, *_DETAIL_KEYS, *_CONTAMINATION_KEYS, *_SHARED_KEYS)
        }
    return list(rows.values())


def _json(value: Any) -> str:
    return json.dumps(value, default=handle_non_serializable, ensure_ascii=False)


def _encoded(line: str, hidden: Redactor) -> bytes:
    """Returns a line of a log as bytes, without secrets and with a checksum."""
    # A lone surrogate has no UTF-8 encoding; it is written as a JSON escape.
    return checked_line(hidden.content(line.encode("utf-8", "backslashreplace"))) + b"\n"


# -- reading ----------------------------------------------------------------------------------


def read_log(path: Path) -> list[RecordedDocument]:
    """Returns the documents of a sample log in file order. All formats can be read.

    Of several rows with the same document number, the first counts. Raises `DataError` if the file
    cannot be read, contains no samples, or contains a row that is not a sample. Logs a warning if
    rows were changed after they were written (their `checksum` is wrong).
    """
    documents: dict[Any, RecordedDocument] = {}
    try:
        for number, row in enumerate(_rows(path), start=1):
            try:
                recorded = _recorded(row)
            except (LookupError, TypeError, AttributeError, OverflowError) as error:
                raise DataError(
                    f"{path}:{number}: is not a sample: {type(error).__name__}: {error}. Each row "
                    "must have `doc_id`, `doc`, `arguments` and `resps`, as lm_eval writes them."
                ) from error
            documents.setdefault(recorded.doc_id, recorded)
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: cannot be read as a sample log ({error}).") from error
    if not documents:
        raise DataError(f"{path}: contains no samples. Pass the log of a run with --log_samples.")
    return list(documents.values())


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of a sample log as they are stored, each a dictionary.

    The file name sets the format: `.parquet`, `.jsonl.zst`, or for any other JSON: a list of rows,
    or one row per line. Blank lines are skipped. Raises `DataError` for a line that is not valid
    JSON.
    """
    changed: list[int] = []
    yield from (
        _parquet_rows(path, changed)
        if path.name.endswith(EXTENSIONS["parquet"])
        else _json_rows(path, changed)
    )
    if changed:
        logger.warning(
            "%s: %d rows were changed after they were written (the first is row %d): their "
            "checksums are wrong. They are used as they are.",
            path,
            len(changed),
            changed[0],
        )


def _parquet_rows(path: Path, changed: list[int]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a Parquet log; appends the numbers of changed ones to `changed`."""
    import pyarrow.parquet

    for number, row in enumerate(pyarrow.parquet.read_table(path).to_pylist(), start=1):
        if is_changed(row):
            changed.append(number)
        row.pop(CHECKSUM, None)
        yield {
            name: value if name in _NATIVE_COLUMNS or value is None else json.loads(value)
            for name, value in row.items()
        }


def _json_rows(path: Path, changed: list[int]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a JSON log; appends the numbers of changed lines to `changed`."""
    if path.name.endswith(EXTENSIONS["zst"]):
        import pyarrow

        with pyarrow.input_stream(str(path), compression="zstd") as stream:
            lines = stream.read().split(b"\n")
    else:
        content = path.read_bytes()
        if content.lstrip()[:1] == b"[":
            yield from json.loads(content)
            return
        lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path}:{number}: is not valid JSON ({error}).") from error
            if is_changed_line(line):
                changed.append(number)
            if isinstance(row, dict):
                row.pop(CHECKSUM, None)
            yield row


def _recorded(row: Mapping[str, Any]) -> RecordedDocument:
    arguments = _arguments(row)
    return RecordedDocument(int(row["doc_id"]), row["doc"], arguments, row["resps"])


def _arguments(row: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Returns the arguments of each request in a row.

    The compact format refers to prompts by index; the published one names the arguments, and before
    0.4.3 it listed them.
    """
    if "prompts" in row:
        prompts = row["prompts"]
        return [(prompts[given[0]], *given[1:]) for given in row["arguments"]]
    named = row["arguments"]
    if isinstance(named, list):
        return [tuple(given) for given in named]
    numbered = (named[f"gen_args_{i}"] for i in range(len(named)))
    return [tuple(given[f"arg_{j}"] for j in range(len(given))) for given in numbered]


def read_samples_file(path: Path) -> list[dict[str, Any]]:
    """Returns the samples of a sample log as plain JSON data. All formats can be read.

    There is one sample per document and filter pipeline; the list is empty for an empty log. Logs
    in the formats `zst` and `parquet` return the samples as written. In a `jsonl` log, targets and
    answers are strings. Raises `DataError` if the file cannot be read.
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
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise DataError(
            f"{path}: cannot be read as a sample log ({type(error).__name__}: {error})."
        ) from error


def _expanded(row: Mapping[str, Any], pipeline: str) -> dict[str, Any]:
    """Returns the sample of one filter pipeline from a compact row: the inverse of `compact`."""
    own = row["pipelines"][pipeline]
    # A Parquet file has the column `thinking` even if no sample has that key.
    absent = {"thinking"} if row.get("thinking") is None else set()
    return {
        **{name: row[name] for name in _DOCUMENT_KEYS if name in row and name not in absent},
        "arguments": [list(given) for given in _arguments(row)],
        "resps": row["resps"],
        "filter": pipeline,
        "metrics": [name for name in own if name not in _NON_METRIC_KEYS],
        **own,
        **{name: row[name] for name in _CONTAMINATION_KEYS if name in row},
        **{name: row[name] for name in _DETAIL_KEYS if row.get(name) is not None},
    }


def read_answer(kind: str, given: Any) -> Any:
    """Returns a logged answer converted to the type that a model returns for this request type.

    `kind` is the request type and `given` the logged answer, which is a string, or for
    `loglikelihood` a pair of strings, in `jsonl` logs. Returns a string for `generate_until`, a
    float for `loglikelihood_rolling`, and a pair `(log-likelihood, is greedy)` for `loglikelihood`.
    Raises `ValueError` or `TypeError` if the answer has another form.
    """
    if kind == "generate_until":
        return str(given)
    if kind == "loglikelihood_rolling":
        return float(given)
    value, greedy = given
    return (float(value), greedy if isinstance(greedy, bool) else str(greedy) == "True")
