"""Reads from a YAML file only the few top-level keys that the task index needs.

Finding these lines by regular expression is about fifty times faster than parsing the whole file.
A file that the expressions cannot read with certainty is given to the YAML parser, so the result is
always the same.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from lm_eval.config.regular_file import read_regular
from lm_eval.config.yaml_file import parse_yaml
from lm_eval.config.yaml_limits import decoded_text
from lm_eval.errors import ConfigError


class Scan(NamedTuple):
    """The top-level keys of one file that the index needs.

    A value is None if the file does not have the key. `task` is also None if it is a list (the
    members of a group); `has_task` is then true. Of the key `class`, only its presence is kept.
    """

    task: str | None = None
    group: str | None = None
    has_class: bool = False
    has_task: bool = False
    has_group: bool = False
    tags: tuple[str, ...] | None = None
    output_type: str | None = None
    includes: tuple[str, ...] = ()


_KEY = re.compile(
    rb"^([\"']?)(task|group|class|tag|include|output_type)\1[ \t]*:(?=[ \t\r\n]|$)(.*)$",
    re.MULTILINE,
)
#: A word or path that YAML reads as a string without quotes.
_WORD = rb"(?:\.{0,2}/)*[A-Za-z_][\w.\-/:+@]*"
_PLAIN = re.compile(rb"[ \t]*(" + _WORD + rb")[ \t]*(?:[ \t]#.*)?\r?$")
_QUOTED = re.compile(rb"[ \t]*(?:\"(" + _WORD + rb")\"|'(" + _WORD + rb")')[ \t]*(?:[ \t]#.*)?\r?$")
_EMPTY = re.compile(rb"[ \t]*(?:#.*)?\r?$")
_ITEMS = re.compile(rb"\n((?:[ \t]*-[ \t]+" + _WORD + rb"[ \t]*\r?(?:\n|$))+)")
_ITEM = re.compile(rb"-[ \t]+(" + _WORD + rb")")
#: Words that YAML does not read as strings.
_NOT_TEXT = {b"true", b"false", b"yes", b"no", b"on", b"off", b"null", b"y", b"n"}
#: Beginnings of top-level lines that the expressions above do not handle.
_UNUSUAL = re.compile(
    rb"^(?:\"(?!\w+\"[ \t]*:)|'(?!\w+'[ \t]*:)|[?{\[&*!%<]|---[ \t]*[^\s#])", re.MULTILINE
)


def scan_file(path: str) -> Scan | None:
    """Returns the indexed keys of a file; None if it is no regular file or cannot be read as YAML.

    Usually only the lines of these keys are read, so errors elsewhere in the file are not noticed.
    """
    try:
        text = decoded_text(path, read_regular(path))
    except ConfigError:
        return None
    found: dict[str, Any] = {}
    if _UNUSUAL.search(text):
        return _parse(path)
    for match in _KEY.finditer(text):
        key = match[2].decode()
        value = _value(key, match, text)
        if value is None:
            return _parse(path)
        found[key] = value[0]
    return _scan(found) if found else _parse_if_indented(text, path)


def _value(key: str, match: re.Match[bytes], text: bytes) -> tuple[Any] | None:
    """Returns the value of the key that `match` found in `text`, in a tuple of one.

    It is True for `class`, [] for a list under `task`, and otherwise a string or a list of strings.
    None if the expressions cannot read the value, so that the file has to be parsed.
    """
    rest = match[3]
    if key == "class":
        return (True,)
    plain = _PLAIN.match(rest)
    if plain:
        return None if plain[1].lower() in _NOT_TEXT else (plain[1].decode(),)
    quoted = _QUOTED.match(rest)
    if quoted:
        return ((quoted[1] or quoted[2]).decode(),)
    if _EMPTY.match(rest):
        if key == "task":
            return ([],)  # the members of a group, which the index does not need
        items = _ITEMS.match(text, match.end())
        if items and not text[items.end() :].startswith((b" ", b"-", b"\t")):
            words = _ITEM.findall(items[1])
            if not any(word.lower() in _NOT_TEXT for word in words):
                return ([word.decode() for word in words],)
    return None


def _scan(values: dict[str, Any]) -> Scan:
    """Returns the indexed keys among `values`, the top-level keys of a file."""
    task, group, tags = values.get("task"), values.get("group"), values.get("tag")
    includes, output_type = values.get("include"), values.get("output_type")
    if includes is None or isinstance(includes, dict):
        includes = []
    elif not isinstance(includes, list):
        includes = [includes]
    return Scan(
        task=task if isinstance(task, str) else None,
        group=group if isinstance(group, str) else None,
        has_class="class" in values,
        has_task="task" in values,
        has_group="group" in values,
        tags=None if "tag" not in values else _names(tags),
        output_type=output_type if isinstance(output_type, str) else None,
        includes=tuple(str(name) for name in includes),
    )


def _names(tags: Any) -> tuple[str, ...]:
    """Returns the value of the key `tag`, a name or a list of names, as a tuple; () if empty."""
    if not tags:
        return ()
    return tuple(map(str, tags)) if isinstance(tags, list) else (str(tags),)


def _parse(path: str) -> Scan | None:
    """Returns the indexed keys of a file, read by the YAML parser; None if it is not valid YAML."""
    try:
        values, _ = parse_yaml(Path(path))
    except ConfigError:
        return None
    return _scan(values)


def _parse_if_indented(text: bytes, path: str) -> Scan | None:
    """Returns the indexed keys of a file that has none at the start of a line.

    All of its top-level keys may be indented; the file is then parsed, and None is returned if it
    is not valid YAML. Otherwise the file has no indexed keys, and the result is an empty `Scan`.
    """
    if re.search(rb"^[ \t]+(?:task|group|class|include)[ \t]*:", text, re.MULTILINE) and not (
        re.search(rb"^[\w\"']", text, re.MULTILINE)
    ):
        return _parse(path)
    return Scan()
