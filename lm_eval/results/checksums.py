"""Checksums in the files of a run, which show that a file was changed after it was written.

They find damage and edits by accident. They are no signature: anybody can compute a new one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import xxhash

from lm_eval.results.serialize import handle_non_serializable

#: The name of the field that holds the checksum of the other fields.
CHECKSUM = "checksum"

#: How a line of a sample log ends that has a checksum: it is the last field.
_LINE_END = re.compile(rb', "checksum": "([0-9a-f]{16})"\}$')


def checksum(content: Any) -> str:
    """Returns 16 hexadecimal digits for JSON data; the order of keys does not matter.

    The data is the same before it is written and after it is read.
    """
    text = json.dumps(content, sort_keys=True, default=handle_non_serializable)
    return xxhash.xxh3_64_hexdigest(text.encode())


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns JSON data with a field `checksum` over all others."""
    rest = {name: value for name, value in content.items() if name != CHECKSUM}
    return {**rest, CHECKSUM: checksum(rest)}


def is_changed(content: Mapping[str, Any]) -> bool:
    """Returns whether JSON data is not what `with_checksum` returned; False without a checksum."""
    if CHECKSUM not in content:
        return False
    rest = {name: value for name, value in content.items() if name != CHECKSUM}
    return bool(checksum(rest) != content[CHECKSUM])


def checked_line(line: bytes) -> bytes:
    """Returns a JSON object on one line with a last field `checksum` over its bytes."""
    digest = xxhash.xxh3_64_hexdigest(line)
    return line[:-1] + f', "{CHECKSUM}": "{digest}"}}'.encode()


def is_changed_line(line: bytes) -> bool:
    """Returns whether a line is not what `checked_line` returned; False without a checksum."""
    found = _LINE_END.search(line.rstrip())
    if found is None:
        return f'"{CHECKSUM}"'.encode() in line[-60:]
    content = line.rstrip()[: found.start()] + b"}"
    return xxhash.xxh3_64_hexdigest(content).encode() != found[1]
