"""Compressed blocks of text for the page, which unpacks them when they are looked at."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator
from typing import Any

from lm_eval.results.serialize import handle_non_serializable

#: Characters of a chunk after which the next one begins; a longer document is a chunk of its own.
CHUNK_CHARACTERS = 200_000


def json_text(value: Any) -> str:
    """Returns a value as JSON that JavaScript reads: without NaN and infinities, which become null.

    A lone surrogate, which has no UTF-8 encoding, is written as an escape.
    """
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, default=handle_non_serializable,
            separators=(",", ":"),
        )  # fmt: skip
    except (ValueError, TypeError):
        text = json.dumps(
            _finite(value), ensure_ascii=False, default=str, separators=(",", ":"), skipkeys=True
        )
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _finite(value: Any) -> Any:
    """Returns a copy in which numbers that are not finite are None, and keys are strings."""
    if isinstance(value, dict):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return None
    return value


def compressed(text: str) -> str:
    """Returns a text compressed with gzip, in base64; equal texts give equal blocks."""
    return base64.b64encode(gzip.compress(text.encode("utf-8"), 6, mtime=0)).decode("ascii")


def line_chunks(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yields compressed chunks of lines, each with the number of its lines."""
    pending: list[str] = []
    size = 0
    for line in lines:
        if pending and size + len(line) > CHUNK_CHARACTERS:
            yield len(pending), compressed("\n".join(pending))
            pending, size = [], 0
        pending.append(line)
        size += len(line)
    if pending:
        yield len(pending), compressed("\n".join(pending))
