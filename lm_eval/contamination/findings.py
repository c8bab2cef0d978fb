"""The findings file: which documents of which tasks were found in a corpus.

A findings file is JSON lines in UTF-8. The first line is the header: what was searched for, and in
which corpus. Every other line is one test document of which at least one n-gram was found.
Documents that are not listed are clean.

    findings = read_findings("findings.jsonl")
    findings.covers("arc_easy")                            # was this task searched for?
    findings.contaminated("arc_easy")                      # {17, 204, …}: numbers of documents
    findings.contaminated("arc_easy", threshold=0.5)       # at least half of the n-grams found
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from lm_eval.contamination.finding_types import (
    BrokenPlace,
    Corpus,
    CorpusFile,
    DocumentFinding,
    Findings,
    Header,
    Match,
    Overlap,
    SearchedTask,
)
from lm_eval.contamination.merge import merge
from lm_eval.errors import DataError, OutputError, at

KIND = "lm-eval contamination findings"
#: The number of the file format. It increases when older versions could misread the file.
FORMAT = 1

__all__ = [
    "BrokenPlace",
    "Corpus",
    "CorpusFile",
    "DocumentFinding",
    "Findings",
    "Header",
    "Match",
    "Overlap",
    "SearchedTask",
    "document_json",
    "header_json",
    "merge_findings",
    "read_findings",
    "write_findings",
]


# -- reading ----------------------------------------------------------------------------------


def read_findings(path: str | Path) -> Findings:
    """Returns the findings in a file.

    Raises `DataError` with the file and line if it is not a findings file, was written by a newer
    version, or is damaged.
    """
    try:
        mode = Path(path).stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise DataError(
                f"the findings {path} cannot be read: a pipe, a socket or a device. Name a file."
            )
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise DataError(
            f"the findings {path} cannot be read: {error.strerror or error}. Pass a file that "
            "`lm-eval contamination scan` has written."
        ) from error
    header = _header(path, lines[0] if lines else b"")
    documents: dict[str, dict[int, DocumentFinding]] = {task: {} for task in header.tasks}
    for number, line in enumerate(lines[1:], start=2):
        where = at(path, number)
        document = _document(where, line)
        searched = header.tasks.get(document.task)
        if searched is None:
            raise DataError(
                f"{where}: the header of the file has no task {document.task!r}. The file was "
                "changed; scan the corpus again."
            )
        if not 0 <= document.doc_id < searched.documents:
            raise DataError(
                f"{where}: task {document.task!r} has {searched.documents} documents, so there is "
                f"no document {document.doc_id}. The file was changed; scan the corpus again."
            )
        if document.doc_id in documents[document.task]:
            raise DataError(
                f"{where}: document {document.doc_id} of {document.task!r} is in the file twice. "
                "Remove one of the lines, or scan the corpus again."
            )
        documents[document.task][document.doc_id] = document
    return Findings(header, documents)


def _header(path: str | Path, line: bytes) -> Header:
    where = at(path, 1)
    values = _object(where, line)
    if values.get("kind") != KIND:
        raise DataError(
            f"{where}: this is not a findings file: its first line has no "
            f'"kind": "{KIND}". Pass a file that `lm-eval contamination scan` has written.'
        )
    written = values.get("format")
    if not isinstance(written, int) or written > FORMAT:
        raise DataError(
            f"{where}: the file has format {written!r}, and this version of lm_eval reads formats "
            f"up to {FORMAT}. Install a newer version of lm_eval, or scan the corpus again."
        )
    try:
        corpus, tasks = values["corpus"], values["tasks"]
        return Header(
            ngram=int(values["ngram"]),
            normalization=str(values["normalization"]),
            threshold=float(values["threshold"]),
            min_words=int(values["min_words"]),
            corpus=Corpus(
                str(corpus["fingerprint"]),
                tuple(CorpusFile(**_known(CorpusFile, file)) for file in corpus["files"]),
                tuple(BrokenPlace(**_known(BrokenPlace, place)) for place in corpus["broken"]),
            ),
            tasks={
                str(name): SearchedTask(**_known(SearchedTask, searched))
                for name, searched in tasks.items()
            },
            lm_eval_version=str(values["lm_eval_version"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _damaged(where, error) from error


def _document(where: str, line: bytes) -> DocumentFinding:
    values = _object(where, line)
    try:
        return DocumentFinding(
            task=str(values["task"]),
            doc_id=int(values["doc_id"]),
            doc_hash=str(values["doc_hash"]),
            contaminated=bool(values["contaminated"]),
            question=_overlap(values["question"]),
            with_answer=_overlap(values["with_answer"]),
            short=bool(values["short"]),
            runs=tuple((int(first), int(count)) for first, count in values["runs"]),
            matches=tuple(Match(**_known(Match, match)) for match in values["matches"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _damaged(where, error) from error


def _overlap(values: Mapping[str, Any]) -> Overlap:
    return Overlap(int(values["ngrams"]), int(values["found"]), int(values["longest"]))


def _object(where: str, line: bytes) -> dict[str, Any]:
    """Returns the JSON object in a line; raises `DataError` if it is something else."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:  # includes UnicodeDecodeError
        raise _damaged(where, error) from error
    if not isinstance(values, dict):
        raise _damaged(where, TypeError("not a JSON object"))
    return values


