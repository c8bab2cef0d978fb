"""Refuses YAML texts that would exhaust memory, the stack or the time of whoever reads them.

Nesting is limited, because the parser and most code that walks through values is recursive.
Aliases (`*name`) are limited by the number of values that they stand for: ten lists that each
contain the one before ten times are a few lines of text, but ten billion values.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from lm_eval.errors import ConfigError, at

#: How deep lists and mappings may be nested. Published files have up to 7 levels.
DEEPEST = 100
#: How many values the aliases of a file may stand for, all together.
MOST_REPEATED = 100_000

#: The columns that `- `, `? ` and `: ` at the beginning of a line take: each may open a level.
_INDENTATION = re.compile(rb"^[ \t]*(?:[-?:][ \t]+)*", re.MULTILINE)
_ENCODINGS = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_MARKS = tuple(_ENCODINGS)


def decoded_text(path: Path | str, content: bytes) -> bytes:
    """Returns the UTF-8 text of a file without its byte-order mark.

    Raises `ConfigError` if the text has another encoding: it is named if the file begins as
    UTF-16 or UTF-32.
    """
    text = content.removeprefix(b"\xef\xbb\xbf")
    if not text.startswith(_MARKS) and b"\0" not in text[:4]:
        return text
    found = next((name for mark, name in _ENCODINGS.items() if text.startswith(mark)), None)
    raise ConfigError(f"{path}: the file is {found or 'UTF-16'}; save it as UTF-8.")


def check_limits(path: Path, text: bytes, loader: Any) -> None:
    """Raises `ConfigError` if the values in `text` are nested too deeply or repeated too often.

    A text in which neither is possible is not parsed, so that usual files cost next to nothing.
    Mistakes in the syntax are not reported here. `loader` is the class of the YAML loader.
    """
    flow = text.count(b"[") + text.count(b"{")
    if flow <= DEEPEST and not (b"&" in text and b"*" in text):
        # A level of block style takes a column; a list may begin in the column of its key.
        deepest_column = max(map(len, _INDENTATION.findall(text)), default=0)
        if flow + 2 * (deepest_column + 1) <= DEEPEST:
            return
    parser = loader(text)
    try:
        _check_events(path, parser)
    except yaml.YAMLError:
        return  # reported when the values are read
    finally:
        parser.dispose()


def _check_events(path: Path, parser: Any) -> None:
    """Raises `ConfigError` if the events of a YAML parser exceed a limit; see `check_limits`."""
    # Of each open list or mapping: its anchor, and the number of values in it so far.
    open_nodes: list[tuple[str | None, int]] = []
    sizes: dict[str, int] = {}
    repeated = 0
    while parser.check_event():
        event = parser.get_event()
        if isinstance(event, yaml.AliasEvent):
            size = sizes.get(event.anchor or "")
            if size is None and any(anchor == event.anchor for anchor, _ in open_nodes):
                raise ConfigError(
                    f"{_line(path, event)}: *{event.anchor} refers to the value that contains it. "
                    "Write the value out, without an alias."
                )
            repeated += size or 0
            if repeated > MOST_REPEATED:
                raise ConfigError(
                    f"{_line(path, event)}: the aliases (*{event.anchor} …) of this file stand for "
                    f"more than {MOST_REPEATED} values. Write fewer aliases of aliases."
                )
            _grow(open_nodes, size or 0)
        elif isinstance(event, yaml.ScalarEvent):
            if event.anchor is not None:
                sizes[event.anchor] = 1
            _grow(open_nodes, 1)
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, 1))
            sizes.pop(event.anchor or "", None)
            if len(open_nodes) > DEEPEST:
                raise ConfigError(
                    f"{_line(path, event)}: lists and mappings are nested more than {DEEPEST} "
                    "levels deep. Use fewer levels."
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, size = open_nodes.pop()
            if anchor is not None:
                sizes[anchor] = size
            _grow(open_nodes, size)


def _grow(open_nodes: list[tuple[str | None, int]], size: int) -> None:
    """Adds `size` values to the innermost open list or mapping."""
    if open_nodes:
        anchor, inside = open_nodes[-1]
        open_nodes[-1] = (anchor, inside + size)


def _line(path: Path, event: Any) -> str:
    return at(path, event.start_mark.line + 1)
