"""Read documents from JSON files, without importing a table library for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lm_eval.data.rows import Rows
from lm_eval.errors import DataError, at

JSON_SUFFIXES = (".json", ".jsonl")


def read_json(path: Path) -> Rows:
    """One document a line, or one list of documents."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise DataError(f"there is no data file {path}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as text ({error}).") from error
    if text.lstrip().startswith("["):
        rows = _parse(text, path, 1)
        return _checked(rows, path)
    lines = enumerate(text.splitlines(), start=1)
    return _checked([_parse(line, path, number) for number, line in lines if line.strip()], path)


def _parse(text: str, path: Path, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = at(path, line + error.lineno - 1)
        raise DataError(f"{where}: not valid JSON: {error.msg}.") from error


def _checked(rows: list[Any], path: Path) -> Rows:
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DataError(f"{path}: document {number} is not an object: {row!r}.")
    return Rows(rows)