def _damaged(where: str, error: Exception) -> DataError:
    reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return DataError(
        f"{where}: this line of the findings cannot be read ({reason}). The file is damaged, or "
        "not a findings file; scan the corpus again."
    )


def _known(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values that are fields of the dataclass `kind`; later versions may add others.

    Raises `TypeError` if the value of a field for text or a number is something else.
    """
    expected = {each.name: str(each.type) for each in fields(kind)}
    for name, value in values.items():
        wanted = {"str": str, "int": int}.get(expected.get(name, ""))
        if wanted is not None and not isinstance(value, wanted):
            raise TypeError(f"{name} is {value!r}")
    return {name: value for name, value in values.items() if name in expected}


# -- writing ----------------------------------------------------------------------------------


def write_findings(path: str | Path, findings: Findings) -> None:
    """Writes the findings to `path`: the whole file or, if that fails, nothing.

    The same findings give the same bytes: documents are sorted by task and number. Raises
    `OutputError` if the file cannot be written.
    """
    target = Path(path)
    lines = [header_json(findings.header)]
    for task in sorted(findings.documents):
        lines += [document_json(doc) for _, doc in sorted(findings.documents[task].items())]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            # A lone surrogate has no UTF-8 encoding; it is written as a JSON escape.
            file.write(text.encode("utf-8", "backslashreplace"))
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(target)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise OutputError(
            f"the findings cannot be written to {path}: {error.strerror or error}."
        ) from error


def header_json(header: Header) -> dict[str, Any]:
    """Returns the first line of the file as an object."""
    return {
        "kind": KIND,
        "format": FORMAT,
        "lm_eval_version": header.lm_eval_version,
        "ngram": header.ngram,
        "normalization": header.normalization,
        "threshold": header.threshold,
        "min_words": header.min_words,
        "corpus": asdict(header.corpus),
        "tasks": {name: asdict(header.tasks[name]) for name in sorted(header.tasks)},
    }


def document_json(document: DocumentFinding) -> dict[str, Any]:
    """Returns the line of a document as an object."""
    return {
        "task": document.task,
        "doc_id": document.doc_id,
        "doc_hash": document.doc_hash,
        "contaminated": document.contaminated,
        "question": document.question.to_json(),
        "with_answer": document.with_answer.to_json(),
        "short": document.short,
        "runs": [list(run) for run in document.runs],
        "matches": [asdict(match) for match in document.matches],
    }


# -- merging ----------------------------------------------------------------------------------


def merge_findings(findings: Iterable[Findings]) -> Findings:
    """Returns the findings of the same tasks in all corpora together.

    Counts are those of one scan over all files: an n-gram that several scans found counts once. See
    `lm_eval.contamination.merge`. Raises `DataError` if they cannot be combined.
    """
    return merge(list(findings))
