"""The page: one HTML file of our own markup, style and script, with the data of a report in it.

A content security policy allows the script and the style of this file by their hashes, and nothing
else: no other script, no request, no image. Data is in blocks that a browser does not interpret.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files

#: The script of the page, in the order in which its parts are joined.
SCRIPTS = (
    "text.js",
    "data.js",
    "table.js",
    "plot_tools.js",
    "sweeps.js",
    "plots.js",
    "filters.js",
    "list.js",
    "detail.js",
    "provenance.js",
    "live.js",
    "catalog.js",
    "keys.js",
    "main.js",
)
_PLACE = re.compile(r"\{\{(\w+)\}\}")


@cache
def _static(name: str) -> str:
    return (files("lm_eval.report") / "static" / name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """Returns the script of the page."""
    parts = "\n".join(_static(name) for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def security_policy(connect: str = "'none'") -> str:
    """Returns the content security policy; `connect` is where the script may send requests."""
    allowed = {
        "default-src": "'none'",
        "script-src": _hash(script()),
        "style-src": _hash(_static("page.css")),
        "connect-src": connect,
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in allowed.items())


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def page(
    title: str, summary: str, blocks: Iterable[tuple[str, str]], connect: str = "'none'"
) -> Iterator[str]:
    """Yields the parts of the page.

    Args:
        title: the title of the window.
        summary: the data that is shown at once, as JSON.
        blocks: the name and the base64 text of each compressed block.
        connect: where the script may send requests, for the policy.
    """
    texts = {
        "title": html.escape(title),
        "policy": html.escape(security_policy(connect)),
        "style": _static("page.css"),
        # In JSON, `<` occurs only in strings, where the escape means the same.
        "summary": summary.replace("<", "\\u003c"),
        "script": script(),
    }
    for number, part in enumerate(_PLACE.split(_static("page.html"))):
        if number % 2 == 0:
            yield part
        elif part == "blocks":
            for name, text in blocks:
                yield f'<script type="application/gzip" id="{name}">{text}</script>\n'
        else:
            yield texts[part]
